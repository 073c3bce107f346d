//! How far set sampling may have moved the numbers.
//!
//! Every seed samples sets of its own, so the standard error of the mean over seeds holds what sampling
//! brings and what the seeds' traffic brings: an upper bound, and the only one there is from outside a
//! run. With one seed nothing is known and nothing is said. An estimate from within a run (spread over
//! groups of sampled sets) belongs here, too.

use crate::results::RunSummary;
use indexmap::IndexMap;

/// Metric -> standard error in percentage points: over all policies and workloads, root mean square. Ratios
/// only, since points of anything else mean nothing. Empty when every set was simulated; a metric in which no
/// two seeds differ is left out: nothing happened there, and of an error of nothing nothing is known.
pub(super) fn estimate(run: &RunSummary) -> IndexMap<String, f64> {
    if run.sets == "exact" || run.seeds < 2 {
        return IndexMap::new();
    }
    let mut squares: IndexMap<&str, (f64, u32)> = IndexMap::new();
    let spreads = run.policies.values().flat_map(|policy| {
        policy.workloads.values().map(|workload| &workload.spread).chain([&policy.system.spread])
    });
    for (key, spread) in spreads.flatten() {
        // A performance ratio is a quotient of two runs and no share of anything.
        if key.ends_with("_ratio") && key != "performance_ratio" {
            let (sum, count) = squares.entry(key).or_default();
            *sum += spread * spread;
            *count += 1;
        }
    }
    let error = |sum: f64, count: u32| 100.0 * (sum / f64::from(count) / f64::from(run.seeds)).sqrt();
    let told = squares.into_iter().filter(|(_, (sum, _))| *sum > 0.0);
    told.map(|(key, (sum, count))| (key.to_owned(), error(sum, count))).collect()
}
