//! A kernel's receive path under a program that reads from a TCP socket: interrupts, softirq, socket queue, copy.
//!
//! An interrupt starts the softirq, which takes frames from the ring in polls of NAPI's weight, gives each an
//! `sk_buff`, merges them (GRO) and puts them into the socket's queue. The program wakes up, reads up to a fixed number
//! of bytes at a time, and copies them into its own buffer. Then a frame's half page returns to the driver's pool.
//! Copied bytes make room in the sender's window. Softirq and program share one core, as under aRFS (Cai et al.,
//! SIGCOMM 2021). Must not know connections or losses: one queue is one stream.
//!
//! Times are those of microarchitecture.md 7.1. Marks: docs/reference/README.md#marks.

use super::class::Class;
use super::copy::Copy;
use super::packet_handler::PacketHandler;
use super::poller::{
    COMPLETION_NS, DESCRIPTOR_LINES, INSTRUCTIONS_PER_CYCLE, LINE_WORK_NS, PACKET_LINE_NS, Stall,
};
use super::program::{Core, Program, Site};
use super::skb::{SKB_LINES, Skbs};
use crate::bus::{Access, Bus, Memory};
use crate::meter::Meter;
use crate::nic::{HALF_PAGE_BYTES, Packet, PagePool, Pool, Queue, Recycle, Window};
use crate::random::Stream;
use std::collections::VecDeque;
use waykeeper_silicon::{Level, OutOfMemory};

/// Frames that one softirq takes at most before the program runs (Linux: `net.core.netdev_budget`).
const BUDGET: u32 = 300;

/// Buffers beyond those that are posted or in the socket: halves of pages whose other half is in use, at either end
/// of the queue.
const SPARE_BUFFERS: u32 = 4;

/// What a socket program and the kernel below it do; all times in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketWork {
    /// Frames of a NAPI poll.
    pub weight: u32,
    /// Fixed work per poll, its interrupt included.
    pub poll_ns: f64,
    /// Work on a frame in the softirq, without its lines.
    pub softirq_ns: f64,
    /// Further work per frame in the program.
    pub delay_ns: f64,
    /// Fixed work per read of the program.
    pub read_ns: f64,
    /// Bytes per read.
    pub read_bytes: u64,
    /// Bytes of the buffer that it reads into.
    pub buffer_bytes: u64,
    /// Bytes of frames that GRO merges into one structure at most.
    pub gro_bytes: u64,
    /// Bytes of the socket's receive buffer; a frame takes its half page.
    pub window_bytes: u64,
    /// The first interrupt comes this long after the first waiting frame...
    pub coalesce_ns: f64,
    /// ... or when this many frames wait.
    pub coalesce_frames: u32,
    /// From the softirq that fills an empty queue to the first instruction of the program.
    pub wakeup_ns: f64,
    pub recycle: Recycle,
}

impl SocketWork {
    /// Frames that fit the socket's receive buffer.
    fn window_frames(&self) -> u32 {
        (self.window_bytes / u64::from(HALF_PAGE_BYTES)) as u32
    }
}

/// A frame in the socket's queue.
#[derive(Clone, Copy, Debug)]
struct Held {
    packet: Packet,
    /// The structure that begins with this frame.
    skb: Option<u32>,
}

/// The classes of lines that the path touches.
#[derive(Clone, Debug)]
struct Lines {
    completion: Class,
    descriptor: Class,
    header: Class,
    skb: Class,
    skb_read: Class,
    data: Class,
}

/// State of the core.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Frames that the softirq may still take; 0 if none runs.
    softirq_left: u32,
    /// The softirq ended with frames in the ring: the next one needs no interrupt.
    polling: bool,
    /// The program may finish a read before the next softirq.
    program_first: bool,
    /// Bytes left of the read in progress; 0 if there is none.
    read_left: u64,
    /// The program runs from this time on.
    runs_from_ns: f64,
    /// The program sleeps: its next frame must wake it.
    sleeps: bool,
}

/// One thread of a socket program, and the kernel on its core.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    nic: usize,
    queue: usize,
    workload: usize,
    work: SocketWork,
    pages: PagePool,
    skbs: Skbs,
    /// The socket's queue.
    held: VecDeque<Held>,
    /// Bytes that GRO may still add to the present structure.
    gro_left: u64,
    /// The structure whose frames are being copied.
    copying: Option<u32>,
    turn: Turn,
    lines: Lines,
    line_work_ns: f64,
    copy: Copy,
    stall: Stall,
    next_stall_ns: f64,
    stream: Stream,
    work_from_ns: f64,
}

impl Socket {
    /// The socket program of queue `queue` of NIC `nic`.
    pub(super) fn new(
        site: &mut Site<'_>,
        (nic, queue): (usize, usize),
        work: SocketWork,
        stall: Stall,
    ) -> Result<Socket, OutOfMemory> {
        let mut stream = site.stream();
        let first_stall = stream.exponential(stall.period_ns);
        let frames = work.window_frames();
        let ring = site.bus.nics[nic].queues[queue].ring();
        let mut pages = PagePool::new(ring + frames + SPARE_BUFFERS, work.recycle);
        let pool = Pool::pages(site.memory, pages.buffers())?;
        let skbs = Skbs::new(site.memory, frames + 2)?;
        let copy = Copy::new(site.memory.ordinary(work.buffer_bytes)?, site.bus);
        let ports = &mut site.bus.nics[nic].queues[queue];
        // The round trip to the sender equals the part of a measured latency that is outside the host.
        let window = Window::new(frames, ports.outside_ns);
        ports.open_socket(pool, window);
        while ports.post_buffer(|| pages.take()) {}
        ports.cold = false;
        let bus = &*site.bus;
        let line = |first| Class::new(PACKET_LINE_NS, bus, first);
        // A small ring may have no sampled line; the NIC has just written completions and data into the LLC.
        let lines = Lines {
            completion: Class::new(COMPLETION_NS, bus, Level::Llc),
            descriptor: line(Level::Mlc),
            header: line(Level::Llc),
            skb: line(Level::Mlc),
            skb_read: line(Level::Mlc),
            data: line(Level::Llc),
        };
        Ok(Socket {
            nic,
            queue,
            workload: site.workload,
            work,
            pages,
            skbs,
            held: VecDeque::with_capacity(frames as usize),
            gro_left: 0,
            copying: None,
            turn: Turn { sleeps: true, ..Turn::default() },
            lines,
            line_work_ns: bus.work_ns(LINE_WORK_NS),
            copy,
            stall,
            next_stall_ns: site.start_ns + first_stall,
            stream,
            work_from_ns: site.work_from_ns,
        })
    }

    /// When the next softirq is due, ns.
    fn due_ns(&self, queue: &Queue) -> Option<f64> {
        let first = queue.ready_ns(0)?;
        if self.turn.polling {
            return Some(first);
        }
        let last = queue.ready_ns(self.work.coalesce_frames - 1).unwrap_or(f64::INFINITY);
        Some(last.min(first + self.work.coalesce_ns))
    }

    /// Works from `now` until `until_ns`. Returns the clock, the time asleep and the time spent on instructions, ns.
    fn work(&mut self, queue: &mut Queue, meter: &mut Meter, mut now: f64, until_ns: f64) -> (f64, f64, f64) {
        let (mut slept_ns, mut worked_ns) = (0.0, 0.0);
        while now < until_ns {
            if self.turn.softirq_left > 0 {
                if queue.ready_ns(0).is_some_and(|ready| ready <= now) {
                    worked_ns += self.receive(queue, meter, &mut now);
                } else {
                    // The ring is empty: interrupts are on again.
                    self.turn = Turn { softirq_left: 0, polling: false, program_first: false, ..self.turn };
                }
                if self.turn.softirq_left == 0 {
                    self.end_softirq(now);
                }
                continue;
            }
            let due_ns = self.due_ns(queue).unwrap_or(f64::INFINITY);
            let runnable = !self.held.is_empty() && now >= self.turn.runs_from_ns;
            if due_ns <= now && !(self.turn.program_first && runnable) {
                self.turn.softirq_left = BUDGET;
            } else if runnable {
                worked_ns += self.read(queue, meter, &mut now);
            } else {
                let wakes_ns = if self.held.is_empty() { f64::INFINITY } else { self.turn.runs_from_ns };
                let next = due_ns.min(wakes_ns).min(until_ns);
                slept_ns += next - now;
                now = next;
            }
        }
        (now, slept_ns, worked_ns)
    }

    /// The softirq takes a frame. Returns the time spent on instructions, ns.
    fn receive(&mut self, queue: &mut Queue, meter: &mut Meter, now: &mut f64) -> f64 {
        let Socket { work, lines, skbs, held, pages, turn, gro_left, .. } = self;
        let packet = queue.take_front().expect("a frame is ready");
        while queue.post_buffer(|| pages.take()) {}
        let start = *now;
        if !packet.is_first {
            // A further buffer of the frame: the driver adds it to the frame's structure.
            let ring_ns =
                lines.completion.ns() * queue.completion_lines + DESCRIPTOR_LINES * lines.descriptor.ns();
            *now = start + ring_ns;
            *gro_left = gro_left.saturating_sub(u64::from(packet.bytes));
            held.push_back(Held { packet, skb: None });
            meter.stations.pointer_ns += ring_ns;
            return 0.0;
        }
        let polls = (BUDGET - turn.softirq_left).is_multiple_of(work.weight.min(queue.burst_limit));
        let worked_ns = work.softirq_ns + if polls { work.poll_ns } else { 0.0 };
        let ring_ns =
            lines.completion.ns() * queue.completion_lines + DESCRIPTOR_LINES * lines.descriptor.ns();
        *now = start + worked_ns + ring_ns + lines.header.ns() + f64::from(SKB_LINES) * lines.skb.ns();
        queue.pool.gather(packet.buffer, 1, &mut lines.header.sampled);
        let skb = skbs.take();
        skbs.lines(skb).iter().for_each(|line| lines.skb.sampled.push(*line));
        let bytes = u64::from(packet.bytes);
        let merged = bytes <= *gro_left;
        if merged {
            // The frame's data becomes a fragment of the first frame's structure, and its own is free at once.
            skbs.give_back(skb);
            *gro_left -= bytes;
        } else {
            *gro_left = work.gro_bytes.saturating_sub(bytes);
        }
        held.push_back(Held { packet, skb: (!merged).then_some(skb) });
        turn.softirq_left -= 1;
        if turn.softirq_left == 0 {
            turn.polling = true;
            turn.program_first = true;
        }
        meter.stations.packets += 1.0;
        meter.stations.queueing_ns += start - packet.arrived_ns;
        meter.stations.pointer_ns += ring_ns;
        meter.stations.processing_ns += *now - start - ring_ns;
        worked_ns
    }

    /// Ends the softirq: passes on what GRO holds and wakes a sleeping program.
    fn end_softirq(&mut self, now: f64) {
        self.gro_left = 0;
        if self.turn.sleeps && !self.held.is_empty() {
            self.turn.sleeps = false;
            self.turn.runs_from_ns = now + self.work.wakeup_ns;
        }
    }

    /// The program copies a frame. Returns the time spent on instructions, ns.
    fn read(&mut self, queue: &mut Queue, meter: &mut Meter, now: &mut f64) -> f64 {
        let Socket { work, lines, skbs, held, pages, turn, .. } = self;
        let Held { packet, skb } = held.pop_front().expect("the program has something to read");
        let start = *now;
        let mut worked_ns = if packet.is_first { work.delay_ns } else { 0.0 };
        if turn.read_left == 0 {
            turn.read_left = work.read_bytes;
            worked_ns += work.read_ns;
        }
        let mut line_ns = 0.0;
        if let Some(skb) = skb {
            skbs.lines(skb).iter().for_each(|line| lines.skb_read.sampled.push(*line));
            line_ns += f64::from(SKB_LINES) * lines.skb_read.ns();
            // The structure before it is completely copied.
            if let Some(done) = self.copying.replace(skb) {
                skbs.give_back(done);
            }
        }
        let count = f64::from(packet.lines);
        worked_ns += count * self.line_work_ns;
        line_ns += count * lines.data.ns() + self.copy.write(count);
        queue.pool.gather(packet.buffer, packet.lines, &mut lines.data.sampled);
        *now = start + worked_ns + line_ns;
        pages.give_back(packet.buffer.number());
        queue.freed(&packet);
        if let Some(window) = &mut queue.window {
            window.copied(*now);
        }
        turn.read_left = turn.read_left.saturating_sub(u64::from(packet.bytes));
        if held.is_empty() {
            turn.read_left = 0;
            turn.sleeps = true;
        }
        if turn.read_left == 0 {
            turn.program_first = false;
        }
        meter.stations.processing_ns += *now - start;
        meter.bytes += f64::from(packet.bytes);
        if packet.is_last {
            meter.operations += 1.0;
            meter.latency(*now - packet.arrived_ns + queue.outside_ns);
        }
        worked_ns
    }

    /// Accesses the sampled lines of this turn. Returns by how much their cost exceeds their charge, ns.
    fn settle(&mut self, memory: &mut Memory, queue: &mut Queue, core: usize) -> f64 {
        let Lines { completion, descriptor, header, skb, skb_read, data } = &mut self.lines;
        queue.gather_completions(&mut completion.sampled);
        queue.gather_posted(&mut descriptor.sampled);
        let mut ns = completion.settle(memory, core, Access::Read);
        ns += descriptor.settle(memory, core, Access::Write);
        ns += header.settle(memory, core, Access::Read);
        ns += skb.settle(memory, core, Access::Write);
        ns += skb_read.settle(memory, core, Access::Read);
        ns += data.settle(memory, core, Access::Read);
        ns += self.copy.settle(memory, core);
        queue.discard_released(&mut memory.chip);
        ns
    }
}

impl Program for Socket {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        if core.clock_ns < self.work_from_ns {
            core.halt(self.work_from_ns.min(until_ns));
        }
        let Bus { memory, nics, meters, ghz, .. } = bus;
        let queue = &mut nics[self.nic].queues[self.queue];
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
            let (now, slept_ns, worked_ns) = self.work(queue, meter, from, end);
            let clock = now + self.settle(memory, queue, core.id);
            // Lines may have cost less than they were charged: then time is left before the end.
            core.work((clock - from - slept_ns).max(0.0), worked_ns * instructions_per_ns);
            core.halt(clock);
        }
    }
}

#[cfg(test)]
mod tests;
