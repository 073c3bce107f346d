//! Results of simulations as the result of a point, and of points as the outcome of an experiment; of an interrupted one
//! what has ended. Must not know how simulations are run.

use super::carry_out::Results;
use super::job::Done;
use super::points::Point;
use super::{Experiment, ExperimentOutcome, RunError, silence, warnings};
use crate::results::{MissingRun, RUN_SCHEMA, RunSummary, SWEEP_SCHEMA, SweepPoint, SweepSummary, combine};
use indexmap::IndexMap;
use std::collections::BTreeSet;
use waykeeper_machine::Scenario;

/// Most sets of policies to choose from: only seeds that were running at the interrupt differ in their policies, so there
/// are hardly more than threads (ours).
const MOST_CHOICES: usize = 1000;

impl ExperimentOutcome {
    /// True if the experiment was interrupted before all its simulations had ended.
    pub fn is_partial(&self) -> bool {
        match self {
            ExperimentOutcome::Run(run) => run.partial,
            ExperimentOutcome::Sweep(sweep) => sweep.partial,
        }
    }
}

impl Experiment {
    /// The result of a point whose simulations have all ended, in the order of the plan.
    pub(super) fn complete_point(&self, point: usize, done: Vec<Done>) -> Result<RunSummary, RunError> {
        let all: Vec<usize> = (0..self.policies.len()).collect();
        let seeds: Vec<usize> = (0..self.plan.seeds as usize).collect();
        self.point_of(&self.points[point], &all, &seeds, done)
    }

    /// The result of a point under these policies with these seeds, by their indices; seeds change first.
    fn point_of(
        &self,
        point: &Point,
        policies: &[usize],
        seeds: &[usize],
        done: Vec<Done>,
    ) -> Result<RunSummary, RunError> {
        let mut per_seed: Vec<RunSummary> = seeds.iter().map(|seed| self.blank(point, *seed)).collect();
        let mut gaps = Vec::new();
        let mut done = done.into_iter();
        for policy in policies {
            for (summary, done) in per_seed.iter_mut().zip(&mut done) {
                summary.policies.insert(self.policies[*policy].clone(), done.result);
                gaps.extend(done.gaps);
            }
        }
        let mut warnings = warnings::of_scenario(&point.scenario, &self.policies);
        warnings.extend(silence::of(&point.scenario, &per_seed));
        warnings.extend(warnings::of_gaps(gaps, self.plan.sampling));
        if let Some(first) = per_seed.first_mut() {
            first.warnings = warnings;
        }
        Ok(combine(per_seed)?)
    }

    /// The result of a point of which some simulations have not ended; none if none has. The numbers are those of the
    /// policies and seeds of which every pair has ended, as many pairs as possible: means and comparisons over different
    /// seeds could not be compared.
    fn incomplete_point(
        &self,
        point: usize,
        results: &mut [Option<Result<Done, RunError>>],
    ) -> Result<Option<RunSummary>, RunError> {
        let seeds = self.plan.seeds as usize;
        let ended = |policy: usize, seed: usize| matches!(results[policy * seeds + seed], Some(Ok(_)));
        let (policies, seeds_ended) = largest_whole(self.policies.len(), seeds, &ended);
        if policies.is_empty() {
            return Ok(None);
        }
        let mut done = Vec::new();
        for policy in &policies {
            for seed in &seeds_ended {
                done.extend(results[policy * seeds + seed].take().and_then(Result::ok));
            }
        }
        let mut summary = self.point_of(&self.points[point], &policies, &seeds_ended, done)?;
        summary.partial = true;
        let lacks = |policy: usize, seed: usize| !(policies.contains(&policy) && seeds_ended.contains(&seed));
        summary.missing = self.runs_where(lacks);
        Ok(Some(summary))
    }

    /// The simulations of one point for which `lacks` is true, without the point's values.
    fn runs_where(&self, lacks: impl Fn(usize, usize) -> bool) -> Vec<MissingRun> {
        let seeds = 0..self.plan.seeds as usize;
        let all = (0..self.policies.len()).flat_map(|policy| seeds.clone().map(move |seed| (policy, seed)));
        all.filter(|(policy, seed)| lacks(*policy, *seed))
            .map(|(policy, seed)| MissingRun {
                policy: self.policies[policy].clone(),
                seed: self.seed(seed),
                at: IndexMap::new(),
            })
            .collect()
    }

    /// The outcome of all points: those that are complete, and what has ended of the others.
    pub(super) fn outcome(
        &self,
        complete: Vec<Option<Result<RunSummary, RunError>>>,
        mut results: Results,
        wall_s: f64,
    ) -> Result<ExperimentOutcome, RunError> {
        let per_point = self.policies.len() * self.plan.seeds as usize;
        let mut points = Vec::new();
        let mut missing = Vec::new();
        for (index, (complete, results)) in
            complete.into_iter().zip(results.chunks_mut(per_point)).enumerate()
        {
            let at_point = |run: MissingRun| MissingRun { at: self.points[index].at.clone(), ..run };
            if let Some(summary) = complete {
                points.push((index, summary?));
                continue;
            }
            let failed = |one: &&mut Option<Result<Done, RunError>>| matches!(one, Some(Err(why)) if !matches!(why, RunError::Interrupted));
            if let Some(Err(why)) = results.iter_mut().find(failed).and_then(Option::take) {
                return Err(why);
            }
            match self.incomplete_point(index, results)? {
                Some(summary) => {
                    missing.extend(summary.missing.iter().cloned().map(at_point));
                    points.push((index, summary));
                }
                None => missing.extend(self.runs_where(|_, _| true).into_iter().map(at_point)),
            }
        }
        if points.is_empty() {
            return Err(RunError::Interrupted);
        }
        if self.keys.is_empty() {
            let (_, run) = points.swap_remove(0);
            return Ok(ExperimentOutcome::Run(Box::new(RunSummary { wall_s: Some(wall_s), ..run })));
        }
        let scenario = &self.points[0].scenario;
        Ok(ExperimentOutcome::Sweep(SweepSummary {
            schema: SWEEP_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: scenario.name.clone(),
            about: about(scenario),
            wall_s: Some(wall_s),
            partial: !missing.is_empty(),
            missing,
            keys: self.keys.clone(),
            points: points.into_iter().map(|(index, run)| self.sweep_point(index, run)).collect(),
        }))
    }

    /// A point of a sweep. The result of a sweep is the curve; verdicts on each point would be too much text.
    pub(super) fn sweep_point(&self, point: usize, run: RunSummary) -> SweepPoint {
        SweepPoint { at: self.points[point].at.clone(), run: RunSummary { verdict: None, ..run } }
    }

    /// The summary of one point and seed, without policies' results.
    pub(super) fn blank(&self, point: &Point, seed: usize) -> RunSummary {
        let scenario = &point.scenario;
        RunSummary {
            schema: RUN_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: scenario.name.clone(),
            about: about(scenario),
            chip: scenario.chip.name.clone(),
            llc_ways: scenario.chip.llc.ways,
            seed: self.seed(seed),
            seeds: 1,
            sets: self.plan.sampling.to_string(),
            sample_seed: self.plan.sample_seed,
            time_factor: scenario.time_factor,
            duration_s: scenario.duration_s,
            measured_from_s: scenario.duration_s - scenario.measure_s,
            simulated_s: scenario.duration_s / scenario.time_factor,
            wall_s: None,
            partial: false,
            missing: Vec::new(),
            baseline: None,
            sampling_error: IndexMap::new(),
            warnings: Vec::new(),
            verdict: None,
            policies: IndexMap::new(),
        }
    }
}

/// Of all sets of policies and of seeds of which each pair has ended, the one with the most pairs; of equals the one with
/// the most policies. Empty if no pair has ended.
fn largest_whole(
    policies: usize,
    seeds: usize,
    ended: &dyn Fn(usize, usize) -> bool,
) -> (Vec<usize>, Vec<usize>) {
    let of_seed = |seed: usize| (0..policies).filter(|policy| ended(*policy, seed)).collect::<BTreeSet<_>>();
    // The policies of the best choice are those that a seed has, or those that two seeds have both, and so on.
    let mut choices: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    for of_seed in (0..seeds).map(of_seed).collect::<BTreeSet<_>>() {
        if choices.len() > MOST_CHOICES {
            break;
        }
        let both: Vec<BTreeSet<usize>> = choices.iter().map(|choice| choice & &of_seed).collect();
        choices.extend(both);
        choices.insert(of_seed);
    }
    // Of equals the last is taken: backwards, so that it has the policies that were named first.
    let with_seeds = choices.into_iter().rev().map(|choice| {
        let whole = |seed: &usize| choice.iter().all(|policy| ended(*policy, *seed));
        let seeds: Vec<usize> = (0..seeds).filter(whole).collect();
        (choice.into_iter().collect::<Vec<_>>(), seeds)
    });
    with_seeds
        .filter(|(policies, seeds)| !policies.is_empty() && !seeds.is_empty())
        .max_by_key(|(policies, seeds)| (policies.len() * seeds.len(), policies.len()))
        .unwrap_or_default()
}

/// The purpose of a scenario and its publication.
fn about(scenario: &Scenario) -> Option<String> {
    match (scenario.about.as_str(), scenario.paper.as_str()) {
        ("", "") => None,
        (about, "") => Some(about.to_owned()),
        ("", paper) => Some(paper.to_owned()),
        (about, paper) => Some(format!("{about} ({paper})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_has_ended_the_largest_whole_part_is_shown() {
        // A row per policy, a column per seed; x has ended.
        let largest = |rows: &[&str]| {
            let ended = |policy: usize, seed: usize| rows[policy].as_bytes()[seed] == b'x';
            largest_whole(rows.len(), rows[0].len(), &ended)
        };
        assert_eq!(largest(&["..", ".."]), (vec![], vec![]));
        assert_eq!(largest(&[".x", ".."]), (vec![0], vec![1]));
        // Two policies with two seeds are more than one policy with three.
        assert_eq!(largest(&["xxx", "xx.", "..."]), (vec![0, 1], vec![0, 1]));
        // Of two pairs the two policies with one seed, since these can be compared.
        assert_eq!(largest(&["xx", "x."]), (vec![0, 1], vec![0]));
        // Four seeds of one policy are more than one seed of two.
        assert_eq!(largest(&["xxxx", "..x."]), (vec![0], vec![0, 1, 2, 3]));
        // No seed has the first policy alone: two seeds have it both.
        assert_eq!(largest(&["xxxx", "xx..", "..xx"]), (vec![0, 1], vec![0, 1]));
        assert_eq!(largest(&["xxxxx", "x....", ".x...", "..xx."]), (vec![0], vec![0, 1, 2, 3, 4]));
    }
}
