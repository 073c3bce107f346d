//! A DPDK worker: polls one RX queue, does something to each packet, drops or sends it.
//!
//! What it does per packet is data ([`PacketWork`]); the programs built on it are a few lines each. All
//! times are those of microarchitecture.md 7, at 2.3 GHz.

use super::{Core, Program, Site};
use crate::bus::{Access, Bus, ClassMean, Costs, Memory};
use crate::nic::{OUTSIDE_NS, Packet, Queue, starts_descriptor_line};
use crate::random::Stream;
use waykeeper_silicon::{Fill, Level, Line};

/// An empty poll, ns.
const EMPTY_POLL_NS: f64 = 25.0;
/// Work on a line beyond fetching it, ns.
pub(super) const LINE_WORK_NS: f64 = 0.9;
/// Completion entry read, ns, by level: MLC, LLC, memory.
const COMPLETION_NS: (f64, f64, f64) = (3.0, 12.0, 70.0);
/// Packet line read or mbuf line written, ns, by level.
const PACKET_LINE_NS: (f64, f64, f64) = (2.0, 5.0, 9.5);
/// Instructions per cycle while not waiting for memory (X): polling and packet code is simple.
const INSTRUCTIONS_PER_CYCLE: f64 = 2.0;

/// What a worker does with the packet's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touch {
    /// Nothing.
    None,
    /// Reads and rewrites the header line.
    Header,
    /// Reads every line.
    Payload,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Dropped after use.
    Drop,
    /// Sent back out.
    Send,
}

/// Per-packet behaviour of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketWork {
    pub burst: u32,
    /// Fixed work per packet, ns.
    pub base_ns: f64,
    /// Fixed work per burst, ns.
    pub burst_ns: f64,
    /// Further work per packet, ns (the artifact's `delay`).
    pub delay_ns: f64,
    /// rte_mbuf and metadata lines written.
    pub meta_lines: u32,
    pub touch: Touch,
    pub fate: Fate,
}

/// Every polling core loses this much, ns, now and then: timer ticks and kernel threads. This one number
/// gives IAT Fig. 3 (microarchitecture.md 7).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    pub length_ns: f64,
    pub period_ns: f64,
}

impl Default for Stall {
    fn default() -> Stall {
        Stall { length_ns: 60_000.0, period_ns: 4_500_000.0 }
    }
}

/// A class of accesses with its costs and the mean for lines outside the sample.
#[derive(Clone, Copy, Debug)]
struct Class {
    costs: Costs,
    mean: ClassMean,
}

impl Class {
    fn new((mlc, llc, memory): (f64, f64, f64), peer: f64) -> Class {
        let costs = Costs::new(mlc, llc, memory, peer);
        Class { costs, mean: ClassMean::new(costs.idle(Level::Memory)) }
    }

    /// Cost of `total` lines of which `sampled` are in the sample.
    #[inline(always)]
    fn lines(
        &mut self,
        memory: &mut Memory,
        core: usize,
        sampled: &[Line],
        total: u32,
        access: Access,
    ) -> f64 {
        let mut ns = (total - sampled.len() as u32) as f64 * self.mean.ns();
        for line in sampled {
            let cost = memory.touch(core, *line, access, Fill::Ordinary, &self.costs);
            self.mean.note(cost);
            ns += cost;
        }
        ns
    }

    /// Cost of one line that may be in the sample.
    #[inline(always)]
    fn line(&mut self, memory: &mut Memory, core: usize, line: Option<Line>, access: Access) -> f64 {
        match line {
            Some(line) => {
                let cost = memory.touch(core, line, access, Fill::Ordinary, &self.costs);
                self.mean.note(cost);
                cost
            }
            None => self.mean.ns(),
        }
    }
}

/// One polling thread.
#[derive(Debug)]
pub(super) struct Poller {
    nic: usize,
    queue: usize,
    workload: usize,
    work: PacketWork,
    completion: Class,
    meta: Class,
    data: Class,
    send: Class,
    stall: Stall,
    next_stall_ns: f64,
    stream: Stream,
    hold_ns: f64,
    /// Room for a burst, and the packets in it.
    burst: Box<[Packet]>,
    taken: usize,
}

impl Poller {
    /// The worker of queue `site.thread`.
    ///
    /// # Panics
    /// If the site has no NIC; scenarios are checked for that before.
    pub(super) fn new(site: &mut Site<'_>, work: PacketWork, stall: Stall) -> Poller {
        let peer = site.bus.peer_factor;
        let mut stream = site.stream();
        let first_stall = stream.exponential(stall.period_ns);
        Poller {
            nic: site.nic.expect("a scenario with a packet program has a NIC"),
            queue: site.thread,
            workload: site.workload,
            work,
            completion: Class::new(COMPLETION_NS, peer),
            meta: Class::new(PACKET_LINE_NS, peer),
            data: Class::new(PACKET_LINE_NS, peer),
            send: Class::new(PACKET_LINE_NS, peer),
            stall,
            next_stall_ns: site.start_ns + first_stall,
            stream,
            hold_ns: site.hold_ns,
            burst: vec![Packet::NONE; work.burst as usize].into(),
            taken: 0,
        }
    }

    /// Takes a burst off the ring: completion entry, mbuf line, and a fresh buffer for each.
    #[inline]
    fn receive(&mut self, memory: &mut Memory, queue: &mut Queue, core: &mut Core) {
        let Poller { work, completion: completions, meta: metadata, burst, .. } = self;
        let now = core.clock_ns;
        let mut ns = work.burst_ns;
        self.taken = 0;
        for place in burst {
            let Some(slot) = queue.take(now) else {
                break;
            };
            let packet = slot.packet;
            if memory.chip.is_large() && work.touch != Touch::None {
                queue.pool.prefetch_data(&memory.chip, packet.buffer, packet.lines());
            }
            ns += completions.line(memory, core.id, slot.completion, Access::Read);
            let lines = queue.pool.meta(packet.buffer, work.meta_lines);
            ns += metadata.lines(memory, core.id, lines, work.meta_lines, Access::Write);
            // Replenish from the LIFO cache: four descriptors share a line.
            if let Some((number, posted)) = queue.post()
                && starts_descriptor_line(number)
            {
                ns += metadata.line(memory, core.id, posted.descriptors, Access::Write);
            }
            *place = packet;
            self.taken += 1;
        }
        core.work(ns, work.burst_ns * INSTRUCTIONS_PER_CYCLE);
    }

    /// Works on each packet of the burst.
    #[inline]
    fn process(&mut self, bus: &mut Bus, core: &mut Core) {
        let cycles_per_ns = bus.ghz * INSTRUCTIONS_PER_CYCLE;
        let Bus { memory, nics, meters, .. } = bus;
        let queue = &mut nics[self.nic].queues[self.queue];
        let meter = &mut meters[self.workload];
        let Poller { work, data, send, burst, .. } = self;
        let access = if work.touch == Touch::Header { Access::Write } else { Access::Read };
        let base_ns = work.base_ns + work.delay_ns;
        for packet in &burst[..self.taken] {
            let lines = match work.touch {
                Touch::None => 0,
                Touch::Header => 1,
                Touch::Payload => packet.lines(),
            };
            let sampled = queue.pool.data(packet.buffer, lines);
            let work_ns = base_ns + f64::from(lines) * LINE_WORK_NS;
            let mut ns = work_ns + data.lines(memory, core.id, sampled, lines, access);
            match work.fate {
                Fate::Drop => {
                    core.work(ns, work_ns * cycles_per_ns);
                    queue.release(packet.buffer);
                    meter.operations += 1.0;
                    meter.bytes += f64::from(packet.bytes);
                    meter.latency(core.clock_ns - packet.arrived_ns + OUTSIDE_NS);
                }
                Fate::Send => {
                    let entry = queue.outgoing.next_entry();
                    ns += send.line(memory, core.id, entry, Access::Write);
                    core.work(ns, work_ns * cycles_per_ns);
                    queue.outgoing.push(Packet { ready_ns: core.clock_ns, ..*packet });
                }
            }
        }
    }

    fn lose_time(&mut self, core: &mut Core) {
        core.work(self.stall.length_ns, 0.0);
        self.next_stall_ns = core.clock_ns + self.stream.exponential(self.stall.period_ns);
    }

    /// Polls without finding anything until `until_ns` or until a packet shows.
    fn poll_idle(&self, bus: &Bus, core: &mut Core, until_ns: f64) {
        let queue = &bus.nics[self.nic].queues[self.queue];
        let next = queue.next_ready_ns().filter(|_| !self.blocked(queue)).unwrap_or(until_ns).min(until_ns);
        let polls = ((next - core.clock_ns) / EMPTY_POLL_NS).ceil().max(1.0);
        let ns = polls * EMPTY_POLL_NS;
        core.work(ns, ns * bus.ghz * INSTRUCTIONS_PER_CYCLE);
    }

    /// A sender whose software queue is full waits for the NIC.
    fn blocked(&self, queue: &Queue) -> bool {
        self.work.fate == Fate::Send && queue.outgoing.is_full()
    }
}

impl Program for Poller {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if core.clock_ns < self.hold_ns {
            core.halt(self.hold_ns.min(until_ns));
        }
        while core.clock_ns < until_ns {
            if core.clock_ns >= self.next_stall_ns {
                self.lose_time(core);
                continue;
            }
            let queue = &bus.nics[self.nic].queues[self.queue];
            let ready = queue.next_ready_ns().is_some_and(|ready| ready <= core.clock_ns);
            if !ready || self.blocked(queue) {
                self.poll_idle(bus, core, until_ns);
                continue;
            }
            self.receive(&mut bus.memory, &mut bus.nics[self.nic].queues[self.queue], core);
            self.process(bus, core);
        }
    }
}
