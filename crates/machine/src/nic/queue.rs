//! One RX queue with its completion ring and buffers, and the TX queue beside it.
//!
//! Worker and NIC meet here: the NIC fills posted buffers and transmits queued ones, the worker takes
//! filled ones and posts, sends or frees. Knows rings and buffers, not what packets are for.

use super::pool::{EntryRing, Pool};
use std::collections::VecDeque;
use waykeeper_silicon::{AddressMap, OutOfMemory};

/// Packets a program may hold beyond the RX ring and the TX queue: two bursts of 64 and a mempool cache.
const SPARE_BUFFERS: u32 = 256;
/// Entries of the hardware send ring (microarchitecture.md 7).
pub(crate) const TX_RING: u32 = 256;
/// Packets in the software TX queue in front of it (ddio-bench s3: "up to 1024-packet").
pub(crate) const TX_SOFTWARE_QUEUE: u32 = 1024;
/// Bytes of a completion entry (mlx5: one line).
const CQE_BYTES: u32 = 64;
/// Bytes of a receive descriptor (mlx5: 16).
const RX_DESCRIPTOR_BYTES: u32 = 16;
/// Bytes of a send descriptor (mlx5: one line).
const TX_DESCRIPTOR_BYTES: u32 = 64;

/// A packet in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub buffer: u32,
    pub bytes: u32,
    /// When it reached the NIC, ns.
    pub arrived_ns: f64,
    /// When the worker can see it (RX) or when the NIC may fetch it (TX), ns.
    pub ready_ns: f64,
}

impl Packet {
    pub(crate) fn lines(self) -> u32 {
        self.bytes.div_ceil(64)
    }
}

/// A queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub pool: Pool,
    pub completions: EntryRing,
    pub descriptors: EntryRing,
    pub send_ring: EntryRing,
    /// Ring slots; a slot holds a posted buffer, then the packet in it.
    slots: Vec<Packet>,
    mask: u32,
    /// Packets ever posted, filled by the NIC, taken by the worker (each wraps; differences count).
    posted: u32,
    filled: u32,
    taken: u32,
    /// Free buffers, last freed first: DPDK's per-core mempool cache.
    free: Vec<u32>,
    pub transmit: VecDeque<Packet>,
    pub sent: u32,
    /// When the queue's engine is free to receive and to send again, ns.
    pub receive_free_ns: f64,
    pub send_free_ns: f64,
    /// The workload that serves this queue.
    pub workload: usize,
}

impl Queue {
    pub(crate) fn new(memory: &mut AddressMap, ring: u32, workload: usize) -> Result<Queue, OutOfMemory> {
        let buffers = ring + TX_RING + TX_SOFTWARE_QUEUE + SPARE_BUFFERS;
        let pool = Pool::new(memory, buffers)?;
        let empty = Packet { buffer: 0, bytes: 0, arrived_ns: 0.0, ready_ns: 0.0 };
        let mut queue = Queue {
            free: (0..pool.buffers()).rev().collect(),
            pool,
            completions: EntryRing::new(memory, ring, CQE_BYTES)?,
            descriptors: EntryRing::new(memory, ring, RX_DESCRIPTOR_BYTES)?,
            send_ring: EntryRing::new(memory, TX_RING, TX_DESCRIPTOR_BYTES)?,
            slots: vec![empty; ring as usize],
            mask: ring - 1,
            posted: 0,
            filled: 0,
            taken: 0,
            transmit: VecDeque::new(),
            sent: 0,
            receive_free_ns: 0.0,
            send_free_ns: 0.0,
            workload,
        };
        for _ in 0..ring {
            queue.post();
        }
        Ok(queue)
    }

    /// Posts the last freed buffer in the next ring slot. Returns the slot; `None` without a free buffer.
    #[inline(always)]
    pub(crate) fn post(&mut self) -> Option<u32> {
        let buffer = self.free.pop()?;
        let slot = self.posted & self.mask;
        self.slots[slot as usize].buffer = buffer;
        self.posted = self.posted.wrapping_add(1);
        Some(slot)
    }

    /// NIC: the next posted slot and its buffer, if there is one.
    #[inline(always)]
    pub(crate) fn next_posted(&self) -> Option<(u32, u32)> {
        let slot = self.filled & self.mask;
        (self.filled != self.posted).then(|| (slot, self.slots[slot as usize].buffer))
    }

    /// NIC: the packet is written.
    #[inline(always)]
    pub(crate) fn fill(&mut self, slot: u32, packet: Packet) {
        self.slots[slot as usize] = packet;
        self.filled = self.filled.wrapping_add(1);
    }

    /// Worker: when the oldest waiting packet is visible, if one waits.
    #[inline(always)]
    pub(crate) fn next_ready_ns(&self) -> Option<f64> {
        (self.taken != self.filled).then(|| self.slots[(self.taken & self.mask) as usize].ready_ns)
    }

    /// Worker: takes the oldest packet and the ring slot it was in.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> (u32, Packet) {
        let slot = self.taken & self.mask;
        self.taken = self.taken.wrapping_add(1);
        (slot, self.slots[slot as usize])
    }

    /// Packets written and not yet taken.
    pub(crate) fn waiting(&self) -> u32 {
        self.filled.wrapping_sub(self.taken)
    }

    /// Gives a buffer back to the mempool cache.
    #[inline(always)]
    pub(crate) fn release(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    /// True if no packet fits the send ring and the software queue in front of it.
    #[inline(always)]
    pub(crate) fn transmit_is_full(&self) -> bool {
        self.transmit.len() >= (TX_RING + TX_SOFTWARE_QUEUE) as usize
    }
}
