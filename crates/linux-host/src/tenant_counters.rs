//! What a tenant's cores have counted since the tenant was added, whichever cores it had: a sum that never falls.
//!
//! A core's earlier counts are not included; the counts of a core that is taken away stay in the sum. Arithmetic only;
//! must not know how a core is counted.

use std::collections::BTreeMap;
use waykeeper_host::{HostCounter, Reading, WorkloadCounter, WorkloadCounters};
use waykeeper_units::{CoreId, CoreList};

/// A number for each counter of a group. A core has no level: it reads `Unsupported` and so does the sum.
type PerCounter<T> = [T; WorkloadCounter::COUNT];

/// The readings of a core that was not counted before.
pub(super) const NOTHING: WorkloadCounters = WorkloadCounters::all(Reading::Value(0));

/// A tenant's sums.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantCounters {
    cores: BTreeMap<CoreId, Share>,
    /// Counts of cores that the tenant no longer has.
    carried: PerCounter<u64>,
    /// A count of the present interval is incomplete.
    lost: PerCounter<bool>,
}

/// What one core has counted for the tenant.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Its reading when the tenant got it; `Unavailable` until the first valid reading.
    base: WorkloadCounters,
    /// The last known increase since `base`.
    moved: PerCounter<u64>,
}

impl TenantCounters {
    pub fn cores(&self) -> CoreList {
        self.cores.keys().copied().collect::<Vec<CoreId>>().into()
    }

    /// Sets the tenant's cores. `last` reads the cores that it loses, `now` those that it gets.
    pub fn follow(
        &mut self,
        cores: &CoreList,
        last: impl Fn(CoreId) -> WorkloadCounters,
        now: impl Fn(CoreId) -> WorkloadCounters,
    ) {
        let gone: Vec<CoreId> =
            self.cores.keys().filter(|core| !cores.cores().contains(core)).copied().collect();
        for core in gone {
            let shown = self.take(core, last(core));
            let Some(share) = self.cores.remove(&core) else { continue };
            for (counter, shown) in shown.iter() {
                let index = counter.index();
                self.carried[index] = self.carried[index].wrapping_add(share.moved[index]);
                // Its counts since the last sample are unknown.
                self.lost[index] |= shown == Reading::Unavailable;
            }
        }
        for core in cores.cores() {
            self.cores
                .entry(*core)
                .or_insert_with(|| Share { base: now(*core), moved: [0; WorkloadCounter::COUNT] });
        }
    }

    /// Reads the sums, given the present reading of each core.
    pub fn read(&mut self, now: impl Fn(CoreId) -> WorkloadCounters) -> WorkloadCounters {
        if self.cores.is_empty() {
            return WorkloadCounters::all(Reading::Unsupported);
        }
        let mut sums = WorkloadCounters::from_fn(|counter| Reading::Value(self.carried[counter.index()]));
        for core in self.cores.keys().copied().collect::<Vec<_>>() {
            let part = self.take(core, now(core));
            sums = sums.zip_with(&part, |_, sum, part| sum.zip_with(part, u64::wrapping_add));
        }
        for counter in WorkloadCounter::ALL {
            let lost = &mut self.lost[counter.index()];
            if let (Reading::Value(_), true) = (sums[counter], std::mem::take(lost)) {
                sums[counter] = Reading::Unavailable;
            }
        }
        sums
    }

    /// What a core has counted for the tenant, given its reading.
    fn take(&mut self, core: CoreId, shown: WorkloadCounters) -> WorkloadCounters {
        let Some(share) = self.cores.get_mut(&core) else { return shown };
        let mut part = shown;
        for (counter, reading) in shown.iter() {
            let Reading::Value(value) = reading else { continue };
            let moved = &mut share.moved[counter.index()];
            match share.base[counter] {
                // A difference of two registers may fall slightly, since they are not read at the same instant; the sum
                // must not.
                Reading::Value(base) => *moved = (*moved).max(value.saturating_sub(base)),
                _ => {
                    share.base[counter] = reading;
                    self.lost[counter.index()] = true;
                }
            }
            part[counter] = Reading::Value(*moved);
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(value: u64) -> WorkloadCounters {
        WorkloadCounters::all(Reading::Value(value))
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
        counters.follow(&list("0"), |_| WorkloadCounters::all(Reading::Unavailable), |_| all(0));
        assert_eq!(counters.read(|_| all(110)), WorkloadCounters::all(Reading::Unavailable));
        assert_eq!(counters.read(|_| all(120)), all(220));
        // 2 has no valid reading when it is added: its count starts at the first valid one.
        counters.follow(&list("0,2"), |_| all(0), |_| WorkloadCounters::all(Reading::Unavailable));
        let late = |core: CoreId| all(if core.0 == 0 { 130 } else { 7777 });
        assert_eq!(counters.read(late), WorkloadCounters::all(Reading::Unavailable));
        assert_eq!(counters.read(late), all(230));
        // The difference falls slightly.
        assert_eq!(counters.read(|core| all(if core.0 == 0 { 128 } else { 7778 })), all(231));
    }

    #[test]
    fn without_cores_there_is_nothing_to_count() {
        let mut counters = TenantCounters::default();
        assert_eq!(counters.read(|_| all(1)), WorkloadCounters::all(Reading::Unsupported));
        counters.follow(&list("3"), |_| all(0), |_| WorkloadCounters::all(Reading::Unsupported));
        assert_eq!(
            counters.read(|_| WorkloadCounters::all(Reading::Unsupported)),
            WorkloadCounters::all(Reading::Unsupported)
        );
    }
}
