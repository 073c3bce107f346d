//! Runs a scenario: every sweep point under every policy with every seed, each as one simulation with its own result.
//!
//! Simulations with the same server and seed share the work until their policies set different knobs, which changes no
//! result. Results are combined in the order of the plan, so they do not depend on the number of threads. This module
//! must not know how a result is shown or whether there is a terminal.

mod cohort;
mod error;
mod job;
mod plan;
mod run_log;
mod shared_host;
mod warnings;

pub use error::RunError;
pub use plan::{OwnPolicy, RunPlan};

use crate::results::{
    RUN_SCHEMA, RunSummary, SWEEP_SCHEMA, SweepKey, SweepPoint, SweepSummary, SweepValue, combine,
};
use cohort::{Callbacks, CohortMember};
use indexmap::IndexMap;
use job::{Done, Job};
use shared_host::{Passed, SharedHost};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use waykeeper_machine::{Scenario, ScenarioSource, shown};
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

/// One combination of swept values; without a sweep there is one empty combination.
#[derive(Debug)]
struct Point {
    at: IndexMap<String, SweepValue>,
    scenario: Arc<Scenario>,
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
        plan.check()?;
        let mut source = source.clone();
        let base = source.read()?;
        source.check_sweeps(&base.sweeps)?;
        let changes = plan.changes(&base)?;
        for (key, value) in changes.values {
            source.set(key, &toml::Value::Float(value))?;
        }
        let (policies, named_again) = plan::policies(&plan, &own, &base, &source)?;
        let keys: Vec<SweepKey> =
            base.sweeps.iter().map(|sweep| SweepKey { key: sweep.key.clone(), label: None }).collect();
        let mut points = Vec::new();
        for values in combinations(&base) {
            let mut source = source.clone();
            for (key, value) in keys.iter().zip(&values) {
                source.set(&key.key, value)?;
            }
            let at = keys.iter().map(|key| key.key.clone()).zip(values.iter().map(sweep_value)).collect();
            points.push(Point { at, scenario: Arc::new(source.read()?) });
        }
        let file = source.file().to_owned();
        let notes = [changes.notes, named_again].concat();
        Ok(Experiment { file, plan, own, policies, keys, points, notes, stop: Arc::default() })
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

    /// Builds the server once at every sweep point, without running it: only this finds what does not fit simulated
    /// memory.
    ///
    /// # Errors
    /// [`RunError`] of the first point that cannot be built.
    pub fn build(&self) -> Result<(), RunError> {
        let per_point = self.policies.len() * self.plan.seeds as usize;
        self.job_list().iter().step_by(per_point).try_for_each(|job| job.server().map(drop))
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
                for index in 0..self.plan.seeds as usize {
                    let seed = self.seed(index);
                    jobs.push(Job {
                        scenario: &point.scenario,
                        file: &self.file,
                        policy,
                        own: &self.own,
                        stop: &self.stop,
                        seed,
                        sample_seed: self.plan.sample_seed.unwrap_or(seed),
                        sampling: self.plan.sampling,
                        extrapolate: self.plan.extrapolate && self.plan.sampling != Sampling::EXACT,
                        with_samples: index == 0 && self.keys.is_empty(),
                    });
                }
            }
        }
        jobs
    }

    /// Jobs with equal servers at the start, at most `most` together, by their index in [`Experiment::job_list`].
    fn cohorts(&self, most: usize) -> Vec<Vec<usize>> {
        let (policies, seeds) = (self.policies.len(), self.plan.seeds as usize);
        // The settings of policies are not part of a server.
        let server_at = |point: &Point| -> Vec<SweepValue> {
            let values = point.at.iter().filter(|(key, _)| !key.starts_with("policy."));
            values.map(|(_, value)| value.clone()).collect()
        };
        let servers: Vec<Vec<SweepValue>> = self.points.iter().map(server_at).collect();
        let first = |server| servers.iter().position(|other| other == server);
        let firsts: Vec<Option<usize>> = servers.iter().map(first).collect();
        let mut cohorts: BTreeMap<(Option<usize>, usize), Vec<usize>> = BTreeMap::new();
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

/// Swept keys and their values.
pub(crate) type At = IndexMap<String, SweepValue>;

/// The scenario at every point of its sweep, without the sweep: values of the swept keys and the source.
pub(crate) fn at_points(source: &ScenarioSource) -> Result<Vec<(At, ScenarioSource)>, RunError> {
    let base = source.read()?;
    source.check_sweeps(&base.sweeps)?;
    let mut points = Vec::new();
    for values in combinations(&base) {
        let mut source = source.clone();
        for (sweep, value) in base.sweeps.iter().zip(&values) {
            source.set(&sweep.key, value)?;
        }
        source.set("sweep", &toml::Value::Array(Vec::new()))?;
        let keys = base.sweeps.iter().map(|sweep| sweep.key.clone());
        points.push((keys.zip(values.iter().map(sweep_value)).collect(), source));
    }
    Ok(points)
}

fn combinations(scenario: &Scenario) -> Vec<Vec<toml::Value>> {
    let mut all = vec![Vec::new()];
    for sweep in &scenario.sweeps {
        let longer = |values: &Vec<toml::Value>| {
            let values = values.clone();
            sweep.values.iter().map(move |value| [values.as_slice(), std::slice::from_ref(value)].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn sweep_value(value: &toml::Value) -> SweepValue {
    match value {
        toml::Value::Boolean(flag) => SweepValue::Flag(*flag),
        toml::Value::Integer(number) => SweepValue::Integer(*number),
        toml::Value::Float(number) => SweepValue::Number(*number),
        other => SweepValue::Text(shown(other)),
    }
}
