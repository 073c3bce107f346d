//! Carries an experiment out: takes kept simulations from their folder, simulates the others on all threads, keeps each
//! that ends, and reports points when they are complete. Must not know how simulations share a server or how results
//! are combined.

use super::cohort::{self, Callbacks, CohortMember};
use super::job::{Done, Job};
use super::shared_host::{Passed, SharedHost};
use super::{Experiment, ExperimentOutcome, RunError, RunStart, RunWatcher, SimulationProgress, identity};
use crate::results::RunSummary;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Results by the index of their job; none if it has not ended.
pub(super) type Results = Vec<Option<Result<Done, RunError>>>;

/// The results so far: those of jobs whose point is incomplete, and the complete points.
pub(super) struct Collected {
    pub(super) results: Results,
    pub(super) points: Vec<Option<Result<RunSummary, RunError>>>,
    /// Jobs of each point that have not ended.
    left: Vec<usize>,
    /// Jobs that were simulated to their end; the others' results were kept.
    pub(super) simulated: usize,
}

/// Counts for the progress.
#[derive(Default)]
struct Counts {
    done_ns: AtomicU64,
    shared_ns: AtomicU64,
    jobs_done: AtomicU64,
}

/// A watcher that wants the progress only.
pub(crate) struct OnlyProgress<'a>(pub(crate) &'a (dyn Fn(SimulationProgress) + Sync));

impl RunWatcher for OnlyProgress<'_> {
    fn progressed(&self, progress: SimulationProgress) {
        (self.0)(progress);
    }
}

impl Experiment {
    /// Runs all simulations. `progress` is called from many threads, after every control interval.
    ///
    /// # Errors
    /// [`RunError`] of the first simulation, in the plan's order, that failed; [`RunError::Interrupted`] if the stop flag
    /// was set before all had ended.
    pub fn run(&self, progress: &(dyn Fn(SimulationProgress) + Sync)) -> Result<ExperimentOutcome, RunError> {
        let outcome = self.run_watched(&OnlyProgress(progress))?;
        if outcome.is_partial() { Err(RunError::Interrupted) } else { Ok(outcome) }
    }

    /// The same with more to watch. If the stop flag was set before all simulations had ended, the outcome has those that
    /// have, and is marked as partial.
    ///
    /// # Errors
    /// [`RunError`] of the first simulation, in the plan's order, that failed; [`RunError::Interrupted`] if none has
    /// ended.
    pub fn run_watched(&self, watcher: &dyn RunWatcher) -> Result<ExperimentOutcome, RunError> {
        self.run_together(watcher, cohort::most(self.plan.sampling))
    }

    /// The same with at most `most` simulations per server; results do not depend on it.
    pub(super) fn run_together(
        &self,
        watcher: &dyn RunWatcher,
        most: usize,
    ) -> Result<ExperimentOutcome, RunError> {
        let started = Instant::now();
        let Collected { points, results, .. } = self.simulate(watcher, most, &|_| true)?;
        self.outcome(points, results, started.elapsed().as_secs_f64())
    }

    /// Takes the kept ones of the `wanted` jobs, by their index in [`Experiment::job_list`], and runs the others.
    pub(super) fn simulate(
        &self,
        watcher: &dyn RunWatcher,
        most: usize,
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Collected, RunError> {
        let jobs = self.job_list();
        let identities: Vec<Option<String>> =
            jobs.iter().enumerate().map(|(at, job)| self.identity(at, job)).collect();
        let collected = Mutex::new(Collected {
            results: (0..jobs.len()).map(|_| None).collect(),
            points: self.points.iter().map(|_| None).collect(),
            left: vec![self.jobs_per_point(); self.points.len()],
            simulated: 0,
        });
        let mut wanted: Vec<bool> = (0..jobs.len()).map(wanted).collect();
        let asked = wanted.iter().filter(|wanted| **wanted).count();
        for (index, identity) in
            identities.iter().enumerate().filter(|(index, _)| wanted[*index]).collect::<Vec<_>>()
        {
            let Some((kept, hash)) = self.kept.as_ref().zip(identity.as_ref()) else { continue };
            match kept.get(hash) {
                Ok(None) => {}
                Ok(Some(done)) => {
                    wanted[index] = false;
                    self.collect(&collected, index, Ok(done), watcher);
                }
                Err(damaged) => watcher.warn(&damaged),
            }
        }
        let to_run = || jobs.iter().zip(&wanted).filter(|(_, wanted)| **wanted).map(|(job, _)| job);
        let (total_ns, count) = (to_run().map(Job::simulated_ns).sum(), to_run().count() as u64);
        let kept = asked - count as usize;
        watcher.begins(RunStart {
            kept,
            to_run: count as usize,
            total_ns,
            inside_ns: self.inside_ns.clone(),
        });
        let counts = Counts::default();
        let tell = |run: usize, passed: Passed, ended: bool, finished: bool| {
            // Relaxed: the counts are only shown and order nothing.
            let add = |count: &AtomicU64, more: u64| count.fetch_add(more, Ordering::Relaxed) + more;
            watcher.progressed(SimulationProgress {
                done_ns: add(&counts.done_ns, passed.ns),
                shared_ns: add(&counts.shared_ns, passed.shared_ns),
                total_ns,
                jobs_done: add(&counts.jobs_done, u64::from(finished)),
                jobs: count,
                run,
                passed_ns: passed.ns,
                ended,
            });
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.plan.threads).build();
        let pool =
            pool.map_err(|why| RunError::Threads { threads: self.plan.threads, why: why.to_string() })?;
        let callbacks = Callbacks {
            passed: &|index, passed| {
                self.inside_ns.fetch_sub(passed.simulated_ns as i64, Ordering::Relaxed);
                tell(index, passed, false, false);
            },
            done: &|index, result| {
                let result = result.map(|done| self.keep(identities[index].as_deref(), done, watcher));
                // The simulation counts as ended before its point does: a line about the point comes after it.
                tell(index, Passed::default(), true, result.is_ok());
                self.collect(&collected, index, result, watcher);
            },
        };
        let mut hosts: Vec<SharedHost> = jobs.iter().map(|_| SharedHost::default()).collect();
        let mut hosts: Vec<Option<&mut SharedHost>> = hosts.iter_mut().map(Some).collect();
        pool.scope(|scope| {
            // A thread takes what was spawned last, so that the first seeds and points of the plan end first.
            for indices in self.cohorts(most, |index| wanted[index]).into_iter().rev() {
                let member = |index: usize| {
                    let host = hosts[index].take().expect("a job is in one cohort");
                    CohortMember { index, job: &jobs[index], host }
                };
                let cohort: Vec<CohortMember<'_>> = indices.into_iter().map(member).collect();
                let callbacks = &callbacks;
                scope.spawn(move |scope| cohort::run(scope, cohort, callbacks));
            }
        });
        let collected = collected.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Collected { simulated: counts.jobs_done.into_inner() as usize, ..collected })
    }

    pub(super) fn jobs_per_point(&self) -> usize {
        self.policies.len() * self.plan.seeds as usize
    }

    /// The hash of all that determines a job, where runs are kept.
    pub(super) fn identity(&self, index: usize, job: &Job<'_>) -> Option<String> {
        let point = self.points[index / self.jobs_per_point()].identity.as_deref();
        point.and_then(|point| identity::of_job(point, job))
    }

    /// Keeps a result, if it can be.
    fn keep(&self, identity: Option<&str>, done: Done, watcher: &dyn RunWatcher) -> Done {
        let Some((kept, hash)) = self.kept.as_ref().zip(identity) else { return done };
        let (done, why) = kept.put(hash, done);
        why.into_iter().for_each(|why| watcher.warn(&why));
        done
    }

    /// Adds a result; the last of a point completes the point.
    fn collect(
        &self,
        collected: &Mutex<Collected>,
        index: usize,
        result: Result<Done, RunError>,
        watcher: &dyn RunWatcher,
    ) {
        let point = index / self.jobs_per_point();
        let complete = {
            let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
            collected.results[index] = Some(result);
            collected.left[point] -= 1;
            let jobs = point * self.jobs_per_point()..(point + 1) * self.jobs_per_point();
            let all_done = collected.left[point] == 0
                && collected.results[jobs.clone()].iter().all(|one| matches!(one, Some(Ok(_))));
            all_done.then(|| collected.results[jobs].iter_mut().map(Option::take).collect::<Results>())
        };
        let Some(results) = complete else { return };
        let done = results.into_iter().flatten().filter_map(Result::ok).collect();
        let summary = self.complete_point(point, done);
        if let Ok(summary) = &summary
            && !self.keys.is_empty()
        {
            watcher.point_done(&self.sweep_point(point, summary.clone()));
        }
        collected.lock().unwrap_or_else(PoisonError::into_inner).points[point] = Some(summary);
    }
}
