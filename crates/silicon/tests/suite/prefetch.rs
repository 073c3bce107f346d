//! Hardware prefetchers: what a fetch moves and how it is counted.

use crate::common;

use common::{World, certain, skylake};
use waykeeper_silicon::{CoreCounters, Level, PrefetchCounters};

fn counters(mlc_hits: u64, llc_hits: u64, llc_misses: u64) -> CoreCounters {
    CoreCounters { mlc_hits, mlc_misses: llc_hits + llc_misses, llc_hits, llc_misses }
}

#[test]
fn a_fetched_line_is_in_the_mlc_when_the_core_asks_for_it() {
    let mut w = World::new(&skylake(), certain());
    let line = w.line();
    // From memory: one read of memory, counted as a miss of MLC and LLC, and as a prefetch.
    assert_eq!(w.memory(|w| assert_eq!(w.chip.fetch_ahead(0, line, true), Level::Memory)), (1, 0));
    assert_eq!(w.read(0, line), Level::Mlc);
    assert_eq!(w.chip.core_counters(0), counters(1, 0, 1));
    assert_eq!(w.chip.prefetch_counters(0), PrefetchCounters { llc_hits: 0, llc_misses: 1, useless: 0 });
    // A line that the MLC holds is not moved and not counted.
    assert_eq!(w.memory(|w| assert_eq!(w.chip.fetch_ahead(0, line, true), Level::Mlc)), (0, 0));
    assert_eq!(w.chip.core_counters(0), counters(1, 0, 1));
    // From the LLC, useless: an ordinary line moves from the LLC to the MLC, as with a read.
    let other = w.dirty_in_llc(1, 0x040);
    let before = w.chip.core_counters(0);
    assert_eq!(w.chip.fetch_ahead(0, other, false), Level::Llc);
    assert_eq!((w.llc(other).is_none(), w.holders(other)), (true, vec![0]));
    assert_eq!(w.chip.core_counters(0).llc_hits, before.llc_hits + 1);
    assert_eq!(w.chip.prefetch_counters(0), PrefetchCounters { llc_hits: 1, llc_misses: 1, useless: 1 });
    assert_eq!(w.chip.prefetch_counters(1), PrefetchCounters::default());
}

#[test]
fn prefetchers_are_on_until_they_are_switched_off_core_by_core() {
    let mut w = World::new(&skylake(), certain());
    w.chip.set_prefetchers(0, false);
    assert_eq!((w.chip.prefetchers_on(0), w.chip.prefetchers_on(1)), (false, true));
}
