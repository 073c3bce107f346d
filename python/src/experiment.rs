//! Running a scenario, and the search for the load it sustains.
//!
//! The simulation runs on its own threads without Python's lock; the caller's thread checks for Ctrl-C and calls a
//! progress function.

use crate::errors::{BadInput, OrRaise};
use crate::policy::{Raised, own};
use crate::source::Source;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use waykeeper_lab::files::{Cells, ResultRows};
use waykeeper_lab::msl::{Criterion, Knee, LoadSearch, SearchWatcher};
use waykeeper_lab::runner::{
    Experiment, ExperimentOutcome, KeptRuns, RunError, RunPlan, RunWatcher, SimulationProgress,
};
use waykeeper_silicon::Sampling;

/// Time between two checks for Ctrl-C by the caller's thread.
const GLANCE: Duration = Duration::from_millis(50);

/// Options of a run, from keyword arguments.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    policies: Vec<String>,
    seed: u64,
    seeds: u32,
    sample_seed: Option<u64>,
    sets: String,
    extrapolate: bool,
    duration_s: Option<f64>,
    warmup_s: Option<f64>,
    time_factor: Option<f64>,
    looks_every_s: Option<f64>,
    threads: usize,
    #[pyo3(default)]
    keep: Option<PathBuf>,
}

impl Options {
    /// The folder in which finished simulations are kept, and from which they are taken.
    fn kept(&self) -> Option<Arc<KeptRuns>> {
        self.keep.as_ref().map(|folder| Arc::new(KeptRuns::new(folder.clone(), true)))
    }

    fn plan(self) -> PyResult<RunPlan> {
        let sampling: Sampling =
            self.sets.parse().map_err(|why| BadInput::new_err(format!("sets: {why}")))?;
        let look_back = self.looks_every_s.map(RunPlan::looks).transpose().or_raise()?;
        Ok(RunPlan {
            policies: self.policies,
            seed: self.seed,
            seeds: self.seeds,
            sample_seed: self.sample_seed,
            sampling,
            extrapolate: self.extrapolate,
            duration_s: self.duration_s,
            warmup_s: self.warmup_s,
            time_factor: self.time_factor,
            look_back,
            threads: self.threads,
        })
    }
}

/// Progress in nanoseconds, shared with the simulating threads, and what there is to say about kept runs.
#[derive(Default)]
struct Meter {
    done_ns: AtomicU64,
    total_ns: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl RunWatcher for Meter {
    fn progressed(&self, progress: SimulationProgress) {
        self.done_ns.fetch_max(progress.done_ns, Ordering::Relaxed);
        self.total_ns.store(progress.total_ns, Ordering::Relaxed);
    }

    fn warn(&self, line: &str) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }
}

impl SearchWatcher for Meter {
    fn found(&self, _: &Knee) {}
}

impl Meter {
    fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn part(&self) -> f64 {
        let total = self.total_ns.load(Ordering::Relaxed);
        if total == 0 { 0.0 } else { self.done_ns.load(Ordering::Relaxed) as f64 / total as f64 }
    }
}

/// Runs `work` on another thread; meanwhile calls `progress` and checks for Ctrl-C, on which it sets `stop`.
fn watch<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    stop: &AtomicBool,
    meter: &Meter,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let mut raised = None;
    let result = std::thread::scope(|scope| {
        scope.spawn(move || sender.send(work()));
        loop {
            let reported =
                py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(GLANCE));
            match reported {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let heard = match progress {
                Some(progress) if raised.is_none() => progress.call1((meter.part(),)).map(drop),
                _ => Ok(()),
            };
            if let Err(why) = heard.and_then(|()| py.check_signals())
                && raised.is_none()
            {
                raised = Some(why);
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    match (raised, result) {
        (Some(why), _) => Err(why),
        (None, Some(result)) => Ok(result),
        (None, None) => {
            Err(crate::errors::RunFailed::new_err("the simulation's thread ended without a result"))
        }
    }
}

/// Runs a scenario: JSON of `waykeeper.run/2` or `waykeeper.sweep/2`, the time series as CSV (a run only) and what the
/// reader should know about how the plan was understood. `own` maps names to functions that make a policy from its settings.
#[pyfunction]
#[pyo3(signature = (source, options, own_policies, progress = None))]
pub fn run(
    py: Python<'_>,
    source: &Source,
    options: Options,
    own_policies: Vec<(String, Py<PyAny>)>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(String, Option<String>, Vec<String>)> {
    let raised = Raised::default();
    let take = || raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    let policies = own_policies.into_iter().map(|(name, make)| own(name, make, &raised)).collect();
    let kept = options.kept();
    let plan = options.plan()?;
    let experiment = py.detach(|| Experiment::prepare_kept(&source.0, plan, policies, kept));
    if let Some(why) = take() {
        return Err(why);
    }
    let experiment = experiment.or_raise()?;
    let stop = experiment.stop_flag();
    let meter = Meter::default();
    let outcome = watch(py, progress, &stop, &meter, || experiment.run_watched(&meter))?;
    if let Some(why) = take() {
        return Err(why);
    }
    let notes = [experiment.notes(), &meter.warnings()].concat();
    match outcome.or_raise()? {
        // Ctrl-C has raised its exception above; this is a stop that nothing asked for.
        outcome if outcome.is_partial() => Err(RunError::Interrupted).or_raise(),
        ExperimentOutcome::Run(summary) => {
            let csv = ResultRows::of_run(&summary, Cells::Program).timeseries_csv();
            let csv = csv.map_err(|why| crate::errors::RunFailed::new_err(why.to_string()))?;
            Ok((serde_json::to_string(&summary).or_raise()?, Some(csv), notes))
        }
        ExperimentOutcome::Sweep(sweep) => Ok((serde_json::to_string(&sweep).or_raise()?, None, notes)),
    }
}

/// Finds the highest load that a scenario's NIC sustains: JSON of `waykeeper.msl/1`, and what there is to say about kept
/// runs.
#[pyfunction]
#[pyo3(signature = (source, options, nic = None, zero_loss = false, progress = None))]
pub fn find_load(
    py: Python<'_>,
    source: &Source,
    options: Options,
    nic: Option<&str>,
    zero_loss: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    let kept = options.kept();
    let plan = options.plan()?;
    let criterion = if zero_loss { Criterion::ZeroLoss } else { Criterion::Knee };
    let stop = Arc::new(AtomicBool::new(false));
    let search =
        py.detach(|| LoadSearch::prepare(&source.0, &plan, Vec::new(), nic, criterion, kept)).or_raise()?;
    let search = search.stopped_by(stop.clone());
    let meter = Meter::default();
    let found = watch(py, progress, &stop, &meter, || search.run(&meter))?;
    Ok((serde_json::to_string(&found.or_raise()?).or_raise()?, meter.warnings()))
}
