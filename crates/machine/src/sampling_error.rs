//! Standard errors of hit ratios due to set sampling, estimated from the run itself.
//!
//! The chip counts groups of simulated sets separately. If the groups agree, other sets would have given about the same
//! ratio. Batch means: the hit ratio is a ratio of sums over the groups, and its standard error follows from the
//! residuals, each group's hits minus the ratio times its accesses (Cochran, Sampling Techniques, ch. 6). Knows counts
//! and groups; must not know seeds, nor how a report shows an error. It cannot see an error that all simulated sets
//! share, such as that of a queue whose length follows from their hits.

use crate::measured::Mark;
use crate::server::Machine;
use waykeeper_silicon::{CoreCounters, DcaCounters};

/// Standard errors of a workload's hit ratios, as fractions of 1. `None` if every set is simulated, or if too few
/// groups of sets have an access.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitErrors {
    /// Of `WorkloadMeasured::llc_hit_ratio`.
    pub llc: Option<f64>,
    /// Of `WorkloadMeasured::mlc_hit_ratio`.
    pub mlc: Option<f64>,
}

/// Standard errors of all hit ratios over an interval, as fractions of 1; `None` as in [`HitErrors`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingErrors {
    /// Per workload, in the scenario's order.
    pub workloads: Vec<HitErrors>,
    /// Of `SystemMeasured::dca_write_hit_ratio`.
    pub dca_write: Option<f64>,
    /// Of `SystemMeasured::dca_read_hit_ratio`.
    pub dca_read: Option<f64>,
}

/// Hits and accesses of a group of sets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Group {
    hits: f64,
    all: f64,
}

impl Mark {
    /// The standard errors of the hit ratios since `self` was taken.
    pub(crate) fn sampling_errors(&self, machine: &Machine) -> SamplingErrors {
        let now = Mark::of(machine);
        let scale = machine.scale();
        let workload = |cores: &[usize]| {
            let since = |hits: fn(&CoreCounters) -> u64, misses: fn(&CoreCounters) -> u64| {
                let before = groups(cores.iter().map(|core| &self.core_groups[*core]), hits, misses);
                let after = groups(cores.iter().map(|core| &now.core_groups[*core]), hits, misses);
                differences(&before, &after)
            };
            let (llc, mlc) =
                (since(|c| c.llc_hits, |c| c.llc_misses), since(|c| c.mlc_hits, |c| c.mlc_misses));
            let all_hits = |mark: &Mark| cores.iter().map(|core| mark.cores[*core].mlc_hits).sum::<u64>();
            let hits = (all_hits(&now) - all_hits(self)) as f64;
            let without_line = hits - mlc.iter().map(|group| group.hits).sum::<f64>();
            HitErrors {
                llc: standard_error(&llc, 0.0, scale),
                mlc: standard_error(&mlc, without_line, scale),
            }
        };
        let devices = |hits: fn(&DcaCounters) -> u64, misses: fn(&DcaCounters) -> u64| {
            let (before, after) = (
                groups(self.device_groups.iter(), hits, misses),
                groups(now.device_groups.iter(), hits, misses),
            );
            standard_error(&differences(&before, &after), 0.0, scale)
        };
        let workloads = machine.scenario.workloads.iter().map(|spec| {
            let cores: Vec<usize> = spec.cores.cores().iter().map(|core| core.index()).collect();
            workload(&cores)
        });
        SamplingErrors {
            workloads: workloads.collect(),
            dca_write: devices(|d| d.write_hits, |d| d.write_misses),
            dca_read: devices(|d| d.read_hits, |d| d.read_misses),
        }
    }
}

/// Hits and accesses per group, summed over cores or devices.
fn groups<'a, T: 'a>(
    counters: impl Iterator<Item = &'a Vec<T>>,
    hits: fn(&T) -> u64,
    misses: fn(&T) -> u64,
) -> Vec<Group> {
    let mut sums: Vec<Group> = Vec::new();
    for one in counters {
        sums.resize(one.len(), Group::default());
        for (sum, counters) in sums.iter_mut().zip(one) {
            sum.hits += hits(counters) as f64;
            sum.all += (hits(counters) + misses(counters)) as f64;
        }
    }
    sums
}

fn differences(before: &[Group], after: &[Group]) -> Vec<Group> {
    let pairs = before.iter().zip(after);
    pairs.map(|(from, to)| Group { hits: to.hits - from.hits, all: to.all - from.all }).collect()
}

/// The standard error of (hits + `hits_without_line`) / (accesses + `hits_without_line`), with one set in `one_in`
/// simulated. Hits without a line are counted exactly and divided equally among the groups.
///
/// `None` with all sets, with fewer than two groups, and if fewer than half of the groups have an access: from so few
/// samples the error cannot be estimated.
fn standard_error(groups: &[Group], hits_without_line: f64, one_in: f64) -> Option<f64> {
    let count = groups.len() as f64;
    let used = groups.iter().filter(|group| group.all > 0.0).count();
    if one_in <= 1.0 || groups.len() < 2 || 2 * used < groups.len() {
        return None;
    }
    let each = hits_without_line / count;
    let hits: f64 = hits_without_line + groups.iter().map(|group| group.hits).sum::<f64>();
    let all: f64 = hits_without_line + groups.iter().map(|group| group.all).sum::<f64>();
    let ratio = hits / all;
    let squares = groups.iter().map(|group| (group.hits + each - ratio * (group.all + each)).powi(2));
    // Finite population correction: no sampling error for the sets that were simulated.
    let rest = 1.0 - 1.0 / one_in;
    Some((rest * count / (count - 1.0) * squares.sum::<f64>()).sqrt() / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_of(counts: &[(f64, f64)]) -> Vec<Group> {
        counts.iter().map(|&(hits, all)| Group { hits, all }).collect()
    }

    #[track_caller]
    fn near(found: Option<f64>, wanted: f64) {
        assert!((found.unwrap() - wanted).abs() < 1e-7, "{found:?}, not {wanted}");
    }

    #[test]
    fn the_error_of_a_ratio_by_hand() {
        // 28 of 40 are 0.7; the residuals of the groups are -1, 1, 0 and 0 hits. Squares 2, times 4/3, the root
        // 1.632993, over 40 accesses 0.04082483; times the root of 31/32, because 31 of 32 sets are unknown.
        let equal = groups_of(&[(6.0, 10.0), (8.0, 10.0), (7.0, 10.0), (7.0, 10.0)]);
        near(standard_error(&equal, 0.0, 32.0), 0.04018178);
        // 20 of 30 are 2/3; the residuals are -5/3 and 5/3 hits. Squares 50/9, times 2, the root 10/3, over 30 accesses
        // 1/9; times the root of 1/2, because half of the sets are unknown.
        let unequal = groups_of(&[(5.0, 10.0), (15.0, 20.0)]);
        near(standard_error(&unequal, 0.0, 2.0), 0.07856742);
    }

    #[test]
    fn hits_without_a_line_have_no_error() {
        // With 40 more hits the ratio is 68 of 80, 0.85. Each group has ten more: the residuals of 16, 18, 17 and 17 of
        // 20 are -1, 1, 0 and 0, the same as above, over 80 accesses.
        let groups = groups_of(&[(6.0, 10.0), (8.0, 10.0), (7.0, 10.0), (7.0, 10.0)]);
        near(standard_error(&groups, 40.0, 32.0), 0.02009089);
    }

    #[test]
    fn groups_that_agree_have_no_error_and_too_few_say_nothing() {
        let agree = groups_of(&[(3.0, 4.0), (6.0, 8.0)]);
        near(standard_error(&agree, 0.0, 32.0), 0.0);
        assert_eq!(standard_error(&agree, 0.0, 1.0), None, "all sets are simulated");
        assert_eq!(standard_error(&agree[..1], 0.0, 32.0), None);
        let half = groups_of(&[(3.0, 4.0), (1.0, 2.0), (0.0, 0.0), (0.0, 0.0)]);
        assert!(standard_error(&half, 0.0, 32.0).is_some());
        let fewer = groups_of(&[(3.0, 4.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]);
        assert_eq!(standard_error(&fewer, 1e6, 32.0), None);
        assert_eq!(standard_error(&[], 0.0, 32.0), None);
    }
}
