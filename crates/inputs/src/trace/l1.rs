//! The L1 data cache as a filter: turns a program's touches into the accesses that reach the MLC.
//!
//! The virtual server models the MLC and beyond (microarchitecture.md 2: the L1 is not modelled).
//! Raw traces touch L1-resident lines nine times out of ten; fed raw, they would all count as MLC accesses.
//!
//! *Rule.* 32 KiB, 8 ways, 64-byte lines, true LRU: the L1D of Haswell to Cascade Lake (Intel optimization manual; Ice
//! Lake's 48 KiB 12-way L1D is not modelled). A touch that misses fetches the line and makes a record of its own kind:
//! a store miss is a store. A store that hits a line which was fetched by a load and not stored to since makes a store
//! record as well, at that moment: it replaces the dirty write-back, which would reach the MLC later, at eviction.
//! Other hits make nothing, evictions make nothing. So each stay of a line in L1 makes one record, or two if it turns
//! dirty after being read.
//!
//! *Why at the first store and not at eviction.* The MLC must learn that the line is dirty while it still holds it; a
//! late write-back would often find the line evicted and allocate it again, and it would need a flush at the trace's
//! end. The cost: the line is dirty in the MLC a little early.
//!
//! *Guaranteed.* The instructions of the output plus [`L1Filter::carried_instructions`] equal those of the input. Same
//! input, same output. No allocation after construction.

use super::{TouchKind, TraceRecord};

/// Sets: 32 KiB of 64-byte lines in 8 ways.
pub const L1_SETS: usize = 64;
/// Ways.
pub const L1_WAYS: usize = 8;

/// Marks an empty way: lines lie below 2^58, so `line << 1 | dirty` never reaches this.
const EMPTY: u64 = u64::MAX;

/// The filter's state.
#[derive(Clone)]
pub struct L1Filter {
    /// Per set the ways, most recently used first: line << 1 | dirty.
    sets: Box<[[u64; L1_WAYS]; L1_SETS]>,
    carried: u64,
}

impl Default for L1Filter {
    fn default() -> L1Filter {
        L1Filter { sets: Box::new([[EMPTY; L1_WAYS]; L1_SETS]), carried: 0 }
    }
}

impl L1Filter {
    /// An empty cache.
    pub fn new() -> L1Filter {
        L1Filter::default()
    }

    /// Processes a touch (or merged touches); returns the record that reaches the MLC, if any. Its instructions are
    /// those since the previous returned record.
    pub fn push(&mut self, record: TraceRecord) -> Option<TraceRecord> {
        self.carried = self.carried.saturating_add(record.instructions);
        let ways = &mut self.sets[record.line as usize % L1_SETS];
        let store = u64::from(record.kind == TouchKind::Store);
        let (way, entry) = match ways.iter().position(|entry| entry >> 1 == record.line) {
            Some(way) => (way, ways[way]),
            None => (L1_WAYS - 1, EMPTY),
        };
        // Move to the front; on a miss the last, least recently used, is evicted.
        ways.copy_within(..way, 1);
        let hit = entry != EMPTY;
        let was_dirty = if hit { entry & 1 } else { 0 };
        ways[0] = record.line << 1 | was_dirty | store;
        if hit && (store == 0 || was_dirty == 1) {
            return None;
        }
        let instructions = std::mem::take(&mut self.carried);
        Some(TraceRecord { instructions, touches: 1, ..record })
    }

    /// Instructions since the last returned record: the tail of the filtered trace.
    pub fn carried_instructions(&self) -> u64 {
        self.carried
    }
}

/// An iterator of records through the filter.
pub struct L1Filtered<I> {
    records: I,
    filter: L1Filter,
}

impl<I> L1Filtered<I> {
    /// Instructions since the last returned record: the tail, once the records have run out (add the raw trace's own
    /// tail).
    pub fn carried_instructions(&self) -> u64 {
        self.filter.carried_instructions()
    }
}

/// Filters the records of a reader through an empty L1; errors pass through.
pub fn l1_filter<E, I: Iterator<Item = Result<TraceRecord, E>>>(records: I) -> L1Filtered<I> {
    L1Filtered { records, filter: L1Filter::new() }
}

impl<E, I: Iterator<Item = Result<TraceRecord, E>>> Iterator for L1Filtered<I> {
    type Item = Result<TraceRecord, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let L1Filtered { records, filter } = self;
        records.by_ref().find_map(|record| match record {
            Ok(record) => filter.push(record).map(Ok),
            Err(error) => Some(Err(error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::TouchKind::{Load, Store};
    use super::*;
    use proptest::prelude::*;

    fn touch(line: u64, kind: TouchKind) -> TraceRecord {
        TraceRecord { line, instructions: 10, touches: 3, kind }
    }

    fn run(touches: &[(u64, TouchKind)]) -> (Vec<(u64, u64, TouchKind)>, u64) {
        let mut filter = L1Filter::new();
        let out = touches.iter().filter_map(|(line, kind)| filter.push(touch(*line, *kind)));
        (out.map(|r| (r.line, r.instructions, r.kind)).collect(), filter.carried_instructions())
    }

    /// Load miss (10), load hit (carried 10), store hit on clean (20), store hit on dirty and load hit
    /// (carried 20), store miss of another line (30), load hit on it (tail 10).
    #[test]
    fn a_stay_makes_one_record_or_two() {
        let (out, tail) =
            run(&[(5, Load), (5, Load), (5, Store), (5, Store), (5, Load), (6, Store), (6, Load)]);
        assert_eq!(out, [(5, 10, Load), (5, 20, Store), (6, 30, Store)]);
        assert_eq!(tail, 10);
    }

    /// Lines 0, 64, .. 448 fill set 0. Line 0 is touched again, so 64 is the oldest: line 512 evicts 64,
    /// and then 0 hits, 64 misses (and evicts 128).
    #[test]
    fn replaces_the_least_recently_used_of_the_set() {
        let mut touches: Vec<_> = (0..8).map(|way| (way * 64, Load)).collect();
        touches.extend([(0, Load), (512, Load), (0, Load), (64, Load), (128, Load), (1, Load)]);
        let (out, _) = run(&touches);
        let lines: Vec<u64> = out.iter().map(|(line, ..)| *line).collect();
        assert_eq!(lines, [0, 64, 128, 192, 256, 320, 384, 448, 512, 64, 128, 1]);
    }

    /// A line that was evicted dirty comes back clean: its next store makes a record again.
    #[test]
    fn an_evicted_line_forgets_that_it_was_dirty() {
        let mut touches = vec![(0, Store)];
        touches.extend((1..=8).map(|way| (way * 64, Load)));
        touches.extend([(0, Load), (0, Store)]);
        let (out, _) = run(&touches);
        assert_eq!(out.first(), Some(&(0, 10, Store)));
        assert_eq!(out[out.len() - 2..], [(0, 10, Load), (0, 10, Store)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Instructions are kept, and each record has the line and kind of its touch.
        #[test]
        fn keeps_instructions(touches in prop::collection::vec((0..2000u64, any::<bool>(), 0..50u64), 0..3000)) {
            let mut filter = L1Filter::new();
            let (mut given, mut taken) = (0, 0);
            for (line, store, instructions) in touches {
                given += instructions;
                let kind = if store { Store } else { Load };
                if let Some(out) = filter.push(TraceRecord { line, instructions, touches: 1, kind }) {
                    prop_assert_eq!((out.line, out.kind), (line, kind));
                    taken += out.instructions;
                }
            }
            prop_assert_eq!(given, taken + filter.carried_instructions());
        }

        /// Lines that fit are fetched once: any order over 512 consecutive lines misses once a line.
        #[test]
        fn what_fits_misses_once(touches in prop::collection::vec(0..512u64, 0..3000)) {
            let mut filter = L1Filter::new();
            let misses = touches.iter().filter(|line| filter.push(touch(7000 + **line, Load)).is_some()).count();
            let distinct = touches.iter().collect::<std::collections::HashSet<_>>().len();
            prop_assert_eq!(misses, distinct);
        }
    }
}
