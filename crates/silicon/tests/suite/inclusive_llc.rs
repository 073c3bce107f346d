//! The plain inclusive LLC of Haswell: inclusion, back-invalidation, device rows, sharing.
//!
//! Haswell in small (4 cores, 2-way MLCs, one 6-way slice, DCA in 0x30). The transition table of
//! microarchitecture.md 4 is Skylake's; what must hold here is the last sentence of microarchitecture.md 12.

use crate::common;

use common::{World, certain, haswell};
use waykeeper_silicon::{DcaMode, Level, Line, Rules};

fn world() -> World {
    World::new(&haswell(), certain())
}

fn everything_in_mlcs_is_in_the_llc(w: &World) {
    for held in w.chip.mlc_residents() {
        assert!(w.llc(held.line).is_some(), "{held:?} is not in the LLC");
    }
}

#[test]
fn core_fills_allocate_in_the_llc_inside_the_mask() {
    let mut w = world();
    w.confine(0, 0x00c);
    let lines: Vec<Line> = (0..4).map(|_| w.line()).collect();
    for line in &lines {
        assert_eq!(w.memory(|w| assert_eq!(w.read(0, *line), Level::Memory)), (1, 0));
        assert_eq!(w.llc(*line).unwrap().age, 1);
        everything_in_mlcs_is_in_the_llc(&w);
    }
    // Ways 3 and 2 fill from the left, then age 1 -> 3, and the leftmost is evicted twice.
    assert!(w.chip.residents().iter().all(|resident| resident.way == 3 || resident.way == 2));
    assert_eq!(w.llc(lines[3]).map(|found| found.way), Some(2));
}

#[test]
fn an_llc_eviction_takes_the_mlc_copies_with_it_and_merges_their_dirt() {
    let mut w = world();
    w.confine(0, 0x001);
    let (first, second) = (w.line(), w.line());
    w.write(0, first);
    assert!(!w.llc(first).unwrap().dirty, "the dirt is in the MLC");
    assert_eq!(w.memory(|w| assert_eq!(w.read(0, second), Level::Memory)), (1, 1));
    assert!(w.llc(first).is_none() && w.mlc(0, first).is_none());
    let counters = w.chip.counters();
    assert_eq!((counters.mlc_invalidations, counters.dirty_evictions), (1, 1));
}

#[test]
fn an_mlc_eviction_writes_dirt_back_into_the_llc_and_drops_a_clean_line() {
    let mut w = world();
    let (dirty, clean) = (w.line(), w.line());
    w.write(0, dirty);
    w.read(0, clean);
    assert_eq!(w.memory(|w| w.evict(0)), (2, 0));
    assert!(w.llc(dirty).unwrap().dirty && !w.llc(clean).unwrap().dirty);
    assert_eq!(w.chip.counters().llc_fills, 4, "no second insertion");
    assert_eq!(w.read(0, dirty), Level::Llc);
    assert!(!w.mlc(0, dirty).unwrap().dirty, "the LLC answers for it");
}

#[test]
fn dma_write_updates_anywhere_and_invalidates_the_mlcs() {
    let mut w = world();
    w.confine(0, 0x004);
    let line = w.line();
    w.write(0, line);
    assert_eq!(w.memory(|w| assert!(w.chip.dma_write(0, line))), (0, 0));
    let found = w.llc(line).unwrap();
    assert_eq!((found.way, found.dirty, found.io, found.age), (2, true, true, 1));
    assert!(w.holders(line).is_empty());
}

#[test]
fn dma_write_of_an_uncached_line_allocates_in_the_dca_ways() {
    let mut w = world();
    let lines: Vec<Line> = (0..3).map(|_| w.line()).collect();
    let memory = w.memory(|w| {
        for line in &lines {
            assert!(!w.chip.dma_write(0, *line));
        }
    });
    assert_eq!(memory, (0, 1), "two DCA ways, three lines");
    let ways: Vec<_> = lines.iter().map(|line| w.llc(*line).map(|found| found.way)).collect();
    assert_eq!(ways, [None, Some(4), Some(5)]);
    assert_eq!(w.chip.device_counters(0).leaked, 1);
}

#[test]
fn dma_write_with_dca_off_invalidates_everything() {
    for mode in [DcaMode::Off, DcaMode::Remote] {
        let mut w = world();
        let line = w.line();
        w.write(0, line);
        w.dca(mode);
        assert_eq!(w.memory(|w| assert!(w.chip.dma_write(0, line))), (0, 1));
        assert!(w.llc(line).is_none() && w.holders(line).is_empty());
    }
}

#[test]
fn dma_read_snoops_the_mlc_and_allocates_nothing() {
    let mut w = world();
    let (held, nowhere) = (w.line(), w.line());
    w.write(0, held);
    assert_eq!(w.memory(|w| assert!(w.chip.dma_read(0, held))), (0, 0));
    assert!(w.llc(held).unwrap().dirty && !w.mlc(0, held).unwrap().dirty);
    assert_eq!(w.memory(|w| assert!(!w.chip.dma_read(0, nowhere))), (1, 0));
    assert!(w.llc(nowhere).is_none());
}

#[test]
fn sharing_cleans_and_writing_invalidates() {
    let mut w = world();
    let line = w.line();
    w.write(0, line);
    assert_eq!(w.memory(|w| assert_eq!(w.read(1, line), Level::Peer)), (0, 0));
    assert!(w.llc(line).unwrap().dirty, "the modified copy was written back");
    assert!(!w.mlc(0, line).unwrap().dirty && !w.mlc(1, line).unwrap().dirty);
    assert_eq!(w.read(2, line), Level::Llc, "no core holds it modified any more");
    assert_eq!(w.write(0, line), Level::Mlc);
    assert_eq!(w.holders(line), vec![0]);
    assert_eq!(w.write(3, line), Level::Peer);
    assert_eq!(w.holders(line), vec![3]);
    assert_eq!(w.memory(|w| assert!(w.chip.dma_write(0, line))), (0, 0));
    assert!(w.holders(line).is_empty());
}

#[test]
fn a_demand_hit_makes_a_line_younger_and_consumes_it() {
    let mut w = world();
    let line = w.line();
    w.chip.dma_write(0, line);
    assert_eq!(w.read(0, line), Level::Llc);
    assert_eq!(w.llc(line).map(|found| (found.way, found.age)), Some((5, 1))); // 3 -> 1, in place
    for _ in 0..3 {
        let next = w.line();
        w.chip.dma_write(0, next);
    }
    assert_eq!(w.chip.device_counters(0).leaked, 2, "of three unread lines one is still here");
}

#[test]
fn a_dma_update_is_a_use_under_lru() {
    use waykeeper_silicon::Replacement;
    let mut w = World::new(&haswell(), Rules { replacement: Replacement::Lru, ..certain() });
    let (first, second, third) = (w.line(), w.line(), w.line());
    for line in [first, second, first, third] {
        w.chip.dma_write(0, line);
    }
    assert!(w.llc(first).is_some() && w.llc(second).is_none());
}
