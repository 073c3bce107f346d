//! Runs your own policy on a scenario, under the same control loop as every built-in policy, and compares it with `default`.
//!
//! ```sh
//! cargo run --release -p own-policy -- scenarios/a4-hpw-heavy.toml
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod policy;

use anyhow::Context;
use policy::Corner;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use waykeeper_control::{ControlConfig, StepRecord};
use waykeeper_host::Interval;
use waykeeper_machine::{FaultyServer, Measured, RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_policy::Policy;
use waykeeper_silicon::Sampling;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).context("usage: own-policy SCENARIO.toml")?;
    let scenario = Arc::new(ScenarioSource::open(Path::new(&file))?.read()?);
    let mut none = waykeeper_policy::build("default", &"".parse()?)?;
    let before = run(&scenario, none.as_mut())?;
    let after = run(&scenario, &mut Corner::new(0.5))?;
    println!("{:<16} {:>12} {:>12} {:>12}", "workload", "IPC default", "IPC corner", "latency");
    for ((workload, a), b) in scenario.workloads.iter().zip(&before.workloads).zip(&after.workloads) {
        let ipc = |ipc: Option<f64>| ipc.map_or("-".to_owned(), |ipc| format!("{ipc:.3}"));
        let ratio = a
            .latency_mean_ns
            .zip(b.latency_mean_ns)
            .map_or("-".to_owned(), |(a, b)| format!("x{:.2}", b / a));
        println!("{:<16} {:>12} {:>12} {:>12}", workload.name, ipc(a.ipc), ipc(b.ipc), ratio);
    }
    Ok(())
}

/// Results of one run over its measured interval.
fn run(scenario: &Arc<Scenario>, policy: &mut dyn Policy) -> anyhow::Result<Measured> {
    let options = RunOptions {
        seed: 1,
        sample_seed: 1,
        sampling: Sampling::one_in(32).context("32 is a power of two")?,
    };
    let mut server = VirtualServer::new(scenario.clone(), options)?;
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    server.begin_stretch_at(ns(scenario.duration_s - scenario.measure_s));
    let mut host = FaultyServer::new(server);
    let config = ControlConfig::every(ns(scenario.interval_s)).lasting(ns(scenario.duration_s));
    let mut tell = |record: &StepRecord, _: Option<&Interval>| {
        for event in &record.events {
            println!("{:6.1} s  {}: {}", record.at_ns as f64 * 1e-9, policy_state(record), event.text);
        }
        ControlFlow::Continue(())
    };
    waykeeper_control::run(&mut host, policy, config, &mut tell)?;
    Ok(host.server().measured())
}

fn policy_state(record: &StepRecord) -> &str {
    if record.state.is_empty() { "-" } else { &record.state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// The policy moves a streaming LPW to the corner, and leaves an LPW that hits the LLC where it is.
    #[test]
    fn a_streaming_lpw_is_moved_to_the_corner() {
        let mut text =
            "name = \"t\"\nduration_s = 4\nwarmup_s = 0\nmeasure_s = 1\ntime_factor = 50\n".to_owned();
        for (core, (name, size)) in [("hits", "2 MiB"), ("streams", "64 MiB")].into_iter().enumerate() {
            write!(text, "[[workload]]\nname = \"{name}\"\nprogram = \"x-mem\"\ncores = {core}\nworking_set = \"{size}\"\n").unwrap();
        }
        let scenario = Arc::new(ScenarioSource::parse("t", &text, None).unwrap().read().unwrap());
        let mut policy = Corner::new(0.5);
        run(&scenario, &mut policy).unwrap();
        assert!(format!("{policy:?}").contains("inside: [WorkloadId(1)]"), "{policy:?}");
    }
}
