//! Runs a scenario under a policy on the virtual server and writes each interval with the model's true evictions.
//!
//! `cargo run -p waykeeper-attribution --example record -- FILE POLICY SEED OUT [KEY=VALUE]...` writes one line of JSON for
//! the run and one per interval to OUT. `--points FILE` prints the points of the scenario's sweep that are recorded.

#![expect(clippy::print_stdout, reason = "a list for a script")]

use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_control::{ControlConfig, Loop, Predictor};
use waykeeper_host::{Applied, Host, HostError, Interval, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_machine::{Agent, EvictionRate, RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_twin::{Budget, answer};
use waykeeper_units::WayMask;

/// Most points of a sweep that are recorded: the first, the middle and the last. Scenarios of more than this many
/// simulated seconds are recorded at their first point only.
const MOST_POINTS: usize = 3;
const LONG_S: f64 = 1.0;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file] = arguments.as_slice()
        && flag == "--points"
    {
        points(file).iter().for_each(|sets| println!("{}", sets.join("\t")));
        return;
    }
    let [file, policy, seed, out, sets @ ..] = arguments.as_slice() else {
        panic!("FILE POLICY SEED OUT [KEY=VALUE]...");
    };
    record(file, policy, seed.parse().expect("a seed"), Path::new(out), sets);
}

/// The recorded points of a sweep, as keys and values; one without keys if there is no sweep.
fn points(file: &str) -> Vec<Vec<String>> {
    let scenario = ScenarioSource::open(Path::new(file)).and_then(|source| source.read());
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let count: usize = scenario.sweeps.iter().map(|sweep| sweep.values.len()).product();
    let most = if scenario.duration_s / scenario.time_factor > LONG_S { 1 } else { MOST_POINTS };
    let chosen: Vec<usize> = match most.min(count) {
        1 => vec![0],
        2 => vec![0, count - 1],
        _ => vec![0, count / 2, count - 1],
    };
    let point = |mut index: usize| {
        let mut sets = Vec::new();
        for sweep in scenario.sweeps.iter().rev() {
            sets.push(format!("{}={}", sweep.key, sweep.values[index % sweep.values.len()]));
            index /= sweep.values.len();
        }
        sets
    };
    chosen.into_iter().map(point).collect()
}

fn record(file: &str, policy: &str, seed: u64, out: &Path, sets: &[String]) {
    let mut source = ScenarioSource::open(Path::new(file)).unwrap_or_else(|error| panic!("{error}"));
    source = source.without_sweep();
    for set in sets {
        let (key, value) = set.split_once('=').expect("KEY=VALUE");
        let value: toml::Table = format!("v = {value}").parse().expect("a TOML value");
        source.set(key, &value["v"]).unwrap_or_else(|error| panic!("{error}"));
    }
    let scenario = Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")));
    let settings = scenario.policy_settings.get(policy).and_then(toml::Value::as_table).cloned();
    let policy_built = waykeeper_policy::build(policy, &settings.unwrap_or_default()).expect("a policy");
    let options = RunOptions { seed, sample_seed: seed, sampling: Sampling::DEFAULT };
    let server = VirtualServer::new(scenario.clone(), options).expect("it fits");
    let inventory = server.inventory().clone();
    let names: Vec<&str> = scenario.workloads.iter().map(|workload| workload.name.as_str()).collect();
    if let Err(why) = policy_built.check(&inventory, &names) {
        println!("{file} {policy}: {why}");
        return;
    }
    let mut lines = vec![json!({
        "scenario": scenario.name, "policy": policy, "seed": seed, "at": sets, "inventory": inventory,
    })];
    let mut host = Recorded { server, truth: Vec::new() };
    let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
    let config =
        ControlConfig::every(nanoseconds(scenario.interval_s)).lasting(nanoseconds(scenario.duration_s));
    let mut looping: Loop<'_, Recorded> =
        Loop::start(&mut host, policy_built, config).expect("a period above 0");
    looping.set_predictor(Box::new(Twin(None)));
    while looping.step().expect("the virtual server runs") {
        let Some(seen) = looping.seen().cloned() else { continue };
        let host = looping.host();
        lines.push(interval(&seen, &host.server.workloads(), &host.truth, &names, &inventory));
    }
    drop(looping);
    let mut text = Vec::new();
    lines.iter().for_each(|line| writeln!(text, "{line}").expect("memory"));
    std::fs::write(out, text).expect("a file that can be written");
}

fn interval(
    seen: &Interval,
    workloads: &[Workload],
    truth: &[EvictionRate],
    names: &[&str],
    inventory: &Inventory,
) -> serde_json::Value {
    let name = |agent| match agent {
        Agent::Workload(index) => names[index],
        Agent::Device(index) => inventory.devices[index].name.as_str(),
    };
    let evictions: Vec<_> = truth
        .iter()
        .map(|rate| {
            json!([name(rate.by), name(rate.of), rate.reason, rate.lines_per_s, rate.unread_lines_per_s])
        })
        .collect();
    json!({"seen": seen, "workloads": workloads, "evictions": evictions})
}

/// The virtual server; at each reading, the true evictions since the last one.
struct Recorded {
    server: VirtualServer,
    truth: Vec<EvictionRate>,
}

impl Host for Recorded {
    fn inventory(&self) -> &Inventory {
        self.server.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.server.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        self.truth = self.server.evictions();
        self.server.begin_stretch();
        self.server.sample()
    }

    fn partial_writes(&mut self) -> Lines {
        self.server.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.server.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.server.apply(plan)
    }

    fn now_ns(&self) -> u64 {
        self.server.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.server.wait_until(deadline_ns)
    }
}

/// Answers a policy's question one interval later.
struct Twin(Option<(LayoutQuestion, bool)>);

impl Predictor for Twin {
    fn ask(&mut self, question: LayoutQuestion) {
        self.0 = Some((question, false));
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        let (_, waited) = self.0.as_mut()?;
        if !std::mem::replace(waited, true) {
            return None;
        }
        self.0.take().map(|(question, _)| answer(&question, Budget::default()))
    }
}
