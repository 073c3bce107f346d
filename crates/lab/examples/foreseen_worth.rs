//! What policies were foreseen to be worth by counters alone, against what they then were on the virtual server.
//!
//! `cargo run --release -p waykeeper-lab --example foreseen_worth -- [--seed N] [--observe SECONDS] [--policy NAME]... FILE...`
//!
//! Each server runs under its own layout while its counters are recorded through the seam, as by a daemon that observes. Then each
//! policy manages a copy of it. Progress is what counters show, the mean of the last 20 intervals, relative to the
//! recorded ones; errors are points of it.

#![expect(clippy::print_stdout, reason = "a table for people")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use waykeeper_calibration::{FetchCosts, progress};
use waykeeper_control::{ControlConfig, Loop};
use waykeeper_host::{Host, Interval, Priority};
use waykeeper_lab::foreseen::{CounterLog, PredictedServer};
use waykeeper_lab::runner::InlineTwin;
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_units::WorkloadId;

const SECOND: u64 = 1_000_000_000;
/// Intervals of a policy on the virtual server, and how many of the last ones count.
const STEPS: u64 = 90;
const COUNTED: u64 = 20;

type Logs = BTreeMap<WorkloadId, f64>;

fn main() {
    let (mut seed, mut observe, mut policies, mut files) = (7, 20, Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().expect("a value");
        match argument.as_str() {
            "--seed" => seed = next().parse().expect("a number"),
            "--observe" => observe = next().parse().expect("a number"),
            "--policy" => policies.push(next()),
            _ => files.push(argument),
        }
    }
    if policies.is_empty() {
        policies = ["default", "isolate", "a4", "iat", "waykeeper"].map(str::to_owned).to_vec();
    }
    let (mut gaps, mut within) = (Vec::new(), 0);
    for file in files {
        let source = ScenarioSource::open(Path::new(&file)).expect("a scenario");
        let scenario = Arc::new(source.read().expect("a legal scenario"));
        let options = RunOptions { seed, sample_seed: seed + 4, sampling: Sampling::DEFAULT };
        let mut server = VirtualServer::new(scenario.clone(), options).expect("it fits");
        let inventory = server.inventory().clone();
        let mut log = CounterLog::new(&inventory);
        let mut before = server.sample().expect("it can");
        let mut found = Vec::new();
        for step in 0..observe {
            server.wait_until(server.now_ns() + SECOND).expect("it can");
            let after = server.sample().expect("it can");
            let seen = Interval::between(&before, &after).expect("time has passed");
            log.observe(None, &server.workloads(), &seen);
            if step >= observe / 2 {
                found.push(logs(&server, &seen));
            }
            before = after;
        }
        let phase = log.longest().expect("it was seen");
        let predicted = PredictedServer::new(&phase).expect("its bytes were counted");
        let groups = server.workloads();
        let from = mean(&found);
        for name in &policies {
            let settings = scenario.policy_settings.get(name).and_then(toml::Value::as_table);
            let settings = settings.cloned().unwrap_or_default();
            let foreseen = match predicted.worth(name, &settings) {
                Ok(foreseen) => foreseen,
                Err(why) => {
                    println!("{file} {name}: {why}");
                    continue;
                }
            };
            let mut copy = server.clone();
            let policy = waykeeper_policy::build(name, &settings).expect("it was built above");
            let mut looping = Loop::start(&mut copy, policy, ControlConfig::every(SECOND)).expect("a period");
            looping.set_predictor(Box::new(InlineTwin::default()));
            let mut last = Vec::new();
            for step in 0..STEPS {
                looping.step().expect("it can");
                let seen = looping.seen().cloned();
                if let Some(seen) = seen.filter(|_| step >= STEPS - COUNTED) {
                    last.push(logs(looping.host(), &seen));
                }
            }
            let to = mean(&last);
            let together = |priority| {
                let of = groups.iter().filter(|group| group.priority == priority);
                let (sum, weight) = of.fold((0.0, 0.0), |(sum, weight), group| {
                    match (to.get(&group.id), from.get(&group.id)) {
                        (Some(to), Some(from)) => {
                            let cores = group.cores.len() as f64;
                            (sum + cores * (to - from), weight + cores)
                        }
                        _ => (sum, weight),
                    }
                });
                if weight > 0.0 { f64::exp(sum / weight) } else { 1.0 }
            };
            let (hpw, lpw) = (foreseen.hpw.unwrap_or_default(), foreseen.lpw.unwrap_or_default());
            println!(
                "{file:32} {name:12} HPW foreseen {:.3} ±{:.3} measured {:.3}   LPW foreseen {:.3} ±{:.3} measured {:.3}   {} layouts",
                hpw.value,
                hpw.error,
                together(Priority::High),
                lpw.value,
                lpw.error,
                together(Priority::Low),
                foreseen.layouts
            );
            for (foreseen, priority) in [(hpw, Priority::High), (lpw, Priority::Low)] {
                gaps.push((foreseen.value - together(priority)).abs());
                within += usize::from(foreseen.is_within(together(priority), 2.0));
            }
        }
    }
    gaps.sort_by(f64::total_cmp);
    let quantile = |q: f64| 100.0 * gaps[((gaps.len() as f64 - 1.0) * q).round() as usize];
    println!(
        "{} means: median {:.1}, 90 % {:.1}, worst {:.1} points; {:.0} % within two errors",
        gaps.len(),
        quantile(0.5),
        quantile(0.9),
        quantile(1.0),
        100.0 * within as f64 / gaps.len() as f64
    );
}

fn logs(server: &VirtualServer, seen: &Interval) -> Logs {
    let of = |group: &waykeeper_host::Workload| {
        Some((group.id, progress(group, seen, server.inventory(), FetchCosts::default())?.ln()))
    };
    server.workloads().iter().filter_map(of).collect()
}

/// The mean of each tenant.
fn mean(all: &[Logs]) -> Logs {
    let mut sums: BTreeMap<WorkloadId, (f64, f64)> = BTreeMap::new();
    for (id, log) in all.iter().flatten() {
        let sum = sums.entry(*id).or_default();
        *sum = (sum.0 + log, sum.1 + 1.0);
    }
    sums.into_iter().map(|(id, (sum, count))| (id, sum / count)).collect()
}
