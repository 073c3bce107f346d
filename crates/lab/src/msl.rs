//! The maximum sustainable load of a scenario: the highest load of a NIC before the tail latency rises sharply.
//!
//! Two criteria. The knee is the definition of algorithms.md 4.5: the highest load with a p99 of at most five times
//! that at a tenth of the line rate, and no loss. The other is RFC 2544's: the highest load without loss. Both are
//! found by bisection, which assumes that p99 and loss grow with the load. Must not know how a run is made or who
//! called.

use crate::results::{RunSummary, SweepValue};
use crate::runner::{At, Experiment, ExperimentOutcome, Points, RunError, RunPlan, SimulationProgress};
use indexmap::IndexMap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
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
struct Search {
    at: At,
    source: ScenarioSource,
    policy: String,
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
    let target = target(source, nic)?;
    // All input errors are found before the first simulation.
    let whole = Experiment::prepare(source, plan.clone())?;
    let mut searches = Vec::new();
    let points = Points::new(source, &source.read()?.sweeps);
    for index in 0..points.count() {
        let (at, source) = points.source(index)?;
        for policy in whole.policies() {
            searches.push(Search { at: at.clone(), source: source.clone(), policy: policy.clone() });
        }
    }
    let per_probe = whole.simulated_ns() / searches.len().max(1) as u64;
    let (done, finished) = (AtomicU64::new(0), AtomicU64::new(0));
    let jobs = searches.len() as u64;
    let tell = |probes: u64, searches: u64| {
        let done = done.fetch_add(probes, Ordering::Relaxed) + probes;
        let jobs_done = finished.fetch_add(searches, Ordering::Relaxed) + searches;
        let total_ns = jobs * MOST_PROBES * per_probe;
        progress(SimulationProgress { done_ns: done * per_probe, shared_ns: 0, total_ns, jobs_done, jobs });
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(plan.threads).build();
    let pool = pool.map_err(|why| RunError::Threads { threads: plan.threads, why: why.to_string() })?;
    let knees = pool.install(|| {
        let run = |search: &Search| {
            let probes = AtomicU64::new(0);
            let knee = knee_of(search, &target, criterion, plan, &|| {
                probes.fetch_add(1, Ordering::Relaxed);
                tell(1, 0);
            });
            tell(MOST_PROBES.saturating_sub(probes.into_inner()), 1);
            knee
        };
        searches.par_iter().map(run).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(MslSummary {
        schema: MSL_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: source.read()?.name,
        nic: target.nic,
        line_gbps: target.line_gbps,
        criterion,
        seed: plan.seed,
        seeds: plan.seeds,
        knees,
    })
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

/// One search; it calls `probed` after every simulation.
fn knee_of(
    search: &Search,
    target: &Target,
    criterion: Criterion,
    plan: &RunPlan,
    probed: &dyn Fn(),
) -> Result<Knee, RunError> {
    let measure = |gbps: f64| {
        let result = probe(search, target, plan, gbps);
        probed();
        result
    };
    let (msl_gbps, probes) = bisect(target.line_gbps, criterion, measure)?;
    let at_line_rate = msl_gbps == Some(target.line_gbps);
    Ok(Knee { at: search.at.clone(), policy: search.policy.clone(), msl_gbps, at_line_rate, probes })
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

/// Runs the scenario with one load.
fn probe(
    search: &Search,
    target: &Target,
    plan: &RunPlan,
    gbps: f64,
) -> Result<(Option<f64>, f64), RunError> {
    let mut source = search.source.clone();
    source.set(&format!("nic.{}.offered_gbps", target.nic), &Value::Float(gbps))?;
    // Searches already run in parallel.
    let plan = RunPlan { policies: vec![search.policy.clone()], threads: 1, ..plan.clone() };
    match Experiment::prepare(&source, plan)?.run(&|_| ())? {
        ExperimentOutcome::Run(run) => Ok(of_run(&run, &search.policy, target)),
        ExperimentOutcome::Sweep(_) => Ok((None, 0.0)),
    }
}

/// The worst p99 of the NIC's workloads, and the losses.
fn of_run(run: &RunSummary, policy: &str, target: &Target) -> (Option<f64>, f64) {
    let result = &run.policies[policy];
    let p99 = target.workloads.iter().filter_map(|name| result.workloads.get(name)?.metrics.latency_p99_us);
    (p99.reduce(f64::max), result.system.metrics.drops_per_s.unwrap_or(0.0))
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
