//! Programs that run on cores. One file each; adding one is a file and a line in [`KINDS`].
//!
//! A program gets the bus and its core's clock and runs until the quantum ends. It changes the caches only through
//! [`crate::bus::Memory::touch`]; it must not know masks or policies. `program.rs` is the interface of all programs.

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
mod memcached;
mod memload;
mod nf;
mod nfv_chain;
mod packet_handler;
mod poller;
mod program;
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

pub(crate) use program::{Blueprint, Core, Program, Site};
pub use program::{JobSpan, ProgramKind, ScoreKind, WorkUnit};

/// Every program there is.
pub const KINDS: &[ProgramKind] = &[
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
pub fn kind(name: &str) -> Option<&'static ProgramKind> {
    KINDS.iter().find(|kind| kind.name == name)
}
