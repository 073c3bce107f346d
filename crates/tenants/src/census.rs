//! The census: finds the present tenants from the declarations and the machine. No two have anything in common.
//!
//! If two declarations claim the same thing, the earlier one gets it. A tenant without declared cores gets none if
//! another tenant may run on one of them too. One look reads a bounded number of files ([`MOST_READS`]). Must not know
//! how tenants are measured or controlled.

use super::Tenant;
use super::cgroups::{Cgroups, MOST_FOLDERS};
use super::cores::Cores;
use super::declaration::TenantSpec;
use super::devices;
use super::processes::{AGAIN, Allowed, MOST_ALLOWED, MOST_NEW, Processes};
use super::reader::Reader;
use super::roster::{About, Absent, Notes, Roster};
use super::search::{DeclarationState, Match, SearchContext};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::WorkloadKind;
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::root::Root;
use waykeeper_units::{CoreId, CoreList};

/// Most processes of all tenants together; each is read at every look.
pub const MOST_MEMBERS: usize = 1 << 12;

/// Most tenants: more than any chip has RMIDs to monitor (hardware.md 9).
pub const MOST_TENANTS: usize = 1 << 10;

/// Most files read and directories listed at one look. Not included: seven for each declared device, six once if it is
/// not there, two for each device behind a declared root port and for each virtual function of a glob, two for each
/// component of a declared path, and the CPUs' files when CPUs go online or offline. Each cgroup takes three reads
/// (directory, processes, CPUs), each process two (stat, program), and [`Processes`] limits the reads for the CPUs of
/// threads. Measured: a slice that does not exist takes 7; two programs with 12 of 119 processes, 220; 500 containers
/// with a process each, 2506 (100 ms unoptimised over plain files).
pub const MOST_READS: usize = 3 * MOST_FOLDERS + 2 * (MOST_NEW + AGAIN + MOST_MEMBERS) + MOST_ALLOWED;

/// Repeatedly finds the present tenants.
#[derive(Clone, Debug)]
pub struct Census {
    specs: Vec<DeclarationState>,
    processes: Processes,
    cores: Cores,
    notes: Notes,
}

/// A tenant while it is being built.
#[derive(Debug)]
struct TenantDraft {
    tenant: Tenant,
    /// Its cores are declared.
    is_pinned: bool,
    /// CPUs that its cgroups pin it to.
    pinned: Vec<CoreId>,
    /// Processes that no cgroup pins.
    loose: Vec<u32>,
    ports: Vec<(PciAddress, PciAddress)>,
}

/// What already belongs to a tenant, with the tenant's name.
#[derive(Debug, Default)]
struct Claims {
    names: BTreeSet<String>,
    pids: BTreeMap<u32, (String, u64)>,
    cores: BTreeMap<CoreId, String>,
    devices: BTreeMap<PciAddress, String>,
}

/// How the cores of a tenant without declared cores were determined.
#[derive(Debug)]
enum Derived {
    /// Its processes have not been read completely, or nothing needs to be determined.
    Unknown,
    /// It has no cores, with the reason.
    None(String),
    /// These, unless another tenant may use one of them.
    Cores(CoreList),
}

impl Census {
    /// A census before its first look.
    pub fn new(specs: Vec<TenantSpec>) -> Census {
        Census {
            specs: specs.into_iter().map(DeclarationState::new).collect(),
            processes: Processes::default(),
            cores: Cores::default(),
            notes: Notes::default(),
        }
    }

    /// The declarations.
    pub fn specs(&self) -> impl Iterator<Item = &TenantSpec> {
        self.specs.iter().map(|declared| &declared.spec)
    }

    /// Replaces the declarations. A declaration with the same name keeps its memory: if a declared pid was reused by
    /// another process, that process still does not belong to the tenant.
    pub fn replace(&mut self, specs: Vec<TenantSpec>) {
        let before = std::mem::take(&mut self.specs);
        let mut before: BTreeMap<String, DeclarationState> =
            before.into_iter().map(|declared| (declared.spec.name.clone(), declared)).collect();
        let declared = |spec: TenantSpec| match before.remove(&spec.name) {
            Some(declared) => declared.changed(spec),
            None => DeclarationState::new(spec),
        };
        self.specs = specs.into_iter().map(declared).collect();
    }

    /// Finds the present tenants. Missing, malformed or disappearing files are not errors: what depends on them is not
    /// in the roster, and a note says so.
    pub fn take(&mut self, root: &Root) -> Roster {
        let mut reader = Reader::new(root);
        let any = |wanted: fn(&TenantSpec) -> bool| self.specs.iter().any(|declared| wanted(&declared.spec));
        let programs = any(|spec| !spec.programs.is_empty());
        let pids = any(|spec| !spec.pids.is_empty());
        let mut cgroups = match any(|spec| !spec.selectors.is_empty()) {
            true => Cgroups::find(&mut reader),
            false => Cgroups::default(),
        };
        self.cores.look(&mut reader, &mut self.notes);
        self.processes.begin(programs);
        if programs || pids {
            self.processes.scan(&mut reader, &mut self.notes);
        }
        let children = if pids { self.processes.children() } else { BTreeMap::new() };
        let mut context = SearchContext {
            reader: &mut reader,
            processes: &mut self.processes,
            cgroups: &mut cgroups,
            cores: &self.cores,
            notes: &mut self.notes,
            children: &children,
        };
        let single = self.specs.iter().filter(|declared| !declared.spec.each);
        let mut claims = Claims {
            names: single.map(|declared| declared.spec.name.clone()).collect(),
            ..Claims::default()
        };
        let mut absent = Vec::new();
        let mut drafts: Vec<TenantDraft> = Vec::new();
        for declared in &mut self.specs {
            let before = drafts.len();
            for found in declared.find(&mut context) {
                if drafts.len() == MOST_TENANTS {
                    context.notes.tell(None, About::TooMany, "tenants", || {
                        format!("there are more than {MOST_TENANTS} tenants; those declared last are ignored")
                    });
                    break;
                }
                drafts.extend(claims.draft(declared, found, &mut context));
            }
            if drafts.len() == before {
                let name = declared.spec.name.clone();
                let why = why_absent(&declared.spec, &mut context);
                context.notes.tell(Some(&name), About::Absent, &why, || format!("it is not present: {why}"));
                absent.push(Absent { name, why });
            }
        }
        read_allowed(&drafts, &mut context);
        settle_cores(&mut drafts, &mut context);
        tell_ports(&drafts, context.notes);
        self.processes.end();
        Roster {
            tenants: drafts.into_iter().map(|draft| draft.tenant).collect(),
            absent,
            started: claims.pids.into_iter().map(|(pid, (_, started))| (pid, started)).collect(),
            notes: self.notes.take(),
            standing: self.notes.standing(),
            reads: reader.reads(),
        }
    }
}

fn why_absent(spec: &TenantSpec, context: &mut SearchContext) -> String {
    let selectors = spec.selectors.iter().map(|selector| selector.glob().to_string());
    let programs = spec.programs.iter().map(ToString::to_string);
    let wanted: Vec<String> = selectors.chain(programs).collect();
    if !wanted.is_empty() {
        let SearchContext { reader, cgroups, notes, .. } = context;
        let near = spec.selectors.iter().find_map(|selector| cgroups.nearest(reader, selector, notes));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return format!("no process in {} belongs to this tenant{hint}", wanted.join(", "));
    }
    let devices = spec.devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (spec.pids.is_empty(), spec.cores.is_empty()) {
        (true, true) => format!("none of the devices {devices} belongs to this tenant"),
        (false, true) => "none of its processes runs".to_owned(),
        (_, false) => format!("none of its cores {} is online", spec.cores),
    }
}

impl Claims {
    /// Turns a match into a tenant with everything that no earlier tenant has; `None` if nothing is left.
    fn draft(
        &mut self,
        declared: &mut DeclarationState,
        found: Match,
        context: &mut SearchContext,
    ) -> Option<TenantDraft> {
        let spec = &declared.spec;
        let name = found.name;
        if spec.each && !self.names.insert(name.clone()) {
            context.notes.tell(Some(&name), About::Taken, "name", || {
                "two tenants would have this name; the one found later is ignored".to_owned()
            });
            return None;
        }
        let cores = self.cores(&name, &spec.cores, context);
        let (mut pids, mut pinned, mut loose) = (Vec::new(), Vec::new(), Vec::new());
        for candidate in found.candidates {
            let pid = candidate.process.pid;
            if let Some((owner, _)) = self.pids.get(&pid) {
                context.notes.tell(Some(&name), About::Taken, owner, || {
                    format!("process {pid} and perhaps others belong to {owner}, which is declared earlier")
                });
                continue;
            }
            if self.pids.len() == MOST_MEMBERS {
                context.notes.tell(Some(&name), About::TooMany, "members", || {
                    format!(
                        "all tenants together have more than {MOST_MEMBERS} processes; some of them are \
                        ignored"
                    )
                });
                break;
            }
            let id = context.processes.refresh(context.reader, pid, context.notes);
            let same = |started| candidate.started.is_none_or(|meant| meant == started);
            let Some(id) = id.filter(|id| same(id.started)) else { continue };
            self.pids.insert(pid, (name.clone(), id.started));
            pids.push(pid);
            match candidate.process.pinned {
                Some(cores) => pinned.extend_from_slice(cores.cores()),
                None => loose.push(pid),
            }
        }
        let free = |device: &devices::FoundDevice, notes: &mut Notes| match self.devices.get(&device.address)
        {
            Some(owner) if *owner != name => {
                let address = device.address.to_string();
                notes.tell(Some(&name), About::Taken, &address, || {
                    format!("device {address} belongs to {owner}, which is declared earlier")
                });
                false
            }
            _ => true,
        };
        let mut devices: Vec<devices::FoundDevice> = Vec::new();
        for device in found.devices {
            let twice = devices.iter().any(|other| other.address == device.address);
            if !twice && free(&device, context.notes) {
                devices.push(device);
            }
        }
        let comes_and_goes = !spec.selectors.is_empty() || !spec.programs.is_empty();
        let devices_alone = !comes_and_goes && spec.pids.is_empty() && spec.cores.is_empty();
        let is_here =
            !pids.is_empty() || !comes_and_goes && !cores.is_empty() || devices_alone && !devices.is_empty();
        if !is_here {
            return None;
        }
        self.cores.extend(cores.cores().iter().map(|core| (*core, name.clone())));
        self.devices.extend(devices.iter().map(|device| (device.address, name.clone())));
        if declared.kind.is_none() {
            declared.kind = devices.iter().find_map(|device| devices::kind(context.reader, device.address));
        }
        Some(TenantDraft {
            is_pinned: !spec.cores.is_empty(),
            pinned,
            loose,
            ports: devices.iter().filter_map(|device| Some((device.port?, device.address))).collect(),
            tenant: Tenant {
                name,
                priority: spec.priority,
                kind: declared.kind.unwrap_or(WorkloadKind::NonIo),
                cores,
                pids,
                devices: devices.iter().map(|device| device.address).collect(),
                stack: spec.stack,
                mask: spec.mask.clone(),
            },
        })
    }

    /// Declared cores that are online and belong to no tenant yet.
    fn cores(&self, name: &str, declared: &CoreList, context: &mut SearchContext) -> CoreList {
        let online = context.cores.online(declared);
        // Without any core it is not present, and that is said.
        if online != *declared && !online.is_empty() {
            // Other cores are another condition: what is shown is true now, not when the first core was switched off.
            context.notes.tell(Some(name), About::Missing, &format!("cores {online}"), || {
                format!("not all of its cores {declared} are online; it has {online}")
            });
        }
        let mut own = Vec::new();
        for core in online.cores() {
            match self.cores.get(core) {
                None => own.push(*core),
                Some(owner) => context.notes.tell(Some(name), About::Taken, owner, || {
                    format!("{core} belongs to {owner}, which is declared earlier")
                }),
            }
        }
        own.into()
    }
}

/// Reads the CPUs of processes that determine a tenant's cores, the longest unread first. For a tenant with a process
/// that is known not to be pinned, only that process is read again.
fn read_allowed(drafts: &[TenantDraft], context: &mut SearchContext) {
    let mut due = Vec::new();
    for draft in drafts.iter().filter(|draft| !draft.is_pinned) {
        let is_loose = |pid: &&u32| {
            context.processes.get(**pid).is_some_and(|process| process.allowed == Allowed::Loose)
        };
        match draft.loose.iter().find(is_loose) {
            Some(witness) if context.processes.due(*witness).is_none() => {}
            _ => due.extend(draft.loose.iter().filter_map(|pid| Some((context.processes.due(*pid)?, *pid)))),
        }
    }
    due.sort_unstable();
    for (_, pid) in due {
        context.processes.read_allowed(context.reader, pid, |list| context.cores.pinned(list), context.notes);
    }
}

/// Gives tenants without declared cores the cores that they are pinned to, unless another tenant may run there.
fn settle_cores(drafts: &mut [TenantDraft], context: &mut SearchContext) {
    let derived: Vec<Derived> = drafts.iter().map(|draft| derive(draft, context)).collect();
    let mut users: BTreeMap<CoreId, Vec<usize>> = BTreeMap::new();
    for (index, (draft, derived)) in drafts.iter().zip(&derived).enumerate() {
        let cores = if let Derived::Cores(cores) = derived { cores } else { &draft.tenant.cores };
        for core in cores.cores() {
            users.entry(*core).or_default().push(index);
        }
    }
    let names: Vec<String> = drafts.iter().map(|draft| draft.tenant.name.clone()).collect();
    for (index, (draft, derived)) in drafts.iter_mut().zip(derived).enumerate() {
        let (key, why) = match derived {
            Derived::Unknown => continue,
            Derived::None(why) => (String::new(), why),
            Derived::Cores(cores) => {
                let others = |core: &CoreId| {
                    let other = users.get(core)?.iter().find(|user| **user != index)?;
                    Some((*core, names[*other].clone()))
                };
                match cores.cores().iter().find_map(others) {
                    None => {
                        draft.tenant.cores = cores;
                        continue;
                    }
                    Some((core, other)) => {
                        let why = format!("{other} may also run on {core} of its {cores}");
                        (other, why)
                    }
                }
            }
        };
        context.notes.tell(Some(&draft.tenant.name), About::NoCores, &key, || {
            format!("it has processes but no cores of its own ({why}); core counters do not cover it")
        });
    }
}

fn derive(draft: &TenantDraft, context: &SearchContext) -> Derived {
    if draft.is_pinned || draft.tenant.pids.is_empty() {
        return Derived::Unknown;
    }
    let mut cores = draft.pinned.clone();
    let mut unknown = false;
    for pid in &draft.loose {
        match context.processes.get(*pid).map(|process| &process.allowed) {
            Some(Allowed::Loose) => {
                return Derived::None(format!(
                    "process {pid} is not limited to a part of the CPUs of one socket"
                ));
            }
            Some(Allowed::On(own)) => cores.extend_from_slice(own.cores()),
            Some(Allowed::Unknown) | None => unknown = true,
        }
    }
    let cores = CoreList::from(cores);
    match context.cores.pinned(&cores) {
        _ if unknown => Derived::Unknown,
        Some(cores) => Derived::Cores(cores),
        None => Derived::None(format!(
            "its processes together may run on {cores}, which is not a part of one socket"
        )),
    }
}

/// Notes tenants that share a root port: DCA is switched for both.
fn tell_ports(drafts: &[TenantDraft], notes: &mut Notes) {
    let mut first: BTreeMap<PciAddress, (&str, PciAddress)> = BTreeMap::new();
    for draft in drafts {
        let name = draft.tenant.name.as_str();
        for (port, device) in &draft.ports {
            let (other, others) = first.entry(*port).or_insert((name, *device));
            if *other != name {
                notes.tell(Some(name), About::SharedPort, &format!("{port} {other}"), || {
                    format!("its {device} and {others} of {other} are behind root port {port}: DCA is on or off for both")
                });
            }
        }
    }
}
