//! Regret: how far a policy stays below the best static layout known, over the same stretch and the same seeds.
//!
//! The best layout is in the results as the policy `best`. Must not know where it comes from.

use super::combine::mean_and_deviation;
use super::{PolicyResult, RunSummary, Score, TimeSample, group_name, metrics, verdict_lines};
use crate::best::BEST_POLICY;
use crate::show;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use waykeeper_host::Priority;

/// Near the best means at most this part below it (ours).
const NEAR: f64 = 0.05;

/// Intervals over which the progress is averaged for this: one alone may be chance (ours).
const AVERAGED: usize = 3;

/// How far a policy stays below the best static layout known.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Regret {
    /// 1 less the HPW mean divided by the best layout's; mean over the seeds. Below 0 if the policy is better.
    pub hpw_regret_ratio: f64,
    /// Its sample standard deviation over the seeds; absent for a single seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub hpw_regret_deviation: Option<f64>,
    /// The same of the LPW mean; absent without LPWs.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub lpw_regret_ratio: Option<f64>,
    /// End of the first interval, on the server's clock, from which the mean of every three intervals is within 5 % of the
    /// best layout. Of the first seed; absent if there is none, or if the measured stretch is further below.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub near_best_s: Option<f64>,
    /// What the search cost: seconds of the best layout's HPW progress that were lost before the measured interval. Of the
    /// first seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub lost_s: Option<f64>,
    /// Number of knob values written, of the first seed.
    pub knobs_turned: u64,
}

/// The regret of every policy beside `best`, from scored runs, one per seed. Empty if `best` was not run.
pub(super) fn of(runs: &[RunSummary]) -> IndexMap<String, Regret> {
    let Some(first) = runs.first() else { return IndexMap::new() };
    let Some(best) = first.policies.get(BEST_POLICY) else { return IndexMap::new() };
    let others = first.policies.iter().filter(|(name, _)| *name != BEST_POLICY);
    let regrets = others.filter_map(|(name, policy)| {
        let below_best = below(runs, name, Priority::High)?;
        let (hpw_regret_ratio, hpw_regret_deviation) = mean_and_deviation(&below_best)?;
        let lpw = below(runs, name, Priority::Low).and_then(|below| mean_and_deviation(&below));
        let progress = progress(policy, best);
        let regret = Regret {
            hpw_regret_ratio,
            hpw_regret_deviation,
            lpw_regret_ratio: lpw.map(|(mean, _)| mean),
            // Progress leaves out HPWs that are scored by latency; the measured stretch has them.
            near_best_s: near(&progress).filter(|_| below_best[0] <= NEAR),
            lost_s: lost(&progress, first.measured_from_s),
            knobs_turned: policy.decisions.iter().map(|decision| decision.knobs.len() as u64).sum(),
        };
        Some((name.clone(), regret))
    });
    regrets.collect()
}

/// Per seed, 1 less the group's mean divided by that under the best layout.
fn below(runs: &[RunSummary], policy: &str, priority: Priority) -> Option<Vec<f64>> {
    let mean = |run: &RunSummary, name: &str| -> Option<f64> {
        run.policies.get(name)?.groups.get(group_name(priority))?.performance_ratio
    };
    runs.iter().map(|run| Some(1.0 - mean(run, policy)? / mean(run, BEST_POLICY)?)).collect()
}

/// Per interval: its end, and the mean IPC of the HPWs relative to the best layout's, weighted by cores. HPWs that are
/// scored by latency are left out: no counter has the latency of an interval. Intervals in which one of the others has
/// no IPC are left out too.
fn progress(policy: &PolicyResult, best: &PolicyResult) -> Vec<(f64, f64)> {
    let scored = policy.workloads.iter().filter(|(_, workload)| {
        workload.priority == Priority::High && workload.score == Score::Ipc && !workload.cores.is_empty()
    });
    let cores: Vec<(&str, f64)> =
        scored.map(|(name, workload)| (name.as_str(), workload.cores.len() as f64)).collect();
    let total: f64 = cores.iter().map(|(_, count)| count).sum();
    if total == 0.0 {
        return Vec::new();
    }
    let ipc = |sample: &TimeSample, name: &str| sample.workloads.get(name)?.ipc.filter(|ipc| *ipc > 0.0);
    let pairs = policy.samples.iter().zip(&best.samples).filter(|(mine, other)| mine.at_s == other.at_s);
    let relative = pairs.filter_map(|(mine, other)| {
        let ratios = cores.iter().map(|(name, count)| Some(count * ipc(mine, name)? / ipc(other, name)?));
        Some((mine.at_s, ratios.sum::<Option<f64>>()? / total))
    });
    relative.collect()
}

fn near(progress: &[(f64, f64)]) -> Option<f64> {
    let mean = |row: &[(f64, f64)]| row.iter().map(|(_, ratio)| ratio).sum::<f64>() / AVERAGED as f64;
    let to_the_end = progress.windows(AVERAGED).rev().take_while(|row| mean(row) >= 1.0 - NEAR);
    to_the_end.last().map(|row| row[0].0)
}

fn lost(progress: &[(f64, f64)], until_s: f64) -> Option<f64> {
    let mut before_s = 0.0;
    let mut lost = None;
    for (at_s, ratio) in progress.iter().take_while(|(at_s, _)| *at_s <= until_s) {
        *lost.get_or_insert(0.0) += (1.0 - ratio) * (at_s - before_s);
        before_s = *at_s;
    }
    lost
}

/// `HPWs below best (HPWs x1.40, LPWs x1.00): waykeeper 2.1 % near 12 s, a4 15.0 %`.
pub(super) fn line(summary: &RunSummary) -> Option<String> {
    let groups = &summary.policies.get(BEST_POLICY)?.groups;
    let mean = |name: &str| groups.get(name)?.performance_ratio;
    let means = ["HPW", "LPW"].into_iter().filter_map(|name| Some(format!("{name}s x{:.2}", mean(name)?)));
    let means = means.collect::<Vec<_>>().join(", ");
    let mut regrets: Vec<(&String, &Regret)> =
        summary.policies.iter().filter_map(|(name, policy)| Some((name, policy.regret.as_ref()?))).collect();
    regrets.sort_by(|(_, a), (_, b)| a.hpw_regret_ratio.total_cmp(&b.hpw_regret_ratio));
    let parts = regrets.into_iter().map(|(name, regret)| {
        let near =
            regret.near_best_s.map_or_else(String::new, |at_s| format!(" near {}", show::seconds(at_s)));
        format!("{} {:.1} %{near}", show::name(name), 100.0 * regret.hpw_regret_ratio + 0.0)
    });
    let parts = parts.collect::<Vec<_>>().join(", ");
    (!parts.is_empty()).then(|| verdict_lines::cut(&format!("HPWs below best ({means}): {parts}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_means_from_then_on_and_the_cost_is_what_was_lost_before() {
        let ratios = |values: &[f64]| -> Vec<(f64, f64)> {
            values.iter().enumerate().map(|(index, ratio)| (index as f64 + 1.0, *ratio)).collect()
        };
        // Means of three: 0.89, 0.94, 0.953, 0.973.
        assert_eq!(near(&ratios(&[0.8, 0.96, 0.91, 0.95, 1.0, 0.97])), Some(3.0));
        // It leaves again: 1, 0.93, 0.87, 0.87, 0.93, 1.
        assert_eq!(near(&ratios(&[1.0, 1.0, 1.0, 0.8, 0.8, 1.0, 1.0, 1.0])), Some(6.0));
        assert_eq!(near(&ratios(&[1.0, 1.0, 0.8])), None);
        assert_eq!(near(&ratios(&[1.0, 1.0])), None, "too few");
        // 0.2 of the first second, 0.1 of the second, none of the third, which gains 0.05; the fourth is measured.
        let lost = lost(&ratios(&[0.8, 0.9, 1.05, 0.5]), 3.0).unwrap();
        assert!((lost - 0.25).abs() < 1e-12, "{lost}");
    }

    #[test]
    fn without_the_policy_best_there_is_no_regret() {
        assert!(of(&[]).is_empty());
    }
}
