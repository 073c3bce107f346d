//! Runs of scenario files without a policy, averaged over seeds, for the fidelity tests. Each run is computed once per
//! test program, because several tests judge the same figures.

// Each test program uses only some of these functions.
#![allow(dead_code)]

pub mod curves;
pub mod lock;
pub mod traces;

use lock::{Numbers, key, locked};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use waykeeper_host::Host;
use waykeeper_machine::{Measured, RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_silicon::{Rules, Sampling};

/// A scenario of the repository with changed keys: `key=value;key=value`, values as in TOML.
pub fn scenario(name: &str, sets: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
    let mut source = ScenarioSource::open(&path).unwrap_or_else(|error| panic!("{error}"));
    for set in sets.split(';').filter(|set| !set.is_empty()) {
        let (key, value) = set.split_once('=').expect("key=value");
        let parsed: toml::Table = format!("value = {value}").parse().expect("a TOML value");
        source.set(key, &parsed["value"]).unwrap_or_else(|error| panic!("{error}"));
    }
    source.read().unwrap_or_else(|error| panic!("{error}"))
}

/// One run under the scenario's own knobs; returns its measured interval.
pub fn run(scenario: &Arc<Scenario>, seed: u64, sample_seed: u64, sampling: Sampling) -> Measured {
    let options = RunOptions { seed, sample_seed, sampling };
    let mut server = VirtualServer::new(scenario.clone(), options).expect("it fits");
    let start = scenario.duration_s - scenario.measure_s;
    server.wait_until((start * 1e9) as u64).expect("it runs");
    server.begin_stretch();
    server.wait_until((scenario.duration_s * 1e9) as u64).expect("it runs");
    server.measured()
}

/// The numbers of one run. A second test that needs the same run waits for the first one's result.
fn numbers_of(scenario: &Arc<Scenario>, text: &str, seed: u64, sampling: Sampling) -> Numbers {
    static RUNS: LazyLock<Mutex<HashMap<String, Arc<OnceLock<Numbers>>>>> = LazyLock::new(Mutex::default);
    let key = format!("{seed} {sampling:?} {text}");
    let cell = RUNS.lock().expect("runs panic outside of the lock").entry(key).or_default().clone();
    cell.get_or_init(|| numbers(scenario, &run(scenario, seed, seed, sampling))).clone()
}

/// The numbers of figures, averaged over seeds: `metric` or `metric/workload`; kept ones where the lock has them.
pub fn means(scenario: Scenario, seeds: RangeInclusive<u64>, sampling: Sampling) -> BTreeMap<String, f64> {
    let (shown, text) = (format!("{} seeds {seeds:?} {sampling:?}", scenario.name), format!("{scenario:?}"));
    let compute = || computed_means(scenario, seeds, sampling).into_iter().collect();
    locked(&key(&shown, &text), compute).into_iter().collect()
}

/// The same, always computed.
pub fn computed_means(
    scenario: Scenario,
    seeds: RangeInclusive<u64>,
    sampling: Sampling,
) -> BTreeMap<String, f64> {
    // Scenarios with the same text are equal: the text has every field.
    let (text, scenario) = (format!("{scenario:?}"), Arc::new(scenario));
    let count = (seeds.end() - seeds.start() + 1) as f64;
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for seed in seeds {
        for (key, value) in numbers_of(&scenario, &text, seed, sampling) {
            *sums.entry(key).or_default() += value / count;
        }
    }
    sums
}

/// Ratios in percent, bandwidth in GB/s, latencies in us: the units of the figures.
fn numbers(scenario: &Scenario, measured: &Measured) -> Numbers {
    let system = &measured.system;
    let mut numbers = vec![
        ("mem_rd".to_owned(), system.memory_read_bytes_per_s / 1e9),
        ("mem_wr".to_owned(), system.memory_write_bytes_per_s / 1e9),
        ("write_hit".to_owned(), system.dca_write_hit_ratio.unwrap_or(0.0) * 100.0),
        ("read_hit".to_owned(), system.dca_read_hit_ratio.unwrap_or(0.0) * 100.0),
        ("drops".to_owned(), system.drops_per_s / 1e6),
    ];
    for (spec, workload) in scenario.workloads.iter().zip(&measured.workloads) {
        let mut add = |metric: &str, value: f64| numbers.push((format!("{metric}/{}", spec.name), value));
        add("llc_miss", 100.0 - workload.llc_hit_ratio.unwrap_or(1.0) * 100.0);
        add("latency", workload.latency_mean_ns.unwrap_or(0.0) / 1e3);
        add("gb_per_s", workload.bytes_per_s / 1e9);
        add("mpps", workload.operations_per_s / 1e6);
        add("llc_misses", workload.llc_misses_per_s / 1e6);
    }
    numbers
}

/// A scenario with other rules of the model.
pub fn with_rules(mut scenario: Scenario, rules: Rules) -> Scenario {
    scenario.chip.rules = rules;
    scenario
}
