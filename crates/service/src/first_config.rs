//! The first configuration of a host, from what was found on it: text for an operator to read and correct.
//!
//! Must not search (`waykeeper_tenants::discovery`) nor write files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use toml::Value;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_tenants::discovery::{Discovery, FoundTenant, SeenDevice};
use waykeeper_units::one_line;

/// Units that are not declared, of which so many are named.
const NAMED: usize = 12;

/// The first configuration of the host under `root`, with a comment for each guess. `file` is where it will be, for the
/// commands in its comments. `programs_counters`: a daemon that only observes programs the counters that do not run.
pub fn first_config(root: &Root, discovery: &Discovery, file: &Path, programs_counters: bool) -> String {
    let topology = Topology::read(root).ok();
    let domain = topology.as_ref().and_then(|topology| Domains::of(topology, &discovery.tenants));
    let mut text = heading(file);
    host(&mut text, topology.as_ref());
    devices(&mut text, &discovery.devices);
    sections(&mut text, root.prefix(), domain.as_ref(), programs_counters);
    for tenant in &discovery.tenants {
        let toml = tenant.toml();
        match domain.as_ref().and_then(|domain| domain.elsewhere(tenant)) {
            None => push(&mut text, &format!("\n{toml}")),
            Some(id) => {
                let commented: String = toml.lines().map(|line| format!("#{line}\n")).collect();
                push(&mut text, &format!("\n# On L3 {id}, which this daemon does not manage:\n{commented}"));
            }
        }
    }
    if discovery.tenants.is_empty() {
        push(&mut text, NOTHING);
    }
    rest(&mut text, discovery);
    text
}

const NOTHING: &str = "
# Nothing was found that could be a tenant: no pod, container or virtual machine, no unit outside of system.slice and
# user.slice, and no process with CPUs of its own. Pin what is to be managed (AllowedCPUs= of its unit, taskset), or
# declare it here; docs/tenants.md lists all keys:
#
#[[tenant]]
#name = \"db\"
#priority = \"high\"
#unit = \"postgresql.service\"
";

fn push(text: &mut String, more: &str) {
    text.push_str(more);
}

fn heading(file: &Path) -> String {
    let file = one_line(&file.display().to_string());
    format!(
        "# Configuration of the Waykeeper daemon, written by `waykeeper init` from what it found on this host.\n\
         #\n\
         # Each priority below is a guess, and the comment beside it says why. Correct them before the daemon manages this\n\
         # host: it protects tenants of high priority, at the cost of those of low priority if needed.\n\
         #\n\
         #   waykeeper daemon --config {file} --check      all values in force\n\
         #   waykeeper daemon --config {file} --observe    watch only, with advice\n\
         #   waykeeper daemon --config {file} --dry-run    decide and log, set no knob\n\
         #   waykeeper daemon --config {file}              manage; every knob is restored at the end\n\
         #\n"
    )
}

/// Sockets, CPUs, NUMA nodes and L3s.
fn host(text: &mut String, topology: Option<&Topology>) {
    let Some(topology) = topology else {
        return push(text, "# The topology of this host could not be read.\n");
    };
    let sockets = topology.sockets();
    let _ = writeln!(
        text,
        "# This host: {} with {} CPUs online, {}.",
        counted(sockets.len(), "socket", "sockets"),
        topology.online().count(),
        counted(topology.l3.len(), "L3", "L3s"),
    );
    for (node, cpus) in &topology.nodes {
        let _ = writeln!(text, "#   NUMA node {node}: CPUs {cpus}");
    }
}

fn devices(text: &mut String, devices: &[SeenDevice]) {
    if devices.is_empty() {
        return push(text, "# It has no network card and no NVMe drive behind a root port.\n");
    }
    push(
        text,
        "# Its network cards and drives; a knob acts on a root port, and so on all devices behind it:\n",
    );
    let mut ports: BTreeMap<_, Vec<&SeenDevice>> = BTreeMap::new();
    for device in devices {
        ports.entry(device.port).or_default().push(device);
    }
    for (port, own) in ports {
        let name = |device: &&SeenDevice| {
            let functions = match device.functions {
                0 => String::new(),
                count => format!(" with {count} virtual functions ({}/vf0 and so on)", device.name),
            };
            let what = if device.kind == WorkloadKind::NetworkIo { "network" } else { "drive" };
            format!("{} ({what}, {}){functions}", device.name, device.address)
        };
        let names: Vec<String> = own.iter().map(name).collect();
        let port = port.map_or_else(|| "no root port".to_owned(), |port| format!("root port {port}"));
        let node = own.iter().find_map(|device| device.node);
        let node = node.map_or_else(String::new, |node| format!(", node {node}"));
        let _ = writeln!(text, "#   {port}{node}: {}", one_line(&names.join(", ")));
    }
}

fn sections(text: &mut String, root: &Path, domain: Option<&Domains>, programs_counters: bool) {
    push(text, "\n[daemon]\n");
    if root != Path::new("/") {
        let root = Value::String(root.display().to_string());
        let _ = writeln!(text, "root = {root}");
    }
    push(text, "period_s = 1.0                     # seconds between two readings of the counters\n");
    if programs_counters {
        push(
            text,
            "program_counters = true            # --observe and --dry-run program counters that do not run, and restore them\n",
        );
    }
    if let Some(domain) = domain {
        let _ = writeln!(
            text,
            "domain = {:<25} # one daemon manages one L3: the one with most of the tenants below",
            domain.chosen
        );
    }
    push(
        text,
        "\n[policy]\nname = \"waykeeper\"                 # `waykeeper policy list` shows the others\n",
    );
}

/// What was left out, and what is open.
fn rest(text: &mut String, discovery: &Discovery) {
    let used: Vec<&String> = discovery
        .tenants
        .iter()
        .filter_map(|tenant| tenant.devices.as_ref())
        .flat_map(|own| &own.value)
        .collect();
    let free: Vec<&str> = discovery
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .filter(|name| !used.iter().any(|used| *used == name))
        .collect();
    if !free.is_empty() {
        let _ = writeln!(
            text,
            "\n# No tenant above has {}. If one uses such a device, add a line such as devices = [\"{}\"]: the policy then\n\
             # knows whose data devices write.",
            one_line(&free.join(", ")),
            one_line(free[0]),
        );
    }
    let mut whys: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for left in &discovery.left_out {
        whys.entry(left.why).or_default().push(&left.name);
    }
    for (why, names) in whys {
        let more = names.len().saturating_sub(NAMED);
        let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "\n# Not declared, because each {why}: {}{more}.", one_line(&shown));
    }
    for note in &discovery.notes {
        let _ = writeln!(text, "# Not read: {}", one_line(note));
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The L3 that has most tenants, where they are on several.
struct Domains<'t> {
    topology: &'t Topology,
    chosen: u32,
}

impl<'t> Domains<'t> {
    /// `None` if all tenants with CPUs are on one L3.
    fn of(topology: &'t Topology, tenants: &[FoundTenant]) -> Option<Domains<'t>> {
        let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for tenant in tenants {
            let Some(id) = domain_of(topology, tenant) else { continue };
            let count = counts.entry(id).or_default();
            count.0 += usize::from(tenant.priority.value == Priority::High);
            count.1 += 1;
        }
        if counts.len() < 2 {
            return None;
        }
        // Those to be protected count first; the lower id wins a tie.
        let chosen = counts.iter().max_by_key(|(id, count)| (**count, std::cmp::Reverse(**id)));
        chosen.map(|(id, _)| Domains { topology, chosen: *id })
    }

    /// The L3 of a tenant, if it is another one.
    fn elsewhere(&self, tenant: &FoundTenant) -> Option<u32> {
        domain_of(self.topology, tenant).filter(|id| *id != self.chosen)
    }
}

fn domain_of(topology: &Topology, tenant: &FoundTenant) -> Option<u32> {
    let first = tenant.cores.cores().first()?;
    topology.l3.iter().find(|l3| l3.cpus.cores().contains(first))?.id
}
