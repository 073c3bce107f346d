//! What a tenant's cores have counted since it came, whichever cores those were: a sum that never falls.
//!
//! A core that comes brings nothing of what it counted before, and one that goes leaves what it counted for the tenant.
//! Arithmetic only; must not know how a core is counted.

use std::collections::BTreeMap;
use waykeeper_host::{GroupCounters, Reading};
use waykeeper_units::{CoreId, CoreList};

/// The six counts of a [`GroupCounters`]: instructions, cycles, hits and misses of MLC and LLC.
const COUNTS: usize = 6;

/// One reading of each.
pub(super) type Six = [Reading<u64>; COUNTS];

/// What a core shows that was not counted before.
pub(super) const NOTHING: Six = [Reading::Value(0); COUNTS];

/// A tenant's sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    cores: BTreeMap<CoreId, Share>,
    /// What cores that have gone left.
    carried: [u64; COUNTS],
    /// Something is missing in the interval that is running.
    lost: [bool; COUNTS],
}

/// What one core counts for it.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// What it showed when it came; `Unavailable` until it shows something.
    base: Six,
    /// What it showed last, beyond that.
    moved: [u64; COUNTS],
}

/// The counts of a reading.
pub(super) fn six(counters: &GroupCounters) -> Six {
    [
        counters.instructions,
        counters.cycles,
        counters.mlc_hits,
        counters.mlc_misses,
        counters.llc_hits,
        counters.llc_misses,
    ]
}

/// The same with an occupancy.
pub(super) fn counters(six: Six, occupancy_bytes: Reading<u64>) -> GroupCounters {
    let [instructions, cycles, mlc_hits, mlc_misses, llc_hits, llc_misses] = six;
    GroupCounters { instructions, cycles, mlc_hits, mlc_misses, llc_hits, llc_misses, occupancy_bytes }
}

impl Tally {
    /// The cores it has.
    pub fn cores(&self) -> CoreList {
        self.cores.keys().copied().collect::<Vec<CoreId>>().into()
    }

    /// It has these cores from now on. `last` is what those show that go, `now` what those show that come.
    pub fn follow(&mut self, cores: &CoreList, last: impl Fn(CoreId) -> Six, now: impl Fn(CoreId) -> Six) {
        let gone: Vec<CoreId> =
            self.cores.keys().filter(|core| !cores.cores().contains(core)).copied().collect();
        for core in gone {
            let shown = self.take(core, last(core));
            let Some(share) = self.cores.remove(&core) else { continue };
            for (index, moved) in share.moved.into_iter().enumerate() {
                self.carried[index] = self.carried[index].wrapping_add(moved);
                // What it counted since the last sample is not known.
                self.lost[index] |= shown[index] == Reading::Unavailable;
            }
        }
        for core in cores.cores() {
            self.cores.entry(*core).or_insert_with(|| Share { base: now(*core), moved: [0; COUNTS] });
        }
    }

    /// Takes in what its cores show now.
    pub fn read(&mut self, now: impl Fn(CoreId) -> Six) -> Six {
        if self.cores.is_empty() {
            return [Reading::Unsupported; COUNTS];
        }
        let mut sums = self.carried.map(Reading::Value);
        for core in self.cores.keys().copied().collect::<Vec<_>>() {
            let part = self.take(core, now(core));
            for (sum, part) in sums.iter_mut().zip(part) {
                *sum = sum.zip_with(part, u64::wrapping_add);
            }
        }
        for (sum, lost) in sums.iter_mut().zip(&mut self.lost) {
            if let (Reading::Value(_), true) = (*sum, std::mem::take(lost)) {
                *sum = Reading::Unavailable;
            }
        }
        sums
    }

    /// What a core counted for the tenant, given what it shows.
    fn take(&mut self, core: CoreId, shown: Six) -> Six {
        let Some(share) = self.cores.get_mut(&core) else { return shown };
        let mut part = shown;
        for index in 0..COUNTS {
            let Reading::Value(value) = shown[index] else { continue };
            match share.base[index] {
                // Two registers' difference may fall by a few (they are not read at one instant); a sum does not.
                Reading::Value(base) => {
                    share.moved[index] = share.moved[index].max(value.saturating_sub(base));
                }
                _ => {
                    share.base[index] = shown[index];
                    self.lost[index] = true;
                }
            }
            part[index] = Reading::Value(share.moved[index]);
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: u64) -> Six {
        [Reading::Value(value); COUNTS]
    }

    fn list(text: &str) -> CoreList {
        text.parse().unwrap()
    }

    #[test]
    fn a_core_brings_nothing_and_leaves_what_it_counted() {
        let mut tally = Tally::default();
        tally.follow(&list("0-1"), |_| all(0), |core| all(1000 * u64::from(core.0)));
        // 0: 10, 1: 1007 - 1000.
        assert_eq!(tally.read(|core| all(if core.0 == 0 { 10 } else { 1007 })), all(17));
        // 1 goes at 1009, 2 comes at 500.
        tally.follow(&list("0,2"), |_| all(1009), |_| all(500));
        assert_eq!(tally.read(|core| all(if core.0 == 0 { 12 } else { 505 })), all(12 + 9 + 5));
    }

    #[test]
    fn what_cannot_be_known_is_missing_once_and_never_falls() {
        let mut tally = Tally::default();
        tally.follow(&list("0-1"), |_| all(0), |_| all(0));
        assert_eq!(tally.read(|_| all(100)), all(200));
        // What 1 counted since is not known when it goes.
        tally.follow(&list("0"), |_| [Reading::Unavailable; COUNTS], |_| all(0));
        assert_eq!(tally.read(|_| all(110)), [Reading::Unavailable; COUNTS]);
        assert_eq!(tally.read(|_| all(120)), all(220));
        // 2 shows nothing when it comes: it counts from where it first shows something.
        tally.follow(&list("0,2"), |_| all(0), |_| [Reading::Unavailable; COUNTS]);
        let late = |core: CoreId| all(if core.0 == 0 { 130 } else { 7777 });
        assert_eq!(tally.read(late), [Reading::Unavailable; COUNTS]);
        assert_eq!(tally.read(late), all(230));
        // A difference that falls a little.
        assert_eq!(tally.read(|core| all(if core.0 == 0 { 128 } else { 7778 })), all(231));
    }

    #[test]
    fn without_cores_there_is_nothing_to_count() {
        let mut tally = Tally::default();
        assert_eq!(tally.read(|_| all(1)), [Reading::Unsupported; COUNTS]);
        tally.follow(&list("3"), |_| all(0), |_| [Reading::Unsupported; COUNTS]);
        assert_eq!(tally.read(|_| [Reading::Unsupported; COUNTS]), [Reading::Unsupported; COUNTS]);
    }
}
