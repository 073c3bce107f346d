//! The device rows of the transition table of microarchitecture.md 4, one test a row, and what is counted.
//!
//! Skylake in small, every probability 0 or 1. Drives the public interface.

use crate::common;

use common::{World, certain, keeping, mask, skylake};
use waykeeper_silicon::{DcaMode, Level, Rules};

fn world() -> World {
    World::new(&skylake(), certain())
}

#[test]
fn dma_write_updates_in_place_wherever_the_line_is() {
    let mut w = World::new(&skylake(), keeping());
    let line = w.dirty_in_llc(0, 0x040);
    assert_eq!(w.memory(|w| assert!(w.chip.dma_write(0, line))), (0, 0));
    let found = w.llc(line).unwrap();
    assert_eq!((found.way, found.dirty, found.io, found.copied, found.age), (6, true, true, false, 1));
    let counters = w.chip.device_counters(0);
    assert_eq!((counters.write_hits, counters.write_misses), (1, 0));
    assert_eq!(
        (w.chip.device_occupancy(0), w.chip.group_occupancy(0)),
        (1, w.chip.residents().len() as u32 - 1)
    );
}

#[test]
fn dma_write_update_invalidates_the_mlc_copies() {
    let mut w = world();
    let line = w.line();
    w.chip.dma_write(0, line);
    w.read(0, line);
    w.read(1, line);
    assert!(w.chip.dma_write(0, line));
    assert!(w.holders(line).is_empty());
    let found = w.llc(line).unwrap();
    assert_eq!((found.way, found.dirty, found.io, found.copied, found.age), (1, true, true, false, 1));
    assert_eq!(w.chip.counters().mlc_invalidations, 2);
}

#[test]
fn dma_write_of_a_line_only_mlcs_hold_invalidates_them_and_allocates_but_is_a_hit() {
    for sharers in [1, 2] {
        let mut w = world();
        let line = w.line();
        for core in 0..sharers {
            w.write(0, line);
            w.read(core, line);
        }
        assert_eq!(w.memory(|w| assert!(w.chip.dma_write(0, line))), (0, 0));
        assert!(w.holders(line).is_empty());
        let found = w.llc(line).unwrap();
        assert_eq!((found.way, found.dirty, found.io, found.age), (10, true, true, 3));
        assert_eq!(w.chip.device_counters(0).write_hits, 1);
    }
}

#[test]
fn dma_write_of_an_uncached_line_allocates_evict_first_in_the_dca_ways() {
    for (p_io_young, age) in [(0.0, 3), (1.0, 1)] {
        let mut w = World::new(&skylake(), Rules { p_io_young, ..certain() });
        let line = w.line();
        assert_eq!(w.memory(|w| assert!(!w.chip.dma_write(0, line))), (0, 0));
        let found = w.llc(line).unwrap();
        assert_eq!((found.way, found.dirty, found.io, found.age), (10, true, true, age));
        assert_eq!(w.chip.device_counters(0).write_misses, 1);
    }
}

#[test]
fn an_io_line_evicted_before_a_core_read_it_is_a_leak_of_its_device() {
    let mut w = world();
    let [read, unread, third, fourth] = [w.line(), w.line(), w.line(), w.line()];
    w.chip.dma_write(2, unread); // way 10
    w.chip.dma_write(1, read); // way 9
    assert_eq!(w.memory(|w| assert!(!w.chip.dma_write(1, third))), (0, 1));
    assert!(w.llc(unread).is_none(), "the leftmost evict-first way churns");
    assert_eq!((w.chip.device_counters(2).leaked, w.chip.device_counters(1).leaked), (1, 0));
    w.read(0, third); // consumed: migrates, and way 10 is free again
    w.chip.dma_write(1, fourth);
    assert_eq!(w.llc(fourth).unwrap().way, 10);
    assert_eq!(w.chip.device_counters(1).leaked, 0);
    assert!(w.llc(read).is_some());
}

#[test]
fn dma_write_with_dca_off_or_remote_invalidates_everything_and_writes_memory() {
    for mode in [DcaMode::Off, DcaMode::Remote] {
        let mut w = World::new(&skylake(), keeping());
        let (in_llc, in_mlcs, both, nowhere) = (w.dirty_in_llc(0, 0x040), w.line(), w.line(), w.line());
        w.write(1, in_mlcs);
        w.read(2, in_mlcs);
        w.chip.dma_write(0, both);
        w.read(3, both);
        w.dca(mode);
        for (line, cached) in [(in_llc, true), (in_mlcs, true), (both, true), (nowhere, false)] {
            assert_eq!(w.memory(|w| assert_eq!(w.chip.dma_write(0, line), cached)), (0, 1));
            assert!(w.llc(line).is_none() && w.holders(line).is_empty());
        }
        let (device, chip) = (w.chip.device_counters(0), w.chip.counters());
        assert_eq!((device.writes_uncached, chip.uncached_writes, chip.dirty_evictions), (4, 4, 0));
        assert_eq!(w.read(0, in_llc), Level::Memory);
    }
}

#[test]
fn dca_is_switched_per_device() {
    let mut w = world();
    w.chip.set_dca(1, DcaMode::Off);
    let (a, b) = (w.line(), w.line());
    w.chip.dma_write(0, a);
    w.chip.dma_write(1, b);
    assert!(w.llc(a).is_some() && w.llc(b).is_none());
    assert_eq!((w.chip.dca(0), w.chip.dca(1)), (DcaMode::On, DcaMode::Off));
}

#[test]
fn a_register_that_answers_and_does_not_act_reads_back_and_moves_nothing() {
    // Ice Lake in one user's report: the register keeps the value, devices still use the ways of power-on
    // (hardware.md 1.2).
    for (acts, way) in [(true, 8), (false, 10)] {
        let mut spec = skylake();
        spec.dca.as_mut().unwrap().acts = acts;
        let mut w = World::new(&spec, keeping());
        let wider = mask(0x700);
        assert_eq!(w.chip.write_dca_register(wider), Ok(wider));
        assert_eq!(w.chip.dca_ways(), Some(wider));
        let lines = [w.line(), w.line(), w.line()];
        for line in lines {
            w.chip.dma_write(0, line);
        }
        assert_eq!(w.llc(lines[2]).unwrap().way, way, "the third write: a third way, or one of two again");
    }
}

#[test]
fn dma_read_of_an_llc_line_is_served_and_leaves_its_age() {
    let mut w = World::new(&skylake(), keeping());
    let (ordinary, io) = (w.dirty_in_llc(0, 0x040), w.line());
    w.chip.dma_write(0, io);
    for line in [ordinary, io] {
        let before = w.llc(line);
        assert_eq!(w.memory(|w| assert!(w.chip.dma_read(0, line))), (0, 0));
        assert_eq!(w.llc(line), before);
    }
    assert_eq!(w.chip.device_counters(0).read_hits, 2);
}

#[test]
fn dma_read_of_a_line_only_mlcs_hold_copies_it_into_the_inclusive_ways() {
    for (sharers, dirty) in [(1, true), (1, false), (3, true)] {
        let mut w = world();
        let line = w.line();
        if dirty {
            w.write(0, line);
        }
        for core in 0..sharers {
            w.read(core, line);
        }
        let before = w.chip.counters().memory_reads;
        assert_eq!(w.memory(|w| assert!(w.chip.dma_read(0, line))), (0, 0));
        assert_eq!(w.chip.counters().memory_reads, before);
        let copy = w.llc(line).unwrap();
        assert_eq!((copy.way, copy.dirty, copy.copied, copy.age), (1, dirty, true, 3));
        assert_eq!(w.holders(line), (0..sharers).collect::<Vec<_>>());
        assert!((0..sharers).all(|core| !w.mlc(core, line).unwrap().dirty), "the copy took the dirt over");
    }
}

#[test]
fn dma_read_of_an_uncached_line_allocates_nothing() {
    let mut w = world();
    let line = w.line();
    assert_eq!(w.memory(|w| assert!(!w.chip.dma_read(0, line))), (1, 0));
    assert!(w.chip.residents().is_empty());
    assert_eq!(w.chip.device_counters(0).read_misses, 1);
}

#[test]
fn a_copy_evicted_from_the_inclusive_ways_leaves_the_mlc_alone_and_is_written_back_if_dirty() {
    let mut w = world();
    let lines: Vec<_> = (0..3).map(|_| w.line()).collect();
    for (core, line) in lines.iter().enumerate() {
        w.write(core, *line);
    }
    let memory = w.memory(|w| {
        for line in &lines {
            w.chip.dma_read(0, *line);
        }
    });
    // Two inclusive ways, three dirty copies: the leftmost (the first) was written to memory.
    assert_eq!(memory, (0, 1));
    assert!(w.llc(lines[0]).is_none() && !w.mlc(0, lines[0]).unwrap().dirty);
    // The MLC's mark of a copy is stale; that is allowed.
    assert_eq!(w.write(0, lines[0]), Level::Mlc);
    w.evict(0);
    assert!(w.llc(lines[0]).unwrap().dirty);
}

#[test]
fn forwarded_headers_live_in_the_inclusive_ways() {
    // microarchitecture.md 4, consequences: dirty in the MLC -> TX read copies -> RX updates in place.
    let mut w = world();
    let header = w.line();
    let memory = w.memory(|w| {
        for _ in 0..10 {
            w.chip.dma_write(0, header);
            w.read(0, header);
            w.write(0, header);
            w.chip.dma_read(0, header);
        }
    });
    assert_eq!(memory, (0, 0), "no memory traffic at all");
    assert_eq!(w.llc(header).unwrap().way, 1);
    assert_eq!(w.chip.device_counters(0).write_misses, 1, "the first one only");
}

#[test]
fn occupancy_follows_groups_and_devices() {
    let mut w = World::new(&skylake(), keeping());
    w.chip.set_group(1, 7);
    let line = w.dirty_in_llc(1, 0x040);
    let mine = w.chip.group_occupancy(7);
    assert!(mine >= 1);
    w.chip.dma_write(3, line);
    assert_eq!((w.chip.group_occupancy(7), w.chip.device_occupancy(3)), (mine - 1, 1));
    w.read(0, line); // migrates; the copy in the inclusive ways is still the device's
    assert_eq!(w.chip.device_occupancy(3), 1);
    w.write(0, line);
    assert_eq!(w.chip.device_occupancy(3), 0);
    w.chip.set_dca_ways(mask(0x7ff)).unwrap();
}

#[test]
fn a_partial_write_needs_the_rest_of_the_line_and_is_counted_apart() {
    for chip in [skylake(), common::haswell()] {
        let mut w = World::new(&chip, certain());
        let line = w.line();
        // Not cached: the rest of the line is read from memory, and the line is in the LLC from then on.
        assert_eq!(w.memory(|w| assert!(!w.chip.dma_write_partial(0, line))), (1, 0));
        assert_eq!(w.memory(|w| assert!(w.chip.dma_write_partial(0, line))), (0, 0));
        assert!(w.llc(line).unwrap().dirty);
        // With DCA off it only writes memory.
        w.chip.set_dca(0, DcaMode::Off);
        assert_eq!(w.memory(|w| assert!(w.chip.dma_write_partial(0, line))), (0, 1));
        assert_eq!(w.memory(|w| assert!(!w.chip.dma_write_partial(0, line))), (0, 1));
        let counters = w.chip.device_counters(0);
        assert_eq!((counters.partial_hits, counters.partial_misses), (2, 2));
        assert_eq!((counters.write_hits, counters.write_misses, counters.writes_uncached), (0, 0, 0));
    }
}
