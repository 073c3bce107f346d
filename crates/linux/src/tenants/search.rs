//! What a declaration finds at one look: for each tenant of it, the processes and devices that match.
//!
//! It remembers what a look cannot tell: which process a declared pid meant at first, who descends from it although its
//! parents ended, and after which process a family of one program is called. Must not know other declarations.

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

/// All that a look looks at.
#[derive(Debug)]
pub(super) struct Look<'l, 'r> {
    pub reader: &'l mut Reader<'r>,
    pub processes: &'l mut Processes,
    pub cgroups: &'l mut Cgroups,
    pub cores: &'l Cores,
    pub notes: &'l mut Notes,
    /// Who was started by whom.
    pub children: &'l BTreeMap<u32, Vec<Id>>,
}

/// A process that matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub inmate: Inmate,
    /// Its start, where it has to be this very process.
    pub started: Option<u64>,
}

/// What one tenant would consist of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Match {
    pub name: String,
    /// By pid, each once.
    pub candidates: Vec<Candidate>,
    pub devices: Vec<devices::Found>,
}

/// A declaration and what it remembers.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub spec: TenantSpec,
    /// The kind that its first device told.
    pub kind: Option<WorkloadKind>,
    /// The processes that its pids meant when they were first looked at; `None`: there was none.
    roots: BTreeMap<u32, Option<u64>>,
    /// These that live, and their descendants.
    family: BTreeSet<Id>,
    /// After whom a process's tenant is called, with `each`.
    leaders: BTreeMap<Id, Id>,
}

impl Standing {
    /// Remembers nothing.
    pub fn new(spec: TenantSpec) -> Standing {
        Standing {
            kind: spec.kind,
            spec,
            roots: BTreeMap::new(),
            family: BTreeSet::new(),
            leaders: BTreeMap::new(),
        }
    }

    /// The same declaration, changed: what its pids meant stays what they mean.
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

    /// Finds its tenants: one, or with `each` one a match, by the names of the matches.
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
                // A cgroup that nobody is in runs nothing.
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

    /// Who of the processes that its pids meant lives, and who descends from them. Who was once of them stays it, also
    /// when its parent ends and it is given to another.
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
                // A child is not older than its parent: else the number of the parent was another's then.
                if child.started >= parent.started && self.family.insert(*child) {
                    left.push(*child);
                }
            }
        }
    }
}

/// Puts every process of its programs with the one that it descends from without a gap; that one leads.
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

/// Processes that run its programs; the kernel's own threads run none.
fn programs<'p>(spec: &'p TenantSpec, processes: &'p Processes) -> impl Iterator<Item = &'p Process> {
    let matches = |process: &&Process| {
        let mut names = [Some(&process.name), process.program.as_ref()].into_iter().flatten();
        !process.is_kernels && names.any(|name| spec.programs.iter().any(|glob| glob.matches(name)))
    };
    processes.all().filter(move |process| !spec.programs.is_empty() && matches(process))
}

/// Every process once, what its cgroup says of it first.
fn tidy(mut found: Match) -> Match {
    found.candidates.sort_by_key(|candidate| candidate.inmate.pid);
    found.candidates.dedup_by_key(|candidate| candidate.inmate.pid);
    found
}
