//! Launches: one run of a workload's program, from its start to its exit. What a kernel would show as a process.
//!
//! It must not know pids, nor who looks.

use crate::server::Machine;

/// A program that runs, with what a kernel would keep of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    /// How many launches there were before it on this server.
    pub serial: u64,
    /// How many threads had been started before its first.
    pub first_thread: u64,
    /// When it started, ns of simulated time.
    pub started_ns: f64,
    /// Memory that it took when it started.
    pub memory_bytes: u64,
    /// Per thread: how long its core had been busy when it started, ns.
    pub busy_before_ns: Vec<f64>,
}

/// The launches of a server.
#[derive(Debug)]
pub(crate) struct Launches {
    /// Per workload: the one that runs.
    running: Vec<Option<Launch>>,
    /// How many there were.
    count: u64,
    /// How many threads there were.
    threads: u64,
    /// How often one started or exited.
    pub turns: u64,
}

impl Launches {
    pub fn new(workloads: usize) -> Launches {
        Launches { running: vec![None; workloads], count: 0, threads: 0, turns: 0 }
    }

    /// A workload's, if it runs.
    pub fn of(&self, workload: usize) -> Option<&Launch> {
        self.running.get(workload)?.as_ref()
    }

    /// All that run, by workload.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Launch)> {
        self.running.iter().enumerate().filter_map(|(workload, launch)| Some((workload, launch.as_ref()?)))
    }

    /// A workload starts.
    pub fn start(&mut self, workload: usize, started_ns: f64, memory_bytes: u64, busy_before_ns: Vec<f64>) {
        let (serial, first_thread) = (self.count, self.threads);
        self.count += 1;
        self.threads += busy_before_ns.len() as u64;
        self.turns += 1;
        self.running[workload] =
            Some(Launch { serial, first_thread, started_ns, memory_bytes, busy_before_ns });
    }

    /// A workload exits.
    pub fn exit(&mut self, workload: usize) {
        self.turns += u64::from(self.running[workload].take().is_some());
    }
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
