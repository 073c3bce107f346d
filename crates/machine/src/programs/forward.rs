//! `l2fwd`: ddio-bench's L2 forwarder (FastClick, run to completion): swaps the MAC addresses, i.e. reads
//! and rewrites one line per packet, and sends it back (ddio-bench s4; microarchitecture.md 8).

use super::dpdk::read_stall;
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::nic::MAX_BURST;
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const L2FWD: ProgramKind = ProgramKind {
    name: "l2fwd",
    about: "swaps the MAC addresses of packets and sends them back (ddio-bench s4)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Packets,
    read,
};

#[derive(Debug)]
struct L2Forward {
    work: PacketWork,
    stall: Stall,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 32)?,
        base_ns: keys.number("base_ns", 0.0..=1e6, 34.0)?, // microarchitecture.md 8: 22 + 12
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 40.0)?, // microarchitecture.md 8
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 0.0)?,
        meta_lines: 3, // microarchitecture.md 8
        touch: Touch::Header,
        fate: Fate::Send,
    };
    Ok(Arc::new(L2Forward { work, stall: read_stall(keys)? }))
}

impl Blueprint for L2Forward {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        Ok(Box::new(Poller::new(site, self.work, self.stall)))
    }
}
