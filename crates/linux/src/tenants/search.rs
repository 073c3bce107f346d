//! Finds the processes and devices that match a declaration: one tenant, or with `each` several.
//!
//! It remembers what a single look cannot find: which process a declared pid meant at first, its descendants even after
//! their parents ended, and the process that a family of one program is named after. Must not know other declarations.

use super::cgroups::{Cgroups, Inmate};
use super::cores::Cores;
use super::declaration::TenantSpec;
use super::devices;
use super::naming;
use super::processes::{Id, Process, Processes};
use super::reader::Reader;
use super::roster::{About, Notes};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::WorkloadKind;

/// What a look reads and updates.
#[derive(Debug)]
pub(super) struct Look<'l, 'r> {
    pub reader: &'l mut Reader<'r>,
    pub processes: &'l mut Processes,
    pub cgroups: &'l mut Cgroups,
    pub cores: &'l Cores,
    pub notes: &'l mut Notes,
    /// Children by the parent's pid.
    pub children: &'l BTreeMap<u32, Vec<Id>>,
}

/// A matching process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub inmate: Inmate,
    /// Its start time, if only this very process counts.
    pub started: Option<u64>,
}

/// One possible tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Match {
    pub name: String,
    /// By pid, each once.
    pub candidates: Vec<Candidate>,
    pub devices: Vec<devices::Found>,
}

/// A declaration and its memory.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub spec: TenantSpec,
    /// The declared kind, or the kind of its first device.
    pub kind: Option<WorkloadKind>,
    /// The start times of the processes that its pids meant at the first look; `None`: there was no process.
    roots: BTreeMap<u32, Option<u64>>,
    /// Those of them that still run, and their descendants.
    family: BTreeSet<Id>,
    /// With `each`: the process that a process's tenant is named after.
    leaders: BTreeMap<Id, Id>,
}

impl Standing {
    /// An empty memory.
    pub fn new(spec: TenantSpec) -> Standing {
        Standing {
            kind: spec.kind,
            spec,
            roots: BTreeMap::new(),
            family: BTreeSet::new(),
            leaders: BTreeMap::new(),
        }
    }

    /// Changes the declaration; the pids that it still lists keep their meaning.
    pub fn changed(mut self, spec: TenantSpec) -> Standing {
        self.roots.retain(|pid, _| spec.pids.contains(pid));
        if self.spec.pids != spec.pids {
            self.family.clear();
        }
        if self.spec.programs != spec.programs {
            self.leaders.clear();
        }
        self.kind = spec.kind.or(self.kind.filter(|_| self.spec.devices == spec.devices));
        self.spec = spec;
        self
    }

    /// Finds its tenants: one, or with `each` one per match, named after the match.
    pub fn find(&mut self, look: &mut Look) -> Vec<Match> {
        if self.spec.each {
            return self.find_each(look);
        }
        let mut found = Match { name: self.spec.name.clone(), ..Match::default() };
        for place in &self.spec.places {
            for path in look.cgroups.matches(look.reader, place, look.notes) {
                found.candidates.extend(inmates(look, place, &path));
            }
        }
        found.candidates.extend(programs(&self.spec, look.processes).map(|process| of(process.id)));
        self.follow(look);
        found.candidates.extend(self.family.iter().map(|id| of(*id)));
        for name in &self.spec.devices {
            let devices = devices::find(look.reader, name);
            if devices.is_empty() {
                let shown = name.to_string();
                look.notes.tell(Some(&self.spec.name), About::Missing, &shown, || {
                    format!("there is no device {shown}")
                });
            }
            found.devices.extend(devices);
        }
        vec![tidy(found)]
    }

    fn find_each(&mut self, look: &mut Look) -> Vec<Match> {
        let template = &self.spec.name;
        let mut all = Vec::new();
        for place in &self.spec.places {
            for path in look.cgroups.matches(look.reader, place, look.notes) {
                let name = naming::named(template, &naming::of_cgroup(template, place, &path));
                let candidates = inmates(look, place, &path);
                // A cgroup without processes is not a tenant.
                if !candidates.is_empty() {
                    all.push(tidy(Match { name, candidates, ..Match::default() }));
                }
            }
        }
        for name in &self.spec.devices {
            for device in devices::find(look.reader, name) {
                let name = naming::named(template, &device.own_name);
                all.push(Match { name, devices: vec![device], ..Match::default() });
            }
        }
        if !self.spec.programs.is_empty() {
            lead(&self.spec, &mut self.leaders, look.processes);
            let mut families: BTreeMap<Id, Vec<Candidate>> = BTreeMap::new();
            for (id, leader) in &self.leaders {
                families.entry(*leader).or_default().push(of(*id));
            }
            for (leader, candidates) in families {
                let name = naming::named(template, &format!("{}.{}", leader.pid, leader.started));
                all.push(tidy(Match { name, candidates, ..Match::default() }));
            }
        }
        all
    }

    /// Updates the family: the processes that its pids mean, and their descendants. A process stays in the family when
    /// its parent ends and the kernel gives it a new one.
    fn follow(&mut self, look: &mut Look) {
        for pid in &self.spec.pids {
            let now = look.processes.refresh(look.reader, *pid, look.notes);
            let meant = self.roots.entry(*pid).or_insert(now.map(|id| id.started));
            match now.filter(|id| Some(id.started) == *meant) {
                Some(id) => {
                    self.family.insert(id);
                }
                None => look.notes.tell(Some(&self.spec.name), About::Missing, &pid.to_string(), || {
                    format!(
                        "process {pid} does not exist or has ended; a later process with this number \
                        does not count"
                    )
                }),
            }
        }
        self.family.retain(|id| look.processes.refresh(look.reader, id.pid, look.notes) == Some(*id));
        let mut left: Vec<Id> = self.family.iter().copied().collect();
        while let Some(parent) = left.pop() {
            for child in look.children.get(&parent.pid).into_iter().flatten() {
                // A child is not older than its parent; otherwise the parent's pid was another process's then.
                if child.started >= parent.started && self.family.insert(*child) {
                    left.push(*child);
                }
            }
        }
    }
}

/// Groups the processes of its programs: the leader is the topmost ancestor that is reached through matching processes
/// only.
fn lead(spec: &TenantSpec, leaders: &mut BTreeMap<Id, Id>, processes: &Processes) {
    let matched: BTreeMap<u32, &Process> =
        programs(spec, processes).map(|process| (process.id.pid, process)).collect();
    leaders.retain(|id, _| matched.get(&id.pid).is_some_and(|process| process.id == *id));
    for process in matched.values() {
        let mut way = BTreeSet::new();
        let mut at = *process;
        let leader = loop {
            if let Some(known) = leaders.get(&at.id) {
                break *known;
            }
            way.insert(at.id);
            match matched.get(&at.parent) {
                Some(parent) if parent.id.started <= at.id.started && !way.contains(&parent.id) => {
                    at = parent
                }
                _ => break at.id,
            }
        };
        leaders.extend(way.into_iter().map(|id| (id, leader)));
    }
}

fn of(id: Id) -> Candidate {
    Candidate { inmate: Inmate { pid: id.pid, pinned: None }, started: Some(id.started) }
}

fn inmates(look: &mut Look, place: &super::glob::Place, path: &str) -> Vec<Candidate> {
    let inmates = look.cgroups.inmates(look.reader, place, path, look.cores, look.notes);
    inmates.into_iter().map(|inmate| Candidate { inmate, started: None }).collect()
}

/// Processes that run its programs; kernel threads run none.
fn programs<'p>(spec: &'p TenantSpec, processes: &'p Processes) -> impl Iterator<Item = &'p Process> {
    let matches = |process: &&Process| {
        let mut names = [Some(&process.name), process.program.as_ref()].into_iter().flatten();
        !process.is_kernels && names.any(|name| spec.programs.iter().any(|glob| glob.matches(name)))
    };
    processes.all().filter(move |process| !spec.programs.is_empty() && matches(process))
}

/// Keeps each process once, preferring the entry from its cgroup.
fn tidy(mut found: Match) -> Match {
    found.candidates.sort_by_key(|candidate| candidate.inmate.pid);
    found.candidates.dedup_by_key(|candidate| candidate.inmate.pid);
    found
}
