//! Several seeds of the same scenario as one result: means and spread.
//!
//! A performance ratio is computed within each seed and then averaged: the baseline of a seed has the same traffic, so
//! the pairing removes the differences between seeds. Must not know what any metric means.

use super::{
    PolicyResult, Regret, RunSummary, cause, evictions, regret, sampling_error, verdict, verdict_lines,
    warning, worth,
};
use indexmap::IndexMap;

/// Why results could not be combined.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CombineError {
    /// Nothing to combine.
    #[error("no result to combine; run at least one seed")]
    Empty,
    /// Not the same scenario.
    #[error(
        "seed {seed} ran {what} `{found}` and the first seed `{wanted}`; combine seeds of one scenario only"
    )]
    Mixed {
        /// The seed that differs.
        seed: u64,
        /// What differs.
        what: &'static str,
        /// Its value there.
        found: String,
        /// Its value for the first seed.
        wanted: String,
    },
}

/// One result out of one per seed: every number becomes the mean, and `spread` the sample standard deviation.
/// Decisions, way map and time series are those of the first seed, since they have no mean. A metric that any seed
/// lacks is not available. Scores every seed first and fills `verdict`; a single seed is returned scored, with its
/// verdict. Sampling errors become those of the mean. The warnings are those of the first seed and those of the whole.
///
/// # Errors
/// [`CombineError`] when there is nothing, or the seeds ran different scenarios.
pub fn combine(mut runs: Vec<RunSummary>) -> Result<RunSummary, CombineError> {
    runs.iter_mut().for_each(RunSummary::score);
    let (first, rest) = runs.split_first().ok_or(CombineError::Empty)?;
    rest.iter().try_for_each(|run| same_scenario(first, run))?;
    let verdict = verdict::of(&runs);
    let regrets = regret::of(&runs);
    if rest.is_empty() {
        let mut alone = RunSummary { verdict, ..runs.swap_remove(0) };
        cause::fill(&mut alone);
        fill_regrets(&mut alone, regrets);
        alone.sampling_error = sampling_error::overall(&[&alone]);
        conclude(&mut alone);
        return Ok(alone);
    }
    let mut combined = RunSummary { verdict, ..first.clone() };
    combined.seeds = runs.len() as u32;
    combined.wall_s = runs.iter().map(|run| run.wall_s).sum();
    for (name, policy) in &mut combined.policies {
        let seeds: Vec<&PolicyResult> = runs.iter().map(|run| &run.policies[name]).collect();
        combine_policy(policy, &seeds, first.sample_seed.is_some());
    }
    cause::fill(&mut combined);
    fill_regrets(&mut combined, regrets);
    combined.sampling_error = sampling_error::overall(&[&combined]);
    conclude(&mut combined);
    Ok(combined)
}

/// Adds the warnings that follow from the result to those that it has, and what to look at next to the verdict.
fn conclude(summary: &mut RunSummary) {
    let found = warning::of(summary);
    summary.warnings.splice(0..0, found);
    let next = verdict_lines::next_line(summary);
    if let Some(verdict) = &mut summary.verdict {
        verdict.lines.extend(next);
    }
}

fn fill_regrets(summary: &mut RunSummary, regrets: IndexMap<String, Regret>) {
    for (name, regret) in regrets {
        if let Some(policy) = summary.policies.get_mut(&name) {
            policy.regret = Some(regret);
        }
    }
    let line = regret::line(summary);
    if let Some(verdict) = &mut summary.verdict {
        verdict.lines.extend(line);
    }
}

fn same_scenario(first: &RunSummary, run: &RunSummary) -> Result<(), CombineError> {
    let list = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>().join(", ");
    let workloads = |run: &RunSummary| list(&mut run.policies.values().flat_map(|p| p.workloads.keys()));
    let pairs = [
        ("scenario", run.scenario.clone(), first.scenario.clone()),
        ("chip", run.chip.clone(), first.chip.clone()),
        ("policies", list(&mut run.policies.keys()), list(&mut first.policies.keys())),
        ("workloads", workloads(run), workloads(first)),
    ];
    match pairs.into_iter().find(|(_, found, wanted)| found != wanted) {
        Some((what, found, wanted)) => Err(CombineError::Mixed { seed: run.seed, what, found, wanted }),
        None => Ok(()),
    }
}

fn combine_policy(into: &mut PolicyResult, seeds: &[&PolicyResult], same_sets: bool) {
    into.simulated_s = seeds.iter().map(|seed| seed.simulated_s).sum::<f64>() / seeds.len() as f64;
    for (name, workload) in &mut into.workloads {
        for (key, place) in workload.metrics.iter_mut() {
            let values = seeds.iter().map(|seed| seed.workloads[name].metrics.get(key));
            *place = summarise(key, values, &mut workload.spread);
        }
        let errors: Vec<_> = seeds.iter().map(|seed| &seed.workloads[name].sampling_error).collect();
        workload.sampling_error = sampling_error::of_mean(&errors, same_sets);
        workload
            .idle_jobs
            .retain(|job| seeds.iter().all(|seed| seed.workloads[name].idle_jobs.contains(job)));
    }
    for (name, group) in &mut into.groups {
        let values = seeds.iter().map(|seed| seed.groups.get(name).and_then(|g| g.performance_ratio));
        group.performance_ratio = summarise("performance_ratio", values, &mut group.spread);
    }
    for (key, place) in into.system.metrics.iter_mut() {
        let values = seeds.iter().map(|seed| seed.system.metrics.get(key));
        *place = summarise(key, values, &mut into.system.spread);
    }
    let errors: Vec<_> = seeds.iter().map(|seed| &seed.system.sampling_error).collect();
    into.system.sampling_error = sampling_error::of_mean(&errors, same_sets);
    into.worth = worth::combine(&seeds.iter().map(|seed| seed.worth.as_ref()).collect::<Vec<_>>());
    let seeds: Vec<_> = seeds.iter().map(|seed| seed.evictions.as_slice()).collect();
    into.evictions = evictions::mean(&seeds);
}

/// The mean; stores the standard deviation under `key`. `None`, without deviation, if a value is missing.
fn summarise(
    key: &str,
    values: impl Iterator<Item = Option<f64>>,
    spread: &mut IndexMap<String, f64>,
) -> Option<f64> {
    spread.shift_remove(key);
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let (mean, deviation) = mean_and_deviation(&values)?;
    if let Some(deviation) = deviation {
        spread.insert(key.to_owned(), deviation);
    }
    Some(mean)
}

/// Mean and sample standard deviation (n - 1); the latter needs two values.
pub(super) fn mean_and_deviation(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_the_textbooks() {
        // Mean of 1, 2, 6 is 3; squares 4 + 1 + 9 = 14 over n - 1 = 2 is 7.
        assert_eq!(mean_and_deviation(&[1.0, 2.0, 6.0]), Some((3.0, Some(7f64.sqrt()))));
        assert_eq!(mean_and_deviation(&[5.0]), Some((5.0, None)));
        assert_eq!(mean_and_deviation(&[]), None);
    }

    #[test]
    fn a_metric_that_one_seed_lacks_is_not_available() {
        let mut spread = IndexMap::new();
        assert_eq!(summarise("ipc", [Some(1.0), None].into_iter(), &mut spread), None);
        assert!(spread.is_empty());
    }

    #[test]
    fn nothing_cannot_be_combined() {
        assert_eq!(combine(Vec::new()), Err(CombineError::Empty));
    }
}
