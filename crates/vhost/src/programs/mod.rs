//! The scenario's programs as a kernel lists them: one process for each running workload, with a thread per core.
//!
//! Pids begin above all that Linux assigns, so that they differ from those of the machine on which the tree is mounted.
//! It must not know files.

pub mod cgroups;
pub mod processes;
pub mod tasks;

use crate::cpu_switches::CpuSwitches;
use crate::machine_clock::MachineClock;
use rustix::io::Errno;
use std::sync::Arc;
use waykeeper_machine::{Process, Scenario, WorkloadSpec};

/// The first pid. Linux assigns none from 4194304 on (include/linux/threads.h: PID_MAX_LIMIT), and resctrl and procfs
/// accept any positive int.
pub const FIRST_PID: u32 = 5_000_000;

/// Number of pids before they wrap, as on Linux; the last processes' threads end below 2³¹.
const PIDS: u64 = (1 << 31) - FIRST_PID as u64 - (1 << 16);

/// The pid of a process by the number of its first thread.
pub fn pid_of(first_thread: u64) -> u32 {
    FIRST_PID + (first_thread % PIDS) as u32
}

/// A process and its workload.
#[derive(Clone, Debug)]
pub struct ProgramProcess {
    /// Its pid, also the id of its first thread; the other threads have the next ids.
    pub pid: u32,
    process: Process,
    scenario: Arc<Scenario>,
}

impl ProgramProcess {
    /// The workload.
    pub fn workload(&self) -> &WorkloadSpec {
        &self.scenario.workloads[self.process.workload]
    }

    /// Number of processes that ran before it on this server.
    pub fn serial(&self) -> u64 {
        self.process.serial
    }

    /// Number of threads.
    pub fn threads(&self) -> u32 {
        self.process.busy_ns.len() as u32
    }

    /// The ids of its threads.
    pub fn tids(&self) -> std::ops::Range<u32> {
        self.pid..self.pid + self.threads()
    }

    /// The CPUs it may run on.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        self.workload().cores.cores().iter().map(|core| core.index())
    }

    /// When it started, ns of the server's clock.
    pub fn started_ns(&self) -> u64 {
        self.process.started_ns
    }

    /// Memory that it took when it started.
    pub fn memory_bytes(&self) -> u64 {
        self.process.memory_bytes
    }

    /// How long each thread ran, ns.
    pub fn busy_ns(&self) -> &[u64] {
        &self.process.busy_ns
    }
}

/// The programs of a running server.
#[derive(Clone)]
pub struct Programs {
    clock: MachineClock,
    scenario: Arc<Scenario>,
    switches: Arc<CpuSwitches>,
}

impl Programs {
    /// The programs of a server.
    pub fn new(clock: MachineClock, scenario: Arc<Scenario>, switches: Arc<CpuSwitches>) -> Programs {
        Programs { clock, scenario, switches }
    }

    /// Those of these CPUs on which the kernel lets programs run: the online ones; if none is, all online CPUs, as in the
    /// control group above (linux kernel/cgroup/cpuset.c, `compute_effective_cpumask`).
    pub fn effective(&self, cpus: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let online = self.switches.online();
        let own: Vec<usize> = cpus.into_iter().filter(|cpu| online.contains(cpu)).collect();
        if own.is_empty() { online.into_iter().collect() } else { own }
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The running programs, the oldest first.
    ///
    /// # Errors
    /// EIO if the model has stopped.
    pub fn list(&self) -> Result<Vec<ProgramProcess>, Errno> {
        let processes = self.clock.with(|server| server.bare().processes())?;
        let program = |process: Process| ProgramProcess {
            pid: pid_of(process.first_thread),
            process,
            scenario: self.scenario.clone(),
        };
        Ok(processes.into_iter().map(program).collect())
    }

    /// The program with this pid.
    ///
    /// # Errors
    /// ESRCH if there is none; EIO if the model has stopped.
    pub fn find(&self, pid: u32) -> Result<ProgramProcess, Errno> {
        self.list()?.into_iter().find(|program| program.pid == pid).ok_or(Errno::SRCH)
    }
}
