//! The maximum sustainable load of a scenario: the highest load of a NIC before the tail latency rises sharply.
//!
//! Two criteria. The knee is the definition of algorithms.md 4.5: the highest load with a p99 of at most five times
//! that at a tenth of the line rate, and no loss. The other is RFC 2544's: the highest load without loss. Both are
//! found by bisection, which assumes that p99 and loss grow with the load. Must not know how a run is made or who
//! called.

use crate::results::{MissingRun, RunSummary, SweepValue, is_false, partial_line};
use crate::runner::{
    At, Experiment, ExperimentOutcome, KeptRuns, OnlyProgress, OwnPolicy, Points, RunError, RunName, RunPlan,
    RunStart, RunWatcher, SimulationProgress,
};
use indexmap::IndexMap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use toml::Value;
use waykeeper_machine::ScenarioSource;

/// Schema of [`MslSummary`].
pub const MSL_SCHEMA: &str = "waykeeper.msl/1";

/// The reference load for latencies, as part of the line rate. algorithms.md 4.5 says "10 % load" without naming of
/// what (ours).
const REFERENCE_PART: f64 = 0.1;
/// Largest p99 as a multiple of that at the reference load (algorithms.md 4.5).
const KNEE_FACTOR: f64 = 5.0;
/// The search ends when the knee is known to within this part of the line rate (ours).
const RESOLUTION: f64 = 0.005;
/// Simulations of one search: reference, line rate, and halvings of the nine tenths between them down to the
/// resolution.
const MOST_PROBES: u64 = 10;

/// When a load counts as sustained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// p99 is at most five times that of the reference load, and no packet is lost.
    #[default]
    Knee,
    /// No packet is lost (RFC 2544, 26.1).
    ZeroLoss,
}

/// One load tried.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Probe {
    /// Load offered to the NIC, Gb/s.
    pub offered_gbps: f64,
    /// The worst 99th percentile latency of the NIC's workloads, us.
    pub p99_us: Option<f64>,
    /// Packets lost, per second.
    pub drops_per_s: f64,
    /// The criterion holds at this load.
    pub sustained: bool,
}

/// Result of one search.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Knee {
    /// Swept keys and their values, if the scenario sweeps any.
    pub at: IndexMap<String, SweepValue>,
    /// The policy.
    pub policy: String,
    /// Maximum sustainable load, Gb/s; absent if even the reference load, the lowest one tried, has losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msl_gbps: Option<f64>,
    /// The line rate was sustained: the knee is above the NIC's line rate.
    pub at_line_rate: bool,
    /// Every load tried, in order.
    pub probes: Vec<Probe>,
}

/// All searches of a scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MslSummary {
    /// [`MSL_SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// The scenario.
    pub scenario: String,
    /// The NIC that was loaded.
    pub nic: String,
    /// Its line rate, Gb/s.
    pub line_gbps: f64,
    /// When a load counts as sustained.
    pub criterion: Criterion,
    /// First seed.
    pub seed: u64,
    /// Seeds per load.
    pub seeds: u32,
    /// True if it was interrupted before all searches had ended.
    #[serde(skip_serializing_if = "is_false")]
    pub partial: bool,
    /// The searches that had not ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingRun>,
    /// Per sweep point and policy.
    pub knees: Vec<Knee>,
}

/// The loaded NIC and the workloads whose latency counts.
#[derive(Clone, Debug)]
struct Target {
    nic: String,
    line_gbps: f64,
    workloads: Vec<String>,
}

/// One search to make.
#[derive(Debug)]
struct Search {
    at: At,
    source: ScenarioSource,
    policy: String,
}

/// Called while searches run.
pub trait SearchWatcher: RunWatcher {
    /// When a search has ended.
    fn found(&self, knee: &Knee);
}

/// The searches of a scenario, read and checked, so that running them finds no input error.
#[derive(Debug)]
pub struct LoadSearch {
    scenario: String,
    plan: RunPlan,
    own: Vec<OwnPolicy>,
    criterion: Criterion,
    target: Target,
    searches: Vec<Search>,
    /// Simulated time of one load of one search, ns.
    per_probe_ns: u64,
    stop: Arc<AtomicBool>,
    inside_ns: Arc<AtomicI64>,
    kept: Option<Arc<KeptRuns>>,
}

/// Finds the maximum sustainable load at every point of the scenario's sweep under every policy. `nic` names the NIC to
/// load; it may be absent if there is only one.
///
/// # Errors
/// [`RunError`]: no such NIC, or whatever a run may fail with.
pub fn find(
    source: &ScenarioSource,
    plan: &RunPlan,
    nic: Option<&str>,
    criterion: Criterion,
    progress: &(dyn Fn(SimulationProgress) + Sync),
) -> Result<MslSummary, RunError> {
    let found =
        LoadSearch::prepare(source, plan, Vec::new(), nic, criterion, None)?.run(&OnlyProgress(progress))?;
    if found.partial { Err(RunError::Interrupted) } else { Ok(found) }
}

impl LoadSearch {
    /// Reads the scenario at every point of its sweep. `own` are the caller's own policies. The simulations of the searches
    /// are kept in `kept`, and taken from there if it is read.
    ///
    /// # Errors
    /// [`RunError`]: no such NIC, or an error in the input.
    pub fn prepare(
        source: &ScenarioSource,
        plan: &RunPlan,
        own: Vec<OwnPolicy>,
        nic: Option<&str>,
        criterion: Criterion,
        kept: Option<Arc<KeptRuns>>,
    ) -> Result<LoadSearch, RunError> {
        let target = target(source, nic)?;
        let whole = Experiment::prepare_with(source, plan.clone(), own.clone())?;
        let mut searches = Vec::new();
        let scenario = source.read()?;
        let points = Points::new(source, &scenario.sweeps);
        for index in 0..points.count() {
            let (at, source) = points.source(index)?;
            for policy in whole.policies() {
                searches.push(Search { at: at.clone(), source: source.clone(), policy: policy.clone() });
            }
        }
        let per_probe_ns = whole.simulated_ns() / searches.len().max(1) as u64;
        let (scenario, plan) = (scenario.name, plan.clone());
        let (stop, inside_ns) = Default::default();
        Ok(LoadSearch {
            scenario,
            plan,
            own,
            criterion,
            target,
            searches,
            per_probe_ns,
            stop,
            inside_ns,
            kept,
        })
    }

    /// The searches, in order; the seed is the first.
    pub fn names(&self) -> Vec<RunName> {
        let name = |search: &Search| {
            let (policy, at) = (search.policy.clone(), search.at.clone());
            RunName { policy, seed: self.plan.seed, at }
        };
        self.searches.iter().map(name).collect()
    }

    /// The threads that will run searches.
    pub fn threads(&self) -> usize {
        self.plan.threads()
    }

    /// Uses this flag: when set, each simulation ends soon.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> LoadSearch {
        LoadSearch { stop, ..self }
    }

    /// Runs all searches. If the stop flag was set before all had ended, the summary has those that have.
    ///
    /// # Errors
    /// [`RunError`] of the first that failed; [`RunError::Interrupted`] if none has ended.
    pub fn run(&self, watcher: &dyn SearchWatcher) -> Result<MslSummary, RunError> {
        let meter = Meter { search: self, watcher, counts: <[AtomicU64; 3]>::default() };
        watcher.begins(RunStart {
            kept: 0,
            to_run: self.searches.len(),
            total_ns: self.searches.len() as u64 * MOST_PROBES * self.per_probe_ns,
            inside_ns: self.inside_ns.clone(),
        });
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.plan.threads).build();
        let pool =
            pool.map_err(|why| RunError::Threads { threads: self.plan.threads, why: why.to_string() })?;
        let one = |(index, search): (usize, &Search)| match self.knee_of(index, search, &meter) {
            Ok(knee) => {
                watcher.found(&knee);
                Ok(Some(knee))
            }
            Err(RunError::Interrupted) => Ok(None),
            Err(why) => Err(why),
        };
        let found = pool.install(|| self.searches.par_iter().enumerate().map(one).collect::<Vec<_>>());
        let (mut knees, mut missing) = (Vec::new(), Vec::new());
        for (knee, search) in found.into_iter().zip(&self.searches) {
            let lacks =
                || MissingRun { policy: search.policy.clone(), seed: self.plan.seed, at: search.at.clone() };
            knee?.map_or_else(|| missing.push(lacks()), |knee| knees.push(knee));
        }
        if knees.is_empty() {
            return Err(RunError::Interrupted);
        }
        Ok(MslSummary {
            schema: MSL_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: self.scenario.clone(),
            nic: self.target.nic.clone(),
            line_gbps: self.target.line_gbps,
            criterion: self.criterion,
            seed: self.plan.seed,
            seeds: self.plan.seeds,
            partial: !missing.is_empty(),
            missing,
            knees,
        })
    }

    /// One search.
    fn knee_of(&self, index: usize, search: &Search, meter: &Meter<'_>) -> Result<Knee, RunError> {
        let mut probes = 0;
        let measure = |gbps: f64| {
            probes += 1;
            self.probe(index, search, gbps, meter)
        };
        let (msl_gbps, tried) = bisect(self.target.line_gbps, self.criterion, measure)?;
        // Loads that need not be tried count as done, and not as simulated.
        let spared_ns = MOST_PROBES.saturating_sub(probes) * self.per_probe_ns;
        meter.add(index, spared_ns, spared_ns, true);
        let at_line_rate = msl_gbps == Some(self.target.line_gbps);
        Ok(Knee {
            at: search.at.clone(),
            policy: search.policy.clone(),
            msl_gbps,
            at_line_rate,
            probes: tried,
        })
    }

    /// Runs the scenario with one load: p99 and losses.
    fn probe(
        &self,
        index: usize,
        search: &Search,
        gbps: f64,
        meter: &Meter<'_>,
    ) -> Result<(Option<f64>, f64), RunError> {
        let mut source = search.source.clone();
        source.set(&format!("nic.{}.offered_gbps", self.target.nic), &Value::Float(gbps))?;
        // Searches already run in parallel.
        let plan = RunPlan { policies: vec![search.policy.clone()], threads: 1, ..self.plan.clone() };
        let experiment = Experiment::prepare_kept(&source, plan, self.own.clone(), self.kept.clone())?;
        let experiment = experiment.stopped_by(self.stop.clone()).counted_in(self.inside_ns.clone());
        let probe = OneProbe { meter, index, passed_ns: AtomicU64::new(0) };
        let outcome = experiment.run_watched(&probe)?;
        if outcome.is_partial() {
            return Err(RunError::Interrupted);
        }
        // A kept simulation counts as done, and not as simulated.
        let kept_ns = self.per_probe_ns.saturating_sub(probe.passed_ns.into_inner());
        meter.add(index, kept_ns, kept_ns, false);
        match outcome {
            ExperimentOutcome::Run(run) => Ok(of_run(&run, &search.policy, &self.target)),
            ExperimentOutcome::Sweep(_) => Ok((None, 0.0)),
        }
    }
}

/// Progress of all searches together: simulated time done, the part of it that was not simulated, and searches ended.
struct Meter<'a> {
    search: &'a LoadSearch,
    watcher: &'a dyn SearchWatcher,
    counts: [AtomicU64; 3],
}

impl Meter<'_> {
    fn add(&self, run: usize, passed_ns: u64, shared_ns: u64, ended: bool) {
        let more = [passed_ns, shared_ns, u64::from(ended)];
        // Relaxed: the counts are only shown and order nothing.
        let add = |at: usize| self.counts[at].fetch_add(more[at], Ordering::Relaxed) + more[at];
        let jobs = self.search.searches.len() as u64;
        self.watcher.progressed(SimulationProgress {
            done_ns: add(0),
            shared_ns: add(1),
            total_ns: jobs * MOST_PROBES * self.search.per_probe_ns,
            jobs_done: add(2),
            jobs,
            run,
            passed_ns,
            ended,
        });
    }
}

/// The simulations of one load.
struct OneProbe<'a> {
    meter: &'a Meter<'a>,
    index: usize,
    passed_ns: AtomicU64,
}

impl RunWatcher for OneProbe<'_> {
    fn progressed(&self, progress: SimulationProgress) {
        self.passed_ns.fetch_add(progress.passed_ns, Ordering::Relaxed);
        self.meter.add(self.index, progress.passed_ns, 0, false);
    }

    fn warn(&self, line: &str) {
        self.meter.watcher.warn(line);
    }
}

impl SearchWatcher for OnlyProgress<'_> {
    fn found(&self, _: &Knee) {}
}

fn target(source: &ScenarioSource, nic: Option<&str>) -> Result<Target, RunError> {
    let scenario = source.read()?;
    let names: Vec<&str> = scenario.nics.iter().map(|nic| nic.name.as_str()).collect();
    let index = match (nic, names.as_slice()) {
        (Some(name), _) => names.iter().position(|other| *other == name),
        (None, [_]) => Some(0),
        (None, _) => None,
    };
    let Some(index) = index else {
        let value = match (nic, names.is_empty()) {
            (_, true) => format!("none: {} has no [[nic]]", source.file()),
            (Some(name), _) => format!("`{name}`"),
            (None, _) => "not named".to_owned(),
        };
        let wanted = if names.is_empty() {
            "a NIC of the scenario".to_owned()
        } else {
            format!("one of {}", names.join(", "))
        };
        return Err(RunError::Plan { what: "the NIC to load", value, wanted });
    };
    let spec = &scenario.nics[index];
    let workloads = scenario.workloads.iter().filter(|workload| workload.nic == Some(index));
    let workloads = workloads.map(|workload| workload.name.clone()).collect();
    Ok(Target { nic: spec.name.clone(), line_gbps: spec.gbps, workloads })
}

/// The highest sustained load up to `line_gbps`, and what was tried on the way. `measure` returns p99 and losses.
fn bisect<E>(
    line_gbps: f64,
    criterion: Criterion,
    mut measure: impl FnMut(f64) -> Result<(Option<f64>, f64), E>,
) -> Result<(Option<f64>, Vec<Probe>), E> {
    let mut probes = Vec::new();
    let mut limit_us = f64::INFINITY;
    let mut try_load = |offered_gbps: f64, limit_us: f64| {
        let (p99_us, drops_per_s) = measure(offered_gbps)?;
        let sustained = drops_per_s == 0.0 && p99_us.is_some_and(|p99| p99 <= limit_us);
        probes.push(Probe { offered_gbps, p99_us, drops_per_s, sustained });
        Ok((sustained, p99_us))
    };
    let mut low = 0.0;
    if criterion == Criterion::Knee {
        low = line_gbps * REFERENCE_PART;
        let (sustained, p99_us) = try_load(low, limit_us)?;
        if !sustained {
            return Ok((None, probes));
        }
        limit_us = p99_us.map_or(limit_us, |p99| p99 * KNEE_FACTOR);
    }
    if try_load(line_gbps, limit_us)?.0 {
        return Ok((Some(line_gbps), probes));
    }
    let mut high = line_gbps;
    while high - low > line_gbps * RESOLUTION {
        let middle = f64::midpoint(low, high);
        *(if try_load(middle, limit_us)?.0 { &mut low } else { &mut high }) = middle;
    }
    Ok(((low > 0.0).then_some(low), probes))
}

/// The worst p99 of the NIC's workloads, and the losses.
fn of_run(run: &RunSummary, policy: &str, target: &Target) -> (Option<f64>, f64) {
    let result = &run.policies[policy];
    let p99 = target.workloads.iter().filter_map(|name| result.workloads.get(name)?.metrics.latency_p99_us);
    (p99.reduce(f64::max), result.system.metrics.drops_per_s.unwrap_or(0.0))
}

/// The result of one search, in a line.
pub fn line(knee: &Knee) -> String {
    let at: Vec<String> = knee.at.iter().map(|(key, value)| format!("{key}={value}, ")).collect();
    let found = match knee.msl_gbps {
        Some(gbps) if knee.at_line_rate => format!("at least {gbps:.2} Gb/s"),
        Some(gbps) => format!("{gbps:.2} Gb/s"),
        None => "no load is sustained".to_owned(),
    };
    crate::show::plain(&format!("{}{}: {found}", at.concat(), knee.policy))
}

/// The searches as a table.
pub fn table(summary: &MslSummary) -> String {
    let MslSummary { scenario, nic, line_gbps, .. } = summary;
    let criterion = match summary.criterion {
        Criterion::Knee => format!(
            "highest load with p99 at most {KNEE_FACTOR} x that at {} % of the line rate, and no loss",
            REFERENCE_PART * 100.0
        ),
        Criterion::ZeroLoss => "highest load without loss".to_owned(),
    };
    let mut out = format!(
        "{}: maximum sustainable load of {}, {line_gbps} Gb/s\n({criterion})\n\n",
        crate::show::plain(scenario),
        crate::show::plain(nic),
    );
    if let Some(line) = partial_line(&summary.missing) {
        let _ = writeln!(out, "{}\n", crate::show::wrapped(&line).trim_end());
    }
    let keys: Vec<String> =
        summary.knees.first().map_or_else(Vec::new, |knee| knee.at.keys().cloned().collect());
    let mut rows = vec![keys];
    rows[0].extend(["policy", "MSL, Gb/s", "p99 there, us", "p99 at low load, us"].map(str::to_owned));
    for knee in &summary.knees {
        let mut row: Vec<String> = knee.at.values().map(ToString::to_string).collect();
        let there = knee.probes.iter().find(|probe| Some(probe.offered_gbps) == knee.msl_gbps);
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let beyond = if knee.at_line_rate { "at least " } else { "" };
        row.push(knee.policy.clone());
        row.push(format!("{beyond}{}", number(knee.msl_gbps)));
        row.push(number(there.and_then(|probe| probe.p99_us)));
        let lowest = knee.probes.iter().min_by(|a, b| a.offered_gbps.total_cmp(&b.offered_gbps));
        row.push(number(lowest.and_then(|probe| probe.p99_us)));
        rows.push(row.iter().map(|cell| crate::show::plain(cell)).collect());
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue whose p99 is 1 / (1 - load / 60) us, and which loses packets from 80 Gb/s on.
    fn queue(gbps: f64) -> Result<(Option<f64>, f64), ()> {
        let p99 = if gbps < 60.0 { 1.0 / (1.0 - gbps / 60.0) } else { 1e3 };
        Ok((Some(p99), if gbps > 80.0 { 1.0 } else { 0.0 }))
    }

    #[test]
    fn the_knee_is_found_to_the_resolution() {
        // At 10 Gb/s p99 is 1.2 us; 6 us is reached where 1 - load / 60 = 1/6, at 50 Gb/s.
        let (msl, probes) = bisect(100.0, Criterion::Knee, queue).unwrap();
        let msl = msl.unwrap();
        assert!((49.5..=50.0).contains(&msl), "{msl}");
        // 90 Gb/s in halves to 0.5 Gb/s: 8 of them, after two.
        assert_eq!(probes.len() as u64, MOST_PROBES);
        assert!(probes.iter().all(|probe| probe.sustained == (probe.offered_gbps <= 50.0)));
    }

    #[test]
    fn without_loss_is_where_losses_begin_whatever_latency_does() {
        let (msl, probes) = bisect(100.0, Criterion::ZeroLoss, queue).unwrap();
        assert!((79.5..=80.0).contains(&msl.unwrap()), "{msl:?}");
        assert!(probes.iter().all(|probe| probe.sustained == (probe.offered_gbps <= 80.0)));
        let lossy = |_| Ok::<_, ()>((Some(1.0), 1.0));
        assert_eq!(bisect(100.0, Criterion::ZeroLoss, lossy).unwrap().0, None);
    }

    #[test]
    fn a_line_rate_that_is_sustained_is_the_answer_after_two_probes() {
        let (msl, probes) = bisect(40.0, Criterion::Knee, queue).unwrap();
        assert_eq!((msl, probes.len()), (Some(40.0), 2));
    }

    #[test]
    fn loss_at_the_reference_load_is_no_answer() {
        let lossy = |_| Ok::<_, ()>((Some(1.0), 1.0));
        assert_eq!(bisect(100.0, Criterion::Knee, lossy).unwrap().0, None);
    }
}
