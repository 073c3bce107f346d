//! One RX queue with its completion ring and buffers, and the TX queue behind it.
//!
//! The interface between worker and NIC: the NIC fills posted buffers and transmits queued packets, the worker takes
//! filled ones and posts, sends or frees. Knows rings and buffers, not what packets are for.
//! A packet is in one slot from its arrival until its buffer is free again; its stages are counters that follow one
//! another. Nothing is copied from ring to ring.

use super::entries::Entries;
use super::mempool::{FreeBuffers, MempoolSpec};
use super::pool::{Buffer, Pool};
use super::window::Window;
use waykeeper_silicon::{AddressMap, Chip, Gather, OutOfMemory, Table};
use waykeeper_units::LINE_BYTES;

/// Packets a program may hold beyond the RX ring and the TX queue: two bursts of 64 and a mempool cache. Assumption:
/// a cache of 128.
const SPARE_BUFFERS: u32 = 256;
/// Entries of the hardware send ring (microarchitecture.md 7).
pub(crate) const TX_RING: u32 = 256;
/// Packets in the software TX queue in front of it (ddio-bench s3: "up to 1024-packet").
pub(crate) const TX_SOFTWARE_QUEUE: u32 = 1024;
/// The most packets a worker takes at once. Assumption: usual bursts are 32 and 64.
pub(crate) const MAX_BURST: u32 = 512;
/// Time outside the host in a measured latency, ns, unless a scenario says otherwise.
pub(crate) const OUTSIDE_NS: f64 = 12_000.0;
/// Bytes of a completion entry (mlx5: one line).
const CQE_BYTES: u32 = 64;
/// Bytes of a receive descriptor (mlx5: 16).
const RX_DESCRIPTOR_BYTES: u32 = 16;
/// Bytes of a send descriptor (mlx5: one line).
const TX_DESCRIPTOR_BYTES: u32 = 64;

/// Bytes of an element of a virtual port's used ring, and of its descriptors (virtio 1.1, s2.6).
const VIRTIO_USED_BYTES: u32 = 8;
const VIRTIO_DESCRIPTOR_BYTES: u32 = 16;

/// Differences between the rings of a NIC's queue and those of a virtual port.
struct Shape {
    completion_bytes: u32,
    rx_descriptor_bytes: u32,
    tx_descriptor_bytes: u32,
    /// Packets that may wait to be sent.
    send_room: u32,
}

/// A packet in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// When it reached the NIC, ns.
    pub arrived_ns: f64,
    /// When the worker can see it or, once it is queued to be sent, when it was queued, ns.
    pub ready_ns: f64,
    /// Its buffer.
    pub buffer: Buffer,
    /// Number of its flow.
    pub flow: u32,
    pub bytes: u16,
    /// Lines of the packet.
    pub lines: u8,
    /// The first and the last of the buffers that a packet fills; most fill one, which is both.
    pub is_first: bool,
    pub is_last: bool,
}

impl Packet {
    /// Replaces the packet in the buffer, from its first line on: an answer to the one that arrived.
    #[inline(always)]
    pub(crate) fn answer(&mut self, bytes: u16) {
        self.bytes = bytes;
        self.lines = lines_of(bytes);
    }

    const NONE: Packet = Packet {
        arrived_ns: 0.0,
        ready_ns: 0.0,
        buffer: Buffer::NONE,
        flow: 0,
        bytes: 0,
        lines: 0,
        is_first: true,
        is_last: true,
    };
}

/// Lines of a packet of so many bytes.
#[inline(always)]
pub(crate) fn lines_of(bytes: u16) -> u8 {
    // A buffer holds 32 lines, and the longest packet has 145.
    u32::from(bytes).div_ceil(LINE_BYTES as u32) as u8
}

/// A queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub pool: Pool,
    /// Every packet between arrival and release, by its number.
    packets: Table<Packet>,
    packet_mask: u64,
    /// Per slot of the RX ring: the buffer posted there.
    buffers: Table<Buffer>,
    ring_mask: u64,
    completions: Entries,
    descriptors: Entries,
    send_entries: Entries,
    /// Counts since the start: buffers posted; packets filled by the NIC, finished by the worker (queued to be sent, or
    /// dropped), released, and sent.
    posted: u64,
    filled: u64,
    done: u64,
    released: u64,
    sent: u64,
    /// Of a shared mempool: buffers that were sent and will be received into next, last sent first.
    returned: Vec<Buffer>,
    free: FreeBuffers<Buffer>,
    /// When the queue's engine can receive and send again, ns.
    pub receive_free_ns: f64,
    pub send_free_ns: f64,
    /// Packets that may wait to be sent.
    send_room: u64,
    /// Lines of completion and of send entries per packet.
    pub completion_lines: f64,
    pub send_lines: f64,
    /// The most packets that a worker may take per poll; a limit on top of its program's own.
    pub burst_limit: u32,
    /// The workload that serves this queue.
    pub workload: usize,
    /// Time outside the host in the latency of its packets, ns.
    pub outside_ns: f64,
    /// The worker must write every buffer once before it begins.
    pub cold: bool,
    /// The sender's window, where a kernel's socket is behind this queue.
    pub window: Option<Window>,
    /// Lines of released buffers that will be invalidated, if the NIC does that (algorithms.md 4.6).
    dead: Option<Gather>,
}

impl Queue {
    /// A queue of a NIC.
    pub(crate) fn new(memory: &mut AddressMap, ring: u32, workload: usize) -> Result<Queue, OutOfMemory> {
        Queue::pooled(memory, ring, workload, None)
    }

    /// A queue of a NIC whose buffers are a DPDK mempool's; it has at least as many as it needs.
    pub(crate) fn pooled(
        memory: &mut AddressMap,
        ring: u32,
        workload: usize,
        mempool: Option<MempoolSpec>,
    ) -> Result<Queue, OutOfMemory> {
        let shape = Shape {
            completion_bytes: CQE_BYTES,
            rx_descriptor_bytes: RX_DESCRIPTOR_BYTES,
            tx_descriptor_bytes: TX_DESCRIPTOR_BYTES,
            send_room: TX_RING + TX_SOFTWARE_QUEUE,
        };
        Queue::shaped(memory, ring, workload, &shape, mempool)
    }

    /// A virtual port: `workload` is its worker, as for a NIC's queue. A switch takes the NIC's part: it fills posted
    /// buffers by copying and takes packets that are queued to be sent.
    pub(crate) fn port(memory: &mut AddressMap, ring: u32, workload: usize) -> Result<Queue, OutOfMemory> {
        let shape = Shape {
            completion_bytes: VIRTIO_USED_BYTES,
            rx_descriptor_bytes: VIRTIO_DESCRIPTOR_BYTES,
            tx_descriptor_bytes: VIRTIO_DESCRIPTOR_BYTES,
            send_room: ring,
        };
        Queue::shaped(memory, ring, workload, &shape, None)
    }

    fn shaped(
        memory: &mut AddressMap,
        ring: u32,
        workload: usize,
        shape: &Shape,
        mempool: Option<MempoolSpec>,
    ) -> Result<Queue, OutOfMemory> {
        let least = ring + shape.send_room + SPARE_BUFFERS;
        let buffers = mempool.map_or(least, |spec| least.max(spec.buffers));
        let packets = (ring + shape.send_room + MAX_BURST).next_power_of_two();
        let lines = |bytes: u32| f64::from(bytes) / LINE_BYTES as f64;
        let pool = Pool::new(memory, buffers)?;
        let mut queue = Queue {
            packets: Table::filled(packets as usize, Packet::NONE),
            packet_mask: u64::from(packets) - 1,
            buffers: Table::filled(ring as usize, Buffer::NONE),
            ring_mask: u64::from(ring) - 1,
            completions: Entries::new(memory, ring, shape.completion_bytes)?,
            descriptors: Entries::new(memory, ring, shape.rx_descriptor_bytes)?,
            send_entries: Entries::new(memory, TX_RING, shape.tx_descriptor_bytes)?,
            posted: 0,
            filled: 0,
            done: 0,
            released: 0,
            sent: 0,
            returned: Vec::new(),
            free: FreeBuffers::new(pool.buffers(buffers), mempool.map(|spec| spec.cache)),
            pool,
            receive_free_ns: 0.0,
            send_free_ns: 0.0,
            send_room: u64::from(shape.send_room),
            completion_lines: lines(shape.completion_bytes),
            send_lines: lines(shape.tx_descriptor_bytes),
            burst_limit: MAX_BURST,
            workload,
            outside_ns: OUTSIDE_NS,
            cold: false,
            window: None,
            dead: None,
        };
        while queue.posted < u64::from(ring) {
            queue.post();
        }
        // The worker posts the first buffers before caches are simulated.
        queue.gather_posted(&mut Gather::new());
        Ok(queue)
    }

    /// Descriptors of the RX ring.
    pub(crate) fn ring(&self) -> u32 {
        self.ring_mask as u32 + 1
    }

    /// Resizes the RX ring to `ring` descriptors, a power of two and no more than it was built with. Packets that wait
    /// keep their buffers; if more wait than fit, no new ones arrive until the worker has caught up. Both rings of
    /// entries begin again with their first `ring` entries.
    pub(crate) fn resize(&mut self, ring: u32) {
        // Taken back last first, so that they are posted again in the same order.
        while self.posted != self.filled {
            self.posted -= 1;
            self.free.give(self.buffers[(self.posted & self.ring_mask) as usize]);
        }
        self.ring_mask = u64::from(ring) - 1;
        while self.has_room() && self.post() {}
        self.completions.resize(ring, self.filled, self.done);
        self.descriptors.resize(ring, self.filled, self.posted);
    }

    /// True if the ring has a descriptor without a buffer or a packet.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.posted - self.done <= self.ring_mask
    }

    /// Receives into and sends from one mempool with `sender` from now on. No packet may have been filled yet.
    pub(crate) fn share_pool(&mut self, sender: &mut Queue) {
        let (pool, moved) = Pool::joined(&self.pool, &sender.pool);
        sender.buffers.entries_mut().iter_mut().for_each(|buffer| *buffer = buffer.moved(moved));
        sender.free.replace_each(|buffer| buffer.moved(moved));
        sender.pool = pool.clone();
        self.pool = pool;
    }

    /// With a shared mempool, `sender` fills the buffer that was freed here last. In exchange it returns the one that
    /// it sent a ring ago, to be received into next. One free buffer remains: the ring is posted from the free ones,
    /// and only then is the returned one posted in its place.
    #[inline(always)]
    pub(crate) fn trade(&mut self, sender: &mut Queue) {
        if let Some(free) = self.free.take_but_one() {
            let next = &mut sender.buffers[(sender.filled & sender.ring_mask) as usize];
            self.returned.push(std::mem::replace(next, free));
        }
    }

    /// Posts a returned buffer in place of the one posted last.
    #[inline(always)]
    pub(crate) fn post_returned(&mut self) {
        if self.posted != self.filled
            && let Some(returned) = self.returned.pop()
        {
            let last = &mut self.buffers[((self.posted - 1) & self.ring_mask) as usize];
            self.free.give(std::mem::replace(last, returned));
        }
    }

    // ---- NIC ------------------------------------------------------------------------------------------

    /// True if a buffer is posted that the next packet can go to.
    #[inline(always)]
    pub(crate) fn has_posted(&self) -> bool {
        self.filled != self.posted
    }

    /// True if so many buffers are posted.
    #[inline(always)]
    pub(crate) fn has_posted_for(&self, buffers: u32) -> bool {
        self.posted - self.filled >= u64::from(buffers)
    }

    /// Puts a packet into the next posted buffer.
    #[inline(always)]
    pub(crate) fn fill(&mut self, bytes: u16, flow: u32, arrived_ns: f64, ready_ns: f64) -> Packet {
        self.fill_part(bytes, flow, (arrived_ns, ready_ns), (true, true))
    }

    /// The same for the part of a packet in one buffer, which may be its first and its last.
    #[inline(always)]
    pub(crate) fn fill_part(
        &mut self,
        bytes: u16,
        flow: u32,
        (arrived_ns, ready_ns): (f64, f64),
        (is_first, is_last): (bool, bool),
    ) -> Packet {
        let buffer = self.buffers[(self.filled & self.ring_mask) as usize];
        let lines = lines_of(bytes);
        let packet = Packet { arrived_ns, ready_ns, buffer, flow, bytes, lines, is_first, is_last };
        self.packets[(self.filled & self.packet_mask) as usize] = packet;
        self.filled += 1;
        packet
    }

    /// Adds the lines of receive descriptors that the NIC fetched, and of completion entries that it wrote, for the
    /// packets that it filled since the last call.
    #[inline(always)]
    pub(crate) fn gather_filled(&mut self, reads: &mut Gather, writes: &mut Gather) {
        self.descriptors.nic_up_to(self.filled, reads);
        self.completions.nic_up_to(self.filled, writes);
    }

    /// The oldest packet that waits to be sent.
    #[inline(always)]
    pub(crate) fn next_to_send(&self) -> Option<&Packet> {
        (self.released != self.done).then(|| &self.packets[(self.released & self.packet_mask) as usize])
    }

    /// Adds the lines of send descriptors that the NIC fetched for packets that it sent since the last call.
    #[inline(always)]
    pub(crate) fn gather_sent(&mut self, reads: &mut Gather) {
        self.send_entries.nic_up_to(self.sent, reads);
    }

    /// The packets that wait to be sent, the oldest first.
    #[inline(always)]
    pub(crate) fn queued(&self) -> impl Iterator<Item = &Packet> {
        (self.released..self.done).map(|number| &self.packets[(number & self.packet_mask) as usize])
    }

    /// Counts the oldest `count` packets as sent and frees their buffers.
    #[inline(always)]
    pub(crate) fn sent(&mut self, count: u64) {
        self.sent += count;
        for _ in 0..count {
            let buffer = self.pass();
            self.free.give_sent(buffer);
        }
    }

    /// Frees the buffer of the oldest finished packet.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        let buffer = self.pass();
        self.free.give(buffer);
    }

    /// Takes the buffer of the oldest finished packet.
    #[inline(always)]
    fn pass(&mut self) -> Buffer {
        debug_assert!(self.released != self.done);
        let packet = &self.packets[(self.released & self.packet_mask) as usize];
        if let Some(dead) = &mut self.dead {
            self.pool.gather(packet.buffer, packet.lines, dead);
        }
        self.released += 1;
        packet.buffer
    }

    /// From now on buffers are invalidated when they are released.
    pub(crate) fn invalidate_released(&mut self) {
        self.dead = Some(Gather::new());
    }

    /// Invalidates the buffers that were released since the last call, before they are filled again.
    #[inline(always)]
    pub(crate) fn discard_released(&mut self, chip: &mut Chip) {
        if let Some(dead) = &mut self.dead {
            chip.discard_all(dead.lines());
            dead.clear();
        }
    }

    /// Packets that the NIC wrote and no worker has taken.
    pub(crate) fn waiting(&self) -> u32 {
        (self.filled - self.done) as u32
    }

    // ---- worker ---------------------------------------------------------------------------------------

    /// The oldest packet that waits for the worker, visible or not yet.
    #[inline(always)]
    pub(crate) fn front(&mut self) -> Option<&mut Packet> {
        (self.done != self.filled).then(|| &mut self.packets[(self.done & self.packet_mask) as usize])
    }

    /// The packet behind `behind` others, visible or not yet.
    #[inline(always)]
    pub(crate) fn nth(&mut self, behind: u64) -> Option<&mut Packet> {
        let number = self.done + behind;
        (number != self.filled).then(|| &mut self.packets[(number & self.packet_mask) as usize])
    }

    /// The front packet was copied into a fresh buffer; frees the one in which it arrived.
    #[inline(always)]
    pub(crate) fn exchange_front(&mut self) -> Packet {
        let packet = &mut self.packets[(self.done & self.packet_mask) as usize];
        if let Some(fresh) = self.free.take() {
            if let Some(dead) = &mut self.dead {
                self.pool.gather(packet.buffer, packet.lines, dead);
            }
            self.free.give(packet.buffer);
            packet.buffer = fresh;
        }
        *packet
    }

    /// The worker has finished the front packet and posts the buffer freed last in its slot, if there is one and the
    /// ring was not made smaller meanwhile.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.done += 1;
        if self.has_room() {
            self.post();
        }
    }

    /// [`Queue::advance`] for the first `count` packets; those that are dropped are released.
    #[inline(always)]
    pub(crate) fn advance_by(&mut self, count: u64, dropped: bool) {
        for _ in 0..count {
            self.advance();
            if dropped {
                self.release();
            }
        }
    }

    /// Posts a free buffer, if there is one.
    #[inline(always)]
    fn post(&mut self) -> bool {
        let free = self.free.take();
        if let Some(free) = free {
            self.buffers[(self.posted & self.ring_mask) as usize] = free;
            self.posted += 1;
        }
        free.is_some()
    }

    /// True if no packet fits the send ring and, for a NIC, the software queue in front of it.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.done - self.released >= self.send_room
    }

    /// Adds the lines of completion entries that the worker read since the last call.
    pub(crate) fn gather_completions(&mut self, into: &mut Gather) {
        self.completions.worker_up_to(self.done, into);
    }

    /// Adds the lines of receive descriptors that the worker wrote since the last call.
    pub(crate) fn gather_posted(&mut self, into: &mut Gather) {
        self.descriptors.worker_up_to(self.posted, into);
    }

    /// Adds the lines of send descriptors that the worker wrote since the last call.
    pub(crate) fn gather_queued(&mut self, into: &mut Gather) {
        self.send_entries.worker_up_to(self.done, into);
    }
}

/// The worker's side of a queue with a kernel's socket behind it: its buffers are the driver's, which takes them out
/// of the queue and posts others.
impl Queue {
    /// A driver takes over the queue with buffers of its own, none of which is posted yet. Packets that wait are lost:
    /// they belong to no connection.
    pub(crate) fn open_socket(&mut self, pool: Pool, window: Window) {
        self.pool = pool;
        self.window = Some(window);
        self.done = self.filled;
        self.released = self.filled;
        self.posted = self.filled;
        self.free.clear();
    }

    /// Posts a buffer of the driver's, if the ring has room.
    pub(crate) fn post_buffer(&mut self, next: impl FnOnce() -> Option<u32>) -> bool {
        let number = if self.has_room() { next() } else { None };
        if let Some(number) = number {
            self.buffers[(self.posted & self.ring_mask) as usize] = self.pool.buffer(number);
            self.posted += 1;
        }
        number.is_some()
    }

    /// The driver takes the front packet with its buffer.
    pub(crate) fn take_front(&mut self) -> Option<Packet> {
        let packet = *self.front()?;
        self.done += 1;
        self.released += 1;
        Some(packet)
    }

    /// When the worker can see the packet behind `behind` others, ns, if there is one.
    pub(crate) fn ready_ns(&self, behind: u32) -> Option<f64> {
        let number = self.done + u64::from(behind);
        (number < self.filled).then(|| self.packets[(number & self.packet_mask) as usize].ready_ns)
    }

    /// The packet's buffer is free: its lines are invalidated if the NIC does that.
    pub(crate) fn freed(&mut self, packet: &Packet) {
        if let Some(dead) = &mut self.dead {
            self.pool.gather(packet.buffer, packet.lines, dead);
        }
    }
}

/// Counts of a queue, for tests that no packet is lost.
#[cfg(test)]
impl Queue {
    /// Packets filled, finished and released since the start.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.filled, self.done, self.released]
    }

    /// Leaves so many buffers free and adds the others to the returned ones.
    pub(crate) fn lend_all_but(&mut self, count: u32) {
        let free = self.free.all().count();
        self.returned.extend((count as usize..free).filter_map(|_| self.free.take()));
    }

    /// Number of every buffer that is posted, holds a packet, or is free.
    pub(crate) fn buffers_held(&self) -> impl Iterator<Item = u32> + '_ {
        let posted = (self.filled..self.posted).map(|at| self.buffers[(at & self.ring_mask) as usize]);
        let packets = self.released..self.filled;
        let taken = packets.map(|at| self.packets[(at & self.packet_mask) as usize].buffer);
        posted.chain(taken).chain(self.free.all()).chain(self.returned.iter().copied()).map(Buffer::number)
    }
}

#[cfg(test)]
mod tests;
