//! The example in Python makes the decisions of the example in Rust, on the same scenario.

#[path = "../src/policy.rs"]
mod policy;

use policy::Corner;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waykeeper_control::{ControlConfig, StepRecord};
use waykeeper_host::{Interval, Plan};
use waykeeper_machine::{FaultyServer, RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_policy::Policy;
use waykeeper_policy_process::{FirstFailure, Interpreter, PolicyFile, WaitingPolicy};
use waykeeper_silicon::Sampling;

const SCENARIO: &str = r#"
name = "t"
duration_s = 4
warmup_s = 0
measure_s = 1
time_factor = 50
[[workload]]
name = "hits"
program = "x-mem"
cores = 0
working_set = "2 MiB"
[[workload]]
name = "streams"
program = "x-mem"
cores = 1
working_set = "64 MiB"
[[workload]]
name = "ends"
program = "x-mem"
cores = 2
working_set = "64 MiB"
stop_s = 2.5
"#;

/// The state, the wanted knobs and the texts of the events of every step.
fn decisions(scenario: &Arc<Scenario>, policy: &mut dyn Policy) -> Vec<(String, Plan, Vec<String>)> {
    let sampling = Sampling::one_in(32).unwrap();
    let server =
        VirtualServer::new(scenario.clone(), RunOptions { seed: 1, sample_seed: 1, sampling }).unwrap();
    let mut steps = Vec::new();
    let mut tell = |record: &StepRecord, _: Option<&Interval>| {
        let texts = record.events.iter().map(|event| format!("{} {}", event.action, event.text)).collect();
        steps.push((record.state.clone(), record.wanted.clone(), texts));
        ControlFlow::Continue(())
    };
    let config = ControlConfig::every(500_000_000).lasting(4_000_000_000);
    waykeeper_control::run(&mut FaultyServer::new(server), policy, config, &mut tell).unwrap();
    steps
}

#[test]
fn the_example_in_python_decides_as_the_example_in_rust() {
    let scenario = Arc::new(ScenarioSource::parse("t", SCENARIO, None).unwrap().read().unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corner.py");
    let file = PolicyFile::read(file.to_str().unwrap()).unwrap();
    let python = Interpreter {
        program: PathBuf::from("python3"),
        confined: false,
        user: None,
        printed: Arc::new(|_| ()),
        setting: "WAYKEEPER_PYTHON",
        stop: Arc::default(),
    };
    let failure = FirstFailure::default();
    let mut in_python = WaitingPolicy::open(&file, &python, &toml::Table::new(), &failure).unwrap();
    let in_python = decisions(&scenario, &mut in_python);
    assert_eq!(failure.first(), None);
    let in_rust = decisions(&scenario, &mut Corner::new(0.5));
    assert_eq!(in_python, in_rust);
    let texts: Vec<&String> = in_rust.iter().flat_map(|(_, _, texts)| texts).collect();
    assert_eq!(texts, ["corner streams is moved to the corner", "corner ends is moved to the corner"]);
}
