//! The error of hit ratios by set sampling: from each run's own estimate to that of a whole result.
//!
//! A run estimates the errors of its hit ratios from groups of its simulated sets. Here the errors of several seeds become
//! those of their mean, and those of all workloads and policies one number per metric. Must not know how a run estimates.

use super::RunSummary;
use indexmap::IndexMap;

/// The errors of the mean over the seeds, per metric. Seeds that simulate different sets have independent errors; with
/// the same sets they have the same error. A metric whose error one seed lacks is left out.
pub(super) fn of_mean(seeds: &[&IndexMap<String, f64>], same_sets: bool) -> IndexMap<String, f64> {
    let count = if same_sets { 1.0 } else { seeds.len() as f64 };
    let keys = seeds.first().into_iter().flat_map(|first| first.keys());
    let all = keys.filter_map(|key| {
        let errors: Vec<f64> = seeds.iter().map(|seed| seed.get(key).copied()).collect::<Option<_>>()?;
        Some((key.clone(), root_mean_square(&errors) / count.sqrt()))
    });
    all.collect()
}

/// The errors of all workloads and of the system under all policies: per metric the median. A workload with few MLC
/// misses can have an error a hundred times that of the others, which would dominate a mean.
pub(crate) fn overall(runs: &[&RunSummary]) -> IndexMap<String, f64> {
    let mut all: IndexMap<&str, Vec<f64>> = IndexMap::new();
    let maps = runs.iter().flat_map(|run| run.policies.values()).flat_map(|policy| {
        let workloads = policy.workloads.values().map(|workload| &workload.sampling_error);
        workloads.chain([&policy.system.sampling_error])
    });
    for (key, error) in maps.flatten() {
        all.entry(key).or_default().push(*error);
    }
    all.into_iter().map(|(key, errors)| (key.to_owned(), median(errors))).collect()
}

/// The workload with the largest error of a metric under any policy, and that error in percentage points.
pub(crate) fn largest<'a>(runs: &[&'a RunSummary], key: &str) -> Option<(&'a str, f64)> {
    let workloads = runs.iter().flat_map(|run| run.policies.values()).flat_map(|result| &result.workloads);
    let errors = workloads.filter_map(|(name, of)| Some((name.as_str(), *of.sampling_error.get(key)?)));
    errors.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
}

/// The middle value; for an even number the mean of the two middle ones. `values` must not be empty.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { 0.5 * (values[middle - 1] + values[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(pairs: &[(&str, f64)]) -> IndexMap<String, f64> {
        pairs.iter().map(|(key, error)| ((*key).to_owned(), *error)).collect()
    }

    #[test]
    fn the_error_of_a_mean_by_hand() {
        let (a, b) = (errors(&[("x", 1.0), ("y", 1.0)]), errors(&[("x", 7.0)]));
        // The mean of 1 and 49 is 25, its root 5; over two seeds 5 / sqrt(2). One seed has no `y`.
        assert_eq!(of_mean(&[&a, &b], false), errors(&[("x", 5.0 / 2f64.sqrt())]));
        assert_eq!(of_mean(&[&a, &b], true), errors(&[("x", 5.0)]));
        assert_eq!(of_mean(&[&a], false), a);
        assert!(of_mean(&[], false).is_empty());
    }

    #[test]
    fn the_median_by_hand() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(vec![5.0]), 5.0);
    }
}
