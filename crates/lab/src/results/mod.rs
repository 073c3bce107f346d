//! The result of a run: plain data with a versioned schema (docs/results-schema.md).
//!
//! The running half of the crate fills these types; the output half reads only them. So this module must not know how a
//! run is made or how a result is shown. Two guarantees: an absent key means "not available" (never zero), and two runs
//! of the same seed, scenario and version serialise to the same bytes, except for the wall-clock time.

mod cause;
mod combine;
mod curve;
mod decision;
mod evictions;
mod metrics;
mod missing;
mod regret;
pub(crate) mod sampling_error;
mod score;
mod settled;
mod verdict;
mod verdict_lines;
pub(crate) mod warning;
mod worth;

pub use cause::{MainCause, MemoryTimeCauses};
pub use combine::{CombineError, combine};
pub use curve::{SWEEP_SCHEMA, SweepKey, SweepPoint, SweepSummary, SweepValue};
pub use decision::{CauseRecord, DecisionRecord, KnobRecord, Names, WayMapBuilder, WayMapSlice};
pub use evictions::Evictions;
pub(crate) use evictions::order as order_evictions;
pub use metrics::{Score, SystemMetrics, ThroughputUnit, WorkloadMetrics};
pub(crate) use missing::is_false;
pub use missing::{MissingRun, partial_line};
pub use regret::Regret;
pub use settled::KnobHistory;
pub use verdict::{Comparison, Finding, Scope, Verdict};
pub(crate) use verdict_lines::SEEDS;
pub use warning::{Warning, WarningKey};
pub use worth::{PolicyWorth, ProgressRatio};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_units::CoreList;

/// The schema of [`RunSummary`]. The number grows when a key changes its meaning or is removed, not for a new key.
pub const RUN_SCHEMA: &str = "waykeeper.run/2";

/// The result of one scenario under one or more policies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunSummary {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// Version of Waykeeper that made it.
    pub version: String,
    /// Name of the scenario.
    pub scenario: String,
    /// What the scenario shows, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Name of the chip.
    pub chip: String,
    /// Ways of its LLC, for the way map.
    pub llc_ways: u32,
    /// The seed; the first one when there are several.
    pub seed: u64,
    /// Number of seeds whose mean the numbers are.
    pub seeds: u32,
    /// Share of LLC sets simulated: `1/32`, or `exact`.
    pub sets: String,
    /// Seed of the choice of simulated sets, if it is the same for all seeds; else each seed simulates sets of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_seed: Option<u64>,
    /// Controller seconds per simulated second; 1 means no time scaling.
    pub time_factor: f64,
    /// Length of the run, in controller seconds.
    #[serde(default)]
    pub duration_s: f64,
    /// Start of the measured interval, which lasts to the end of the run, in controller seconds since its start.
    #[serde(default)]
    pub measured_from_s: f64,
    /// Simulated seconds per policy and seed.
    pub simulated_s: f64,
    /// Wall-clock seconds of the whole: the only number that differs from run to run.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub wall_s: Option<f64>,
    /// True if the run was interrupted before all its simulations had ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// The simulations that the numbers lack, of a partial result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingRun>,
    /// The policy that performance ratios are relative to; filled by [`RunSummary::score`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Standard error of set sampling, per metric, in percentage points: the median of those of all workloads under all
    /// policies, and of the system. Empty where all sets are simulated; filled by [`combine`].
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub sampling_error: IndexMap<String, f64>,
    /// Warnings about the numbers, the gravest first; filled by the runner and [`combine`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The policies compared seed by seed, and the outcome in a few lines; filled by [`combine`]. Absent for a single
    /// policy, and at a point of a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Per policy, in the requested order.
    pub policies: IndexMap<String, PolicyResult>,
}

/// The result under one policy.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PolicyResult {
    /// Per workload, in the scenario's order.
    pub workloads: IndexMap<String, WorkloadResult>,
    /// Means over the workloads of a priority, `HPW` and `LPW`; filled by [`RunSummary::score`].
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub groups: IndexMap<String, GroupResult>,
    /// The whole socket.
    pub system: SystemResult,
    /// Who evicted whose lines, the most lines first.
    #[serde(default)]
    pub evictions: Vec<Evictions>,
    /// Traffic that was simulated, s; less than the run's `simulated_s` where steady intervals were extrapolated.
    #[serde(default)]
    pub simulated_s: f64,
    /// Time of the last knob change after which all knobs stayed as they were for five intervals. Of the first seed.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub settled_s: Option<f64>,
    /// How far it stays below the best static layout; filled by [`combine`]. Absent if `best` was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regret: Option<Regret>,
    /// What the policy is worth as its control loop knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<PolicyWorth>,
    /// The policy's decisions, in order of time. Of the first seed.
    #[serde(default)]
    pub decisions: Vec<DecisionRecord>,
    /// The way map over time. Of the first seed.
    #[serde(default)]
    pub way_map: Vec<WayMapSlice>,
    /// The values of each interval, of the first seed. Written to `timeseries.csv`, not to JSON.
    #[serde(skip)]
    pub samples: Vec<TimeSample>,
}

/// The result of one workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// The program it runs.
    pub program: String,
    /// Cores it is pinned to.
    pub cores: CoreList,
    /// Declared priority.
    pub priority: Priority,
    /// Declared kind.
    pub kind: WorkloadKind,
    /// Names of its devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Jobs of its job file of which no command ended in the measured interval, with any seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_jobs: Vec<String>,
    /// How its performance is scored.
    pub score: Score,
    /// Unit of `throughput`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_unit: Option<ThroughputUnit>,
    /// The numbers.
    #[serde(flatten)]
    pub metrics: WorkloadMetrics,
    /// Why its performance changed; filled by [`combine`]. Absent for the baseline, and where the cause is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<MemoryTimeCauses>,
    /// Standard error of set sampling, per metric, in percentage points.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub sampling_error: IndexMap<String, f64>,
    /// Sample standard deviation over the seeds, per metric; empty for a single seed.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub spread: IndexMap<String, f64>,
}

/// Mean over the workloads of one priority.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GroupResult {
    /// Mean performance ratio, weighted by cores.
    #[serde(default, skip_serializing_if = "metrics::not_available")]
    pub performance_ratio: Option<f64>,
    /// Cores over which the mean is taken.
    pub cores: u32,
    /// Sample standard deviation over the seeds, per metric; empty for a single seed.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub spread: IndexMap<String, f64>,
}

/// The result of the whole socket.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SystemResult {
    /// The numbers.
    #[serde(flatten)]
    pub metrics: SystemMetrics,
    /// Standard error of set sampling, per metric, in percentage points.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub sampling_error: IndexMap<String, f64>,
    /// Sample standard deviation over the seeds, per metric; empty for a single seed.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub spread: IndexMap<String, f64>,
}

/// One controller interval: the same numbers as in the result, but of this interval only.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TimeSample {
    /// End of the interval, in controller seconds since the start of the run.
    pub at_s: f64,
    /// The policy's state after it.
    pub state: Option<String>,
    /// Per workload.
    pub workloads: IndexMap<String, WorkloadMetrics>,
    /// The whole socket.
    pub system: SystemMetrics,
}

impl RunSummary {
    /// The summary as in `summary.json`.
    ///
    /// # Errors
    /// When serde_json refuses, which the types rule out.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The summary without the wall-clock time: same inputs, same bytes.
    ///
    /// # Errors
    /// As [`RunSummary::to_json`].
    pub fn deterministic_json(&self) -> Result<String, serde_json::Error> {
        RunSummary { wall_s: None, ..self.clone() }.to_json()
    }

    /// Every workload that any policy ran, high priority first, otherwise in the scenario's order.
    pub fn workload_names(&self) -> Vec<(&str, &WorkloadResult)> {
        let mut seen: IndexMap<&str, &WorkloadResult> = IndexMap::new();
        for (name, workload) in self.policies.values().flat_map(|policy| &policy.workloads) {
            seen.entry(name).or_insert(workload);
        }
        let mut names: Vec<_> = seen.into_iter().collect();
        names.sort_by_key(|(_, workload)| workload.priority);
        names
    }
}

impl TimeSample {
    /// The metrics available per interval: the mean latency, read from the machine, and the others as a policy reads them.
    /// Those that are not in the list are read from the machine, over the whole measured interval.
    pub const KEYS: &[&str] = &[
        "latency_mean_us",
        "ipc",
        "llc_hit_ratio",
        "mlc_hit_ratio",
        "llc_misses_per_s",
        "llc_occupancy_bytes",
        "memory_read_bytes_per_s",
        "memory_write_bytes_per_s",
        "dca_write_hit_ratio",
        "dca_read_hit_ratio",
        "inbound_bytes_per_s",
        "outbound_bytes_per_s",
    ];
}

impl PolicyResult {
    /// The times from `from_s` until before `to_s` at which knobs were set.
    pub fn turned(&self, from_s: f64, to_s: f64) -> Vec<f64> {
        let turned = self.decisions.iter().filter(|decision| !decision.knobs.is_empty());
        let moments = turned.map(|decision| decision.at_s).filter(|at_s| (from_s..to_s).contains(at_s));
        let mut moments: Vec<f64> = moments.collect();
        moments.dedup();
        moments
    }

    /// The way map in force at `at_s`.
    pub fn ways_at(&self, at_s: f64) -> Option<&WayMapSlice> {
        self.way_map.iter().rev().find(|slice| slice.from_s <= at_s)
    }
}

/// The name of a priority's group in results and papers.
pub fn group_name(priority: Priority) -> &'static str {
    match priority {
        Priority::High => "HPW",
        Priority::Low => "LPW",
    }
}
