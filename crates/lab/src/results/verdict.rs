//! Workloads that gain or lose: policies compared seed by seed.
//!
//! Under every policy a seed has the same traffic, so differences are taken within a seed, and Student's paired t test
//! says whether their mean is more than chance (docs/results-schema.md, "The verdict"). A workload or a policy that
//! lacks a performance ratio in any seed is not compared. Must not know what any number means beyond "higher is
//! better".

use super::{PolicyResult, RunSummary, metrics, verdict_lines};
use crate::best::BEST_POLICY;
use indexmap::IndexSet;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Significance level: the usual 5 %, two-sided.
const LEVEL: f64 = 0.05;

/// A smaller difference of performance ratios does not count, even if it is significant (a choice of ours).
pub(super) const LEAST: f64 = 0.01;

/// The policy that is compared with the best other one, if it was run: ours.
const OURS: &str = "waykeeper";

/// Comparisons of policies, and their summary in a few lines.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// At most eight lines of text; not stable.
    pub lines: Vec<String>,
    /// The comparisons that the lines summarise.
    pub comparisons: Vec<Comparison>,
}

/// The performance ratios of a group or a workload under one policy, less those under another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Whether it is a group or a workload.
    pub scope: Scope,
    /// `HPW` or `LPW`, or the workload's name.
    pub name: String,
    /// The policy.
    pub policy: String,
    /// The policy it is compared with.
    pub against: String,
    /// Mean over the seeds of the difference within a seed.
    pub difference: f64,
    /// Sample standard deviation of that difference over the seeds; absent for a single seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub deviation: Option<f64>,
    /// That deviation over the square root of the number of seeds; absent for a single seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub standard_error: Option<f64>,
    /// The difference has to exceed this to count; absent for a single seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub limit: Option<f64>,
    /// The result.
    pub finding: Finding,
}

/// Whose performance is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The workloads of a priority.
    Group,
    /// One workload.
    Workload,
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Higher by more than chance.
    Better,
    /// Lower by more than chance.
    Worse,
    /// The difference is within chance.
    NotDistinguishable,
    /// One seed has no spread, so there is no test.
    Unknown,
}

/// Compares the policies of scored runs, one run per seed. `None` for a single policy, and without any ratio.
pub(super) fn of(runs: &[RunSummary]) -> Option<Verdict> {
    let first = runs.first()?;
    let baseline = first.baseline.as_deref()?;
    let others: Vec<&str> =
        first.policies.keys().map(String::as_str).filter(|name| *name != baseline).collect();
    let groups: IndexSet<&str> =
        first.policies.values().flat_map(|policy| policy.groups.keys()).map(String::as_str).collect();
    let mut comparisons = Vec::new();
    for group in &groups {
        comparisons
            .extend(others.iter().filter_map(|policy| compare(runs, Scope::Group, group, policy, baseline)));
    }
    if comparisons.is_empty() {
        return None;
    }
    let pair = pair(&comparisons);
    if let Some((policy, against)) = &pair {
        let pairs = groups.iter().filter_map(|group| compare(runs, Scope::Group, group, policy, against));
        comparisons.extend(pairs.collect::<Vec<_>>());
    }
    let best = best(&comparisons);
    if let Some(best) = &best {
        let rivals = others.iter().filter(|name| **name != BEST_POLICY && *name != best);
        let new = |one: &Comparison| {
            let same = |other: &Comparison| {
                (&other.scope, &other.name, &other.policy, &other.against)
                    == (&one.scope, &one.name, &one.policy, &one.against)
            };
            !comparisons.iter().any(same)
        };
        let more = rivals.filter_map(|rival| compare(runs, Scope::Group, groups.first()?, best, rival));
        let more: Vec<Comparison> = more.filter(new).collect();
        comparisons.extend(more);
    }
    comparisons.extend(extremes(runs, &others, baseline));
    let named = verdict_lines::Named { baseline, pair, best };
    let lines = verdict_lines::lines(&comparisons, runs.len(), &named);
    Some(Verdict { lines, comparisons })
}

/// The policies beside the baseline and the best layout, the best for the first group first: the high-priority one, if
/// there is one.
fn ranked(comparisons: &[Comparison]) -> Vec<&Comparison> {
    let Some(first) = comparisons.first() else { return Vec::new() };
    // The best layout is no policy that could be chosen instead: `regret` compares with it.
    let of_group = comparisons.iter().filter(|other| {
        other.name == first.name && other.against == first.against && other.policy != BEST_POLICY
    });
    let mut ranked: Vec<&Comparison> = of_group.collect();
    // The sort is stable: of equals the one named first comes first.
    ranked.sort_by(|a, b| b.difference.total_cmp(&a.difference));
    ranked
}

/// The best policy for the first group beside the baseline.
fn best(comparisons: &[Comparison]) -> Option<String> {
    ranked(comparisons).first().map(|one| one.policy.clone())
}

/// The two policies beside the baseline that are compared with each other: ours and the best other one, or the best
/// two.
fn pair(comparisons: &[Comparison]) -> Option<(String, String)> {
    let mut ranked = ranked(comparisons);
    if let Some(ours) = ranked.iter().position(|other| other.policy == OURS) {
        ranked[..=ours].rotate_right(1);
    }
    let [first, second, ..] = ranked.as_slice() else { return None };
    Some((first.policy.clone(), second.policy.clone()))
}

/// The workload that gains most against the baseline and the one that loses most, each only if by more than chance.
fn extremes(runs: &[RunSummary], policies: &[&str], baseline: &str) -> Vec<Comparison> {
    let names = runs[0].workload_names();
    let all = names.iter().flat_map(|(name, _)| {
        policies.iter().filter_map(|policy| compare(runs, Scope::Workload, name, policy, baseline))
    });
    let far = |comparison: &Comparison| match comparison.finding {
        Finding::Unknown => comparison.difference.abs() >= LEAST,
        finding => finding != Finding::NotDistinguishable,
    };
    let all: Vec<Comparison> = all.filter(far).collect();
    let by_difference = |a: &&Comparison, b: &&Comparison| a.difference.total_cmp(&b.difference);
    let most = all.iter().max_by(by_difference).filter(|comparison| comparison.difference > 0.0);
    let least = all.iter().min_by(by_difference).filter(|comparison| comparison.difference < 0.0);
    most.into_iter().chain(least).cloned().collect()
}

fn compare(runs: &[RunSummary], scope: Scope, name: &str, policy: &str, against: &str) -> Option<Comparison> {
    let ratio = |result: &PolicyResult| match scope {
        Scope::Group => result.groups.get(name)?.performance_ratio,
        Scope::Workload => result.workloads.get(name)?.metrics.performance_ratio,
    };
    let difference =
        |run: &RunSummary| Some(ratio(run.policies.get(policy)?)? - ratio(run.policies.get(against)?)?);
    let differences: Vec<f64> = runs.iter().map(difference).collect::<Option<_>>()?;
    let test = Test::of(&differences)?;
    Some(Comparison {
        scope,
        name: name.to_owned(),
        policy: policy.to_owned(),
        against: against.to_owned(),
        difference: test.mean,
        deviation: test.deviation,
        standard_error: test.standard_error,
        limit: test.limit,
        finding: test.finding(),
    })
}

/// Student's paired t test of differences, one per seed.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Test {
    mean: f64,
    deviation: Option<f64>,
    standard_error: Option<f64>,
    limit: Option<f64>,
}

impl Test {
    /// `None` without any difference.
    fn of(differences: &[f64]) -> Option<Test> {
        let (mean, deviation) = super::combine::mean_and_deviation(differences)?;
        let count = differences.len() as f64;
        let standard_error = deviation.map(|deviation| deviation / count.sqrt());
        let limit = standard_error.and_then(|error| {
            let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
            Some((student.inverse_cdf(1.0 - LEVEL / 2.0) * error).max(LEAST))
        });
        Some(Test { mean, deviation, standard_error, limit })
    }

    fn finding(&self) -> Finding {
        match self.limit {
            None => Finding::Unknown,
            Some(limit) if self.mean.abs() <= limit => Finding::NotDistinguishable,
            Some(_) if self.mean > 0.0 => Finding::Better,
            Some(_) => Finding::Worse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paired_test_by_hand() {
        // Mean 0.2; squares 0.01 + 0 + 0.01 over n - 1 = 2 give a deviation of 0.1, over the root of 3 an error of
        // 0.05774. Student's t at 97.5 % for 2 degrees of freedom is 4.303: the limit is 0.2484.
        let test = Test::of(&[0.1, 0.2, 0.3]).unwrap();
        let near = |value: Option<f64>, wanted: f64| (value.unwrap() - wanted).abs() < 5e-5;
        assert!((test.mean - 0.2).abs() < 1e-12 && near(test.deviation, 0.1), "{test:?}");
        assert!(near(test.standard_error, 0.05774) && near(test.limit, 0.2484), "{test:?}");
        assert_eq!(test.finding(), Finding::NotDistinguishable);
        // Half the spread halves the limit: 0.1242.
        let test = Test::of(&[-0.15, -0.2, -0.25]).unwrap();
        assert!(near(test.limit, 0.1242), "{test:?}");
        assert_eq!(test.finding(), Finding::Worse);
        // Two seeds: deviation 0.1414, error 0.1, t for one degree of freedom 12.706.
        let test = Test::of(&[0.9, 1.1]).unwrap();
        assert!((test.limit.unwrap() - 1.2706).abs() < 5e-4, "{test:?}");
    }

    #[test]
    fn a_difference_below_a_hundredth_is_none_and_one_seed_says_nothing() {
        assert_eq!(Test::of(&[0.009, 0.009]).unwrap().finding(), Finding::NotDistinguishable);
        assert_eq!(Test::of(&[0.011, 0.011]).unwrap().finding(), Finding::Better);
        assert_eq!(Test::of(&[0.5]).unwrap().finding(), Finding::Unknown);
        assert_eq!(Test::of(&[]), None);
    }
}
