//! One RX queue with its completion ring and buffers, and the TX queue beside it.
//!
//! Worker and NIC meet here: the NIC fills posted buffers and transmits queued ones, the worker takes
//! filled ones and posts, sends or frees. Knows rings and buffers, not what packets are for.

use super::pool::{Pool, entry_lines};
use waykeeper_silicon::{AddressMap, Line, OutOfMemory, Table};
use waykeeper_units::LINE_BYTES;

/// Packets a program may hold beyond the RX ring and the TX queue: two bursts of 64 and a mempool cache.
const SPARE_BUFFERS: u32 = 256;
/// Entries of the hardware send ring (microarchitecture.md 7).
pub(crate) const TX_RING: u32 = 256;
/// Packets in the software TX queue in front of it (ddio-bench s3: "up to 1024-packet").
pub(crate) const TX_SOFTWARE_QUEUE: u32 = 1024;
/// The most packets a worker takes at once.
pub(crate) const MAX_BURST: u32 = 512;
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
    pub(crate) const NONE: Packet = Packet { buffer: 0, bytes: 0, arrived_ns: 0.0, ready_ns: 0.0 };

    #[inline(always)]
    pub(crate) fn lines(self) -> u32 {
        lines_of(self.bytes)
    }
}

/// Lines a packet of so many bytes takes.
#[inline(always)]
pub(crate) fn lines_of(bytes: u32) -> u32 {
    bytes.div_ceil(LINE_BYTES as u32)
}

/// A slot of the RX ring: a posted buffer, then the packet in it; and the sampled lines of its ring entries, so
/// that one line of the machine that runs the model has all there is to know of two slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub packet: Packet,
    /// The completion entry's line, if the sample has it.
    pub completion: Option<Line>,
    /// The line of receive descriptors that begins with this slot's, if one does and the sample has it.
    pub descriptors: Option<Line>,
}

impl Slot {
    const EMPTY: Slot = Slot { packet: Packet::NONE, completion: None, descriptors: None };
}

/// A queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub pool: Pool,
    pub outgoing: Outgoing,
    slots: Table<Slot>,
    mask: u32,
    /// Packets ever posted, filled by the NIC, taken by the worker (each wraps; differences count).
    posted: u32,
    filled: u32,
    taken: u32,
    /// Free buffers, last freed first: DPDK's per-core mempool cache.
    free: Table<u32>,
    free_count: u32,
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
        let completions = entry_lines(memory, ring, CQE_BYTES)?;
        let descriptors = entry_lines(memory, ring, RX_DESCRIPTOR_BYTES)?;
        let entries = completions.into_iter().zip(descriptors);
        let slot = |(completion, descriptors)| Slot { completion, descriptors, ..Slot::EMPTY };
        let mut queue = Queue {
            free: Table::new((0..buffers).rev().collect(), 0),
            free_count: buffers,
            pool,
            outgoing: Outgoing::new(memory)?,
            slots: Table::new(entries.map(slot).collect(), Slot::EMPTY),
            mask: ring - 1,
            posted: 0,
            filled: 0,
            taken: 0,
            receive_free_ns: 0.0,
            send_free_ns: 0.0,
            workload,
        };
        for _ in 0..ring {
            queue.post();
        }
        Ok(queue)
    }

    /// Posts the last freed buffer in the next ring slot. Returns the slot's number and the slot; `None` without
    /// a free buffer.
    #[inline(always)]
    pub(crate) fn post(&mut self) -> Option<(u32, &Slot)> {
        self.free_count = self.free_count.checked_sub(1)?;
        let buffer = self.free[self.free_count as usize];
        let number = self.posted & self.mask;
        self.posted = self.posted.wrapping_add(1);
        let slot = &mut self.slots[number as usize];
        slot.packet.buffer = buffer;
        Some((number, slot))
    }

    /// NIC: the next posted slot, if there is one. Whoever puts a packet into it says so by
    /// [`Queue::filled`].
    #[inline(always)]
    pub(crate) fn next_posted(&mut self) -> Option<&mut Slot> {
        if self.filled == self.posted {
            return None;
        }
        Some(&mut self.slots[(self.filled & self.mask) as usize])
    }

    /// NIC: the packet in the next posted slot is written.
    #[inline(always)]
    pub(crate) fn filled(&mut self) {
        self.filled = self.filled.wrapping_add(1);
    }

    /// Worker: when the oldest waiting packet is visible, if one waits.
    #[inline(always)]
    pub(crate) fn next_ready_ns(&self) -> Option<f64> {
        (self.taken != self.filled).then(|| self.slots[(self.taken & self.mask) as usize].packet.ready_ns)
    }

    /// Worker: takes the oldest packet that is visible at `now_ns`.
    #[inline(always)]
    pub(crate) fn take(&mut self, now_ns: f64) -> Option<Slot> {
        if self.taken == self.filled {
            return None;
        }
        let slot = self.slots[(self.taken & self.mask) as usize];
        if slot.packet.ready_ns > now_ns {
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        Some(slot)
    }

    /// Packets written and not yet taken.
    pub(crate) fn waiting(&self) -> u32 {
        self.filled.wrapping_sub(self.taken)
    }

    /// Gives a buffer back to the mempool cache.
    #[inline(always)]
    pub(crate) fn release(&mut self, buffer: u32) {
        self.free[self.free_count as usize] = buffer;
        self.free_count += 1;
    }
}

/// True if this slot's receive descriptor is the first of its line.
#[inline(always)]
pub(crate) fn starts_descriptor_line(slot: u32) -> bool {
    slot.is_multiple_of(LINE_BYTES as u32 / RX_DESCRIPTOR_BYTES)
}

/// Packets on their way out: the hardware send ring and the software queue in front of it, in one.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    packets: Box<[Packet; OUTGOING]>,
    /// Per entry of the send ring: its line, if the sample has it.
    entries: Box<[Option<Line>; TX_RING as usize]>,
    /// Packets ever queued and sent (each wraps; the difference counts).
    queued: u32,
    sent: u32,
}

/// Room for what waits and a last burst on top, rounded up to a power of two.
const OUTGOING: usize = (TX_RING + TX_SOFTWARE_QUEUE + MAX_BURST).next_power_of_two() as usize;

impl Outgoing {
    fn new(memory: &mut AddressMap) -> Result<Outgoing, OutOfMemory> {
        let entries = entry_lines(memory, TX_RING, TX_DESCRIPTOR_BYTES)?;
        let entries: [Option<Line>; TX_RING as usize] = entries.try_into().expect("as many as asked for");
        let packets = Box::new([Packet::NONE; OUTGOING]);
        Ok(Outgoing { packets, entries: Box::new(entries), queued: 0, sent: 0 })
    }

    /// True if no packet fits the send ring and the software queue in front of it.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.queued.wrapping_sub(self.sent) >= TX_RING + TX_SOFTWARE_QUEUE
    }

    /// The line of the send ring that the next packet's descriptor goes to, if the sample has it.
    #[inline(always)]
    pub(crate) fn next_entry(&self) -> Option<Line> {
        self.entries[self.queued as usize % TX_RING as usize]
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, packet: Packet) {
        debug_assert!(self.queued.wrapping_sub(self.sent) < OUTGOING as u32);
        self.packets[self.queued as usize % OUTGOING] = packet;
        self.queued = self.queued.wrapping_add(1);
    }

    /// The oldest packet, if one waits.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<&Packet> {
        (self.sent != self.queued).then(|| &self.packets[self.sent as usize % OUTGOING])
    }

    /// The oldest packet is sent: returns the line its descriptor is fetched from, if the sample has it.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Line> {
        let entry = self.entries[self.sent as usize % TX_RING as usize];
        self.sent = self.sent.wrapping_add(1);
        entry
    }
}
