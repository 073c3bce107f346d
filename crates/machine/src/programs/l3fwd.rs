//! `l3fwd`: DPDK's L3 forwarder with exact matches: looks every packet's flow up in a table of many flows, reads
//! and rewrites its header and sends it on (IAT s3.A; microarchitecture.md 8).
//!
//! Knows where a flow's buckets are, not where a packet is sent.

use super::dpdk::read_stall;
use super::packet_handler::{PacketHandler, Spent};
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::table::{Lookups, Table};
use crate::bus::{Access, Memory};
use crate::nic::{MAX_BURST, Packet, Pool};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const L3FWD: ProgramKind = ProgramKind {
    name: "l3fwd",
    about: "looks each packet's flow up in a large table and sends it on (IAT s3.A)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Packets,
    read,
};

/// Flows that share a bucket of one line (rte_hash). A million flows are 8 MiB of buckets, which is the hot region
/// of microarchitecture.md 8.
const FLOWS_PER_BUCKET: u32 = 8;
/// Buckets read per packet: the primary and the secondary one (microarchitecture.md 8: two table lines).
const BUCKETS_READ: u32 = 2;

#[derive(Debug)]
struct L3Forward {
    work: PacketWork,
    stall: Stall,
    flows: u32,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 32)?,
        base_ns: keys.number("base_ns", 0.0..=1e6, 30.0)?, // microarchitecture.md 8
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 40.0)?, // as l2fwd
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 0.0)?,
        meta_lines: 0, // microarchitecture.md 8: as l2fwd without metadata
        touch: Touch::Header,
        fate: Fate::Send,
    };
    let flows = keys.count("flows", 1..=16_000_000, 1_000_000)?;
    Ok(Arc::new(L3Forward { work, stall: read_stall(keys)?, flows }))
}

impl Blueprint for L3Forward {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let table = Table::shared(site, self.flows.div_ceil(FLOWS_PER_BUCKET).max(BUCKETS_READ))?;
        let handler = Route(Lookups::new(table, Access::Read, site.bus));
        Ok(Box::new(Poller::with(handler, site, self.work, self.stall)))
    }
}

/// Reads a flow's buckets.
#[derive(Clone, Debug)]
struct Route(Lookups);

impl PacketHandler for Route {
    #[inline(always)]
    fn run(&mut self, packet: &mut Packet, _: &Pool) -> Spent {
        let line_ns = self.0.touch(packet.flow.wrapping_mul(BUCKETS_READ), BUCKETS_READ);
        Spent { work_ns: 0.0, line_ns }
    }

    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        self.0.settle(memory, core)
    }
}
