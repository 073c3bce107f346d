//! `iperf`: a TCP receiver on a kernel socket: every packet's bytes are copied from the packet buffer into the
//! program's own, which it reads into over and over.
//!
//! The sender's rate is the traffic's; windows and acknowledgements are not modelled. Knows no connections.
//! Marks: docs/reference/README.md#marks.

use super::class::Class;
use super::dpdk::read_stall;
use super::errand::{Errand, Spent};
use super::poller::{Fate, PACKET_LINE_NS, PacketWork, Poller, Stall, Touch};
use super::{Blueprint, Kind, Program, Score, Site, Unit};
use crate::bus::{Access, Memory};
use crate::nic::{MAX_BURST, Packet, Pool};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Level, OutOfMemory, Region};

pub(super) const IPERF: Kind = Kind {
    name: "iperf",
    about: "receives over a socket: copies each packet into its own buffer",
    kind: WorkloadKind::NetworkIo,
    score: Score::InverseLatency,
    unit: Unit::Bytes,
    read,
};

#[derive(Debug)]
struct Iperf {
    work: PacketWork,
    stall: Stall,
    buffer: u64,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 64)?, // Linux: NAPI's weight
        // X: with the copy about 400 ns per packet of 1500 B, 30 Gb/s a core, the order of one iperf3 stream.
        base_ns: keys.number("base_ns", 0.0..=1e6, 120.0)?,
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 300.0)?, // X: a NAPI poll and its part of a system call
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 0.0)?,
        meta_lines: 3, // X: sk_buff
        touch: Touch::Payload,
        fate: Fate::Drop,
    };
    let buffer = keys.size("buffer", 4096..=64 << 20, 128 << 10)?; // iperf3: 128 KiB a read
    Ok(Arc::new(Iperf { work, stall: read_stall(keys)?, buffer }))
}

impl Blueprint for Iperf {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let copy = Copy {
            buffer: site.memory.ordinary(self.buffer)?,
            at: 0,
            owed: 0.0,
            written: Class::new(PACKET_LINE_NS, site.bus, Level::Mlc),
        };
        Ok(Box::new(Poller::with(copy, site, self.work, self.stall)))
    }
}

/// Writes as many lines of the program's buffer as packets have, in turn.
#[derive(Debug)]
struct Copy {
    buffer: Region,
    /// The sampled line that comes next, and the part of a sampled line that is owed to it.
    at: usize,
    owed: f64,
    written: Class,
}

impl Errand for Copy {
    const SLEEPS: bool = true;

    #[inline(always)]
    fn run(&mut self, packet: &mut Packet, _: &Pool) -> Spent {
        let count = f64::from(packet.lines);
        let lines = self.buffer.lines();
        if !lines.is_empty() {
            self.owed += count / self.buffer.scale();
        }
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            self.written.sampled.push(lines[self.at]);
            self.at = if self.at + 1 < lines.len() { self.at + 1 } else { 0 };
        }
        Spent { work_ns: 0.0, line_ns: count * self.written.ns() }
    }

    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        self.written.settle(memory, core, Access::Write)
    }
}
