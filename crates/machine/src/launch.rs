//! Launches: one run of a workload's program, from its start to its exit. What a kernel would show as a process.
//!
//! It must not know pids, nor who looks.

use crate::scenario::WorkloadSpec;
use crate::server::Machine;
use std::collections::BTreeMap;
use waykeeper_silicon::Lent;
use waykeeper_units::GroupId;

/// A program that runs, with what a kernel would keep of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// How many launches there were before it on this server.
    pub serial: u64,
    /// How many threads had been started before its first.
    pub first_thread: u64,
    /// What it is to whoever controls the server: the workload's index the first time, and a new one each time after.
    pub group: GroupId,
    /// When it started, ns of simulated time.
    pub started_ns: f64,
    /// Memory that it took when it started.
    pub memory_bytes: u64,
    /// Per thread: how long its core had been busy when it started, ns.
    pub busy_before_ns: Vec<f64>,
    /// The memory that is free again after it.
    pub lent: Lent,
}

/// The launches of a server.
#[derive(Clone, Debug)]
pub(crate) struct Launches {
    /// Per workload: the one that runs.
    running: Vec<Option<Launch>>,
    /// How many there were.
    count: u64,
    /// How many threads there were.
    threads: u64,
    /// Per workload: how often it started.
    runs: Vec<u32>,
    /// The next group that no launch has had.
    next_group: u32,
    /// The workloads of the groups that run.
    groups: BTreeMap<GroupId, usize>,
    /// How often one started or exited.
    pub turns: u64,
}

impl Launches {
    pub fn new(workloads: usize) -> Launches {
        Launches {
            running: vec![None; workloads],
            count: 0,
            threads: 0,
            runs: vec![0; workloads],
            next_group: workloads as u32,
            groups: BTreeMap::new(),
            turns: 0,
        }
    }

    /// A workload's, if it runs.
    pub fn of(&self, workload: usize) -> Option<&Launch> {
        self.running.get(workload)?.as_ref()
    }

    /// All that run, by workload.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Launch)> {
        self.running.iter().enumerate().filter_map(|(workload, launch)| Some((workload, launch.as_ref()?)))
    }

    /// A workload's, to be added to.
    pub fn of_mut(&mut self, workload: usize) -> Option<&mut Launch> {
        self.running.get_mut(workload)?.as_mut()
    }

    /// How often a workload started.
    pub fn runs(&self, workload: usize) -> u32 {
        self.runs[workload]
    }

    /// The workload that runs as this group.
    pub fn workload_of(&self, group: GroupId) -> Option<usize> {
        self.groups.get(&group).copied()
    }

    /// A workload starts.
    pub fn start(
        &mut self,
        workload: usize,
        started_ns: f64,
        memory_bytes: u64,
        busy_before_ns: Vec<f64>,
        lent: Lent,
    ) {
        let (serial, first_thread) = (self.count, self.threads);
        self.count += 1;
        self.threads += busy_before_ns.len() as u64;
        self.turns += 1;
        let group = match self.runs[workload] {
            0 => GroupId(workload as u32),
            _ => {
                self.next_group += 1;
                GroupId(self.next_group - 1)
            }
        };
        self.runs[workload] += 1;
        self.groups.insert(group, workload);
        self.running[workload] =
            Some(Launch { serial, first_thread, group, started_ns, memory_bytes, busy_before_ns, lent });
    }

    /// A workload exits. What it leaves behind, if it ran.
    pub fn exit(&mut self, workload: usize) -> Option<Launch> {
        let launch = self.running[workload].take()?;
        self.groups.remove(&launch.group);
        self.turns += 1;
        Some(launch)
    }
}

/// What names the random streams of a workload's threads: no launch draws the numbers of another.
pub(crate) fn label(spec: &WorkloadSpec, run: u32) -> String {
    if run == 0 { spec.name.clone() } else { format!("{}#{run}", spec.name) }
}

/// A running program as a kernel would list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Index of its workload in the scenario.
    pub workload: usize,
    /// How many processes were started before it on this server; none is like another.
    pub serial: u64,
    /// How many threads were started before its first. Its thread n, on the workload's core n, is that number plus n.
    pub first_thread: u64,
    /// When it started, ns of the server's clock.
    pub started_ns: u64,
    /// Memory that it took when it started.
    pub memory_bytes: u64,
    /// Per thread: how long it ran and was not halted, ns of the server's clock.
    pub busy_ns: Vec<u64>,
}

impl Machine {
    /// The programs that run now, the oldest first.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let clock = |simulated_ns: f64| (simulated_ns * self.scenario.time_factor) as u64;
        let process = |(workload, launch): (usize, &Launch)| {
            let cores = self.scenario.workloads[workload].cores.cores().iter();
            let busy_ns = cores
                .zip(&launch.busy_before_ns)
                .map(|(core, before)| clock(self.core(core.index()).busy_ns - before));
            Process {
                workload,
                serial: launch.serial,
                first_thread: launch.first_thread,
                started_ns: clock(launch.started_ns),
                memory_bytes: launch.memory_bytes,
                busy_ns: busy_ns.collect(),
            }
        };
        let mut all: Vec<Process> = self.launches.running().map(process).collect();
        all.sort_unstable_by_key(|process| process.serial);
        all
    }
}
