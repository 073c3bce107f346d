//! The interface between the machine and its programs: the clock of a core, a thread, a program with its parameters,
//! and the row of the registry.
//!
//! Must not know any particular program.

use crate::bus::Bus;
use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
use dyn_clone::DynClone;
use std::ops::Range;
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{AddressMap, OutOfMemory, Region};

/// The clock and the retired instructions of one core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core {
    /// Core number on the chip.
    pub id: usize,
    /// Its own time, ns.
    pub clock_ns: f64,
    /// Time it was not halted, ns.
    pub busy_ns: f64,
    /// Instructions retired.
    pub instructions: f64,
}

impl Core {
    /// Works for `ns` and retires `instructions`.
    #[inline(always)]
    pub fn work(&mut self, ns: f64, instructions: f64) {
        self.clock_ns += ns;
        self.busy_ns += ns;
        self.instructions += instructions;
    }

    /// Halts until `until_ns`.
    pub fn halt(&mut self, until_ns: f64) {
        self.clock_ns = self.clock_ns.max(until_ns);
    }
}

/// One thread of a program, on one core.
///
/// A clone continues from the same point on a clone of the bus and does not change the original. So a program keeps
/// state that threads share on the bus; an `Arc` in it holds only what does not change.
pub trait Program: DynClone + Send + std::fmt::Debug {
    /// Runs until the core's clock reaches `until_ns` (an operation may overshoot it).
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64);
}

dyn_clone::clone_trait_object!(Program);

/// Measure of a workload's performance (A4 s7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScoreKind {
    /// Inverse mean latency: multi-threaded I/O programs.
    InverseLatency,
    /// Instructions per cycle: everything else.
    Ipc,
}

/// What a program's throughput counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkUnit {
    /// Packets per second.
    Packets,
    /// Bytes per second.
    Bytes,
    /// Requests per second.
    Operations,
    /// Instructions per second.
    Instructions,
}

/// When a job sends commands, as far as its file alone says. Times are of simulated traffic, ns from the program's start.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSpan {
    /// The name of the job.
    pub name: String,
    /// No command before; infinite if the jobs before it never end.
    pub from_ns: f64,
    /// No command after, because of a time; infinite if no time ends it.
    pub to_ns: f64,
    /// A number of commands ends it too, at a time that the file does not say.
    pub is_counted: bool,
}

/// A program with its parameters read and checked; makes the threads when the machine is built.
pub trait Blueprint: Send + Sync + std::fmt::Debug {
    /// The thread `site.thread` of the program.
    ///
    /// # Errors
    /// When simulated memory is used up.
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory>;

    /// Whether it has a schedule of its own: it ends, pauses or changes by its clock.
    fn has_schedule(&self) -> bool {
        false
    }

    /// The jobs that it consists of, and when their files let them run.
    fn job_spans(&self) -> Vec<JobSpan> {
        Vec::new()
    }

    /// What its input says that has no effect on the virtual server, or another one than where it comes from; for people.
    fn notes(&self) -> &[String] {
        &[]
    }
}

/// What a thread is built from.
#[derive(Debug)]
pub struct Site<'a> {
    /// Memory to take working sets from.
    pub memory: &'a mut AddressMap,
    /// The machine under construction.
    pub bus: &'a mut Bus,
    /// Seed of the run.
    pub seed: u64,
    /// Name of the workload (labels its random streams).
    pub name: &'a str,
    /// Index of the workload's meter.
    pub workload: usize,
    /// Which of the workload's threads.
    pub thread: usize,
    /// How many there are.
    pub threads: usize,
    /// Its NIC, if it has one.
    pub nic: Option<usize>,
    /// Its array, if it has one.
    pub array: Option<usize>,
    /// Its mailbox with its peer, if it has one.
    pub mailbox: Option<usize>,
    /// Its virtual port, if it sits behind a switch.
    pub port: Option<usize>,
    /// The ports of each of its tenants, if it is a switch.
    pub tenants: &'a [Range<usize>],
    /// Memory that all threads of the workload use; the first of them takes it.
    pub shared: &'a mut Option<Arc<Region>>,
    /// Nothing runs before this time, ns (the start rule of microarchitecture.md 7).
    pub work_from_ns: f64,
    /// When the thread starts, ns.
    pub start_ns: f64,
}

impl Site<'_> {
    /// The random stream of this thread.
    pub fn stream(&self) -> Stream {
        Stream::new(self.seed, &format!("{}/{}", self.name, self.thread))
    }
}

/// A kind of program: the row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct ProgramKind {
    /// The name scenarios use.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Its kind for policies.
    pub kind: WorkloadKind,
    /// Its measure of performance.
    pub score: ScoreKind,
    /// What its throughput counts.
    pub unit: WorkUnit,
    /// Reads its keys from a scenario.
    pub read: fn(&mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError>,
}
