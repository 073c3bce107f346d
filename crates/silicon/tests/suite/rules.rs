//! The transition table of microarchitecture.md 4, one test a row, with the ages of microarchitecture.md 5.
//!
//! Skylake in small, every probability 0 or 1, so each outcome is certain. Drives the public interface.

use crate::common;

use common::{World, certain, keeping, skylake, spec};
use waykeeper_silicon::{DcaMode, Fill, Level, Rules};

fn world() -> World {
    World::new(&skylake(), certain())
}

// ---- cores ----------------------------------------------------------------------------------------------

#[test]
fn core_read_own_mlc_is_a_hit_and_an_lru_touch() {
    let mut w = world();
    let (a, b, c) = (w.line(), w.line(), w.line());
    w.read(0, a);
    w.read(0, b);
    assert_eq!(w.memory(|w| assert_eq!(w.read(0, a), Level::Mlc)), (0, 0));
    w.read(0, c); // two ways: b is the least recent
    assert!(w.mlc(0, a).is_some() && w.mlc(0, b).is_none() && w.mlc(0, c).is_some());
    let counters = w.chip.core_counters(0);
    assert_eq!((counters.mlc_hits, counters.mlc_misses, counters.llc_misses), (1, 3, 3));
}

#[test]
fn core_write_own_mlc_makes_it_dirty_and_drops_the_llc_copy() {
    let mut w = world();
    let line = w.line();
    w.chip.dma_write(0, line);
    w.read(0, line);
    assert!(w.llc(line).unwrap().copied);
    assert_eq!(w.memory(|w| assert_eq!(w.write(0, line), Level::Mlc)), (0, 0));
    assert_eq!(w.llc(line), None);
    assert!(w.mlc(0, line).unwrap().dirty);
}

#[test]
fn core_read_of_an_ordinary_llc_line_takes_it_out_with_its_dirt_and_proves_reuse() {
    for dirty in [true, false] {
        let mut w = World::new(&skylake(), keeping());
        let line = w.line();
        if dirty {
            w.write(1, line);
        } else {
            w.read(1, line);
        }
        w.evict(1);
        assert_eq!(w.llc(line).map(|found| (found.dirty, found.age)), Some((dirty, 1)));
        assert_eq!(w.memory(|w| assert_eq!(w.read(0, line), Level::Llc)), (0, 0));
        assert_eq!(w.llc(line), None);
        let held = w.mlc(0, line).unwrap();
        assert_eq!((held.dirty, held.reused), (dirty, true));
    }
}

#[test]
fn core_read_of_an_io_line_in_the_inclusive_ways_leaves_a_clean_promoted_copy() {
    let mut w = world();
    let line = w.io_in_inclusive(0);
    let before = w.llc(line).unwrap();
    assert_eq!((before.dirty, before.io, before.copied, before.age), (true, true, false, 3));
    assert_eq!(w.memory(|w| assert_eq!(w.read(1, line), Level::Llc)), (0, 0));
    let after = w.llc(line).unwrap();
    assert_eq!(after.way, before.way);
    assert_eq!((after.dirty, after.io, after.copied, after.age), (false, true, true, 1)); // H11: 3 -> 1
    let held = w.mlc(1, line).unwrap();
    assert_eq!((held.dirty, held.reused), (true, false));
    // A second reader finds it in the LLC as well and promotes it once more; the first reader's MLC keeps the dirty
    // data.
    assert_eq!(w.read(2, line), Level::Llc);
    assert_eq!(w.llc(line).unwrap().age, 0); // 1 -> 0
    assert!(w.mlc(1, line).unwrap().dirty && !w.mlc(2, line).unwrap().dirty);
}

#[test]
fn core_read_of_an_io_line_elsewhere_migrates_it_with_a_weak_clean_copy() {
    let mut w = world();
    let line = w.line();
    w.chip.dma_write(0, line);
    assert_eq!(w.llc(line).unwrap().way, 10);
    assert_eq!(w.memory(|w| assert_eq!(w.read(0, line), Level::Llc)), (0, 0));
    let copy = w.llc(line).unwrap();
    assert_eq!((copy.way, copy.dirty, copy.io, copy.copied, copy.age), (1, false, true, true, 3));
    let held = w.mlc(0, line).unwrap();
    assert_eq!((held.dirty, held.reused), (true, false));
    assert_eq!(w.chip.counters().migrations, 1);
}

#[test]
fn a_migrated_copy_displaces_an_evict_first_line_but_a_protected_one_only_by_force() {
    // The copies of two migrated lines are evict-first: a third one takes the leftmost of them.
    let mut w = world();
    let (a, b, c) = (w.line(), w.line(), w.line());
    for (core, line) in [(0, a), (1, b), (2, c)] {
        w.chip.dma_write(0, line);
        w.read(core, line);
    }
    assert!(w.llc(a).is_none() && w.mlc(0, a).unwrap().dirty, "a clean copy goes, the MLC's stays");
    assert_eq!(w.llc(c).unwrap().way, 1);

    for (p_force, displaced) in [(0.0, false), (1.0, true)] {
        let mut w = World::new(&skylake(), Rules { p_force, ..certain() });
        let protected = [w.dirty_in_llc(3, 0x003), w.dirty_in_llc(3, 0x003)]; // age 1
        let line = w.line();
        w.chip.dma_write(0, line);
        let memory = w.memory(|w| assert_eq!(w.read(0, line), Level::Llc));
        assert_eq!(w.llc(line).is_some(), displaced);
        assert_eq!(w.llc(protected[0]).is_none(), displaced, "the leftmost one");
        assert!(w.llc(protected[1]).is_some() && w.mlc(0, line).unwrap().dirty);
        assert_eq!(memory, (0, u64::from(displaced)), "a dirty victim is one memory write");
    }
}

#[test]
fn core_write_of_an_llc_line_takes_it_out_dirty_and_proves_reuse_unless_io() {
    let mut w = World::new(&skylake(), keeping());
    let ordinary = w.line();
    w.confine(1, 0x0f0);
    w.read(1, ordinary);
    w.evict(1);
    let (migrant, resident) = (w.line(), w.io_in_inclusive(1));
    w.chip.dma_write(0, migrant);
    for (line, reused) in [(ordinary, true), (migrant, false), (resident, false)] {
        assert_eq!(w.memory(|w| assert_eq!(w.write(0, line), Level::Llc)), (0, 0));
        assert_eq!(w.llc(line), None);
        let held = w.mlc(0, line).unwrap();
        assert_eq!((held.dirty, held.reused), (true, reused));
    }
}

#[test]
fn core_write_of_a_line_copied_in_the_llc_takes_it_from_everyone() {
    let mut w = world();
    let line = w.line();
    w.chip.dma_write(0, line);
    w.read(0, line);
    w.read(1, line);
    assert_eq!(w.memory(|w| assert_eq!(w.write(2, line), Level::Llc)), (0, 0));
    assert_eq!((w.llc(line), w.holders(line)), (None, vec![2]));
    assert!(w.mlc(2, line).unwrap().dirty);
    assert_eq!(w.chip.counters().mlc_invalidations, 2);
}

#[test]
fn core_read_of_another_mlcs_line_is_cache_to_cache_and_shares_it() {
    let mut w = world();
    let line = w.line();
    w.write(0, line);
    assert_eq!(w.memory(|w| assert_eq!(w.read(1, line), Level::Peer)), (0, 0));
    assert_eq!((w.holders(line), w.llc(line)), (vec![0, 1], None));
    assert!(w.mlc(0, line).unwrap().dirty && !w.mlc(1, line).unwrap().dirty, "dirty in one place");
    let counters = w.chip.core_counters(1);
    assert_eq!((counters.llc_hits, counters.llc_misses), (1, 0));
}

#[test]
fn core_write_of_a_shared_line_invalidates_the_others() {
    // By a holder (hit in the own MLC) and by another core.
    for writer in [0, 1, 2] {
        let mut w = world();
        let line = w.line();
        w.read(0, line);
        w.read(1, line);
        let level = w.write(writer, line);
        assert_eq!(level, if writer == 2 { Level::Peer } else { Level::Mlc });
        assert_eq!(w.holders(line), vec![writer]);
        assert!(w.mlc(writer, line).unwrap().dirty);
        // One core holds the line again: a device write finds that core without a search.
        assert_eq!(w.chip.tracked().iter().find(|(l, _)| *l == line).unwrap().1, Some(writer));
    }
}

#[test]
fn one_of_several_holders_leaves_without_a_trace_but_for_its_dirt() {
    let mut w = world();
    let line = w.line();
    w.write(0, line);
    w.read(1, line);
    assert_eq!(w.memory(|w| w.evict(0)), (2, 0)); // the two fillers are read
    assert_eq!((w.holders(line), w.llc(line)), (vec![1], None));
    assert!(w.mlc(1, line).unwrap().dirty, "the last holder answers for the data");
    w.evict(1);
    assert!(w.holders(line).is_empty() && w.llc(line).unwrap().dirty);
}

#[test]
fn core_access_of_an_uncached_line_fills_the_mlc_and_not_the_llc() {
    let mut w = world();
    let (read, written) = (w.line(), w.line());
    assert_eq!(w.memory(|w| assert_eq!(w.read(0, read), Level::Memory)), (1, 0));
    assert_eq!(w.memory(|w| assert_eq!(w.write(0, written), Level::Memory)), (1, 0));
    assert!(w.chip.residents().is_empty());
    let (read, written) = (w.mlc(0, read).unwrap(), w.mlc(0, written).unwrap());
    assert_eq!((read.dirty, read.reused), (false, false));
    assert_eq!((written.dirty, written.reused), (true, false));
}

// ---- MLC evictions --------------------------------------------------------------------------------------

#[test]
fn mlc_eviction_of_a_line_with_a_copy_is_dma_bloat() {
    // The copy is freed; the line is inserted into the CAT ways with the merged dirtiness at age 1, and not dropped,
    // though unproven clean victims are dropped here.
    for dirty in [true, false] {
        let mut w = world();
        w.confine(0, 0x030);
        let line = w.line();
        w.chip.dma_write(0, line);
        w.read(0, line);
        if !dirty {
            // A clean line with a copy: from memory into the MLC, evicted clean by a second copy.
            w.dca(DcaMode::Off);
            w.chip.dma_write(0, line);
            w.read(0, line);
            w.chip.dma_read(0, line);
        }
        assert_eq!(w.llc(line).unwrap().way, 1);
        w.evict(0);
        let bloat = w.llc(line).unwrap();
        assert_eq!((bloat.way, bloat.dirty, bloat.age), (5, dirty, 1));
        assert!(!bloat.io && !bloat.copied);
        assert_eq!(w.chip.counters().bloated, u64::from(dirty), "only an I/O line counts as bloat");
    }
}

#[test]
fn mlc_eviction_of_a_proven_line_fills_the_cat_ways_at_age_0() {
    let mut w = World::new(&skylake(), keeping());
    let line = w.line();
    w.read(0, line);
    w.evict(0);
    w.read(0, line); // LLC hit: proven
    w.confine(0, 0x080);
    w.evict(0);
    let found = w.llc(line).unwrap();
    assert_eq!((found.way, found.dirty, found.age), (7, false, 0));
}

#[test]
fn mlc_eviction_of_a_dirty_unproven_line_fills_the_cat_ways_at_age_1() {
    let mut w = world();
    let line = w.dirty_in_llc(0, 0x0c0);
    let found = w.llc(line).unwrap();
    assert_eq!((found.way, found.dirty, found.age), (7, true, 1));
}

#[test]
fn mlc_eviction_of_a_clean_unproven_line_is_a_matter_of_chance() {
    for p_insert in [0.0, 1.0] {
        let mut w = World::new(&skylake(), Rules { p_insert, ..certain() });
        let line = w.line();
        w.chip.read(0, line, Fill::Ordinary);
        w.evict(0);
        assert_eq!(w.llc(line).map(|found| found.age), (p_insert == 1.0).then_some(1));
    }
}

#[test]
fn a_clean_streaming_victim_displaces_no_line_of_value() {
    for (fill, stays) in [(Fill::Stream, true), (Fill::Ordinary, false)] {
        let mut w = World::new(&skylake(), keeping());
        // Bit 7 is the core's only way; a dirty line is there at age 1 after the MLC evicted it.
        w.confine(0, 0x080);
        let value = w.line();
        w.write(0, value);
        for _ in 0..4 {
            let line = w.line();
            w.chip.read(0, line, fill);
        }
        assert_eq!(w.llc(value).is_some(), stays, "{fill:?}");
    }
}

#[test]
fn a_clean_streaming_victim_takes_an_empty_way() {
    let mut w = World::new(&skylake(), keeping());
    let line = w.line();
    w.chip.read(0, line, Fill::Stream);
    w.evict(0);
    assert_eq!(w.llc(line).map(|found| found.age), Some(1));
}

#[test]
fn an_inserted_victim_evicts_inside_its_mask_and_dirt_is_one_memory_write() {
    let mut w = world();
    let lines: Vec<_> = (0..3).map(|_| w.dirty_in_llc(0, 0x018)).collect();
    // Ages 1, 1: both age to 3, the leftmost (way 4, the first line) was evicted.
    assert_eq!(
        lines.iter().map(|line| w.llc(*line).map(|l| l.way)).collect::<Vec<_>>(),
        [None, Some(3), Some(4)]
    );
    assert_eq!(w.llc(lines[1]).unwrap().age, 3);
    assert_eq!((w.chip.counters().memory_writes, w.chip.counters().dirty_evictions), (1, 1));
}

#[test]
fn a_full_directory_pushes_a_tracked_line_into_its_owners_cat_ways() {
    let mut w = World::new(&skylake(), Rules { directory_ways: 1, ..keeping() });
    w.confine(0, 0x040);
    let (pushed, other) = (w.line(), w.line());
    w.write(0, pushed);
    w.read(1, other);
    assert_eq!((w.holders(pushed), w.holders(other)), (vec![], vec![1]));
    let found = w.llc(pushed).unwrap();
    assert_eq!((found.way, found.dirty, found.age), (6, true, 1));
    let counters = w.chip.counters();
    assert_eq!((counters.directory_evictions, counters.mlc_evictions), (1, 1));
    assert_eq!(w.chip.tracked(), vec![(other, Some(1))]);
}

#[test]
fn a_full_directory_pushes_a_shared_line_out_of_every_mlc() {
    let mut w = World::new(&skylake(), Rules { directory_ways: 1, ..keeping() });
    let (shared, other) = (w.line(), w.line());
    w.write(0, shared);
    w.read(1, shared);
    w.read(2, shared);
    w.read(3, other);
    assert!(w.holders(shared).is_empty());
    assert!(w.llc(shared).unwrap().dirty, "the dirt arrives with the last holder");
    assert_eq!(w.chip.counters().mlc_evictions, 3);
}

// ---- knobs ----------------------------------------------------------------------------------------------

#[test]
fn a_mask_change_moves_no_line_and_hits_are_served_anywhere() {
    let mut w = World::new(&skylake(), keeping());
    let line = w.dirty_in_llc(0, 0x0c0);
    let io = w.line();
    w.chip.dma_write(0, io);
    let before = w.chip.residents();
    w.confine(0, 0x001);
    w.chip.set_dca_ways(common::mask(0x7c0)).unwrap();
    assert_eq!(w.chip.residents(), before);
    assert_eq!(w.read(0, line), Level::Llc);
    let wide: Vec<_> = (0..5).map(|_| w.line()).collect();
    for line in &wide {
        w.chip.dma_write(0, *line);
    }
    // Way 10 is taken, so the new ways fill from the left, and the fifth write takes the leftmost again.
    let ways: Vec<_> = wide.iter().map(|line| w.llc(*line).unwrap().way).collect();
    assert_eq!(ways, [9, 8, 7, 6, 10]);
}

#[test]
fn a_chip_refuses_masks_it_could_not_take() {
    let mut w = world();
    for bad in [0x000, 0x505, 0x800] {
        assert!(w.chip.set_core_mask(0, common::mask(bad)).is_err());
        assert!(w.chip.set_dca_ways(common::mask(bad)).is_err());
    }
    assert_eq!(w.chip.core_mask(0).bits(), 0x7ff);
    assert_eq!(w.chip.dca_ways().unwrap().bits(), 0x600);
}

#[test]
fn a_chip_without_dca_has_no_register_and_writes_memory() {
    let without = "kind = \"non-inclusive\"\nslices = 1\nsets = 16\nways = 11\ninclusive_ways = \"0x003\"";
    let mut w = World::new(&spec(without), certain());
    let line = w.line();
    assert_eq!(w.memory(|w| assert!(!w.chip.dma_write(0, line))), (0, 1));
    w.chip.set_dca_ways(common::mask(0x600)).unwrap();
    assert_eq!(w.chip.dca_ways(), None);
    w.chip.dma_write(0, line);
    assert!(w.chip.residents().is_empty());
    assert_eq!(w.chip.device_counters(0).writes_uncached, 2);
}
