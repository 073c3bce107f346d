//! A DPDK worker: polls one RX queue, processes each packet, drops or sends it.
//!
//! Work per packet is data ([`PacketWork`]); work of some programs only, such as a flow look-up, is a
//! [`PacketHandler`]. The programs built on it are a few lines each. Must not know which NIC or switch is behind its
//! queue.
//!
//! Times are those of microarchitecture.md 7, for a Gold 6140 at 2.3 GHz. Costs of polls and lines are converted to the
//! clock of the scenario's chip ([`Bus::work_ns`], [`Bus::line_costs`]). Work per packet and per burst is set by the
//! scenario and is not converted.

use super::class::{Class, Ratio};
use super::packet_handler::{NoHandler, PacketHandler};
use super::program::{Core, Program, Site};
use crate::bus::{Access, Bus, Memory};
use crate::meter::Meter;
use crate::nic::{Marked, Packet, Queue};
use crate::random::Stream;
use waykeeper_silicon::{Fill, Level, Sampling};

/// An empty poll, ns on a Gold 6140 (microarchitecture.md 7).
pub(super) const EMPTY_POLL_NS: f64 = 25.0;
/// Lines of receive descriptors written per packet: four descriptors of 16 bytes share one. Assumption:
/// microarchitecture.md 7 does not count them; 16 bytes are a data segment of mlx5.
pub(super) const DESCRIPTOR_LINES: f64 = 0.25;
/// Work on a line beyond fetching it, ns on a Gold 6140 (microarchitecture.md 2 and 7).
pub(super) const LINE_WORK_NS: f64 = 0.9;
/// Completion entry read, ns on a Gold 6140, by level: MLC, LLC, memory (microarchitecture.md 7: CQE line).
pub(super) const COMPLETION_NS: (f64, f64, f64) = (3.0, 12.0, 70.0);
/// Packet line read or mbuf line written, ns on a Gold 6140, by level (microarchitecture.md 7).
pub(super) const PACKET_LINE_NS: (f64, f64, f64) = (2.0, 5.0, 9.5);
/// Instructions per cycle while not waiting for memory. Assumption: polling and packet code is simple.
pub(super) const INSTRUCTIONS_PER_CYCLE: f64 = 2.0;

/// From a packet's arrival to a sleeping worker's wake-up, ns. Assumption: an interrupt held back for a while, NAPI,
/// the scheduler.
const WAKE_NS: f64 = 5_000.0;

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

/// Fate of a packet.
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
    pub meta_lines: u8,
    pub touch: Touch,
    pub fate: Fate,
}

/// Time that every polling core loses periodically, ns: timer ticks and kernel threads. The default, 60 us about every
/// 4.5 ms, is that of microarchitecture.md 7, from IAT Fig. 3.
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

/// A burst: the packets that were visible when the ring was polled. It can last longer than a turn of the core.
#[derive(Clone, Copy, Debug)]
struct Burst {
    polled_ns: f64,
    /// Packets that it may still take.
    left: u32,
    /// When its first packet arrived, and when the work on its last one ended, ns.
    first_arrived_ns: f64,
    ended_ns: f64,
}

impl Burst {
    const NONE: Burst =
        Burst { polled_ns: f64::NEG_INFINITY, left: 0, first_arrived_ns: f64::NAN, ended_ns: f64::NAN };
}

/// Which packets' latency is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Latency {
    /// The latency of each packet.
    EveryPacket,
    /// The latency of one packet per period: the first of the burst that ends when `every_ns` have passed since
    /// `last_ns`. It ends when the whole burst is done, as in A4's artifact (app/dpdk_microbench/main.c). So every
    /// queue contributes equally.
    FirstOfBurst { every_ns: f64, last_ns: f64 },
}

/// Source of a worker's packets.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A queue of a NIC.
    Nic { nic: usize, queue: usize },
    /// A virtual port of a switch.
    Port(usize),
}

/// One polling thread.
#[derive(Clone, Debug)]
pub(super) struct Poller<E = NoHandler> {
    source: Source,
    workload: usize,
    work: PacketWork,
    handler: E,
    completion: Class,
    meta: Class,
    data: Class,
    send: Class,
    /// Packets of this turn whose data are in the sample.
    marked: Marked,
    /// Cost of completions from the cost of data lines, where few completions are sampled.
    by_data: Option<Ratio>,
    /// Work on a line beyond fetching it, ns.
    line_work_ns: f64,
    empty_poll_ns: f64,
    burst: Burst,
    latency: Latency,
    stall: Stall,
    next_stall_ns: f64,
    stream: Stream,
    work_from_ns: f64,
    /// Time slept in this turn between packets, ns.
    slept_ns: f64,
}

impl Poller {
    /// The worker of queue or port `site.thread`.
    pub(super) fn new(site: &mut Site<'_>, work: PacketWork, stall: Stall) -> Poller {
        Poller::with(NoHandler, site, work, stall)
    }
}

impl<E: PacketHandler> Poller<E> {
    /// The worker of queue or port `site.thread`, with a handler for each packet.
    ///
    /// # Panics
    /// If the site has neither NIC nor port; scenarios are checked for that before.
    pub(super) fn with(handler: E, site: &mut Site<'_>, work: PacketWork, stall: Stall) -> Poller<E> {
        let mut stream = site.stream();
        let first_stall = stream.exponential(stall.period_ns);
        let source = match site.port {
            Some(port) => Source::Port(port),
            None => {
                let nic = site.nic.expect("a scenario with a packet program has a NIC or a switch");
                Source::Nic { nic, queue: site.thread }
            }
        };
        let completion = Class::new(COMPLETION_NS, site.bus, Level::Memory);
        let data = Class::new(PACKET_LINE_NS, site.bus, Level::Memory);
        let sampling = site.memory.sampling();
        let reads_data = work.touch == Touch::Payload && matches!(source, Source::Nic { .. });
        let by_data = (reads_data && sampling != Sampling::EXACT)
            .then(|| Ratio::new(&completion, &data, f64::from(sampling.factor())));
        Poller {
            source,
            workload: site.workload,
            work,
            handler,
            completion,
            meta: Class::new(PACKET_LINE_NS, site.bus, Level::Memory),
            data,
            by_data,
            send: Class::new(PACKET_LINE_NS, site.bus, Level::Memory),
            marked: Marked::new(),
            line_work_ns: site.bus.work_ns(LINE_WORK_NS),
            empty_poll_ns: site.bus.work_ns(EMPTY_POLL_NS),
            burst: Burst::NONE,
            latency: Latency::EveryPacket,
            stall,
            next_stall_ns: site.start_ns + first_stall,
            stream,
            work_from_ns: site.work_from_ns,
            slept_ns: 0.0,
        }
    }

    /// The same worker, which measures the latency of these packets.
    pub(super) fn measuring(self, latency: Latency) -> Poller<E> {
        Poller { latency, ..self }
    }

    /// Works on packets from `core`'s clock until `until_ns`, one burst after the other. Returns the time spent on
    /// instructions, empty polls included, rather than on waiting for lines, ns.
    #[inline(always)]
    fn work(&mut self, queue: &mut Queue, meter: &mut Meter, clock_ns: &mut f64, until_ns: f64) -> f64 {
        let (line_work_ns, empty_poll_ns) = (self.line_work_ns, self.empty_poll_ns);
        let Poller {
            source,
            work,
            handler,
            completion,
            meta,
            data,
            send,
            slept_ns,
            burst,
            latency,
            by_data,
            marked,
            ..
        } = self;
        let sends = work.fate == Fate::Send;
        // A NIC counts what it sends; a port's packets are counted for the tenant when it hands them over.
        let counts = !sends || matches!(source, Source::Port(_));
        let base_ns = work.base_ns + work.delay_ns;
        let completion_ns =
            by_data.as_ref().map_or_else(|| completion.ns(), |ratio| completion.ns_by(data, ratio));
        let ring_ns = completion_ns * queue.completion_lines
            + (f64::from(work.meta_lines) + DESCRIPTOR_LINES) * meta.ns()
            + if sends { send.ns() * queue.send_lines } else { 0.0 };
        let line_ns = data.ns();
        let mut worked_ns = 0.0;
        let mut now = *clock_ns;
        let (most, outside_ns) = (work.burst.min(queue.burst_limit), queue.outside_ns);
        let full = sends && queue.is_full();
        let mut stations = meter.stations;
        // Packets that are finished and still in the ring.
        let mut done = 0;
        while let Some(packet) = queue.nth(done).filter(|_| !full) {
            let ready = packet.ready_ns;
            // The buffers of a packet are taken together.
            let (is_first, is_last) = (packet.is_first, packet.is_last);
            let polls = is_first && (burst.left == 0 || ready > burst.polled_ns);
            // A waiting worker sees a packet half an empty poll late on average.
            let late_ns = if E::SLEEPS { WAKE_NS } else { empty_poll_ns / 2.0 };
            let start = if polls && ready > now { ready + late_ns } else { now };
            if polls && start >= until_ns {
                break;
            }
            // A polling worker is busy while it waits.
            *if E::SLEEPS { &mut *slept_ns } else { &mut worked_ns } += start - now;
            if polls {
                if let Latency::FirstOfBurst { every_ns, last_ns } = latency
                    && burst.ended_ns - *last_ns > *every_ns
                {
                    meter.latency(burst.ended_ns - burst.first_arrived_ns + outside_ns);
                    *last_ns = burst.ended_ns;
                }
                (burst.polled_ns, burst.left, burst.first_arrived_ns) = (start, most, packet.arrived_ns);
            }
            burst.left -= u32::from(is_first);
            let touched = match work.touch {
                Touch::None => 0,
                Touch::Header => u8::from(is_first),
                Touch::Payload => packet.lines,
            };
            let lines = f64::from(touched);
            let own_ns = if is_first { base_ns } else { 0.0 };
            let work_ns = own_ns + lines * line_work_ns;
            worked_ns += work_ns;
            now = start + if polls { work.burst_ns } else { 0.0 } + (work_ns + ring_ns) + lines * line_ns;
            if is_first {
                stations.packets += 1.0;
                stations.queueing_ns += start - packet.arrived_ns;
            }
            stations.pointer_ns += ring_ns;
            stations.processing_ns += now - start - ring_ns;
            packet.ready_ns = now;
            let mut taken = *packet;
            if E::ANY {
                let spent = match is_first {
                    true => handler.run(&mut taken, &queue.pool),
                    false => handler.rest(&mut taken, &queue.pool),
                };
                worked_ns += spent.work_ns;
                now += spent.work_ns + spent.line_ns;
                taken.ready_ns = now;
                if let Some(packet) = queue.nth(done) {
                    *packet = taken;
                }
            }
            let Packet { arrived_ns, buffer, bytes, .. } = taken;
            queue.pool.gather_meta(buffer, work.meta_lines, &mut meta.sampled);
            marked.note(0, buffer, touched);
            done += 1;
            if E::COPIES {
                let copy = queue.exchange_front();
                handler.copied(&copy, &queue.pool);
                queue.advance_by(done, !sends);
                done = 0;
            }
            if counts {
                meter.operations += f64::from(u8::from(is_last));
                meter.bytes += f64::from(bytes);
                if is_last && let Latency::EveryPacket = latency {
                    meter.latency(now - arrived_ns + outside_ns);
                }
            }
            burst.ended_ns = now;
        }
        queue.advance_by(done, !sends);
        marked.gather(|_| &queue.pool, &mut data.sampled);
        meter.stations = stations;
        *clock_ns = now;
        worked_ns
    }

    /// Accesses the sampled lines of this turn. Returns by how much their cost exceeds their charge, ns.
    #[inline(always)]
    fn settle(&mut self, memory: &mut Memory, queue: &mut Queue, core: usize) -> f64 {
        let Poller { work, handler, completion, meta, data, send, by_data, .. } = self;
        queue.gather_completions(&mut completion.sampled);
        queue.gather_posted(&mut meta.sampled);
        let access = if work.touch == Touch::Header { Access::Write } else { Access::Read };
        let mut ns = match by_data {
            Some(ratio) => completion.settle_by(memory, core, Access::Read, (data, ratio)),
            None => completion.settle(memory, core, Access::Read),
        };
        ns += meta.settle(memory, core, Access::Write);
        ns += data.settle(memory, core, access);
        if work.fate == Fate::Send {
            queue.gather_queued(&mut send.sampled);
            ns += send.settle(memory, core, Access::Write);
        }
        if E::ANY {
            ns += handler.settle(memory, core);
        }
        queue.discard_released(&mut memory.chip);
        ns
    }
}

impl<E: PacketHandler> Program for Poller<E> {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if core.clock_ns < self.work_from_ns {
            core.halt(self.work_from_ns.min(until_ns));
        }
        let Bus { memory, nics, ports, meters, ghz, .. } = bus;
        let queue = match self.source {
            Source::Nic { nic, queue } => &mut nics[nic].queues[queue],
            Source::Port(port) => &mut ports[port],
        };
        if queue.cold {
            // Takes no time: a program sets up its buffers before it opens the port.
            queue.cold = false;
            for line in queue.pool.lines() {
                memory.chip.write(core.id, *line, Fill::Ordinary);
            }
        }
        let meter = &mut meters[self.workload];
        let instructions_per_ns = *ghz * INSTRUCTIONS_PER_CYCLE;
        while core.clock_ns < until_ns {
            if core.clock_ns >= self.next_stall_ns {
                core.work(self.stall.length_ns, 0.0);
                self.next_stall_ns = core.clock_ns + self.stream.exponential(self.stall.period_ns);
                continue;
            }
            let from = core.clock_ns;
            let end = until_ns.min(self.next_stall_ns);
            let mut clock = from;
            let worked_ns = self.work(queue, meter, &mut clock, end);
            clock += self.settle(memory, queue, core.id);
            // No more work before the end: it polls or sleeps.
            let idle_ns = (end - clock).max(0.0);
            if E::SLEEPS {
                core.work(clock - from - self.slept_ns, worked_ns * instructions_per_ns);
                core.halt(clock.max(end));
                self.slept_ns = 0.0;
            } else {
                core.work(clock - from + idle_ns, (worked_ns + idle_ns) * instructions_per_ns);
            }
        }
    }
}
