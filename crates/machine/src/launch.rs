//! Launches: each is one run of a workload's program, from start to exit, like a process of a kernel.
//!
//! Must not know pids, nor how launches are presented.

use crate::scenario::WorkloadSpec;
use std::collections::BTreeMap;
use waykeeper_silicon::Lent;
use waykeeper_units::WorkloadId;

/// A running program, with the data that a kernel keeps of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// Number of earlier launches on this server.
    pub serial: u64,
    /// Number of threads that were started before its first one.
    pub first_thread: u64,
    /// Its group for policies: the workload's index for the first run, a new number for each later run.
    pub group: WorkloadId,
    /// When it started, ns of simulated time.
    pub started_ns: f64,
    /// Memory that it allocated at the start.
    pub memory_bytes: u64,
    /// Per thread: busy time of its core before the start, ns.
    pub busy_before_ns: Vec<f64>,
    /// Its memory, to be freed when it exits.
    pub lent: Lent,
}

#[derive(Clone, Debug)]
pub(crate) struct Launches {
    /// Per workload: the running launch.
    running: Vec<Option<Launch>>,
    /// Number of launches so far.
    count: u64,
    /// Number of threads so far.
    threads: u64,
    /// Per workload: number of its launches.
    runs: Vec<u32>,
    /// The next unused group.
    next_group: u32,
    /// The workloads of the running groups.
    groups: BTreeMap<WorkloadId, usize>,
    /// Number of starts and exits so far.
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

    /// A workload's launch, if it runs.
    pub fn of(&self, workload: usize) -> Option<&Launch> {
        self.running.get(workload)?.as_ref()
    }

    /// All running launches, by workload.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Launch)> {
        self.running.iter().enumerate().filter_map(|(workload, launch)| Some((workload, launch.as_ref()?)))
    }

    /// A workload's launch, to modify.
    pub fn of_mut(&mut self, workload: usize) -> Option<&mut Launch> {
        self.running.get_mut(workload)?.as_mut()
    }

    /// Number of launches of a workload.
    pub fn runs(&self, workload: usize) -> u32 {
        self.runs[workload]
    }

    /// The workload that now runs as this group.
    pub fn workload_of(&self, group: WorkloadId) -> Option<usize> {
        self.groups.get(&group).copied()
    }

    /// Records the start of a workload.
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
            0 => WorkloadId(workload as u32),
            _ => {
                self.next_group += 1;
                WorkloadId(self.next_group - 1)
            }
        };
        self.runs[workload] += 1;
        self.groups.insert(group, workload);
        self.running[workload] =
            Some(Launch { serial, first_thread, group, started_ns, memory_bytes, busy_before_ns, lent });
    }

    /// Records the exit of a workload; returns its launch if it ran.
    pub fn exit(&mut self, workload: usize) -> Option<Launch> {
        let launch = self.running[workload].take()?;
        self.groups.remove(&launch.group);
        self.turns += 1;
        Some(launch)
    }
}

/// Name of the random streams of a workload's threads, different for each launch.
pub(crate) fn label(spec: &WorkloadSpec, run: u32) -> String {
    if run == 0 { spec.name.clone() } else { format!("{}#{run}", spec.name) }
}

/// A running program as a kernel would list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Index of its workload in the scenario.
    pub workload: usize,
    /// Number of processes started before it on this server; unique.
    pub serial: u64,
    /// Number of threads started before its first one. Its thread n, on the workload's core n, has this number plus n.
    pub first_thread: u64,
    /// When it started, ns of the server's clock.
    pub started_ns: u64,
    /// Memory that it allocated at the start.
    pub memory_bytes: u64,
    /// Per thread: time during which it was not halted, ns of the server's clock.
    pub busy_ns: Vec<u64>,
}
