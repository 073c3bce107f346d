//! `fastclick`: A4's packet-processing chain, EtherMirror and ModifyPayload: reads every line of a packet,
//! works on it for about 100 ns and sends it back (A4 Table 2; artifact: burst 64).

use super::dpdk::read_stall;
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::spin::{read_clock_cycles, spinning};
use crate::nic::MAX_BURST;
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const FASTCLICK: ProgramKind = ProgramKind {
    name: "fastclick",
    about: "reads and modifies each packet and mirrors it back (A4 Table 2)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Packets,
    read,
};

#[derive(Debug)]
struct FastClick {
    work: PacketWork,
    clock_cycles: f64,
    stall: Stall,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 64)?,
        base_ns: keys.number("base_ns", 0.0..=1e6, 34.0)?, // as l2fwd: 22 receiving + 12 sending
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 60.0)?, // as dpdk-t
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 100.0)?, // microarchitecture.md 8: ModifyPayload
        meta_lines: 3,                                     // as l2fwd
        touch: Touch::Payload,
        fate: Fate::Send,
    };
    Ok(Arc::new(FastClick { work, clock_cycles: read_clock_cycles(keys)?, stall: read_stall(keys)? }))
}

impl Blueprint for FastClick {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let work = spinning(self.work, self.clock_cycles, site);
        Ok(Box::new(Poller::new(site, work, self.stall)))
    }
}
