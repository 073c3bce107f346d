//! Counts of evictions, calculated by hand: evictor, owner, reason, and whether a device's data were unread.
//!
//! Skylake and Haswell in small, every probability 0 or 1. Core `n` is alone in group `n + 1`. Drives the public
//! interface.

use crate::common;

use EvictionReason::*;
use Owner::{Device, Group};
use common::{World, certain, haswell, skylake};
use waykeeper_silicon::{ChipSpec, EvictionReason, Line, Owner, PayloadTarget, Placement, Rules, Tag};

type Seen = (Owner, Owner, EvictionReason, u64, u64);

fn world(spec: &ChipSpec, rules: Rules) -> World {
    let mut w = World::new(spec, rules);
    for core in 0..4 {
        w.chip.set_group(core, core as u8 + 1);
    }
    w
}

fn evictions(w: &World) -> Vec<Seen> {
    w.chip.evictions().map(|seen| (seen.by, seen.of, seen.reason, seen.lines, seen.unread)).collect()
}

#[test]
fn a_device_write_evicts_a_cores_line() {
    let mut w = world(&skylake(), certain());
    // The two DCA ways hold core 1's lines.
    w.dirty_in_llc(1, 0x600);
    w.dirty_in_llc(1, 0x600);
    assert_eq!(evictions(&w), []);
    let line = w.line();
    w.chip.dma_write(2, line);
    assert_eq!(evictions(&w), [(Device(2), Group(2), DeviceWrite, 1, 0)]);
}

#[test]
fn a_device_write_evicts_unread_device_data() {
    let mut w = world(&skylake(), certain());
    for device in [0, 0, 1, 1] {
        let line = w.line();
        w.chip.dma_write(device, line);
    }
    // The leftmost of the two DCA ways is evicted twice: device 0's line, then device 1's own.
    assert_eq!(
        evictions(&w),
        [(Device(1), Device(0), DeviceWrite, 1, 1), (Device(1), Device(1), DeviceWrite, 1, 1)]
    );
}

#[test]
fn an_mlc_victim_evicts_unread_device_data_and_then_the_cores_own_line() {
    let mut w = world(&skylake(), certain());
    let line = w.line();
    w.chip.dma_write(0, line); // way 10
    w.dirty_in_llc(1, 0x400);
    assert_eq!(evictions(&w), [(Group(2), Device(0), MlcVictim, 1, 1)]);
    w.dirty_in_llc(1, 0x400);
    assert_eq!(
        evictions(&w),
        [(Group(2), Device(0), MlcVictim, 1, 1), (Group(2), Group(2), MlcVictim, 1, 0)]
    );
}

#[test]
fn a_migrated_copy_evicts_a_line_of_value_in_the_inclusive_ways() {
    let mut w = world(&skylake(), Rules { p_force: 1.0, ..certain() });
    w.dirty_in_llc(3, 0x003);
    w.dirty_in_llc(3, 0x003);
    let line = w.line();
    w.chip.dma_write(0, line);
    w.read(0, line);
    // Device 0 wrote the line; core 0's read migrates it.
    assert_eq!(evictions(&w), [(Group(1), Group(4), MigratedCopy, 1, 0)]);
}

/// Device data that `readers` have read: a copy of it is in the inclusive ways.
fn copy(w: &mut World, readers: &[usize]) -> Line {
    let line = w.line();
    w.chip.dma_write(0, line);
    for core in readers {
        w.read(*core, line);
    }
    assert!(w.llc(line).is_some_and(|found| found.copied));
    line
}

#[test]
fn a_copy_is_of_the_core_that_holds_the_line() {
    let mut w = world(&skylake(), certain());
    copy(&mut w, &[0]);
    copy(&mut w, &[1]);
    copy(&mut w, &[2]);
    assert_eq!(evictions(&w), [(Group(3), Group(1), MigratedCopy, 1, 0)]);
}

#[test]
fn a_copy_of_what_several_cores_hold_is_of_the_first() {
    let mut w = world(&skylake(), Rules { p_force: 1.0, ..certain() });
    copy(&mut w, &[3, 2]);
    copy(&mut w, &[3, 1]);
    // A second read leaves a copy at age 0: both ways age, and the leftmost is evicted.
    copy(&mut w, &[0]);
    assert_eq!(evictions(&w), [(Group(1), Group(3), MigratedCopy, 1, 0)]);
}

#[test]
fn a_read_allocated_copy_evicts_a_copy() {
    let mut w = world(&skylake(), certain());
    for core in 0..3 {
        let line = w.line();
        w.write(core, line);
        w.chip.dma_read(5, line);
    }
    assert_eq!(evictions(&w), [(Device(5), Group(1), ReadAllocatedCopy, 1, 0)]);
}

#[test]
fn a_full_directory_pushes_a_line_out_of_its_mlc_into_the_llc() {
    // One entry: each fill of an MLC evicts the line of another MLC.
    let mut w = world(&skylake(), Rules { directory_ways: 1, ..certain() });
    let [resident, pushed, last] = [w.line(), w.line(), w.line()];
    w.confine(3, 0x040);
    w.confine(0, 0x040);
    w.write(3, resident);
    w.write(0, pushed);
    assert_eq!(evictions(&w), [(Group(1), Group(4), DirectoryConflict, 1, 0)]);
    assert_eq!(w.llc(resident).map(|found| found.way), Some(6));
    // Core 1 evicts core 0's line from its MLC; in core 0's only way the line evicts core 3's.
    w.read(1, last);
    assert!(w.llc(pushed).is_some() && w.llc(resident).is_none());
    assert_eq!(
        evictions(&w),
        [
            (Group(1), Group(4), DirectoryConflict, 1, 0),
            (Group(2), Group(1), DirectoryConflict, 1, 0),
            (Group(2), Group(4), DirectoryVictim, 1, 0),
        ]
    );
}

#[test]
fn a_device_that_pushes_lines_into_an_mlc_evicts_what_leaves_it() {
    let mut w = world(&skylake(), certain());
    w.dirty_in_llc(2, 0x040);
    w.confine(0, 0x040);
    let own = w.line();
    w.write(0, own);
    let packet: Vec<Line> = (0..2).map(|_| w.line()).collect();
    let tag = Tag { core: 0, header: false, latency_critical: false };
    w.chip.steered_write_all(1, &packet, false, Placement::Fixed(PayloadTarget::Mlc), tag);
    // Two lines in a two-way MLC: core 0's dirty line left it and took core 2's way in the LLC.
    assert!(w.llc(own).is_some());
    assert_eq!(evictions(&w), [(Device(1), Group(3), MlcVictim, 1, 0)]);
}

#[test]
fn a_core_fill_of_an_inclusive_llc_evicts_a_line_and_its_mlc_copy() {
    let mut w = world(&haswell(), certain());
    let [first, second] = [w.line(), w.line()];
    w.confine(0, 0x001);
    w.confine(1, 0x001);
    w.write(0, first);
    w.read(1, second);
    assert_eq!(
        evictions(&w),
        [(Group(2), Group(1), CoreFill, 1, 0), (Group(2), Group(1), BackInvalidation, 1, 0)]
    );
}

#[test]
fn device_data_in_an_inclusive_llc_are_of_the_core_that_used_them() {
    for write in [false, true] {
        let mut w = world(&haswell(), certain());
        let [used, unread, third] = [w.line(), w.line(), w.line()];
        w.chip.dma_write(0, used); // way 5
        w.chip.dma_write(0, unread); // way 4
        if write {
            w.write(2, used)
        } else {
            w.read(2, used)
        };
        w.chip.dma_write(1, third);
        assert_eq!(evictions(&w), [(Device(1), Device(0), DeviceWrite, 1, 1)], "the unread line");
        w.confine(0, 0x020);
        let line = w.line();
        w.read(0, line);
        assert_eq!(
            evictions(&w)[1..],
            [(Group(1), Group(3), CoreFill, 1, 0), (Group(1), Group(3), BackInvalidation, 1, 0)]
        );
        // After a device write the device owns the line again.
        w.chip.dma_write(3, line);
        w.confine(1, 0x020);
        let line = w.line();
        w.read(1, line);
        assert_eq!(evictions(&w).last(), Some(&(Group(2), Device(3), CoreFill, 1, 1)));
    }
}
