//! What a tenant's cores have counted since the tenant was added, whichever cores it had: a sum that never falls.
//!
//! A core's earlier counts are not included; the counts of a core that is taken away stay in the sum. Arithmetic only;
//! must not know how a core is counted.

use std::collections::BTreeMap;
use waykeeper_host::{GroupCounters, Reading};
use waykeeper_units::{CoreId, CoreList};

/// The six counts of a [`GroupCounters`]: instructions, cycles, hits and misses of MLC and LLC.
const COUNTS: usize = 6;

pub(super) type SixCounts = [Reading<u64>; COUNTS];

/// The readings of a core that was not counted before.
pub(super) const NOTHING: SixCounts = [Reading::Value(0); COUNTS];

/// A tenant's sums.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantCounters {
    cores: BTreeMap<CoreId, Share>,
    /// Counts of cores that the tenant no longer has.
    carried: [u64; COUNTS],
    /// A count of the present interval is incomplete.
    lost: [bool; COUNTS],
}

/// What one core has counted for the tenant.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Its reading when the tenant got it; `Unavailable` until the first valid reading.
    base: SixCounts,
    /// The last known increase since `base`.
    moved: [u64; COUNTS],
}

pub(super) fn six(counters: &GroupCounters) -> SixCounts {
    [
        counters.instructions,
        counters.cycles,
        counters.mlc_hits,
        counters.mlc_misses,
        counters.llc_hits,
        counters.llc_misses,
    ]
}

pub(super) fn counters(six: SixCounts, occupancy_bytes: Reading<u64>) -> GroupCounters {
    let [instructions, cycles, mlc_hits, mlc_misses, llc_hits, llc_misses] = six;
    GroupCounters { instructions, cycles, mlc_hits, mlc_misses, llc_hits, llc_misses, occupancy_bytes }
}

impl TenantCounters {
    pub fn cores(&self) -> CoreList {
        self.cores.keys().copied().collect::<Vec<CoreId>>().into()
    }

    /// Sets the tenant's cores. `last` reads the cores that it loses, `now` those that it gets.
    pub fn follow(
        &mut self,
        cores: &CoreList,
        last: impl Fn(CoreId) -> SixCounts,
        now: impl Fn(CoreId) -> SixCounts,
    ) {
        let gone: Vec<CoreId> =
            self.cores.keys().filter(|core| !cores.cores().contains(core)).copied().collect();
        for core in gone {
            let shown = self.take(core, last(core));
            let Some(share) = self.cores.remove(&core) else { continue };
            for (index, moved) in share.moved.into_iter().enumerate() {
                self.carried[index] = self.carried[index].wrapping_add(moved);
                // Its counts since the last sample are unknown.
                self.lost[index] |= shown[index] == Reading::Unavailable;
            }
        }
        for core in cores.cores() {
            self.cores.entry(*core).or_insert_with(|| Share { base: now(*core), moved: [0; COUNTS] });
        }
    }

    /// Reads the sums, given the present reading of each core.
    pub fn read(&mut self, now: impl Fn(CoreId) -> SixCounts) -> SixCounts {
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

    /// What a core has counted for the tenant, given its reading.
    fn take(&mut self, core: CoreId, shown: SixCounts) -> SixCounts {
        let Some(share) = self.cores.get_mut(&core) else { return shown };
        let mut part = shown;
        for index in 0..COUNTS {
            let Reading::Value(value) = shown[index] else { continue };
            match share.base[index] {
                // A difference of two registers may fall slightly, since they are not read at the same instant; the sum
                // must not.
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

    fn all(value: u64) -> SixCounts {
        [Reading::Value(value); COUNTS]
    }

    fn list(text: &str) -> CoreList {
        text.parse().unwrap()
    }

    #[test]
    fn a_core_brings_nothing_and_leaves_what_it_counted() {
        let mut counters = TenantCounters::default();
        counters.follow(&list("0-1"), |_| all(0), |core| all(1000 * u64::from(core.0)));
        // 0: 10, 1: 1007 - 1000.
        assert_eq!(counters.read(|core| all(if core.0 == 0 { 10 } else { 1007 })), all(17));
        // 1 is taken away at 1009, 2 is added at 500.
        counters.follow(&list("0,2"), |_| all(1009), |_| all(500));
        assert_eq!(counters.read(|core| all(if core.0 == 0 { 12 } else { 505 })), all(12 + 9 + 5));
    }

    #[test]
    fn what_cannot_be_known_is_missing_once_and_never_falls() {
        let mut counters = TenantCounters::default();
        counters.follow(&list("0-1"), |_| all(0), |_| all(0));
        assert_eq!(counters.read(|_| all(100)), all(200));
        // The counts of 1 since the last sample are unknown when it is taken away.
        counters.follow(&list("0"), |_| [Reading::Unavailable; COUNTS], |_| all(0));
        assert_eq!(counters.read(|_| all(110)), [Reading::Unavailable; COUNTS]);
        assert_eq!(counters.read(|_| all(120)), all(220));
        // 2 has no valid reading when it is added: its count starts at the first valid one.
        counters.follow(&list("0,2"), |_| all(0), |_| [Reading::Unavailable; COUNTS]);
        let late = |core: CoreId| all(if core.0 == 0 { 130 } else { 7777 });
        assert_eq!(counters.read(late), [Reading::Unavailable; COUNTS]);
        assert_eq!(counters.read(late), all(230));
        // The difference falls slightly.
        assert_eq!(counters.read(|core| all(if core.0 == 0 { 128 } else { 7778 })), all(231));
    }

    #[test]
    fn without_cores_there_is_nothing_to_count() {
        let mut counters = TenantCounters::default();
        assert_eq!(counters.read(|_| all(1)), [Reading::Unsupported; COUNTS]);
        counters.follow(&list("3"), |_| all(0), |_| [Reading::Unsupported; COUNTS]);
        assert_eq!(counters.read(|_| [Reading::Unsupported; COUNTS]), [Reading::Unsupported; COUNTS]);
    }
}
