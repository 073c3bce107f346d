//! NIC ports: arrivals, RSS, RX and TX rings, PCIe.
//!
//! The NIC writes packets and completions, and reads descriptors and packets to send, through the chip's DMA rules. It
//! must not know caches or what a worker does with a packet (microarchitecture.md 7).
//! Marks: docs/reference/README.md#marks.

mod captured;
mod classifier;
mod entries;
mod fetch;
mod marked;
mod mempool;
mod page_pool;
mod pool;
mod queue;
mod spread;
mod traffic;
mod window;

pub(crate) use captured::WIRE_OVERHEAD_BYTES;
pub(crate) use classifier::Classifier;
pub use classifier::Steering;
pub(crate) use fetch::Fetch;
pub(crate) use marked::Marked;
pub use mempool::MempoolSpec;
pub(crate) use page_pool::{HALF_PAGE_BYTES, PagePool, Recycle};
pub(crate) use pool::{BUFFER_BYTES, Pool};
pub(crate) use queue::{MAX_BURST, OUTSIDE_NS, Packet, Queue};
pub(crate) use spread::{Function, Spread};
pub use traffic::{FlowOrder, Pace, Traffic, TrafficSpec};
pub(crate) use window::Window;

use crate::meter::Meter;
use crate::posted;
use queue::lines_of;
use waykeeper_silicon::{Chip, Gather};

/// Usable PCIe bandwidth towards the host of a NIC of up to 100 Gb/s, GB/s (gen3 x16, microarchitecture.md 2: about 14 GB/s
/// after headers). Faster ones have as much more: 200 Gb/s gen4, 400 Gb/s gen5.
const LINK_GB_PER_S: f64 = 14.0;
/// On-chip receive buffer of such a NIC: bytes that may wait for PCIe or for a queue's engine before packets are lost (X).
const RX_FIFO_BYTES: f64 = 512.0 * 1024.0;
/// The line rate from which link, buffer and the rate of a queue's engine grow with it, Gb/s.
const USUAL_GBPS: f64 = 100.0;
/// From enqueue to the NIC's fetch of descriptor and packet, ns (microarchitecture.md 7).
const TX_FETCH_NS: f64 = 700.0;
/// One queue's engine takes this long per packet, ns, and per byte, in either direction (ddio-bench, single-core l2fwd:
/// 256 B 11.9 ... 1500 B 7.5 Mpps). Without a read window it limits receiving too: if it limited only sending, a single
/// core's software queue would always be full, which contradicts its write hits at 128 descriptors (97.9 %). With a
/// window it limits only sending: the queue is full (artifact: p99 of one core with 4096 descriptors 711 us above the
/// generator's, ours 713; 40 % read hits, ours 39), and those write hits are too few. The time per byte is about that of
/// the link, and shorter on a faster NIC in proportion to its line rate (X).
const QUEUE_PACKET_NS: f64 = 22.0;
const QUEUE_BYTE_NS: f64 = 0.0735;
/// Sending takes this part of that time where receiving is limited too (X): a single queue then drains the packets
/// that a stall left, which it could not at equal rates.
const SEND_PART: f64 = 0.9;
/// With one or two send queues the wire is filled to this share, with more of them fully (C: ddio-bench Fig. 8, two
/// cores, where sending backs up above 97 Gb/s). It replaces a read window: not used for a NIC that has one.
const FEW_QUEUES: usize = 2;
const FEW_QUEUES_SHARE: f64 = 0.97;

/// Cumulative counts of a NIC.
#[derive(Clone, Copy, Debug, Default)]
pub struct NicCounters {
    /// Packets offered by the wire.
    pub offered: u64,
    /// Packets dropped for want of a buffer or of PCIe bandwidth.
    pub dropped: u64,
    /// Bytes written to the host.
    pub inbound_bytes: u64,
    /// Bytes read from the host.
    pub outbound_bytes: u64,
}

/// One port.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Device number on the chip.
    pub(crate) device: usize,
    /// Line rate, Gb/s.
    pub(crate) gbps: f64,
    /// PCIe bandwidth towards the host, GB/s.
    pub(crate) link_gb_per_s: f64,
    /// Time of a queue's engine per byte, ns.
    queue_byte_ns: f64,
    pub(crate) queues: Vec<Queue>,
    /// Queues that only send: those of a switch, which fills them from its ports.
    pub(crate) outlets: Vec<Queue>,
    pub(crate) traffic: Traffic,
    pub(crate) counters: NicCounters,
    /// Tags packets where IDIO or a static placement decides about them; `None` leaves them to DCA.
    pub(crate) classifier: Option<Classifier>,
    /// Its read window; `None` has no limit.
    pub(crate) fetch: Option<Fetch>,
    pcie_free_ns: f64,
    /// Time until which packets in hand occupy the wire, ns.
    wire_owed_until_ns: f64,
    first_to_send: usize,
    wire_byte_ns: f64,
    /// Lines to read and to write before this turn of the NIC ends.
    reads: Gather,
    writes: Gather,
    marked: Marked,
}

impl Nic {
    pub(crate) fn new(device: usize, gbps: f64, traffic: Traffic) -> Nic {
        Nic {
            device,
            gbps,
            link_gb_per_s: usual_link(gbps),
            queue_byte_ns: QUEUE_BYTE_NS / times_usual(gbps),
            queues: Vec::new(),
            outlets: Vec::new(),
            traffic,
            counters: NicCounters::default(),
            classifier: None,
            fetch: None,
            pcie_free_ns: 0.0,
            wire_owed_until_ns: 0.0,
            first_to_send: 0,
            wire_byte_ns: 8.0 / gbps,
            reads: Gather::new(),
            writes: Gather::new(),
            marked: Marked::new(),
        }
    }

    /// Writes every packet that arrives before `until_ns` to the host, or drops it.
    pub(crate) fn receive(&mut self, chip: &mut Chip, meters: &mut [Meter], until_ns: f64) {
        if self.queues.is_empty() {
            return;
        }
        if self.queues.iter().any(|queue| queue.window.is_some()) {
            self.receive_as::<true>(chip, meters, until_ns);
        } else {
            self.receive_as::<false>(chip, meters, until_ns);
        }
    }

    /// The same, with or without senders that wait for a window.
    #[inline(always)]
    fn receive_as<const WINDOWS: bool>(&mut self, chip: &mut Chip, meters: &mut [Meter], until_ns: f64) {
        // Each queue has its share of the receive buffer, which fills at line rate.
        let fifo_bytes = RX_FIFO_BYTES * times_usual(self.gbps);
        let patience_ns = fifo_bytes * 8.0 / self.gbps / self.queues.len() as f64;
        let windowed = self.fetch.is_some();
        let line_ns = (64.0 / self.link_gb_per_s).max(posted::line_ns(chip, self.device));
        self.reads.clear();
        self.writes.clear();
        let Nic { queues, traffic, counters, classifier, pcie_free_ns, reads, writes, marked, .. } = self;
        let queue_byte_ns = self.queue_byte_ns;
        let mut counted = *counters;
        let mut free_ns = *pcie_free_ns;
        traffic.each_before(until_ns, |arrival| {
            let queue = &mut queues[arrival.queue as usize];
            if WINDOWS && queue.window.as_mut().is_some_and(|window| !window.admits(arrival.at_ns)) {
                // The sender sends its next bytes in a later turn.
                return;
            }
            counted.offered += 1;
            let start = later(later(free_ns, arrival.at_ns), queue.receive_free_ns);
            let lagging = start - arrival.at_ns > patience_ns;
            // What a buffer cannot hold is in the next ones, each with a descriptor and a completion.
            let buffers = u32::from(arrival.bytes).div_ceil(BUFFER_BYTES);
            if lagging || !queue.has_posted_for(buffers) {
                counted.dropped += 1;
                meters[queue.workload].dropped += 1.0;
                return;
            }
            let with_completion = u32::from(lines_of(arrival.bytes)) + buffers;
            free_ns = start + f64::from(with_completion) * line_ns;
            counted.inbound_bytes += u64::from(with_completion) * 64;
            if !windowed {
                queue.receive_free_ns = start + QUEUE_PACKET_NS + queue_byte_ns * f64::from(arrival.bytes);
            }
            let mut left = arrival.bytes;
            loop {
                let bytes = left.min(BUFFER_BYTES as u16);
                let is_first = left == arrival.bytes;
                left -= bytes;
                let times = (arrival.at_ns, free_ns);
                let packet = queue.fill_part(bytes, arrival.flow, times, (is_first, left == 0));
                marked.note(arrival.queue, packet.buffer, packet.lines);
                if WINDOWS && let Some(window) = &mut queue.window {
                    window.arrived();
                }
                if let Some(classifier) = classifier {
                    let lines = queue.pool.sampled(packet.buffer, packet.lines);
                    let header = is_first && queue.pool.sampled(packet.buffer, 1) == 1;
                    classifier.classify(arrival.queue as usize, arrival.dscp, lines, header);
                }
                if left == 0 {
                    break;
                }
            }
        });
        (*counters, *pcie_free_ns) = (counted, free_ns);
        marked.gather(|queue| &queues[queue].pool, writes);
        for queue in queues {
            queue.gather_filled(reads, writes);
        }
        chip.dma_read_all(self.device, self.reads.lines());
        let writes = self.writes.lines();
        let steered = self.classifier.as_mut().map_or(0, |tags| tags.write(chip, self.device, writes));
        chip.dma_write_all(self.device, &writes[steered..]);
    }

    /// Sends packets that are queued and may be fetched between `from_ns` and `until_ns`. Queues take turns at being
    /// first. The wire is a fluid: it is occupied for the time of all packets in hand, so that serving one queue after
    /// the other within a quantum loses no gap between packets.
    pub(crate) fn transmit(&mut self, chip: &mut Chip, meters: &mut [Meter], from_ns: f64, until_ns: f64) {
        self.wire_owed_until_ns = self.wire_owed_until_ns.max(from_ns);
        let count = self.queues.len() + self.outlets.len();
        // Queues of a switch do not send themselves: there are as many senders as receive queues.
        let share =
            if self.queues.len() > FEW_QUEUES || self.fetch.is_some() { 1.0 } else { FEW_QUEUES_SHARE };
        self.wire_byte_ns = 8.0 / (self.gbps * share);
        self.first_to_send = if self.first_to_send + 1 < count { self.first_to_send + 1 } else { 0 };
        if let Some(fetch) = &mut self.fetch {
            fetch.begin(chip, self.device, from_ns);
        }
        self.reads.clear();
        for turn in 0..count {
            let index = (self.first_to_send + turn) % count;
            let before = self.reads.count();
            self.send(meters, index, until_ns);
            if let Some(classifier) = self.classifier.as_ref().filter(|_| index < self.queues.len()) {
                chip.steered_read_all(self.device, &self.reads.lines()[before..], classifier.core(index));
                self.reads.truncate(before);
            }
        }
        chip.dma_read_all(self.device, self.reads.lines());
        if let Some(fetch) = &mut self.fetch {
            fetch.end(chip, self.device);
        }
        for queue in &mut self.queues {
            queue.discard_released(chip);
        }
    }

    /// Sends from one queue until it is empty or its next packet has to wait.
    #[inline]
    fn send(&mut self, meters: &mut [Meter], index: usize, until_ns: f64) {
        let Nic {
            queues,
            outlets,
            counters,
            wire_owed_until_ns,
            wire_byte_ns,
            queue_byte_ns,
            reads,
            fetch: reader,
            marked,
            ..
        } = self;
        let queue = match index.checked_sub(queues.len()) {
            None => &mut queues[index],
            Some(outlet) => &mut outlets[outlet],
        };
        let meter = &mut meters[queue.workload];
        let part = if reader.is_some() { 1.0 } else { SEND_PART };
        let (mut free_ns, mut owed_until_ns) = (queue.send_free_ns, *wire_owed_until_ns);
        let mut sent = 0;
        for packet in queue.queued() {
            let fetch = packet.ready_ns + TX_FETCH_NS;
            let mut start = later(later(fetch, free_ns), owed_until_ns);
            if let Some(reader) = reader {
                start = later(start, reader.free_ns());
            }
            if start >= until_ns {
                break;
            }
            let bytes = f64::from(packet.bytes);
            // On the wire, and for the engine, the buffers of a packet are one.
            let (overhead, packet_ns) =
                if packet.is_first { (WIRE_OVERHEAD_BYTES, QUEUE_PACKET_NS) } else { (0.0, 0.0) };
            owed_until_ns += (bytes + overhead) * *wire_byte_ns;
            let fetched = (u64::from(packet.lines) + 1) * 64;
            counters.outbound_bytes += fetched;
            if let Some(reader) = reader {
                reader.read(fetched as f64);
            }
            meter.bytes += bytes;
            if packet.is_last {
                meter.operations += 1.0;
                meter.latency(start - packet.arrived_ns + queue.outside_ns);
            }
            marked.note(0, packet.buffer, packet.lines);
            free_ns = start + part * (packet_ns + *queue_byte_ns * bytes);
            sent += 1;
        }
        (queue.send_free_ns, *wire_owed_until_ns) = (free_ns, owed_until_ns);
        marked.gather(|_| &queue.pool, reads);
        queue.sent(sent);
        queue.gather_sent(reads);
    }

    /// Packets waiting in all RX rings.
    pub fn backlog(&self) -> u32 {
        self.queues.iter().map(Queue::waiting).sum()
    }
}

/// PCIe bandwidth towards the host of a NIC with this line rate, GB/s.
pub(crate) fn usual_link(gbps: f64) -> f64 {
    LINK_GB_PER_S * times_usual(gbps)
}

/// How many times faster than usual a NIC with this line rate is, at least 1.
fn times_usual(gbps: f64) -> f64 {
    (gbps / USUAL_GBPS).max(1.0)
}

/// The later of two times. Unlike [`f64::max`] it does not treat NaN, which does not occur: one instruction.
#[inline(always)]
fn later(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}
