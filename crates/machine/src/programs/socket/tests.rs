//! The path on one core compared with numbers calculated by hand: cost, interrupts, wake-up, window, pages.

use super::*;
use crate::nic::{FlowOrder, Nic, Pace, Spread, Traffic, TrafficSpec};
use waykeeper_silicon::{AddressMap, Chip, ChipSpec, Fill, Gather, Line, Sampling};

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

/// A rig with a ring of so many descriptors; the sender offers so much, 1500 B at a time.
fn rig(ring: u32, gbps: f64, work: SocketWork) -> Rig {
    let spec = ChipSpec::built_in("gold-6140").unwrap();
    let mut memory = AddressMap::new(&spec, Sampling::EXACT, 1, 1);
    let mut bus = Bus::new(&spec, Chip::new(&spec, Sampling::EXACT, 1));
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
    let mut nic = Nic::new(
        0,
        100.0,
        Traffic::new(&traffic, Spread::Rss(1), Stream::new(1, "nic"), Stream::new(1, "nic rss")),
    );
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
        work_from_ns: 0.0,
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
            queue.pool.gather(packet.buffer, packet.lines, &mut lines);
        }
        lines.lines().to_vec()
    }
}

/// 64 frames of 24 lines each, whose lines come from one level: L = 2, 5 or 9.5 ns. All else is in the MLC: 3 ns for
/// the completion, 2 ns for a quarter of a descriptor line, for four lines of the structure and for each line of the
/// program's buffer. The softirq reads the first line at its level, the copy finds that line in the MLC.
///
/// Softirq: 300 + 64 x (275 + 3 + 0.5 + 8 + L). Program: 500, two structures of 4 x 2 (43 frames of 1500 B are merged
/// into one), 64 x (24 x 0.9 + 2 + 23 x L + 24 x 2). In all 816 + 64 x (358.1 + 24 x L): 26.8, 31.4 or 38.3 us.
#[test]
fn a_frame_costs_what_its_lines_do() {
    let busy = |level: &str| {
        let mut rig = rig(64, 0.0, WORK);
        let mut busy_ns = 0.0;
        // Twice, so that all other lines are in the MLC.
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
        // Frames sent were copied, or are in the socket's queue or in the ring; unacknowledged ones are in one of the
        // latter or in flight.
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
    // Full except for frames in flight: 12 us of acknowledgements are five or six frames.
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
    // 64 fresh ones replace them before the first is copied.
    rig.fill(64, 0.0);
    rig.run(100_000.0);
    assert_eq!(buffers(&mut rig), (64..128).collect::<Vec<_>>());
    // Then the returned ones are used, the first first.
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
            let mut buffers: Vec<_> = rig.queue().buffers_held().collect();
            let in_socket = rig.socket.held.iter().map(|held| held.packet.buffer.number());
            buffers.extend(in_socket);
            let count = buffers.len();
            buffers.sort_unstable();
            buffers.dedup();
            assert_eq!(buffers.len(), count, "no buffer is in two places");
            assert!(count <= 256 + 512 + SPARE_BUFFERS as usize, "{count}");
        }
        // 800 us of 500 to 600 ns a frame; the first of them are those of the slow start.
        let copied = rig.bus.meters[0].operations - before;
        assert!((if at < 1e6 { 900.0 } else { 1_300.0 }..1_650.0).contains(&copied), "{ring}: {copied}");
    }
}
