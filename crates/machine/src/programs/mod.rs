//! Programs that run on cores. One file each; adding one is a file and a line in [`KINDS`].
//!
//! A program is handed the bus and its core's clock and runs until the quantum ends. What it does to the
//! caches it does through [`crate::bus::Memory::touch`] alone; it knows no masks and no policies.

mod class;
mod copy;
mod dpdk;
mod fastclick;
mod fio;
mod fio_job;
mod flow_cache;
mod forward;
mod iperf;
mod l3fwd;
mod mailbox;
mod memcached;
mod memload;
mod nf;
mod nfv_chain;
mod packet_handler;
mod poller;
mod redis;
mod replay;
mod rocksdb;
mod skb;
mod socket;
mod spec;
mod spin;
mod table;
mod testpmd;
mod vswitch;
mod water;
mod working_set;
mod xmem;

pub use mailbox::Mailbox;
pub(crate) use memload::Team;

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

/// By what a workload's performance is judged (A4 s7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Score {
    /// Inverse mean latency: multi-threaded I/O programs.
    InverseLatency,
    /// Instructions per cycle: everything else.
    Ipc,
}

/// What a program's throughput counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Packets per second.
    Packets,
    /// Bytes per second.
    Bytes,
    /// Requests per second.
    Operations,
    /// Instructions per second.
    Instructions,
}

/// A program with its parameters read and checked; makes the threads when the machine is built.
pub trait Blueprint: Send + Sync + std::fmt::Debug {
    /// The thread `site.thread` of the program.
    ///
    /// # Errors
    /// When simulated memory is used up.
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory>;

    /// Whether it does things at times of its own: it ends, pauses or changes by its clock.
    fn has_schedule(&self) -> bool {
        false
    }
}

/// Where and for whom a thread is built.
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
pub struct Kind {
    /// The name scenarios use.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What it is to a policy.
    pub kind: WorkloadKind,
    /// How it is judged.
    pub score: Score,
    /// What its throughput counts.
    pub unit: Unit,
    /// Reads its keys from a scenario.
    pub read: fn(&mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError>,
}

/// Every program there is.
pub const KINDS: &[Kind] = &[
    dpdk::TOUCH,
    dpdk::NO_TOUCH,
    forward::L2FWD,
    l3fwd::L3FWD,
    testpmd::TESTPMD,
    fastclick::FASTCLICK,
    nfv_chain::NFV_CHAIN,
    vswitch::VSWITCH,
    nf::IPF,
    nf::IPFZ,
    nf::IPFZRX,
    nf::DPI,
    nf::DPIZ,
    nf::DPIZRX,
    iperf::IPERF,
    memcached::MEMCACHED,
    xmem::XMEM,
    fio::FIO,
    fio::FFSB_HEAVY,
    fio::FFSB_LIGHT,
    memload::MEMLOAD,
    redis::SERVER,
    redis::CLIENT,
    rocksdb::ROCKSDB,
    spec::SPEC,
    water::WATER,
    replay::REPLAY,
];

/// The kind of that name.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
