//! Speed and error of each setting of `--sets`.
//!
//! `cargo run --release -p waykeeper-machine --example sampling_error [TRAFFIC [SAMPLES]]`; 8 and 4 by default. Slices
//! of the flagship with the same traffic, exact and sampled: the root mean square of their difference, its mean in
//! brackets, and below it the error that the runs estimate from themselves. Knows no policy.

// It is a program that prints.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use waykeeper_host::Host;
use waykeeper_machine::{
    HitErrors, Measured, RunOptions, SamplingErrors, Scenario, ScenarioSource, VirtualServer,
};
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

/// What one run measured, the errors that it estimates, and the seconds that it took.
struct Run {
    measured: Measured,
    errors: SamplingErrors,
    seconds: f64,
}

fn run(slice: &Arc<Scenario>, seed: u64, sample_seed: u64, sampling: Sampling) -> Run {
    let mut server =
        VirtualServer::new(slice.clone(), RunOptions { seed, sample_seed, sampling }).expect("it fits");
    let begun = Instant::now();
    server.wait_until(20_000_000).expect("it runs");
    server.begin_stretch();
    server.wait_until(60_000_000).expect("it runs");
    let seconds = begun.elapsed().as_secs_f64();
    Run { measured: server.measured(), errors: server.sampling_errors(), seconds }
}

/// A quantity: its group, and how its error is taken.
struct Quantity {
    group: usize,
    value: f64,
    /// The standard error that the run estimates.
    claimed: Option<f64>,
    relative: bool,
}

const GROUPS: [&str; 8] =
    ["net LLC", "net MLC", "other LLC", "other MLC", "DCA write", "DCA read", "latency %", "redis LLC"];

fn quantities(slice: &Scenario, run: &Run) -> Vec<Quantity> {
    let mut all = Vec::new();
    let mut add = |group, value: Option<f64>, claimed: Option<f64>, relative: bool| {
        let scale = if relative { 1.0 } else { 100.0 };
        let (value, claimed) = (value.unwrap_or(0.0) * scale, claimed.map(|error| error * scale));
        all.push(Quantity { group, value, claimed, relative });
    };
    let Run { measured, errors, .. } = run;
    let workloads = measured.workloads.iter().zip(&errors.workloads);
    for (spec, (workload, HitErrors { llc, mlc })) in slice.workloads.iter().zip(workloads) {
        let network = spec.nic.is_some();
        // If a program leaves its MLC less often, the LLC's ratio is meaningless in a slice.
        if spec.program.name.starts_with("redis") {
            add(7, workload.llc_hit_ratio, *llc, false);
        } else if workload.llc_misses_per_s > 1e6 {
            add(if network { 0 } else { 2 }, workload.llc_hit_ratio, *llc, false);
        }
        add(if network { 1 } else { 3 }, workload.mlc_hit_ratio, *mlc, false);
        if network {
            add(6, workload.latency_mean_ns, None, true);
        }
    }
    add(4, measured.system.dca_write_hit_ratio, errors.dca_write, false);
    add(5, measured.system.dca_read_hit_ratio, errors.dca_read, false);
    all
}

fn main() {
    let number = |index: usize, usual: u64| {
        std::env::args().nth(index).map_or(usual, |text| text.parse().expect("a number of seeds"))
    };
    let (traffic, samples) = (number(1, 8), number(2, 4));
    let slice = Arc::new(slice());
    let exact: Vec<Run> = (1..=traffic).map(|seed| run(&slice, seed, 1, Sampling::EXACT)).collect();
    let per_run = |seconds: f64, runs: u64| 0.060 * runs as f64 / seconds;
    let speed = per_run(exact.iter().map(|run| run.seconds).sum(), traffic);
    println!("{:8}{}  simulated s per s", "sets", GROUPS.map(|name| format!("{name:>14}")).concat());
    println!("{:8}{}  {speed:.3}", "exact", " ".repeat(14 * GROUPS.len()));
    for setting in SETTINGS {
        let sampling: Sampling = setting.parse().expect("a sampling");
        let (mut squares, mut sums, mut seconds) = ([(0.0, 0.0); 8], [0.0; 8], 0.0);
        let mut claims = [(0.0, 0.0); 8];
        for seed in 1..=traffic {
            let truth = quantities(&slice, &exact[seed as usize - 1]);
            for sample in 1..=samples {
                let sampled = run(&slice, seed, 100 * seed + sample, sampling);
                seconds += sampled.seconds;
                for (ours, truth) in quantities(&slice, &sampled).iter().zip(&truth) {
                    let off = ours.value - truth.value;
                    let off = if ours.relative { off / truth.value * 100.0 } else { off };
                    let (sum, count) = &mut squares[ours.group];
                    *sum += off * off;
                    *count += 1.0;
                    sums[ours.group] += off;
                    if let Some(claimed) = ours.claimed {
                        let (sum, count) = &mut claims[ours.group];
                        *sum += claimed * claimed;
                        *count += 1.0;
                    }
                }
            }
        }
        let cell = |group: usize| {
            let (sum, count): (f64, f64) = squares[group];
            format!("{:>14}", format!("{:.2} ({:+.2})", (sum / count).sqrt(), sums[group] / count))
        };
        let cells: String = (0..GROUPS.len()).map(cell).collect();
        println!("{setting:8}{cells}  {:.3}", per_run(seconds, traffic * samples));
        let claim = |(sum, count): (f64, f64)| match count {
            0.0 => format!("{:>14}", "-"),
            _ => format!("{:>14}", format!("{:.2}        ", (sum / count).sqrt())),
        };
        println!("{:8}{}", "claimed", claims.map(claim).concat());
    }
}
