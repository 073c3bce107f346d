//! A kernel's receive path under a program that reads from a TCP socket: interrupts, softirq, socket queue, copy.
//!
//! An interrupt starts the softirq, which takes frames from the ring in polls of NAPI's weight, gives each an `sk_buff`,
//! merges them (GRO) and puts them into the socket's queue. The program wakes up, reads as many bytes at a time as it
//! asks for, and copies them into its own buffer. A frame's half page comes back to the driver's pool after that. What
//! was copied makes room in the sender's window. Softirq and program share one core, as under aRFS (Cai et al., SIGCOMM
//! 2021). Knows neither connections nor losses: one queue is one stream.
//!
//! Times are those of microarchitecture.md 7.1. Marks: docs/reference/README.md#marks.

use super::class::Class;
use super::copy::Copy;
use super::errand::Errand;
use super::poller::{
    COMPLETION_NS, DESCRIPTOR_LINES, INSTRUCTIONS_PER_CYCLE, LINE_WORK_NS, PACKET_LINE_NS, Stall,
};
use super::skb::{SKB_LINES, Skbs};
use super::{Core, Program, Site};
use crate::bus::{Access, Bus, Memory};
use crate::meter::Meter;
use crate::nic::{HALF_PAGE_BYTES, Packet, PagePool, Pool, Queue, Recycle, Window};
use crate::random::Stream;
use std::collections::VecDeque;
use waykeeper_silicon::{Level, OutOfMemory};

/// Frames that one softirq takes at most before the program has its turn (Linux: `net.core.netdev_budget`).
const BUDGET: u32 = 300;

/// Buffers beyond those that are posted or in the socket: halves of pages whose other half is out, at either end of the
/// queue.
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
    /// Bytes that the program asks for at a time.
    pub read_bytes: u64,
    /// Bytes of the buffer that it reads into.
    pub buffer_bytes: u64,
    /// Bytes of frames that GRO merges into one structure at most.
    pub gro_bytes: u64,
    /// Bytes of the socket's receive buffer; a frame takes its half page.
    pub window_bytes: u64,
    /// An interrupt comes so long after the first frame that waits...
    pub coalesce_ns: f64,
    /// ... or when so many wait.
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
    /// The structure that this frame is the first of.
    skb: Option<u32>,
}

/// The classes of lines that the path touches.
#[derive(Debug)]
struct Lines {
    completion: Class,
    descriptor: Class,
    header: Class,
    skb: Class,
    skb_read: Class,
    data: Class,
}

/// What the core does.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Frames that the softirq may still take; 0 if none runs.
    softirq_left: u32,
    /// The softirq ended with frames in the ring: no interrupt is needed for the next.
    polling: bool,
    /// The program may finish a read before that.
    program_first: bool,
    /// Bytes that the read in progress still asks for; 0 if none is.
    read_left: u64,
    /// The program runs from this time on.
    runs_from_ns: f64,
    /// The program sleeps: its next frame has to wake it.
    sleeps: bool,
}

/// One thread of a socket program, and the kernel on its core.
#[derive(Debug)]
pub(super) struct Socket {
    nic: usize,
    queue: usize,
    workload: usize,
    work: SocketWork,
    pages: PagePool,
    skbs: Skbs,
    /// The socket's queue.
    held: VecDeque<Held>,
    /// Bytes that GRO may add to the structure it fills.
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
    hold_ns: f64,
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
        // A round trip to the sender is what a measured latency has outside the host.
        let window = Window::new(frames, ports.outside_ns);
        ports.open_socket(pool, window);
        while ports.post_buffer(|| pages.take()) {}
        ports.cold = false;
        let bus = &*site.bus;
        let line = |first| Class::new(PACKET_LINE_NS, bus, first);
        let lines = Lines {
            completion: Class::new(COMPLETION_NS, bus, Level::Memory),
            descriptor: line(Level::Memory),
            header: line(Level::Memory),
            skb: line(Level::Mlc),
            skb_read: line(Level::Mlc),
            data: line(Level::Memory),
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
            hold_ns: site.hold_ns,
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

    /// Works from `now` on until `until_ns`. Returns the clock, the time asleep and the time spent on instructions, ns.
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
        let polls = (BUDGET - turn.softirq_left).is_multiple_of(work.weight.min(queue.burst_limit));
        let worked_ns = work.softirq_ns + if polls { work.poll_ns } else { 0.0 };
        let ring_ns =
            lines.completion.ns() * queue.completion_lines + DESCRIPTOR_LINES * lines.descriptor.ns();
        *now = start + worked_ns + ring_ns + lines.header.ns() + f64::from(SKB_LINES) * lines.skb.ns();
        queue.pool.gather(packet.place, packet.place.sampled(1), &mut lines.header.sampled);
        let skb = skbs.take();
        skbs.lines(skb).iter().for_each(|line| lines.skb.sampled.push(*line));
        let bytes = u64::from(packet.bytes);
        let merged = bytes <= *gro_left;
        if merged {
            // Its data becomes a fragment of the first frame's structure, and its own is free at once.
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

    /// The softirq ends: what GRO holds is passed on, and a program that sleeps is woken.
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
        let mut worked_ns = work.delay_ns;
        if turn.read_left == 0 {
            turn.read_left = work.read_bytes;
            worked_ns += work.read_ns;
        }
        let mut line_ns = 0.0;
        if let Some(skb) = skb {
            skbs.lines(skb).iter().for_each(|line| lines.skb_read.sampled.push(*line));
            line_ns += f64::from(SKB_LINES) * lines.skb_read.ns();
            // All of the structure before it is copied.
            if let Some(done) = self.copying.replace(skb) {
                skbs.give_back(done);
            }
        }
        let count = f64::from(packet.lines);
        worked_ns += count * self.line_work_ns;
        line_ns += count * lines.data.ns() + self.copy.write(count);
        queue.pool.gather(packet.place, packet.sampled, &mut lines.data.sampled);
        *now = start + worked_ns + line_ns;
        pages.give_back(packet.place.buffer);
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
        meter.operations += 1.0;
        meter.bytes += f64::from(packet.bytes);
        meter.latency(*now - packet.arrived_ns + queue.outside_ns);
        worked_ns
    }

    /// Touches the sampled lines of this turn. Returns what they cost beyond what was charged, ns.
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
        if core.clock_ns < self.hold_ns {
            core.halt(self.hold_ns.min(until_ns));
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
            // Lines may have cost less than they were charged: then there is time left before the end.
            core.work((clock - from - slept_ns).max(0.0), worked_ns * instructions_per_ns);
            core.halt(clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::{FlowOrder, Nic, Pace, Spread, Traffic, TrafficSpec};
    use waykeeper_silicon::{AddressMap, Chip, ChipSpec, Fill, Gather, Line, Rules, Sampling};

    /// The path on core 0 of a Gold 6140, every line simulated.
    struct Rig {
        bus: Bus,
        core: Core,
        socket: Socket,
    }

    const WORK: SocketWork = SocketWork {
        weight: 64,
        poll_ns: 300.0,
        softirq_ns: 275.0,
        delay_ns: 0.0,
        read_ns: 500.0,
        read_bytes: 128 << 10,
        buffer_bytes: 4096,
        gro_bytes: 64 << 10,
        window_bytes: 1 << 20,
        coalesce_ns: 8_000.0,
        coalesce_frames: 128,
        wakeup_ns: 3_000.0,
        recycle: Recycle::Fifo,
    };

    /// With a ring of so many descriptors; the sender offers so much, 1500 B at a time.
    fn rig(ring: u32, gbps: f64, work: SocketWork) -> Rig {
        let spec = ChipSpec::built_in("gold-6140").unwrap();
        let mut memory = AddressMap::new(&spec, Rules::default().slice_hash, Sampling::EXACT, 1, 1);
        let mut bus = Bus::new(&spec, Chip::new(&spec, Rules::default(), Sampling::EXACT, 1));
        bus.meters = vec![Meter::default()];
        let traffic = TrafficSpec::Flows {
            packet_bytes: 1500,
            mix: Vec::new(),
            gbps,
            flows: 1,
            order: FlowOrder::InTurn,
            pace: Pace::Even,
            dscp: 0,
        };
        let mut nic = Nic::new(0, 100.0, Traffic::new(&traffic, Spread::Rss(1), Stream::new(1, "nic")));
        nic.queues.push(Queue::new(&mut memory, ring, 0).unwrap());
        bus.nics.push(nic);
        let mut site = Site {
            memory: &mut memory,
            bus: &mut bus,
            seed: 1,
            name: "iperf",
            workload: 0,
            thread: 0,
            threads: 1,
            nic: Some(0),
            array: None,
            mailbox: None,
            port: None,
            tenants: &[],
            shared: &mut None,
            team: &mut None,
            hold_ns: 0.0,
            start_ns: 0.0,
        };
        // No stall within the tests' time.
        let stall = Stall { length_ns: 0.0, period_ns: 1e15 };
        let socket = Socket::new(&mut site, (0, 0), work, stall).unwrap();
        Rig { bus, core: Core::default(), socket }
    }

    impl Rig {
        fn queue(&mut self) -> &mut Queue {
            &mut self.bus.nics[0].queues[0]
        }

        fn run(&mut self, until_ns: f64) {
            self.socket.run(&mut self.bus, &mut self.core, until_ns);
        }

        /// A quantum of NIC and core.
        fn quantum(&mut self, until_ns: f64) {
            let Bus { nics, memory, meters, .. } = &mut self.bus;
            nics[0].receive(&mut memory.chip, meters, until_ns);
            self.run(until_ns);
        }

        /// Frames of 1500 B that the core can see at `ready_ns`, and their lines.
        fn fill(&mut self, count: u32, ready_ns: f64) -> Vec<Line> {
            let mut lines = Gather::new();
            for _ in 0..count {
                let queue = self.queue();
                let packet = queue.fill(1500, 0, ready_ns, ready_ns);
                queue.window.as_mut().unwrap().arrived();
                queue.pool.gather(packet.place, packet.sampled, &mut lines);
            }
            lines.lines().to_vec()
        }
    }

    /// 64 frames of 24 lines each, whose lines come from one level: L = 2, 5 or 9.5 ns. All else is in the MLC: 3 ns for the
    /// completion, 2 ns for a quarter of a descriptor line, for four lines of the structure and for each line of the
    /// program's buffer. The softirq reads the first line at its level, the copy finds that line in the MLC.
    ///
    /// Softirq: 300 + 64 x (275 + 3 + 0.5 + 8 + L). Program: 500, two structures of 4 x 2 (43 frames of 1500 B are merged
    /// into one), 64 x (24 x 0.9 + 2 + 23 x L + 24 x 2). In all 816 + 64 x (358.1 + 24 x L): 26.8, 31.4 or 38.3 us.
    #[test]
    fn a_frame_costs_what_its_lines_do() {
        let busy = |level: &str| {
            let mut rig = rig(64, 0.0, WORK);
            let mut busy_ns = 0.0;
            // Twice for what else is touched to be in the MLC.
            for round in 1..=3 {
                let at = f64::from(round) * 1e6;
                let lines = rig.fill(64, at);
                let chip = &mut rig.bus.memory.chip;
                chip.discard_all(&lines);
                match level {
                    "mlc" => lines.iter().for_each(|line| {
                        chip.read(0, *line, Fill::Ordinary);
                    }),
                    "llc" => chip.dma_write_all(0, &lines),
                    _ => {}
                }
                let before = rig.core.busy_ns;
                rig.run(at + 0.5e6);
                busy_ns = rig.core.busy_ns - before;
            }
            assert_eq!(rig.bus.meters[0].operations, 192.0);
            busy_ns
        };
        let [mlc, llc, memory] = ["mlc", "llc", "memory"].map(busy);
        let expected = |line_ns: f64| 816.0 + 64.0 * (358.1 + 24.0 * line_ns);
        for (ns, line_ns) in [(mlc, 2.0), (llc, 5.0), (memory, 9.5)] {
            assert!((ns / expected(line_ns) - 1.0).abs() < 0.005, "{ns} {}", expected(line_ns));
        }
        // Cai et al.: about half of the receiver's cycles are the copy, here with all of it in memory: 500 + 64 x (23.6 +
        // 23 x 9.5 + 48) = 18.9 of 38.3 us.
        let copy = 500.0 + 64.0 * (21.6 + 2.0 + 23.0 * 9.5 + 48.0);
        assert!((copy / memory - 0.5).abs() < 0.03, "{}", copy / memory);
    }

    #[test]
    fn an_interrupt_waits_for_time_or_for_frames() {
        // Frames 1 us apart. 8 us after the first there are nine; the tenth is the first of the next interrupt. Of four
        // frames the last comes after 3 us, and the fifth is the next one's first.
        for (frames, per_interrupt) in [(128, 9), (4, 4)] {
            let work = SocketWork {
                poll_ns: 0.0,
                softirq_ns: 0.0,
                read_ns: 0.0,
                wakeup_ns: 0.0,
                coalesce_frames: frames,
                ..WORK
            };
            let mut rig = rig(64, 0.0, work);
            let (mut sent, mut interrupts, mut waited) = (0, 0, false);
            for step in 0..5_000u32 {
                if step % 10 == 0 {
                    rig.fill(1, f64::from(step) * 100.0);
                    sent += 1;
                }
                rig.run(f64::from(step) * 100.0 + 99.0);
                let waits = rig.queue().waiting() > 0;
                interrupts += u32::from(waited && !waits);
                waited = waits;
            }
            let expected = sent / per_interrupt;
            assert!(interrupts.abs_diff(expected) <= expected / 10, "{frames}: {interrupts} {expected}");
        }
    }

    #[test]
    fn a_program_that_sleeps_wakes_up_late() {
        let mut rig = rig(64, 0.0, WORK);
        rig.fill(1, 1_000.0);
        // The interrupt comes 8 us later; the softirq takes 300 + 275 ns and 120 at most for lines from memory. 3 us after
        // it, from 12.6 or 12.7 us on, the program runs: 500 ns and 24 lines of 12.4 ns at most, 0.3 us.
        for (until_ns, in_ring, in_socket) in [(8_990.0, 1, 0), (12_500.0, 0, 1), (13_600.0, 0, 0)] {
            rig.run(until_ns);
            let ring = rig.queue().waiting();
            assert_eq!((ring, rig.socket.held.len()), (in_ring, in_socket), "{until_ns}");
        }
        assert_eq!(rig.bus.meters[0].operations, 1.0);
        assert!((1_075.0..1_800.0).contains(&rig.core.busy_ns), "{}", rig.core.busy_ns);
        // From its arrival until it is copied, with 12 us outside the host.
        let latency = rig.bus.meters[0].mean_ns().unwrap();
        assert!((24_000.0..25_000.0).contains(&latency), "{latency}");
    }

    #[test]
    fn the_window_bounds_the_queue_and_no_frame_is_lost() {
        // A program that takes over 2 us a frame, 100 Gb/s, and room for 512 frames in a ring of 1024: no drops.
        let mut rig = rig(1024, 100.0, SocketWork { delay_ns: 2_000.0, ..WORK });
        let mut most = 0;
        let mut before = 0.0;
        for step in 1..=2_000u32 {
            rig.quantum(f64::from(step) * 4_000.0);
            let held = rig.socket.held.len() as u32;
            let queue = &mut rig.bus.nics[0].queues[0];
            let (waiting, [filled, done, released]) = (queue.waiting(), queue.counts());
            let window = queue.window.as_ref().unwrap();
            assert!(held + waiting <= 512 && window.out() <= 512, "{held} {waiting} {}", window.out());
            most = most.max(held);
            // Sent is delivered, in the socket's queue or in the ring; not acknowledged is one of the latter or on its way.
            let copied = rig.bus.meters[0].operations;
            assert_eq!(filled, copied as u64 + u64::from(held) + u64::from(waiting));
            assert_eq!(window.out(), held + waiting + window.acknowledgements());
            assert_eq!((done, released), (filled - u64::from(waiting), done));
            if step == 1_000 {
                before = copied;
            }
        }
        let counters = rig.bus.nics[0].counters;
        assert_eq!((counters.dropped, counters.offered), (0, rig.queue().counts()[0]));
        // Full but for what is on its way: 12 us of acknowledgements are five or six frames.
        assert!((480..=512).contains(&most), "{most}");
        // The rate is the program's: 4 ms of 2000 + 275 + 21.6 ns and the lines, 90 to 300.
        let rate = (rig.bus.meters[0].operations - before) / 4e6;
        assert!((1.0 / 2_620.0..1.0 / 2_380.0).contains(&rate), "{}", 1.0 / rate);
    }

    #[test]
    fn the_driver_posts_pages_in_the_order_of_their_return() {
        let mut rig = rig(64, 0.0, WORK);
        let buffers = |rig: &mut Rig| {
            let count = rig.queue().buffers_held().take(64).collect::<Vec<_>>();
            assert_eq!(count.len(), 64);
            count
        };
        assert_eq!(buffers(&mut rig), (0..64).collect::<Vec<_>>());
        // 64 fresh ones take their place before the first is copied.
        rig.fill(64, 0.0);
        rig.run(100_000.0);
        assert_eq!(buffers(&mut rig), (64..128).collect::<Vec<_>>());
        // Then those come that are back, the first first.
        rig.fill(10, 100_000.0);
        rig.run(200_000.0);
        let expected: Vec<u32> = (74..128).chain(0..10).collect();
        assert_eq!(buffers(&mut rig), expected);
    }

    #[test]
    fn a_ring_that_shrinks_and_grows_loses_no_page() {
        let mut rig = rig(256, 100.0, WORK);
        let mut at = 0.0;
        for ring in [64, 256, 32, 128, 256] {
            rig.queue().resize(ring);
            let before = rig.bus.meters[0].operations;
            for _ in 0..200 {
                at += 4_000.0;
                rig.quantum(at);
                let mut buffers: Vec<u32> = rig.queue().buffers_held().collect();
                let in_socket = rig.socket.held.iter().map(|held| held.packet.place.buffer);
                buffers.extend(in_socket);
                let count = buffers.len();
                buffers.sort_unstable();
                buffers.dedup();
                assert_eq!(buffers.len(), count, "no buffer is in two places");
                assert!(count <= 256 + 512 + SPARE_BUFFERS as usize, "{count}");
            }
            // 800 us of some 500 ns a frame.
            assert!(rig.bus.meters[0].operations - before > 1_200.0, "{ring}");
        }
    }
}
