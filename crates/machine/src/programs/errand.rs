//! What some packet programs do for every packet beyond receiving it: looking its flow up, answering it.
//!
//! A poller is generic over its errand, so that programs without one pay nothing for those that have one. Knows
//! packets and lines, not rings.

use crate::bus::Memory;
use crate::nic::{Packet, Pool};

/// Time spent on one packet's errand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// On instructions, ns.
    pub work_ns: f64,
    /// Waiting for lines, at their class's mean, ns.
    pub line_ns: f64,
}

/// Something a worker does for every packet. Lines are gathered by [`Errand::run`] and touched by
/// [`Errand::settle`], as a poller does with its own.
pub(super) trait Errand: Clone + Send + std::fmt::Debug {
    /// False if there is nothing to do.
    const ANY: bool = true;
    /// True if its worker sleeps when there are no packets (sockets), instead of polling.
    const SLEEPS: bool = false;
    /// True if the packet is copied into a fresh buffer, and that is what goes on.
    const COPIES: bool = false;

    /// Does it for one packet; what is sent afterwards is the packet as this leaves it.
    fn run(&mut self, packet: &mut Packet, pool: &Pool) -> Spent;

    /// Its packet was copied: this is what the copy stands in.
    fn copied(&mut self, _packet: &Packet, _pool: &Pool) {}

    /// Touches the lines of this turn. Returns what they cost beyond what was charged, ns.
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64;
}

/// Nothing to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoErrand;

impl Errand for NoErrand {
    const ANY: bool = false;

    #[inline(always)]
    fn run(&mut self, _: &mut Packet, _: &Pool) -> Spent {
        Spent { work_ns: 0.0, line_ns: 0.0 }
    }

    #[inline(always)]
    fn settle(&mut self, _: &mut Memory, _: usize) -> f64 {
        0.0
    }
}
