//! The buffer of a program that receives over a socket: packets are copied into it, over and over.
//!
//! Knows lines and costs, not the source of the packets.

use super::class::Class;
use super::packet_handler::{PacketHandler, Spent};
use super::poller::PACKET_LINE_NS;
use crate::bus::{Access, Bus, Memory};
use crate::nic::{Packet, Pool};
use waykeeper_silicon::{Level, Region};

/// Writes to the program's buffer, in turn, as many lines as the packets have.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    buffer: Region,
    /// Index of the next sampled line, and the fraction of a sampled line that is due.
    at: usize,
    owed: f64,
    written: Class,
}

impl Copy {
    /// Into this memory.
    pub(super) fn new(buffer: Region, bus: &Bus) -> Copy {
        Copy { buffer, at: 0, owed: 0.0, written: Class::new(PACKET_LINE_NS, bus, Level::Mlc) }
    }

    /// Writes `count` lines. Returns their time at the mean, ns.
    #[inline(always)]
    pub(super) fn write(&mut self, count: f64) -> f64 {
        let lines = self.buffer.lines();
        if !lines.is_empty() {
            self.owed += count / self.buffer.scale();
        }
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            self.written.sampled.push(lines[self.at]);
            self.at = if self.at + 1 < lines.len() { self.at + 1 } else { 0 };
        }
        count * self.written.ns()
    }
}

impl PacketHandler for Copy {
    const SLEEPS: bool = true;

    #[inline(always)]
    fn run(&mut self, packet: &mut Packet, _: &Pool) -> Spent {
        Spent { work_ns: 0.0, line_ns: self.write(f64::from(packet.lines)) }
    }

    fn rest(&mut self, packet: &mut Packet, pool: &Pool) -> Spent {
        self.run(packet, pool)
    }

    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        self.written.settle(memory, core, Access::Write)
    }
}
