//! `[[workload]]`: a program with its cores, priority and devices, and changes over time. Must not simulate programs.

use super::cgroup;
use super::devices::{NicSpec, StorageSpec};
use super::error::{ScenarioError, hint};
use super::keys::{Keys, LATEST_S};
use crate::nic::BUFFER_BYTES;
use crate::programs::{Blueprint, KINDS, ProgramKind, kind};
use std::sync::Arc;
use toml::Table;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_silicon::{ChipSpec, Pages};
use waykeeper_units::{CoreList, WayMask};

/// A change of a workload's program or priority.
#[derive(Clone, Debug)]
pub struct WorkloadPhase {
    /// When, s on the server's clock.
    pub at_s: f64,
    /// The program from then on, restarted; `None` keeps the running one.
    pub blueprint: Option<Arc<dyn Blueprint>>,
    /// The declared priority from then on.
    pub priority: Priority,
}

/// One workload.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// Its name.
    pub name: String,
    /// What kind of program it is.
    pub program: &'static ProgramKind,
    /// The program with its parameters.
    pub blueprint: Arc<dyn Blueprint>,
    /// Declared priority.
    pub priority: Priority,
    /// Cores, one thread each.
    pub cores: CoreList,
    /// Index of its NIC.
    pub nic: Option<usize>,
    /// Index of its storage array.
    pub storage: Option<usize>,
    /// Its weight for a share of the NIC's traffic; `None` uses RSS.
    pub share: Option<f64>,
    /// The virtual switch that delivers its packets, instead of a NIC.
    pub switch: Option<String>,
    /// Name of the redis server of a redis client.
    pub peer: Option<String>,
    /// True for the stack: the software through which the other tenants reach the devices.
    pub stack: bool,
    /// Initial mask, before any policy acts; `None` is all ways.
    pub mask: Option<WayMask>,
    /// Physical memory of its programs; `None`: as each asks.
    pub pages: Option<Pages>,
    /// Its control group, a path below the root of cgroup v2.
    pub cgroup: String,
    /// When it starts, s.
    pub start_s: f64,
    /// When it exits, s; `None` is never.
    pub stop_s: Option<f64>,
    /// Period after which it starts and exits again, s; `None` is never.
    pub every_s: Option<f64>,
    /// Its threads begin this long after the start, ms of simulated time, so that rings are full.
    pub start_delay_ms: f64,
    /// Changes.
    pub phases: Vec<WorkloadPhase>,
}

pub(super) fn read_all(
    keys: &mut Keys<'_>,
    chip: &ChipSpec,
    nics: &[NicSpec],
    storage: &[StorageSpec],
) -> Result<Vec<WorkloadSpec>, ScenarioError> {
    let mut workloads: Vec<WorkloadSpec> = Vec::new();
    for (table, line) in keys.tables("workload")? {
        let name = table.get("name").and_then(toml::Value::as_str).unwrap_or("?");
        let mut inner = Keys::new(keys.origin(), table, &format!("workload[{name}]"), line);
        let workload = read_one(&mut inner, table, chip, nics, storage)?;
        if workloads.iter().any(|other| other.name == workload.name) {
            return Err(inner.refuse(
                "name",
                &format!("`{}`, twice", workload.name),
                "a name that no other workload has",
            ));
        }
        inner.finish()?;
        workloads.push(workload);
    }
    if workloads.is_empty() {
        return Err(keys.missing("workload", "at least one [[workload]] table"));
    }
    for workload in &workloads {
        check_peer(keys, workload, &workloads)?;
        check_switch(keys, workload, &workloads)?;
        check_cgroup(keys, workload, &workloads)?;
    }
    Ok(workloads)
}

fn read_one(
    keys: &mut Keys<'_>,
    table: &Table,
    chip: &ChipSpec,
    nics: &[NicSpec],
    storage: &[StorageSpec],
) -> Result<WorkloadSpec, ScenarioError> {
    let name = keys.required_text("name", "a short name")?;
    if let Some(old) = keys.former("hold_ms") {
        return Err(keys.refuse("hold_ms", old, "absent: its new name is `start_delay_ms`"));
    }
    let known = || KINDS.iter().map(|kind| kind.name);
    let program = keys.required_text("program", &known().collect::<Vec<_>>().join(", "))?;
    let kind = kind(&program).ok_or_else(|| {
        let wanted = format!("one of {}{}", known().collect::<Vec<_>>().join(", "), hint(&program, known()));
        keys.refuse("program", &format!("`{program}`"), &wanted)
    })?;
    let nic_names: Vec<&str> = nics.iter().map(|nic| nic.name.as_str()).collect();
    let storage_names: Vec<&str> = storage.iter().map(|array| array.name.as_str()).collect();
    let network = kind.kind == WorkloadKind::NetworkIo;
    let switch = keys.optional_text("switch")?;
    if let (Some(name), false) = (&switch, network && kind.name != SWITCH) {
        return Err(keys.refuse(
            "switch",
            &format!("`{name}`"),
            "absent: only a packet program has a switch",
        ));
    }
    let nic = device(keys, "nic", &nic_names, network && switch.is_none())?;
    if let Some(nic) = nic.map(|index| &nics[index]).filter(|_| kind.name == SWITCH)
        && nic.longest_packet() > BUFFER_BYTES
    {
        let wanted = format!(
            "on a NIC whose packets have at most {BUFFER_BYTES} bytes, and `{}` has {}: a virtual port has one buffer for each",
            nic.name,
            nic.longest_packet()
        );
        return Err(keys.refuse("program", &format!("`{SWITCH}`"), &wanted));
    }
    let share = keys.optional_number("share", 0.001..=1000.0)?;
    if let (Some(share), None) = (share, nic) {
        return Err(keys.refuse(
            "share",
            &share,
            "absent: only a workload on a NIC has a share of its traffic",
        ));
    }
    let array = device(keys, "storage", &storage_names, kind.kind == WorkloadKind::StorageIo)?;
    let priority = read_priority(keys)?;
    let stack = keys.flag("stack", false)?;
    if stack && kind.kind == WorkloadKind::NonIo {
        return Err(keys.refuse(
            "stack",
            &stack,
            "absent: `stack` needs a device, and this program uses none",
        ));
    }
    let blueprint = (kind.read)(keys).map_err(|error| keys.named(error))?;
    let workload = WorkloadSpec {
        program: kind,
        priority,
        cores: keys.cores("cores", chip.cores)?,
        nic,
        storage: array,
        share,
        switch,
        peer: keys.optional_text("peer")?,
        stack,
        mask: keys.mask("mask", chip.llc.ways, chip.llc.min_ways, chip.llc.sparse_masks)?,
        pages: keys.pages()?,
        cgroup: read_cgroup(keys, &name)?,
        start_s: keys.number("start_s", 0.0..=LATEST_S, 0.0)?,
        stop_s: keys.optional_number("stop_s", 0.0..=LATEST_S)?,
        every_s: keys.optional_number("every_s", 0.001..=LATEST_S)?,
        start_delay_ms: keys.number("start_delay_ms", 0.0..=10_000.0, 0.0)?,
        phases: read_phases(keys, table, kind, &name)?,
        blueprint,
        name,
    };
    if workload.stop_s.is_some_and(|stop| stop <= workload.start_s) {
        let stop = workload.stop_s.unwrap_or_default();
        return Err(keys.refuse("stop_s", &stop, &format!("after start_s = {}", workload.start_s)));
    }
    if let Some(every) = workload.every_s {
        let Some(stop) = workload.stop_s else {
            return Err(
                keys.missing("stop_s", "the time at which it exits, because `every_s` starts it again")
            );
        };
        // Rounded to ns, because 0.03 - 0.01 is a little less than 0.02 in floating point.
        let runs_s = ((stop - workload.start_s) * 1e9).round() * 1e-9;
        if every <= runs_s {
            let wanted = format!("more than stop_s - start_s = {runs_s}");
            return Err(keys.refuse("every_s", &every, &wanted));
        }
        if let Some(phase) = workload.phases.iter().find(|it| !(workload.start_s..stop).contains(&it.at_s)) {
            let wanted = format!(
                "from start_s = {} to stop_s = {stop}, because `every_s` starts it again",
                workload.start_s
            );
            return Err(keys.refuse("phase", &format!("at_s = {}", phase.at_s), &wanted));
        }
    }
    Ok(workload)
}

fn read_cgroup(keys: &mut Keys<'_>, name: &str) -> Result<String, ScenarioError> {
    let path = keys.optional_text("cgroup")?.unwrap_or_else(|| cgroup::usual(name));
    let refuse = |wanted: &str| Err(keys.refuse("cgroup", &format!("`{}`", path.escape_debug()), wanted));
    if !cgroup::legal(&path) {
        return refuse("a path below the root of cgroup v2, like system.slice/redis.service");
    }
    if let Some((slice, outer)) = cgroup::misplaced_slice(&path) {
        return refuse(&format!("the path that systemd makes: {slice} is in {outer}"));
    }
    Ok(path)
}

/// Checks that only leaf control groups contain processes.
fn check_cgroup(keys: &Keys<'_>, workload: &WorkloadSpec, all: &[WorkloadSpec]) -> Result<(), ScenarioError> {
    match all.iter().find(|other| cgroup::is_above(&workload.cgroup, &other.cgroup)) {
        None => Ok(()),
        Some(other) => {
            let at = format!("workload[{}].cgroup", workload.name);
            let wanted = format!("a path that is not above that of `{}`, {}", other.name, other.cgroup);
            Err(keys.refuse(&at, &format!("`{}`", workload.cgroup), &wanted))
        }
    }
}

fn read_priority(keys: &mut Keys<'_>) -> Result<Priority, ScenarioError> {
    Ok(match keys.choice("priority", &["high", "low"], "low")?.as_str() {
        "high" => Priority::High,
        _ => Priority::Low,
    })
}

/// The device of a workload: the named one, or the only one.
fn device(
    keys: &mut Keys<'_>,
    key: &str,
    names: &[&str],
    needed: bool,
) -> Result<Option<usize>, ScenarioError> {
    let wanted = format!("the name of a [[{key}]] of this scenario ({})", names.join(", "));
    if !needed {
        return match keys.optional_text(key)? {
            None => Ok(None),
            Some(name) => Err(keys.refuse(key, &format!("`{name}`"), "absent: this program uses none")),
        };
    }
    match keys.optional_text(key)? {
        Some(name) => match names.iter().position(|n| *n == name) {
            Some(index) => Ok(Some(index)),
            None => Err(keys.refuse(key, &format!("`{name}`"), &wanted)),
        },
        None if names.len() == 1 => Ok(Some(0)),
        None => Err(keys.missing(key, &wanted)),
    }
}

/// `[[workload.phase]]`: changes of the workload's program keys or priority from a time on.
fn read_phases(
    keys: &mut Keys<'_>,
    table: &Table,
    kind: &'static ProgramKind,
    name: &str,
) -> Result<Vec<WorkloadPhase>, ScenarioError> {
    let mut phases = Vec::new();
    let mut current = table.clone();
    for (changes, line) in keys.tables("phase")? {
        for (key, value) in changes {
            current.insert(key.clone(), value.clone());
        }
        let mut inner = Keys::new(keys.origin(), &current, &format!("workload[{name}].phase"), line);
        let at_s = inner.optional_number("at_s", 0.0..=LATEST_S)?;
        let at_s = at_s.ok_or_else(|| inner.missing("at_s", "the time of the change, s"))?;
        let priority = read_priority(&mut inner)?;
        let blueprint = (kind.read)(&mut inner).map_err(|error| inner.named(error))?;
        let of_program = changes.keys().any(|key| !["at_s", "priority"].contains(&key.as_str()));
        // Keys of the workload itself, not of its program, do not change.
        for key in COMMON {
            inner.has(key);
        }
        inner.finish()?;
        phases.push(WorkloadPhase { at_s, blueprint: of_program.then_some(blueprint), priority });
    }
    Ok(phases)
}

const COMMON: [&str; 18] = [
    "every_s",
    "cgroup",
    "name",
    "program",
    "nic",
    "storage",
    "priority",
    "cores",
    "peer",
    "stack",
    "mask",
    "start_s",
    "stop_s",
    "start_delay_ms",
    "phase",
    "at_s",
    "share",
    "switch",
];

/// The program that tenants can be connected to.
const SWITCH: &str = "vswitch";

/// Checks that a tenant's `switch` names a vswitch and that a vswitch has tenants.
fn check_switch(keys: &Keys<'_>, workload: &WorkloadSpec, all: &[WorkloadSpec]) -> Result<(), ScenarioError> {
    if let Some(name) = &workload.switch
        && !all.iter().any(|w| w.name == *name && w.program.name == SWITCH)
    {
        let at = format!("workload[{}].switch", workload.name);
        return Err(keys.refuse(&at, &format!("`{name}`"), "the name of a vswitch workload"));
    }
    if workload.program.name == SWITCH && !all.iter().any(|w| w.switch.as_ref() == Some(&workload.name)) {
        let wanted = "a vswitch with tenants: packet programs whose `switch` names it";
        return Err(keys.refuse("workload", &format!("`{}` without a tenant", workload.name), wanted));
    }
    Ok(())
}

/// Checks that each redis client names a server of its own, and each server has a client.
fn check_peer(keys: &Keys<'_>, workload: &WorkloadSpec, all: &[WorkloadSpec]) -> Result<(), ScenarioError> {
    let at = format!("workload[{}].peer", workload.name);
    match (workload.program.name, &workload.peer) {
        ("redis-client", None) => Err(keys.missing(&at, "the name of a redis-server workload")),
        ("redis-client", Some(peer)) => {
            let found = all.iter().find(|w| w.name == *peer && w.program.name == "redis-server");
            let taken = all.iter().any(|w| w.name != workload.name && w.peer.as_ref() == Some(peer));
            match found {
                Some(_) if !taken => Ok(()),
                _ => Err(keys.refuse(&at, &format!("`{peer}`"), "a redis-server workload of its own")),
            }
        }
        ("redis-server", _) if !all.iter().any(|w| w.peer.as_deref() == Some(&workload.name)) => {
            let wanted = "a redis-server with a client: a redis-client workload whose `peer` names it";
            Err(keys.refuse("workload", &format!("`{}` without a client", workload.name), wanted))
        }
        (_, Some(peer)) if workload.program.name != "redis-client" => {
            Err(keys.refuse(&at, &format!("`{peer}`"), "absent: only a redis-client has a peer"))
        }
        _ => Ok(()),
    }
}
