//! `testpmd`: DPDK's packet forwarder. `io` sends packets back as they are, `mac` rewrites their addresses first
//! (DPDK's forwarding modes; the tenants of IAT s6.B).

use super::dpdk::read_stall;
use super::poller::{Fate, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use crate::nic::MAX_BURST;
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const TESTPMD: ProgramKind = ProgramKind {
    name: "testpmd",
    about: "sends packets back, as they are or with new MAC addresses (IAT s6.B)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Packets,
    read,
};

#[derive(Debug)]
struct TestPmd {
    work: PacketWork,
    stall: Stall,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let touch = match keys.choice("mode", &["io", "mac"], "io")?.as_str() {
        "mac" => Touch::Header,
        _ => Touch::None,
    };
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 32)?,
        base_ns: keys.number("base_ns", 0.0..=1e6, 34.0)?, // as l2fwd: 22 receiving + 12 sending
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 40.0)?, // as l2fwd
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 0.0)?,
        meta_lines: 1, // as dpdk-nt: the driver's line of the rte_mbuf and no metadata of its own
        touch,
        fate: Fate::Send,
    };
    Ok(Arc::new(TestPmd { work, stall: read_stall(keys)? }))
}

impl Blueprint for TestPmd {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        Ok(Box::new(Poller::new(site, self.work, self.stall)))
    }
}
