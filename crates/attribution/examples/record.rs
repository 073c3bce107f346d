//! Runs a scenario under a policy on the virtual server and writes each interval with the model's true evictions.
//!
//! `cargo run -p waykeeper-attribution --example record -- FILE POLICY SEED OUT [KEY=VALUE]...` writes one line of JSON for
//! the run and one per interval to OUT. `--points FILE` prints the points of the scenario's sweep that are recorded.

#![expect(clippy::print_stdout, reason = "a list for a script")]

#[path = "../tests/suite/recorded.rs"]
mod recorded;

use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use waykeeper_machine::ScenarioSource;

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
    let mut lines = Vec::new();
    let ran = recorded::run(&scenario, policy, seed, |inventory, workloads, seen, evictions| {
        if lines.is_empty() {
            lines.push(json!({
                "scenario": scenario.name, "policy": policy, "seed": seed, "at": sets, "inventory": inventory,
            }));
        }
        let rows = evictions.iter().map(|one| json!([one.by, one.of, one.reason, one.lines_per_s]));
        let rows: Vec<_> = rows.collect();
        lines.push(json!({"seen": seen, "workloads": workloads, "evictions": rows}));
    });
    if let Err(why) = ran {
        println!("{file} {policy}: {why}");
        return;
    }
    let mut text = Vec::new();
    lines.iter().for_each(|line| writeln!(text, "{line}").expect("memory"));
    std::fs::write(out, text).expect("a file that can be written");
}
