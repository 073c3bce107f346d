//! Work that some packet programs do for every packet beyond receiving it: a flow look-up, an answer. A poller is
//! generic over its handler, so that programs without one have no cost for it. Knows packets and lines, must not know
//! rings.

use crate::bus::Memory;
use crate::nic::{Packet, Pool};

/// Time that a handler spends on one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// On instructions, ns.
    pub work_ns: f64,
    /// Waiting for lines, at their class's mean, ns.
    pub line_ns: f64,
}

/// Work that a worker does for every packet. [`PacketHandler::run`] gathers lines and [`PacketHandler::settle`]
/// accesses them, as a poller does with its own.
pub(super) trait PacketHandler: Clone + Send + std::fmt::Debug {
    /// False if there is no work.
    const ANY: bool = true;
    /// True if its worker sleeps when there are no packets (sockets), instead of polling.
    const SLEEPS: bool = false;
    /// True if the packet is copied into a fresh buffer, and the copy is sent.
    const COPIES: bool = false;

    /// Handles one packet; `packet` is sent afterwards, as this leaves it.
    fn run(&mut self, packet: &mut Packet, pool: &Pool) -> Spent;

    /// Handles a further buffer of a packet that fills several; what looks at headers has no work with it.
    fn rest(&mut self, _packet: &mut Packet, _pool: &Pool) -> Spent {
        Spent { work_ns: 0.0, line_ns: 0.0 }
    }

    /// Its packet was copied: `packet` is the copy.
    fn copied(&mut self, _packet: &Packet, _pool: &Pool) {}

    /// Accesses the lines of this turn. Returns by how much their cost exceeds their charge, ns.
    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64;
}

/// No work.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoHandler;

impl PacketHandler for NoHandler {
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
