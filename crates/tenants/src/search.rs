//! Finds the processes and devices that match a declaration: one tenant, or with `each` several.
//!
//! It remembers what a single look cannot find: which process a declared pid meant at first, its descendants even after
//! their parents ended, and the process that a family of one program is named after. Must not know other declarations.

use super::cgroups::{CgroupProcess, Cgroups};
use super::cores::Cores;
use super::declaration::TenantSpec;
use super::device::DeviceName;
use super::devices::{self, NoDevice};
use super::naming;
use super::processes::{Id, Process, Processes};
use super::reader::Reader;
use super::roster::{About, Notes};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::WorkloadKind;

/// What a look reads and updates.
#[derive(Debug)]
pub(super) struct SearchContext<'l, 'r> {
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
    pub process: CgroupProcess,
    /// Its start time, if only this very process counts.
    pub started: Option<u64>,
}

/// One possible tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Match {
    pub name: String,
    /// By pid, each once.
    pub candidates: Vec<Candidate>,
    pub devices: Vec<devices::FoundDevice>,
}

/// A declaration and its memory.
#[derive(Clone, Debug)]
pub(super) struct DeclarationState {
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

impl DeclarationState {
    /// An empty memory.
    pub fn new(spec: TenantSpec) -> DeclarationState {
        DeclarationState {
            kind: spec.kind,
            spec,
            roots: BTreeMap::new(),
            family: BTreeSet::new(),
            leaders: BTreeMap::new(),
        }
    }

    /// Changes the declaration; the pids that it still lists keep their meaning.
    pub fn changed(mut self, spec: TenantSpec) -> DeclarationState {
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
    pub fn find(&mut self, context: &mut SearchContext) -> Vec<Match> {
        if self.spec.each {
            return self.find_each(context);
        }
        let mut found = Match { name: self.spec.name.clone(), ..Match::default() };
        for selector in &self.spec.selectors {
            for path in context.cgroups.matches(context.reader, selector, context.notes) {
                found.candidates.extend(cgroup_processes(context, selector, &path));
            }
        }
        found.candidates.extend(programs(&self.spec, context.processes).map(|process| of(process.id)));
        self.follow(context);
        found.candidates.extend(self.family.iter().map(|id| of(*id)));
        for name in &self.spec.devices {
            match devices::find(context.reader, name) {
                Ok(devices) => found.devices.extend(devices),
                Err(why) => tell_missing(context, &self.spec.name, name, why),
            }
        }
        vec![tidy(found)]
    }

    fn find_each(&mut self, context: &mut SearchContext) -> Vec<Match> {
        let template = &self.spec.name;
        let mut all = Vec::new();
        for selector in &self.spec.selectors {
            for path in context.cgroups.matches(context.reader, selector, context.notes) {
                let name = naming::named(template, &naming::of_cgroup(template, selector, &path));
                let candidates = cgroup_processes(context, selector, &path);
                // A cgroup without processes is not a tenant.
                if !candidates.is_empty() {
                    all.push(tidy(Match { name, candidates, ..Match::default() }));
                }
            }
        }
        for name in &self.spec.devices {
            match devices::find(context.reader, name) {
                Ok(devices) => all.extend(devices.into_iter().map(|device| {
                    let name = naming::named(template, &device.own_name);
                    Match { name, devices: vec![device], ..Match::default() }
                })),
                // Virtual functions come and go.
                Err(NoDevice::NoFunction { .. }) => {}
                Err(why) => tell_missing(context, template, name, why),
            }
        }
        if !self.spec.programs.is_empty() {
            lead(&self.spec, &mut self.leaders, context.processes);
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
    fn follow(&mut self, context: &mut SearchContext) {
        for pid in &self.spec.pids {
            let now = context.processes.refresh(context.reader, *pid, context.notes);
            let meant = self.roots.entry(*pid).or_insert(now.map(|id| id.started));
            match now.filter(|id| Some(id.started) == *meant) {
                Some(id) => {
                    self.family.insert(id);
                }
                None => context.notes.tell(Some(&self.spec.name), About::Missing, &pid.to_string(), || {
                    format!(
                        "process {pid} does not exist or has ended; a later process with this number \
                        does not count"
                    )
                }),
            }
        }
        self.family
            .retain(|id| context.processes.refresh(context.reader, id.pid, context.notes) == Some(*id));
        let mut left: Vec<Id> = self.family.iter().copied().collect();
        while let Some(parent) = left.pop() {
            for child in context.children.get(&parent.pid).into_iter().flatten() {
                // A child is not older than its parent; otherwise the parent's pid was another process's then.
                if child.started >= parent.started && self.family.insert(*child) {
                    left.push(*child);
                }
            }
        }
    }
}

fn tell_missing(context: &mut SearchContext, tenant: &str, name: &DeviceName, why: NoDevice) {
    let SearchContext { reader, notes, .. } = context;
    notes.tell(Some(tenant), About::Missing, &name.to_string(), || why.with_hint(reader).to_string());
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
    Candidate { process: CgroupProcess { pid: id.pid, pinned: None }, started: Some(id.started) }
}

fn cgroup_processes(
    context: &mut SearchContext,
    selector: &super::glob::CgroupSelector,
    path: &str,
) -> Vec<Candidate> {
    let processes =
        context.cgroups.processes_of(context.reader, selector, path, context.cores, context.notes);
    processes.into_iter().map(|process| Candidate { process, started: None }).collect()
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
    found.candidates.sort_by_key(|candidate| candidate.process.pid);
    found.candidates.dedup_by_key(|candidate| candidate.process.pid);
    found
}
