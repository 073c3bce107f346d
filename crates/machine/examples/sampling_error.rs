//! What a setting of `--sets` costs in speed and how far it is from exact.
//!
//! `cargo run --release -p waykeeper-machine --example sampling_error [TRAFFIC [SAMPLES]]`; 8 and 4 by default. Slices
//! of the flagship with the same traffic, exact and sampled: the root mean square of their difference. Knows no policy.

// It is a program that prints.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use waykeeper_host::Host;
use waykeeper_machine::{Measured, RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;

const SETTINGS: [&str; 5] = ["1/16", "1/32", "1/64", "1/128", "1/256"];

/// 20 ms to warm up and 40 ms measured, on a clock without a shortcut.
fn slice() -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let mut slice =
        ScenarioSource::open(&path).and_then(|source| source.read()).expect("a built-in scenario");
    slice.time_factor = 1.0;
    (slice.duration_s, slice.warmup_s, slice.measure_s) = (0.060, 0.020, 0.040);
    slice
}

fn run(slice: &Arc<Scenario>, seed: u64, sample_seed: u64, sampling: Sampling) -> (Measured, f64) {
    let mut server =
        VirtualServer::new(slice.clone(), RunOptions { seed, sample_seed, sampling }).expect("it fits");
    let begun = Instant::now();
    server.wait_until(20_000_000).expect("it runs");
    server.begin_stretch();
    server.wait_until(60_000_000).expect("it runs");
    (server.measured(), begun.elapsed().as_secs_f64())
}

/// A quantity: its group, and how its error is taken.
struct Quantity {
    group: usize,
    value: f64,
    relative: bool,
}

const GROUPS: [&str; 7] =
    ["net LLC", "net MLC", "other LLC", "other MLC", "DCA write", "DCA read", "latency %"];

fn quantities(slice: &Scenario, measured: &Measured) -> Vec<Quantity> {
    let mut all = Vec::new();
    let mut add = |group, value: Option<f64>, relative: bool| {
        let scale = if relative { 1.0 } else { 100.0 };
        all.push(Quantity { group, value: value.unwrap_or(0.0) * scale, relative });
    };
    for (spec, workload) in slice.workloads.iter().zip(&measured.workloads) {
        let network = spec.nic.is_some();
        // Of a program that leaves its MLC less often the LLC's ratio means nothing in a slice.
        if workload.llc_misses_per_s > 1e6 {
            add(if network { 0 } else { 2 }, workload.llc_hit_ratio, false);
        }
        add(if network { 1 } else { 3 }, workload.mlc_hit_ratio, false);
        if network {
            add(6, workload.latency_mean_ns, true);
        }
    }
    add(4, measured.system.dca_write_hit_ratio, false);
    add(5, measured.system.dca_read_hit_ratio, false);
    all
}

fn main() {
    let number = |index: usize, usual: u64| {
        std::env::args().nth(index).map_or(usual, |text| text.parse().expect("a number of seeds"))
    };
    let (traffic, samples) = (number(1, 8), number(2, 4));
    let slice = Arc::new(slice());
    let exact: Vec<(Measured, f64)> =
        (1..=traffic).map(|seed| run(&slice, seed, 1, Sampling::EXACT)).collect();
    let per_run = |seconds: f64, runs: u64| 0.060 * runs as f64 / seconds;
    let speed = per_run(exact.iter().map(|(_, seconds)| seconds).sum(), traffic);
    println!("{:8}{}  simulated s per s", "sets", GROUPS.map(|name| format!("{name:>12}")).concat());
    println!("{:8}{}  {speed:.3}", "exact", " ".repeat(12 * GROUPS.len()));
    for setting in SETTINGS {
        let sampling: Sampling = setting.parse().expect("a sampling");
        let (mut squares, mut sums, mut seconds) = ([(0.0, 0.0); 7], [0.0; 7], 0.0);
        for seed in 1..=traffic {
            let truth = quantities(&slice, &exact[seed as usize - 1].0);
            for sample in 1..=samples {
                let (measured, took) = run(&slice, seed, 100 * seed + sample, sampling);
                seconds += took;
                for (ours, truth) in quantities(&slice, &measured).iter().zip(&truth) {
                    let off = ours.value - truth.value;
                    let off = if ours.relative { off / truth.value * 100.0 } else { off };
                    let (sum, count) = &mut squares[ours.group];
                    *sum += off * off;
                    *count += 1.0;
                    sums[ours.group] += off;
                }
            }
        }
        let cell = |group: usize| {
            let (sum, count): (f64, f64) = squares[group];
            format!("{:>12}", format!("{:.2} ({:+.2})", (sum / count).sqrt(), sums[group] / count))
        };
        let cells: String = (0..GROUPS.len()).map(cell).collect();
        println!("{setting:8}{cells}  {:.3}", per_run(seconds, traffic * samples));
    }
}
