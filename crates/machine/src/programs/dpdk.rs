//! `dpdk-t` and `dpdk-nt`: A4's network microbenchmarks. T reads every byte of a packet and drops it, NT
//! drops it unread (A4 s3.1). Burst 64, an added delay per packet (artifact).
//! Marks: docs/reference/README.md#marks.

use super::poller::{Fate, Latency, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::spin::{read_clock_cycles, spinning};
use crate::nic::MAX_BURST;
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::OutOfMemory;

pub(super) const TOUCH: ProgramKind = ProgramKind {
    name: "dpdk-t",
    about: "receives packets, reads all of each, drops them (A4 s3.1)",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Packets,
    read: |keys| read(keys, Touch::Payload),
};

pub(super) const NO_TOUCH: ProgramKind = ProgramKind {
    name: "dpdk-nt",
    about: "receives packets and drops them unread (A4 s3.1)",
    read: |keys| read(keys, Touch::None),
    ..TOUCH
};

#[derive(Debug)]
struct Dpdk {
    work: PacketWork,
    clock_cycles: f64,
    latency: Latency,
    stall: Stall,
}

fn read(keys: &mut Keys<'_>, touch: Touch) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 64)?,
        // Calibrated on A4 Fig. 6 (microarchitecture.md 7).
        base_ns: keys.number("base_ns", 0.0..=1e6, 5.0)?,
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 60.0)?, // microarchitecture.md 7
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 150.0)?, // microarchitecture.md 7: A4 Figs. 3, 4 and 6
        meta_lines: 1,                                       // microarchitecture.md 7
        touch,
        fate: Fate::Drop,
    };
    let latency = match keys.number("latency_every_ms", 0.0..=1e6, 0.0)? {
        0.0 => Latency::EveryPacket,
        every_ms => Latency::FirstOfBurst { every_ns: every_ms * 1e6, last_ns: 0.0 },
    };
    Ok(Arc::new(Dpdk { work, clock_cycles: read_clock_cycles(keys)?, latency, stall: read_stall(keys)? }))
}

/// The keys `stall_us` and `stall_period_ms` that every polling program has.
pub(super) fn read_stall(keys: &mut Keys<'_>) -> Result<Stall, ScenarioError> {
    let usual = Stall::default();
    Ok(Stall {
        length_ns: keys.number("stall_us", 0.0..=1e6, usual.length_ns / 1e3)? * 1e3,
        period_ns: keys.number("stall_period_ms", 0.001..=1e6, usual.period_ns / 1e6)? * 1e6,
    })
}

impl Blueprint for Dpdk {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let work = spinning(self.work, self.clock_cycles, site);
        Ok(Box::new(Poller::new(site, work, self.stall).measuring(self.latency)))
    }
}
