//! Reads the cgroups and the processes and picks what could be a tenant: pods, containers, virtual machines,
//! units of other slices than the system's, and whatever has CPUs of its own or uses much CPU time.
//!
//! Bounded reads. Must not guess a priority.

use super::LeftOut;
use crate::cgroups::{Cgroups, unit_name};
use crate::cores::Cores;
use crate::glob::{CgroupSelector, UNIT_KINDS};
use crate::processes::{Figures, figures};
use crate::reader::Reader;
use crate::roster::Notes;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::content;
use waykeeper_units::{CoreId, CoreList};

/// Most cgroups that are looked at: as many as a census lists.
pub(super) const MOST_GROUPS: usize = 1 << 12;

/// Most processes of a cgroup that are read. Assumption: the first ones, which have run for longest, say what it does.
const MOST_OF_ONE: usize = 16;

/// Most processes read outside of the cgroups that are tenants.
const MOST_OTHERS: usize = 1 << 12;

/// CPUs busy on average since the start from which a unit of the system is worth a declaration. Assumption: below a
/// quarter of a CPU nothing fills a visible share of an LLC.
const BUSY_CPUS: f64 = 0.25;

/// Slices in which systemd puts the units of the system and of users (systemd.special(7)).
const SYSTEM_SLICES: [&str; 2] = ["system.slice", "user.slice"];

/// Bytes of a process's status, as the census reads them.
const STATUS_BYTES: usize = 1 << 20;

/// The service class of a pod, which Kubernetes puts into the path of its cgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PodClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// What a cgroup holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// All pods of one service class.
    Pods(PodClass),
    /// A container outside of Kubernetes.
    Container,
    /// A virtual machine.
    Machine,
    /// A unit, with its slice.
    Unit(String),
    /// Processes of one name outside of such units.
    Program,
}

/// What could be a tenant.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub name: String,
    pub holds: Holds,
    /// Key and value.
    pub selector: (&'static str, String),
    /// With a family: its cgroups.
    pub groups: usize,
    pub processes: usize,
    /// Names of its programs, the busiest first.
    pub programs: Vec<String>,
    /// CPUs of its own.
    pub cores: CoreList,
    /// CPUs busy on average since its start; `None` if the machine's uptime is not known.
    pub busy_cpus: Option<f64>,
    /// The nice value of all of its processes, if they have the same.
    pub nice: Option<i32>,
    /// `cpu.weight` and `cpu.idle` of its cgroup.
    pub weight: Option<u64>,
    pub is_idle: bool,
    pub pids: Vec<u32>,
    /// Devices that its processes have open.
    pub open: Vec<String>,
}

impl Candidate {
    /// Whether each match is a tenant of its own.
    pub fn is_family(&self) -> bool {
        self.groups > 0
    }
}

/// The candidates, and the units that are none.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub candidates: Vec<Candidate>,
    pub left_out: Vec<LeftOut>,
}

/// What a cgroup is, by its path from the root of the tree.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// To be searched for others.
    Inner,
    /// A pod.
    Pod(PodClass),
    Holds(Holds),
    Skip,
}

fn place(path: &str) -> Place {
    let parts: Vec<&str> = path.split('/').collect();
    let name = unit_name(parts.last().copied().unwrap_or_default());
    if name == "init.scope" || name == "waykeeper.service" {
        return Place::Skip;
    }
    // Kubernetes: kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice with systemd's driver,
    // kubepods/burstable/podUID with cgroupfs' (kubernetes:pkg/kubelet/cm/cgroup_manager_linux.go).
    if parts[0].trim_end_matches(".slice") == "kubepods" {
        if !name.contains("pod") || name.trim_end_matches(".slice") == "kubepods" {
            return Place::Inner;
        }
        let is_class = |class: &str| path.contains(class);
        return match (name.rsplit('-').next().unwrap_or(name).starts_with("pod"), name.starts_with("pod")) {
            (false, false) => Place::Inner,
            _ if is_class("besteffort") => Place::Pod(PodClass::BestEffort),
            _ if is_class("burstable") => Place::Pod(PodClass::Burstable),
            _ => Place::Pod(PodClass::Guaranteed),
        };
    }
    if name.starts_with("machine-") && name.ends_with(".scope") {
        return Place::Holds(Holds::Machine);
    }
    let of_a_runtime = ["docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-"];
    let is_container =
        of_a_runtime.iter().any(|runtime| name.starts_with(runtime) && name.ends_with(".scope"));
    let by_folder =
        parts.len() == 2 && matches!(parts[0], "docker" | "libpod_parent" | "lxc" | "lxc.payload");
    if is_container || by_folder || name.starts_with("lxc.payload.") {
        return Place::Holds(Holds::Container);
    }
    if name.ends_with(".slice") {
        return Place::Inner;
    }
    if UNIT_KINDS.iter().any(|kind| name.ends_with(kind)) {
        let slice = parts.iter().rev().nth(1).map_or_else(String::new, |slice| (*slice).to_owned());
        return Place::Holds(Holds::Unit(slice));
    }
    // Without systemd's names: a cgroup that an operator made.
    Place::Holds(Holds::Unit(String::new()))
}

/// Searches the machine.
pub(super) fn candidates(
    reader: &mut Reader,
    cgroups: &mut Cgroups,
    cores: &Cores,
    notes: &mut Notes,
) -> Walked {
    let mut walked = Walked::default();
    let mut pods: BTreeMap<(PodClass, String), Vec<String>> = BTreeMap::new();
    let mut known: BTreeSet<u32> = BTreeSet::new();
    let uptime_s = uptime(reader);
    let mut left = vec![String::new()];
    let mut looked = 0;
    while let Some(folder) = left.pop() {
        for path in cgroups.below(reader, &folder, notes) {
            looked += 1;
            if looked > MOST_GROUPS {
                break;
            }
            match place(&path) {
                Place::Skip => {}
                Place::Inner => left.push(path),
                Place::Pod(class) => {
                    pods.entry((class, family_of(&path))).or_default().push(path);
                }
                Place::Holds(holds) => {
                    let all = [path.clone()];
                    let Some(own) = examine(reader, cgroups, cores, notes, &all, holds, uptime_s) else {
                        continue;
                    };
                    known.extend(&own.pids);
                    match why_not(&own, &path) {
                        None => walked.candidates.push(own),
                        Some(why) => {
                            let last = path.rsplit('/').next().unwrap_or(&path);
                            walked.left_out.push(LeftOut { name: unit_name(last).to_owned(), why });
                        }
                    }
                }
            }
        }
    }
    for ((class, glob), paths) in pods {
        if let Some(own) = examine(reader, cgroups, cores, notes, &paths, Holds::Pods(class), uptime_s) {
            known.extend(&own.pids);
            walked.candidates.push(Candidate { selector: ("cgroup", glob), groups: paths.len(), ..own });
        }
    }
    walked.candidates.extend(programs(reader, cores, &known, uptime_s));
    walked
}

/// The glob of all pods beside one.
fn family_of(path: &str) -> String {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.find("pod").map_or(name, |at| {
        // `kubepods-podUID` has the word twice.
        let at = name.rfind("-pod").map_or(at, |at| at + 1);
        &name[..at + 3]
    });
    let end = if name.ends_with(".slice") { ".slice" } else { "" };
    format!("{above}/{stem}*{end}")
}

/// Why a cgroup is not worth a declaration.
fn why_not(own: &Candidate, path: &str) -> Option<&'static str> {
    let Holds::Unit(_) = &own.holds else { return None };
    let top = path.split('/').next().unwrap_or_default();
    if !SYSTEM_SLICES.contains(&top) || !own.cores.is_empty() {
        return None;
    }
    match own.busy_cpus {
        Some(busy) if busy >= BUSY_CPUS => None,
        Some(_) => Some("uses little CPU time and has no CPUs of its own"),
        None => Some("has no CPUs of its own"),
    }
}

/// Reads the processes of cgroups; `None` without processes.
fn examine(
    reader: &mut Reader,
    cgroups: &mut Cgroups,
    cores: &Cores,
    notes: &mut Notes,
    paths: &[String],
    holds: Holds,
    uptime_s: Option<f64>,
) -> Option<Candidate> {
    let mut members = Vec::new();
    for path in paths {
        let Ok(selector) = CgroupSelector::unit("x.service") else { continue };
        members.extend(cgroups.processes_of(reader, &selector, path, cores, notes));
    }
    members.sort_by_key(|member| member.pid);
    members.dedup_by_key(|member| member.pid);
    let first = paths.first()?;
    let all: Vec<(u32, Option<CoreList>)> =
        members.into_iter().map(|member| (member.pid, member.pinned)).collect();
    let mut own = summarise(reader, cores, &all, holds, uptime_s)?;
    let folder = cgroups.folder();
    let mut number = |file: &str| {
        let text = reader.text(&format!("{folder}/{first}/{file}"), 64).ok().flatten()?;
        text.trim().parse::<u64>().ok()
    };
    own.weight = number("cpu.weight");
    own.is_idle = number("cpu.idle") == Some(1);
    let last = first.rsplit('/').next().unwrap_or(first);
    let unit = unit_name(last);
    own.selector = match UNIT_KINDS.iter().any(|kind| unit.ends_with(kind)) {
        true => ("unit", unit.to_owned()),
        false => ("cgroup", first.clone()),
    };
    own.name = match &own.holds {
        Holds::Pods(PodClass::Guaranteed) => "guaranteed-{name}".to_owned(),
        Holds::Pods(_) => "{name}".to_owned(),
        _ => short(unit, own.programs.first().map(String::as_str)),
    };
    Some(own)
}

/// A name for people: systemd's escapes undone, the long id of a container cut, with its program in front.
fn short(unit: &str, program: Option<&str>) -> String {
    let stem = UNIT_KINDS.iter().find_map(|kind| unit.strip_suffix(kind)).unwrap_or(unit);
    let stem = stem.strip_prefix("machine-").unwrap_or(stem).replace("\\x2d", "-");
    let (runtime, id) = stem.rsplit_once('-').unwrap_or(("", &stem));
    // Container runtimes name a container by 64 hexadecimal digits, of which tools show twelve.
    if id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return format!("{}-{}", program.unwrap_or(runtime), &id[..12]);
    }
    stem
}

/// What processes have in common.
fn summarise(
    reader: &mut Reader,
    cores: &Cores,
    members: &[(u32, Option<CoreList>)],
    holds: Holds,
    uptime_s: Option<f64>,
) -> Option<Candidate> {
    if members.is_empty() {
        return None;
    }
    let mut own: Vec<CoreId> = Vec::new();
    let (mut is_pinned, mut busy) = (true, 0.0);
    let mut programs: BTreeMap<String, u64> = BTreeMap::new();
    let mut nice: Option<Option<i32>> = None;
    let mut alive = 0;
    for (pid, pinned) in members.iter().take(MOST_OF_ONE) {
        let Some(figures) = figures(reader, *pid) else { continue };
        if figures.is_kernels {
            continue;
        }
        alive += 1;
        *programs.entry(figures.name.clone()).or_default() += figures.cpu_ticks + 1;
        nice = Some(match nice {
            Some(before) if before != Some(figures.nice) => None,
            _ => Some(figures.nice),
        });
        busy += busy_cpus(&figures, uptime_s).unwrap_or(0.0);
        match pinned.clone().or_else(|| allowed(reader, cores, *pid)) {
            Some(list) => own.extend_from_slice(list.cores()),
            None => is_pinned = false,
        }
    }
    if alive == 0 {
        return None;
    }
    let mut programs: Vec<(u64, String)> = programs.into_iter().map(|(name, ticks)| (ticks, name)).collect();
    programs.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    // Processes of one socket's part each may together run on all of it.
    let cores = is_pinned.then(|| cores.pinned(&own.into())).flatten();
    Some(Candidate {
        name: String::new(),
        holds,
        selector: ("cgroup", String::new()),
        groups: 0,
        processes: members.len(),
        programs: programs.into_iter().take(3).map(|(_, name)| name).collect(),
        cores: cores.unwrap_or_default(),
        busy_cpus: uptime_s.map(|_| busy),
        nice: nice.flatten(),
        weight: None,
        is_idle: false,
        pids: members.iter().map(|(pid, _)| *pid).collect(),
        open: Vec::new(),
    })
}

/// Processes outside of the cgroups seen so far that have CPUs of their own and use them, by program.
fn programs(
    reader: &mut Reader,
    cores: &Cores,
    known: &BTreeSet<u32>,
    uptime_s: Option<f64>,
) -> Vec<Candidate> {
    let Ok(Some((names, _))) = reader.folders("/proc", MOST_OTHERS) else { return Vec::new() };
    let pids = names.iter().filter_map(|name| name.parse::<u32>().ok());
    let mut by_name: BTreeMap<String, Vec<(u32, Option<CoreList>)>> = BTreeMap::new();
    for pid in pids.filter(|pid| !known.contains(pid)) {
        let Some(figures) = figures(reader, pid).filter(|figures| !figures.is_kernels) else { continue };
        let is_busy = busy_cpus(&figures, uptime_s).is_none_or(|busy| busy >= BUSY_CPUS);
        if !is_busy || figures.name == "waykeeper" {
            continue;
        }
        if let Some(list) = allowed(reader, cores, pid) {
            by_name.entry(figures.name).or_default().push((pid, Some(list)));
        }
    }
    let found = by_name.into_iter().filter_map(|(name, members)| {
        let own = summarise(reader, cores, &members, Holds::Program, uptime_s)?;
        Some(Candidate { selector: ("process", name.clone()), name, ..own })
    });
    found.collect()
}

/// CPUs that a process kept busy on average since its start.
fn busy_cpus(figures: &Figures, uptime_s: Option<f64>) -> Option<f64> {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let age_s = uptime_s? - figures.started as f64 / ticks_per_s;
    // A process that just started has no average yet.
    (age_s >= 1.0).then(|| figures.cpu_ticks as f64 / ticks_per_s / age_s)
}

fn uptime(reader: &mut Reader) -> Option<f64> {
    let text = reader.text("/proc/uptime", 128).ok().flatten()?;
    text.split_whitespace().next()?.parse::<f64>().ok().filter(|s| s.is_finite())
}

/// The part of one socket that a process's first thread is limited to.
fn allowed(reader: &mut Reader, cores: &Cores, pid: u32) -> Option<CoreList> {
    let path = format!("/proc/{pid}/status");
    let text = reader.text(&path, STATUS_BYTES).ok().flatten()?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    cores.pinned(&content::cpu_list(&reader.root().path(&path), list).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_says_what_it_holds() {
        let unit = |slice: &str| Place::Holds(Holds::Unit(slice.to_owned()));
        for (path, wanted) in [
            ("system.slice", Place::Inner),
            ("system.slice/ssh.service", unit("system.slice")),
            ("tenants.slice/redis.service", unit("tenants.slice")),
            ("init.scope", Place::Skip),
            ("kubepods.slice", Place::Inner),
            ("kubepods.slice/kubepods-burstable.slice", Place::Inner),
            ("kubepods.slice/kubepods-pod1_2.slice", Place::Pod(PodClass::Guaranteed)),
            (
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
                Place::Pod(PodClass::Burstable),
            ),
            ("kubepods", Place::Inner),
            ("kubepods/besteffort", Place::Inner),
            ("kubepods/besteffort/pod1-2", Place::Pod(PodClass::BestEffort)),
            ("kubepods/pod1-2", Place::Pod(PodClass::Guaranteed)),
            (r"machine.slice/machine-qemu\x2d7\x2dguest.scope", Place::Holds(Holds::Machine)),
            ("system.slice/docker-0a.scope", Place::Holds(Holds::Container)),
            ("docker/0a", Place::Holds(Holds::Container)),
            ("mine", unit("")),
        ] {
            assert_eq!(place(path), wanted, "{path}");
        }
    }

    #[test]
    fn one_glob_covers_the_pods_of_a_class() {
        for (path, glob) in [
            ("kubepods.slice/kubepods-pod1_2.slice", "kubepods.slice/kubepods-pod*.slice"),
            (
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod*.slice",
            ),
            ("kubepods/besteffort/pod1-2", "kubepods/besteffort/pod*"),
        ] {
            assert_eq!(family_of(path), glob);
        }
    }

    #[test]
    fn names_are_short() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(short(&format!("docker-{id}.scope"), Some("redis-server")), "redis-server-0123456789ab");
        assert_eq!(short(r"machine-qemu\x2d7\x2dguest.scope", None), "qemu-7-guest");
        assert_eq!(short("redis-server.service", None), "redis-server");
    }
}
