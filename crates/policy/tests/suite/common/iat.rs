//! IAT on the fake server: DDIO and tenant counters set by hand, in millions per second. It must not know IAT's rules.

use super::{Bench, group};
use std::collections::BTreeMap;
use waykeeper_host::{
    Interval, Knob, Priority::High, Priority::Low, Reading, SocketCounter, Workload, WorkloadCounter,
    WorkloadKind::*,
};
use waykeeper_policy::Event;
use waykeeper_units::WayMask;

/// One tenant's counters.
#[derive(Clone, Copy, Debug)]
pub struct Prof {
    pub ipc: f64,
    /// LLC references, millions per second.
    pub refs: f64,
    /// LLC misses, millions per second.
    pub misses: f64,
}

/// A policy and the numbers its next interval will show.
pub struct Drive {
    pub bench: Bench,
    /// DDIO hits and misses, millions per second.
    pub hits: f64,
    pub misses: f64,
    pub profs: BTreeMap<u32, Prof>,
    /// What the DDIO ways read back; follows the plan unless set by hand.
    pub ddio: u32,
}

impl Drive {
    /// `policy` on the Gold 6140 after its first reading: 100 M hits, 0.5 M misses, every tenant at 1 IPC, 10 M
    /// references and 1 M misses a second.
    pub fn new(policy: &str, settings: &str, groups: Vec<Workload>) -> Drive {
        let prof = Prof { ipc: 1.0, refs: 10.0, misses: 1.0 };
        let profs = groups.iter().map(|group| (group.id.0, prof)).collect();
        let bench = Bench::new(policy, settings, groups);
        let mut drive = Drive { bench, hits: 100.0, misses: 0.5, profs, ddio: 0x600 };
        drive.step();
        drive
    }

    pub fn prof(&mut self, id: u32) -> &mut Prof {
        self.profs.get_mut(&id).unwrap()
    }

    /// The present counters as an interval.
    pub fn interval(&self) -> Interval {
        let mut seen = self.bench.interval();
        seen.socket[SocketCounter::DcaWriteHits] = Reading::Value(self.hits * 1e6);
        seen.socket[SocketCounter::DcaWriteMisses] = Reading::Value(self.misses * 1e6);
        for (id, rates) in &mut seen.groups {
            let prof = self.profs[&id.0];
            rates[WorkloadCounter::Instructions] = Reading::Value(prof.ipc * 1e9);
            rates[WorkloadCounter::Cycles] = Reading::Value(1e9);
            rates[WorkloadCounter::LlcHits] = Reading::Value((prof.refs - prof.misses) * 1e6);
            rates[WorkloadCounter::LlcMisses] = Reading::Value(prof.misses * 1e6);
        }
        seen.knobs.insert(Knob::DcaWays, WayMask::from_bits(self.ddio));
        seen
    }

    /// One interval with the present counters; returns its events.
    pub fn step(&mut self) -> Vec<Event> {
        let seen = self.interval();
        self.bench.now_ns = seen.to_ns;
        self.bench.feed(&seen);
        if let Some(ways) = self.bench.last.plan.dca_ways() {
            self.ddio = ways.bits();
        }
        self.bench.last.events.clone()
    }

    /// One interval with these DDIO hits and misses.
    pub fn ddio(&mut self, hits: f64, misses: f64) -> Vec<Event> {
        (self.hits, self.misses) = (hits, misses);
        self.step()
    }

    pub fn state(&self) -> &str {
        &self.bench.last.state
    }

    /// Number of DDIO ways in force.
    pub fn ddio_ways(&self) -> u32 {
        self.ddio.count_ones()
    }

    pub fn mask(&self, id: u32) -> u32 {
        self.bench.mask(id)
    }

    pub fn ways(&self, id: u32) -> u32 {
        self.mask(id).count_ones()
    }
}

/// The number of the transition among `events`.
pub fn edge(events: &[Event]) -> Option<u8> {
    let event = events.iter().find(|event| event.action == "transition")?;
    event.text.strip_prefix('(')?.split(')').next()?.parse().ok()
}

/// Actions of `events`.
pub fn actions(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.action.as_str()).collect()
}

/// With a declared mask.
pub fn at(mut group: Workload, mask: u32) -> Workload {
    group.mask = Some(WayMask::from_bits(mask));
    group
}

/// Aggregation (Fig. 7a): a switch 0 with two ways, a PC tenant 1 and two BE tenants 2 and 3 behind it.
/// Way 8 is idle beside DDIO's 9 and 10.
pub fn aggregation() -> Vec<Workload> {
    let mut switch = at(group(0, "ovs", High, NetworkIo, 2, &[0]), 0x003);
    switch.stack = true;
    vec![
        switch,
        at(group(1, "pc", High, NonIo, 1, &[]), 0x00c),
        at(group(2, "be1", Low, NonIo, 1, &[]), 0x030),
        at(group(3, "be2", Low, NonIo, 1, &[]), 0x0c0),
    ]
}

/// Slicing: two I/O tenants, 0 PC and 1 BE, and a BE tenant 2 without I/O. Ways 6 to 8 are idle.
pub fn slicing() -> Vec<Workload> {
    vec![
        at(group(0, "nf0", High, NetworkIo, 1, &[0]), 0x003),
        at(group(1, "nf1", Low, NetworkIo, 1, &[0]), 0x00c),
        at(group(2, "be", Low, NonIo, 1, &[]), 0x030),
    ]
}

/// s6.B, Fig. 10: containers 0 and 1 (PC, I/O) share three ways, 2 and 3 are BE, 4 is PC; nine ways in all.
pub fn containers() -> Vec<Workload> {
    vec![
        at(group(0, "c0", High, NetworkIo, 1, &[0]), 0x007),
        at(group(1, "c1", High, NetworkIo, 1, &[0]), 0x007),
        at(group(2, "c2", Low, NonIo, 1, &[]), 0x018),
        at(group(3, "c3", Low, NonIo, 1, &[]), 0x060),
        at(group(4, "c4", High, NonIo, 1, &[]), 0x180),
    ]
}
