//! Performance ratios: a workload's score under a policy divided by its score under the baseline.
//!
//! A4 s6: the score of a multi-threaded I/O program is its inverse latency per request, that of every other its IPC,
//! both relative to the Default policy; a group's mean is weighted by cores (A4's artifact; the text does not say).
//! This file must not know how the numbers are measured.

use super::{GroupResult, PolicyResult, RunSummary, Score, WorkloadMetrics, group_name};
use indexmap::IndexMap;
use waykeeper_host::Priority;

/// The policy that ratios are relative to when it was run.
const BASELINE: &str = "default";

/// `run`'s score divided by `base`'s. `None` if either number is missing or not above zero.
pub fn performance_ratio(score: Score, run: &WorkloadMetrics, base: &WorkloadMetrics) -> Option<f64> {
    let positive = |value: Option<f64>| value.filter(|number| number.is_finite() && *number > 0.0);
    match score {
        Score::InverseLatency => Some(positive(base.latency_mean_us)? / positive(run.latency_mean_us)?),
        Score::Ipc => Some(positive(run.ipc)? / positive(base.ipc)?),
    }
}

impl RunSummary {
    /// Fills `baseline`, every `performance_ratio` and the group means. The baseline is the policy called `default`;
    /// without it, the first policy. May be called again after the numbers changed; it removes verdict and regrets, which
    /// are of the former numbers.
    pub fn score(&mut self) {
        self.verdict = None;
        self.policies.values_mut().for_each(|policy| policy.regret = None);
        let Some(baseline) = self.policies.get_key_value(BASELINE).or_else(|| self.policies.first()) else {
            self.baseline = None;
            return;
        };
        let name = baseline.0.clone();
        let base: IndexMap<String, WorkloadMetrics> =
            baseline.1.workloads.iter().map(|(name, workload)| (name.clone(), workload.metrics)).collect();
        for policy in self.policies.values_mut() {
            for (name, workload) in &mut policy.workloads {
                let ratio =
                    base.get(name).and_then(|b| performance_ratio(workload.score, &workload.metrics, b));
                workload.metrics.performance_ratio = ratio;
            }
            policy.groups = group_means(policy);
        }
        self.baseline = Some(name);
    }
}

/// Mean performance ratio per priority, weighted by cores. Workloads without a ratio are left out; `cores` counts those
/// of the others.
fn group_means(policy: &PolicyResult) -> IndexMap<String, GroupResult> {
    let mut groups = IndexMap::new();
    for priority in [Priority::High, Priority::Low] {
        let mut members =
            policy.workloads.values().filter(|workload| workload.priority == priority).peekable();
        if members.peek().is_none() {
            continue;
        }
        let (mut cores, mut sum) = (0u32, 0.0);
        for member in members {
            if let Some(ratio) = member.metrics.performance_ratio {
                cores += member.cores.len() as u32;
                sum += ratio * member.cores.len() as f64;
            }
        }
        let performance_ratio = (cores > 0).then(|| sum / f64::from(cores));
        groups.insert(
            group_name(priority).to_owned(),
            GroupResult { performance_ratio, cores, spread: IndexMap::new() },
        );
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_counts_inversely_and_ipc_directly() {
        let metrics = |latency, ipc| WorkloadMetrics {
            latency_mean_us: Some(latency),
            ipc: Some(ipc),
            ..Default::default()
        };
        // 300 us under the baseline, 200 us now: 1.5 times as good. IPC 0.8 now against 1.0.
        assert_eq!(
            performance_ratio(Score::InverseLatency, &metrics(200.0, 0.8), &metrics(300.0, 1.0)),
            Some(1.5)
        );
        assert_eq!(performance_ratio(Score::Ipc, &metrics(200.0, 0.8), &metrics(300.0, 1.0)), Some(0.8));
        assert_eq!(performance_ratio(Score::Ipc, &metrics(1.0, 1.0), &metrics(1.0, 0.0)), None);
        assert_eq!(performance_ratio(Score::Ipc, &WorkloadMetrics::default(), &metrics(1.0, 1.0)), None);
    }
}
