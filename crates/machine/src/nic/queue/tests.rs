//! Tests of a queue by itself: its ring, its buffers, and packets that fill several.

use super::*;
use waykeeper_silicon::{ChipSpec, Sampling};

fn queue(ring: u32) -> Queue {
    let chip = ChipSpec::built_in("gold-6140").unwrap();
    let mut memory = AddressMap::new(&chip, Sampling::EXACT, 1, 1);
    Queue::new(&mut memory, ring, 0).unwrap()
}

/// Fills packets until no descriptor has a buffer.
fn fill_up(queue: &mut Queue) -> u32 {
    let mut count = 0;
    while queue.has_posted() {
        queue.fill(64, 0, 0.0, 0.0);
        count += 1;
    }
    count
}

fn work_off(queue: &mut Queue, packets: u32) {
    for _ in 0..packets {
        queue.advance();
        queue.release();
    }
}

/// Lines of completion entries the NIC writes for the next `packets` packets.
fn completion_lines(queue: &mut Queue, packets: u32) -> usize {
    let (mut reads, mut writes) = (Gather::new(), Gather::new());
    for _ in 0..packets {
        queue.fill(64, 0, 0.0, 0.0);
        work_off(queue, 1);
    }
    queue.gather_filled(&mut reads, &mut writes);
    writes.lines().iter().collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn a_smaller_ring_holds_fewer_packets_in_fewer_buffers_and_entries() {
    let mut queue = queue(256);
    assert_eq!((queue.ring(), fill_up(&mut queue)), (256, 256));
    work_off(&mut queue, 256);
    queue.resize(64);
    assert_eq!((queue.ring(), fill_up(&mut queue)), (64, 64));
    work_off(&mut queue, 64);
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        used.insert(queue.fill(64, 0, 0.0, 0.0).buffer);
        work_off(&mut queue, 1);
    }
    // One more than the ring: the worker posts a free buffer before it gives the packet's own back.
    assert_eq!(used.len(), 65);
    queue.gather_filled(&mut Gather::new(), &mut Gather::new());
    assert_eq!(completion_lines(&mut queue, 500), 64);
    queue.resize(256);
    assert_eq!((queue.ring(), fill_up(&mut queue)), (256, 256));
}

#[test]
fn packets_that_wait_when_the_ring_shrinks_are_kept_and_hold_back_new_ones() {
    let mut queue = queue(256);
    for _ in 0..100 {
        queue.fill(64, 0, 0.0, 0.0);
    }
    queue.resize(64);
    assert_eq!((queue.waiting(), fill_up(&mut queue)), (100, 0));
    // 100 wait: 36 are taken before the ring holds 64, the 37th makes room for one.
    work_off(&mut queue, 36);
    assert!(!queue.has_posted());
    work_off(&mut queue, 1);
    assert_eq!(fill_up(&mut queue), 1);
}

/// 9014 bytes fill five buffers: four of 2048 and one of 822.
#[test]
fn a_packet_of_several_buffers_needs_all_of_them() {
    let mut queue = queue(32);
    assert!(queue.has_posted_for(32) && !queue.has_posted_for(33));
    for part in 0..5u16 {
        let bytes = if part < 4 { 2048 } else { 822 };
        let packet = queue.fill_part(bytes, 0, (1.0, 2.0), (part == 0, part == 4));
        assert_eq!((packet.lines, packet.is_first, packet.is_last), (lines_of(bytes), part == 0, part == 4));
    }
    assert!(queue.has_posted_for(27) && !queue.has_posted_for(28));
    assert_eq!((lines_of(9014), lines_of(2048), lines_of(822)), (141, 32, 13));
    assert_eq!(queue.waiting(), 5);
}
