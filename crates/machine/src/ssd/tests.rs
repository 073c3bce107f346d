//! Commands of an array compared with arithmetic, and what remains after its workloads exit.

use super::*;
use waykeeper_silicon::{AddressMap, ChipSpec, Sampling};

fn array(spec: ArraySpec) -> (Array, Chip, AddressMap) {
    let chip_spec = ChipSpec::built_in("gold-6140").unwrap();
    let memory = AddressMap::new(&chip_spec, Sampling::EXACT, 1, 1);
    let chip = Chip::new(&chip_spec, Sampling::EXACT, 1);
    (Array::new(0, spec, Stream::new(1, "ssd")), chip, memory)
}

#[test]
fn a_block_is_written_once_and_completes_when_arithmetic_says() {
    let spec = ArraySpec { drives: 1, flash_spread: 0.0, ..ArraySpec::default() };
    let (mut array, mut chip, mut memory) = array(spec);
    let buffer = array.add_buffer(0, memory.ordinary(16 << 10).unwrap());
    let queue = array.open_queue(0);
    array.submit(1_000.0, queue, 7, buffer, BlockDirection::Read);
    array.advance(&mut chip, 1e6);
    // 1 us + 65 us of flash + 4 units of 4096 B / 2.69 GB/s + 3 us.
    let ready = array.next_completion_ns(queue).unwrap();
    assert!((ready - (66_000.0 + 4.0 * 4096.0 / 2.69 + 3_000.0)).abs() < 1e-6, "{ready}");
    assert_eq!(array.poll(queue, ready).map(|c| c.slot), Some(7));
    assert_eq!(chip.device_counters(0).write_misses, 256);
    assert_eq!(array.inbound_bytes, 16 << 10);
}

#[test]
fn what_a_workload_had_is_used_again_after_it_and_its_commands_end_with_it() {
    let (mut array, mut chip, mut memory) = array(ArraySpec::default());
    let other = (array.open_queue(1), array.add_buffer(1, memory.ordinary(64 << 10).unwrap()));
    for run in 0..50 {
        let now_ns = f64::from(run) * 1e6;
        let queue = array.open_queue(0);
        let buffers: Vec<u32> =
            (0..4).map(|_| array.add_buffer(0, memory.ordinary(64 << 10).unwrap())).collect();
        for (slot, buffer) in (0..).zip(&buffers) {
            array.submit(now_ns, queue, slot, *buffer, BlockDirection::Read);
        }
        array.submit(now_ns, other.0, 9, other.1, BlockDirection::Read);
        // Some have ended by then, some have not begun.
        array.advance(&mut chip, now_ns + 8e4);
        array.close(0);
        assert!(
            array
                .lanes
                .iter()
                .all(|lane| { lane.waiting.iter().chain(&lane.moving).all(|part| part.buffer == other.1) })
        );
        // Longer than any draw of the flash's latency.
        array.advance(&mut chip, now_ns + 9e5);
        assert_eq!(array.poll(other.0, f64::INFINITY).map(|done| done.slot), Some(9));
    }
    assert_eq!((array.queues.len(), array.buffers.len(), array.requests.len()), (2, 5, 5));
    assert_eq!(array.free_requests.len(), 5, "none is lost, none is there twice");
}

/// Commands per second of `workers` that each send the next command when they see the completion of the last one.
fn rate_of(workers: u32, spec: ArraySpec, flush: bool) -> f64 {
    let (mut array, mut chip, mut memory) = array(spec);
    let buffer = array.add_buffer(0, memory.ordinary(4096).unwrap());
    let queue = array.open_queue(0);
    let send = |array: &mut Array, now_ns: f64, slot: u32| match flush {
        true => array.submit_flush(now_ns, queue, slot),
        false => array.submit(now_ns, queue, slot, buffer, BlockDirection::Read),
    };
    for slot in 0..workers {
        send(&mut array, 0.0, slot);
    }
    let (mut ended, mut begun_ns) = (0, 0.0);
    loop {
        array.advance(&mut chip, f64::INFINITY);
        let now_ns = array.next_completion_ns(queue).expect("all are on their way");
        while let Some(done) = array.poll(queue, now_ns) {
            send(&mut array, now_ns, done.slot);
            ended += 1;
        }
        // The first rounds differ from all others.
        if ended < 200 {
            begun_ns = now_ns;
        } else if ended == 1000 + 200 {
            return 1e12 / (now_ns - begun_ns);
        }
    }
}

#[test]
fn workers_at_depth_1_get_what_latency_or_server_allow() {
    // A transfer and a completion that take no time: L = 6 us, s = 2 us, so n / 8 us until 1 / 2 us.
    let spec = ArraySpec {
        drives: 1,
        drive_gb_per_s: f64::INFINITY,
        command_ns: 6_000.0,
        service_ns: 2_000.0,
        flash_ns: 0.0,
        completion_ns: 0.0,
        ..ArraySpec::default()
    };
    for (workers, rate) in [(1, 125e3), (2, 250e3), (3, 375e3), (4, 500e3), (5, 500e3), (8, 500e3)] {
        let found = rate_of(workers, spec, false);
        assert!((found / rate - 1.0).abs() < 1e-2, "{workers}: {found}");
    }
    // A flush bypasses the server: n / 6 us, or n over its own latency.
    assert!((rate_of(4, spec, true) / (4.0 / 6e-6) - 1.0).abs() < 1e-2);
    let other = ArraySpec { flush_ns: Some(4_000.0), ..spec };
    assert!((rate_of(1, other, true) / 250e3 - 1.0).abs() < 1e-2);
    // Without a server there is no limit, and with a limit of commands a second the server is behind it.
    assert!((rate_of(8, ArraySpec { service_ns: 0.0, ..spec }, false) / (8.0 / 6e-6) - 1.0).abs() < 1e-2);
    let limited = ArraySpec { commands_per_s: Some(100e3), ..spec };
    assert!((rate_of(8, limited, false) / 100e3 - 1.0).abs() < 1e-2);
}

#[test]
fn a_two_mib_block_is_striped_over_four_drives() {
    let (mut array, mut chip, mut memory) = array(ArraySpec { flash_spread: 0.0, ..ArraySpec::default() });
    let buffer = array.add_buffer(0, memory.ordinary(2 << 20).unwrap());
    let queue = array.open_queue(0);
    array.submit(0.0, queue, 0, buffer, BlockDirection::Write);
    array.advance(&mut chip, 1e7);
    // Each drive moves 512 KiB at its own pace: 524288 / 2.69 ns, then 3 us.
    let ready = array.next_completion_ns(queue).unwrap();
    assert!((ready - (524_288.0 / 2.69 + 3_000.0)).abs() < 1e-3, "{ready}");
    assert_eq!(array.outbound_bytes, 2 << 20);
}
