//! Runs a scenario: every sweep point under every policy with every seed, each as one simulation with its own result.
//!
//! Simulations with the same server and seed share the work until their policies set different knobs, which changes no
//! result. Results are combined in the order of the plan, so they do not depend on the number of threads. This module
//! must not know how a result is shown or whether there is a terminal.

mod cohort;
mod error;
mod job;
mod plan;
mod points;
mod run_log;
mod shared_host;
mod twin_predictor;
mod warnings;

pub use error::RunError;
pub use plan::{OwnPolicy, RunPlan};
pub(crate) use points::{At, Points};
pub use waykeeper_control::LookBack;

use crate::best::{self, BEST_POLICY};
use crate::results::{RUN_SCHEMA, RunSummary, SWEEP_SCHEMA, SweepKey, SweepPoint, SweepSummary, combine};
use cohort::{Callbacks, CohortMember};
use indexmap::IndexMap;
use job::{Done, Job};
use points::Point;
use shared_host::{Passed, SharedHost};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use waykeeper_machine::{Scenario, ScenarioSource};
use waykeeper_silicon::Sampling;

#[cfg(test)]
mod tests;

/// The result: a curve for a scenario that sweeps keys, else a run.
#[derive(Clone, PartialEq, Debug)]
pub enum ExperimentOutcome {
    /// One set of numbers.
    Run(Box<RunSummary>),
    /// A curve.
    Sweep(SweepSummary),
}

/// Progress of all simulations together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimulationProgress {
    /// Simulated nanoseconds done, summed over all simulations.
    pub done_ns: u64,
    /// The part that a simulation took over from an equal one.
    pub shared_ns: u64,
    /// Simulated nanoseconds in total.
    pub total_ns: u64,
    /// Finished simulations.
    pub jobs_done: u64,
    /// Simulations in total.
    pub jobs: u64,
}

/// A scenario and a plan, read and checked, so that running it finds no input error.
#[derive(Debug)]
pub struct Experiment {
    /// Origin of the scenario, for messages.
    file: String,
    plan: RunPlan,
    own: Vec<OwnPolicy>,
    policies: Vec<String>,
    keys: Vec<SweepKey>,
    points: Vec<Point>,
    notes: Vec<String>,
    stop: Arc<AtomicBool>,
}

impl Experiment {
    /// Reads the scenario at every point of its sweep, and builds every policy once as a check.
    ///
    /// # Errors
    /// [`RunError`] of the first fault.
    pub fn prepare(source: &ScenarioSource, plan: RunPlan) -> Result<Experiment, RunError> {
        Experiment::prepare_with(source, plan, Vec::new())
    }

    /// The same with the caller's own policies, which are selected by name like those of the registry.
    ///
    /// # Errors
    /// As [`Experiment::prepare`].
    pub fn prepare_with(
        source: &ScenarioSource,
        plan: RunPlan,
        own: Vec<OwnPolicy>,
    ) -> Result<Experiment, RunError> {
        let (mut experiment, points) = Experiment::begin(source, plan, own)?;
        experiment.points = (0..points.count()).map(|index| points.read(index)).collect::<Result<_, _>>()?;
        Ok(experiment)
    }

    /// Reads the scenario at every point of its sweep, and builds every policy and the server of every point once:
    /// only this finds what does not fit simulated memory. One point is in memory at a time, and the fewest sets are
    /// simulated, since all memory is laid out with any number of sets. `progress` is called with
    /// the points done and the points in all. Returns the number of simulations.
    ///
    /// # Errors
    /// [`RunError`] of the first fault.
    pub fn check(
        source: &ScenarioSource,
        plan: RunPlan,
        progress: &dyn Fn(u64, u64),
    ) -> Result<usize, RunError> {
        let plan = RunPlan { sampling: Sampling::COARSEST, ..plan };
        let (experiment, points) = Experiment::begin(source, plan, Vec::new())?;
        let count = points.count();
        for index in 0..count {
            let point = points.read(index)?;
            experiment.job(&point, &experiment.policies[0], 0).server()?;
            progress(index as u64 + 1, count as u64);
        }
        Ok(count * experiment.policies.len() * experiment.plan.seeds as usize)
    }

    /// The experiment without its points, and the points.
    fn begin(
        source: &ScenarioSource,
        plan: RunPlan,
        own: Vec<OwnPolicy>,
    ) -> Result<(Experiment, Points), RunError> {
        plan.check()?;
        let mut source = source.clone();
        let base = source.read()?;
        source.check_sweeps(&base.sweeps)?;
        let mut own = own;
        let named = if plan.policies.is_empty() { &base.policies } else { &plan.policies };
        let known = |policy: &OwnPolicy| policy.name == BEST_POLICY;
        if named.iter().any(|name| name == BEST_POLICY) && !own.iter().any(known) {
            own.push(best::policy(&source, &base)?);
        }
        let changes = plan.changes(&base)?;
        for (key, value) in changes.values {
            source.set(key, &toml::Value::Float(value))?;
        }
        let (policies, named_again) = plan::policies(&plan, &own, &base, &source)?;
        let keys: Vec<SweepKey> =
            base.sweeps.iter().map(|sweep| SweepKey { key: sweep.key.clone(), label: None }).collect();
        let points = Points::new(&source, &base.sweeps);
        plan.check_size(points.count(), policies.len())?;
        let file = source.file().to_owned();
        let notes = [changes.notes, named_again].concat();
        let experiment =
            Experiment { file, plan, own, policies, keys, points: Vec::new(), notes, stop: Arc::default() };
        Ok((experiment, points))
    }

    /// A flag: when set, [`Experiment::run`] ends with [`RunError::Interrupted`] at the next control interval of each
    /// simulation.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Notes for the reader about how the plan was interpreted, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The policies that are compared, in order.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// Simulated time of all simulations together, ns.
    pub fn simulated_ns(&self) -> u64 {
        self.job_list().iter().map(Job::simulated_ns).sum()
    }

    /// Number of simulations.
    pub fn jobs(&self) -> usize {
        self.points.len() * self.policies.len() * self.plan.seeds as usize
    }

    /// Runs all simulations. `progress` is called from many threads, after every control interval.
    ///
    /// # Errors
    /// [`RunError`] of the first simulation, in the plan's order, that failed.
    pub fn run(&self, progress: &(dyn Fn(SimulationProgress) + Sync)) -> Result<ExperimentOutcome, RunError> {
        self.run_together(progress, cohort::most(self.plan.sampling))
    }

    /// The same with at most `most` simulations per server; results do not depend on it.
    fn run_together(
        &self,
        progress: &(dyn Fn(SimulationProgress) + Sync),
        most: usize,
    ) -> Result<ExperimentOutcome, RunError> {
        let started = Instant::now();
        let jobs = self.job_list();
        let total_ns = jobs.iter().map(Job::simulated_ns).sum();
        let (done_ns, shared_ns, jobs_done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let tell = |passed: Passed, finished: u64| {
            // Relaxed: the counts are only shown and order nothing.
            let add = |count: &AtomicU64, more: u64| count.fetch_add(more, Ordering::Relaxed) + more;
            progress(SimulationProgress {
                done_ns: add(&done_ns, passed.ns),
                shared_ns: add(&shared_ns, passed.shared_ns),
                total_ns,
                jobs_done: add(&jobs_done, finished),
                jobs: jobs.len() as u64,
            });
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.plan.threads).build();
        let pool =
            pool.map_err(|why| RunError::Threads { threads: self.plan.threads, why: why.to_string() })?;
        let mut results: Vec<Option<Result<Done, RunError>>> = Vec::new();
        results.resize_with(jobs.len(), || None);
        let results = Mutex::new(results);
        let callbacks = Callbacks {
            passed: &|passed| tell(passed, 0),
            done: &|index, result| {
                results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
                tell(Passed::default(), 1);
            },
        };
        let mut hosts: Vec<SharedHost> = jobs.iter().map(|_| SharedHost::default()).collect();
        let mut hosts: Vec<Option<&mut SharedHost>> = hosts.iter_mut().map(Some).collect();
        pool.scope(|scope| {
            for indices in self.cohorts(most) {
                let member = |index: usize| {
                    let host = hosts[index].take().expect("a job is in one cohort");
                    CohortMember { index, job: &jobs[index], host }
                };
                let cohort: Vec<CohortMember<'_>> = indices.into_iter().map(member).collect();
                let callbacks = &callbacks;
                scope.spawn(move |scope| cohort::run(scope, cohort, callbacks));
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut results = results.into_iter();
        let seeds = self.plan.seeds as usize;
        let mut runs = Vec::new();
        for point in &self.points {
            let mut per_seed: Vec<RunSummary> = (0..seeds).map(|seed| self.blank(point, seed)).collect();
            let mut gaps = Vec::new();
            for policy in &self.policies {
                for summary in &mut per_seed {
                    let done: Done = results.next().flatten().expect("every job has a result")?;
                    summary.policies.insert(policy.clone(), done.result);
                    gaps.extend(done.gaps);
                }
            }
            let warnings = warnings::of_gaps(gaps, self.plan.sampling);
            runs.push(RunSummary { warnings, ..combine(per_seed)? });
        }
        Ok(self.outcome(runs, started.elapsed().as_secs_f64()))
    }

    /// All simulations: points outermost, seeds innermost.
    fn job_list(&self) -> Vec<Job<'_>> {
        let mut jobs = Vec::with_capacity(self.jobs());
        for point in &self.points {
            for policy in &self.policies {
                jobs.extend((0..self.plan.seeds as usize).map(|index| self.job(point, policy, index)));
            }
        }
        jobs
    }

    /// The simulation of a point under a policy with the seed of this index.
    fn job<'a>(&'a self, point: &'a Point, policy: &'a str, index: usize) -> Job<'a> {
        let seed = self.seed(index);
        Job {
            scenario: &point.scenario,
            file: &self.file,
            policy,
            own: &self.own,
            stop: &self.stop,
            seed,
            sample_seed: self.plan.sample_seed.unwrap_or(seed),
            sampling: self.plan.sampling,
            extrapolate: self.plan.extrapolate && self.plan.sampling != Sampling::EXACT,
            look_back: self.plan.look_back,
            with_samples: index == 0 && self.keys.is_empty(),
        }
    }

    /// Jobs with equal servers at the start, at most `most` together, by their index in [`Experiment::job_list`].
    fn cohorts(&self, most: usize) -> Vec<Vec<usize>> {
        let (policies, seeds) = (self.policies.len(), self.plan.seeds as usize);
        // The settings of policies are not part of a server.
        let server_at = |point: &Point| {
            let values = point.at.iter().filter(|(key, _)| !key.starts_with("policy."));
            // As text, since numbers have no order and no hash.
            format!("{:?}", values.map(|(_, value)| value).collect::<Vec<_>>())
        };
        // The first point with the same server.
        let mut known: HashMap<String, usize> = HashMap::new();
        let first = |(index, point)| *known.entry(server_at(point)).or_insert(index);
        let firsts: Vec<usize> = self.points.iter().enumerate().map(first).collect();
        let mut cohorts: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for policy in 0..policies {
            for (point, first) in firsts.iter().enumerate() {
                for seed in 0..seeds {
                    let index = (point * policies + policy) * seeds + seed;
                    cohorts.entry((*first, seed)).or_default().push(index);
                }
            }
        }
        cohorts.values().flat_map(|cohort| cohort.chunks(most)).map(<[usize]>::to_vec).collect()
    }

    fn seed(&self, index: usize) -> u64 {
        self.plan.seed.wrapping_add(index as u64)
    }

    /// The summary of one point and seed, without policies' results.
    fn blank(&self, point: &Point, seed: usize) -> RunSummary {
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
            baseline: None,
            sampling_error: IndexMap::new(),
            warnings: Vec::new(),
            verdict: None,
            policies: IndexMap::new(),
        }
    }

    fn outcome(&self, mut runs: Vec<RunSummary>, wall_s: f64) -> ExperimentOutcome {
        if self.keys.is_empty() {
            let mut run = runs.swap_remove(0);
            run.wall_s = Some(wall_s);
            return ExperimentOutcome::Run(Box::new(run));
        }
        let scenario = &self.points[0].scenario;
        // The result of a sweep is the curve; verdicts on each point would be too much text.
        let points = self.points.iter().zip(runs).map(|(point, run)| SweepPoint {
            at: point.at.clone(),
            run: RunSummary { verdict: None, ..run },
        });
        ExperimentOutcome::Sweep(SweepSummary {
            schema: SWEEP_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: scenario.name.clone(),
            about: about(scenario),
            wall_s: Some(wall_s),
            keys: self.keys.clone(),
            points: points.collect(),
        })
    }
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
