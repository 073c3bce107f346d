//! Runs a scenario: every sweep point under every policy with every seed, each as one simulation with its own result.
//!
//! Simulations with the same server and seed share the work until their policies set different knobs, which changes no
//! result. Results are combined in the order of the plan, so they do not depend on the number of threads. This module
//! must not know how a result is shown or whether there is a terminal.

mod assemble;
mod carry_out;
mod cohort;
mod error;
mod identity;
mod inline_twin;
mod job;
mod kept;
mod plan;
mod points;
mod run_log;
mod shard;
mod shared_host;
mod short;
mod silence;
mod warnings;

pub(crate) use carry_out::OnlyProgress;
pub use error::RunError;
pub use inline_twin::InlineTwin;
pub use kept::KeptRuns;
pub use plan::{MOST_SEEDS, MOST_THREADS, OwnPolicy, RunPlan};
pub use points::At;
pub(crate) use points::Points;
pub use shard::{Shard, ShardOutcome};
pub use waykeeper_control::LookBack;

use crate::best::{self, BEST_POLICY};
use crate::results::{RunSummary, SweepKey, SweepPoint, SweepSummary, Warning, WarningKey, warning};
use indexmap::IndexMap;
use job::Job;
use points::Point;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};
use waykeeper_machine::ScenarioSource;
use waykeeper_silicon::Sampling;

#[cfg(test)]
mod kept_tests;
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

/// A scenario without mistakes.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckedScenario {
    /// Number of simulations that a run takes.
    pub simulations: usize,
    /// What to know before a run.
    pub warnings: Vec<Warning>,
}

/// Progress of all simulations together. Those that were kept by an earlier run are not in it.
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
    /// Which simulation advanced or ended, as an index into [`Experiment::runs`]; of a search for a load, which search.
    pub run: usize,
    /// Nanoseconds that it advanced.
    pub passed_ns: u64,
    /// True when it has ended.
    pub ended: bool,
}

/// What there is to do when simulations begin.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// Simulations that are kept from an earlier run. Of a search for a load 0: it meets them one by one.
    pub kept: usize,
    /// Simulations, or searches, to run.
    pub to_run: usize,
    /// Simulated nanoseconds of these together.
    pub total_ns: u64,
    /// Simulated nanoseconds of the control intervals that are being simulated at a time; they are not in
    /// [`SimulationProgress::done_ns`] yet. About: it may be a little below zero.
    pub inside_ns: Arc<AtomicI64>,
}

/// Called while simulations run, from many threads.
pub trait RunWatcher: Sync {
    /// Once, before the first simulation.
    fn begins(&self, start: RunStart) {
        let _ = start;
    }

    /// After every control interval of each simulation, and at its end.
    fn progressed(&self, progress: SimulationProgress);

    /// When the last simulation of a point of a sweep has ended; its values are final.
    fn point_done(&self, point: &SweepPoint) {
        let _ = point;
    }

    /// A warning about a kept run, in a line.
    fn warn(&self, line: &str) {
        let _ = line;
    }
}

/// Which simulation of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct RunName {
    /// The policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Swept keys and their values; empty without a sweep.
    pub at: At,
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
    inside_ns: Arc<AtomicI64>,
    kept: Option<Arc<KeptRuns>>,
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
        Experiment::prepare_kept(source, plan, own, None)
    }

    /// The same. Each simulation that ends is kept in `kept`, and is taken from there if `kept` is read.
    ///
    /// # Errors
    /// As [`Experiment::prepare`].
    pub fn prepare_kept(
        source: &ScenarioSource,
        plan: RunPlan,
        own: Vec<OwnPolicy>,
        kept: Option<Arc<KeptRuns>>,
    ) -> Result<Experiment, RunError> {
        let (mut experiment, points) = Experiment::begin(source, plan, own)?;
        let read = |index| points.read(index, kept.as_deref());
        experiment.points = (0..points.count()).map(read).collect::<Result<_, _>>()?;
        experiment.kept = kept;
        Ok(experiment)
    }

    /// Reads the scenario at every point of its sweep, and builds every policy and the server of every point once:
    /// only this finds what does not fit simulated memory. One point is in memory at a time, and the fewest sets are
    /// simulated, since all memory is laid out with any number of sets. `progress` is called with
    /// the points done and the points in all. Returns the number of simulations and the warnings that the scenario and a
    /// [short simulation](short) of each point give, each kind once; of a long sweep they are of some points.
    ///
    /// # Errors
    /// [`RunError`] of the first fault.
    pub fn check(
        source: &ScenarioSource,
        plan: RunPlan,
        progress: &dyn Fn(u64, u64),
    ) -> Result<CheckedScenario, RunError> {
        let plan = RunPlan { sampling: Sampling::COARSEST, ..plan };
        let (experiment, points) = Experiment::begin(source, plan, Vec::new())?;
        let count = points.count();
        let mut found: IndexMap<WarningKey, Vec<Warning>> = IndexMap::new();
        let stride = count.div_ceil(short::MOST_POINTS).max(1);
        for index in 0..count {
            let point = points.read(index, None)?;
            let server = experiment.job(&point, &experiment.policies[0], 0).server()?;
            progress(index as u64 + 1, count as u64);
            if index % stride > 0 {
                continue;
            }
            let mut warnings = warnings::of_scenario(&point.scenario, &experiment.policies);
            warnings.extend(short::warnings(experiment.blank(&point, 0), &point.scenario, server)?);
            for warning in warnings {
                found.entry(warning.key).or_default().push(warning);
            }
        }
        let simulations = count * experiment.policies.len() * experiment.plan.seeds as usize;
        let warnings =
            found.into_values().map(|all| warning::with_points(all, count.div_ceil(stride))).collect();
        Ok(CheckedScenario { simulations, warnings })
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
        for policy in &own {
            waykeeper_policy::check_own_name(&policy.name)
                .map_err(|why| RunError::policy("a policy of your own", Box::new(why)))?;
        }
        let mut own = own;
        let named = if plan.policies.is_empty() { &base.policies } else { &plan.policies };
        if named.iter().any(|name| name == BEST_POLICY) {
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
        let (stop, inside_ns) = Default::default();
        let (points_read, kept) = (Vec::new(), None);
        let experiment =
            Experiment { file, plan, own, policies, keys, points: points_read, notes, stop, inside_ns, kept };
        Ok((experiment, points))
    }

    /// A flag: when set, each simulation ends soon, without a result.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Uses this flag as the stop flag.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Experiment {
        Experiment { stop, ..self }
    }

    /// Counts the intervals that are being simulated in `inside_ns`, with those of other experiments.
    pub(crate) fn counted_in(self, inside_ns: Arc<AtomicI64>) -> Experiment {
        Experiment { inside_ns, ..self }
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

    /// All simulations, in the order of the plan.
    pub fn runs(&self) -> Vec<RunName> {
        let mut runs = Vec::with_capacity(self.jobs());
        for point in &self.points {
            for policy in &self.policies {
                runs.extend((0..self.plan.seeds as usize).map(|index| RunName {
                    policy: policy.clone(),
                    seed: self.seed(index),
                    at: point.at.clone(),
                }));
            }
        }
        runs
    }

    /// Number of points; 1 without a sweep.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// The threads that will run simulations.
    pub fn threads(&self) -> usize {
        self.plan.threads()
    }

    /// Number of simulations.
    pub fn jobs(&self) -> usize {
        self.points.len() * self.policies.len() * self.plan.seeds as usize
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
            inside_ns: &self.inside_ns,
            seed,
            sample_seed: self.plan.sample_seed.unwrap_or(seed),
            sampling: self.plan.sampling,
            extrapolate: self.plan.extrapolate && self.plan.sampling != Sampling::EXACT,
            look_back: self.plan.look_back,
            with_samples: index == 0 && self.keys.is_empty(),
        }
    }

    /// The jobs that are `wanted`, those with equal servers at the start together, at most `most`, by their index in
    /// [`Experiment::job_list`].
    fn cohorts(&self, most: usize, wanted: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
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
                    if wanted(index) {
                        cohorts.entry((*first, seed)).or_default().push(index);
                    }
                }
            }
        }
        cohorts.values().flat_map(|cohort| cohort.chunks(most)).map(<[usize]>::to_vec).collect()
    }

    fn seed(&self, index: usize) -> u64 {
        self.plan.seed.wrapping_add(index as u64)
    }
}
