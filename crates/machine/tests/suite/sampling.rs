//! Sampled runs compared with exact ones, and results that must not depend on the quantum: microarchitecture.md 7 and
//! 9.

use crate::common;

use common::lock::{Numbers, key, locked};
use common::{run, scenario};
use std::sync::Arc;
use waykeeper_host::Host;
use waykeeper_machine::{Measured, RunOptions, Scenario, VirtualServer};
use waykeeper_silicon::Sampling;

/// A short part of the flagship with a time factor of 1: caches are warm after a few milliseconds.
fn slice() -> Scenario {
    let mut slice = scenario("a4-hpw-heavy", "");
    slice.time_factor = 1.0;
    (slice.duration_s, slice.warmup_s, slice.measure_s) = (0.030, 0.015, 0.015);
    slice
}

/// Every hit ratio of the flagship, in percentage points: LLC and MLC per workload, DCA writes and reads.
fn hit_ratios(scenario: &Scenario, measured: &Measured) -> Vec<(String, f64)> {
    let mut ratios = Vec::new();
    for (spec, workload) in scenario.workloads.iter().zip(&measured.workloads) {
        // exchange2 has too few MLC misses in a short run for a meaningful LLC ratio.
        if workload.llc_misses_per_s > 1e6 {
            ratios.push((format!("{}/LLC", spec.name), workload.llc_hit_ratio.unwrap_or(0.0) * 100.0));
        }
        ratios.push((format!("{}/MLC", spec.name), workload.mlc_hit_ratio.unwrap_or(0.0) * 100.0));
    }
    ratios.push(("DCA/write".to_owned(), measured.system.dca_write_hit_ratio.unwrap_or(0.0) * 100.0));
    ratios.push(("DCA/read".to_owned(), measured.system.dca_read_hit_ratio.unwrap_or(0.0) * 100.0));
    ratios
}

/// The default sampling is within one point of exact on every hit ratio, as a mean over sample seeds. Also over traffic
/// seeds: FastClick's fullest queue is near critical, and a single run is in one of its two steady states at random.
#[test]
fn default_sampling_is_within_a_point_of_exact() {
    const TRAFFIC: u64 = 8;
    const SAMPLES: u64 = 3;
    let slice = Arc::new(slice());
    let mean = |samples: u64, sampling: Sampling| -> Numbers {
        let mut mean: Vec<(String, f64)> = Vec::new();
        for (seed, sample) in (1..=TRAFFIC).flat_map(|seed| (1..=samples).map(move |sample| (seed, sample))) {
            let ratios = hit_ratios(&slice, &run(&slice, seed, 100 * seed + sample, sampling));
            mean.resize_with(ratios.len(), Default::default);
            for (sum, (name, value)) in mean.iter_mut().zip(ratios) {
                sum.0 = name;
                sum.1 += value / (TRAFFIC * samples) as f64;
            }
        }
        mean
    };
    let kept = |samples: u64, sampling: Sampling| {
        let shown = format!("hit ratios of the flagship, {TRAFFIC} seeds x {samples} {sampling:?}");
        locked(&key(&shown, &format!("{slice:?}")), || mean(samples, sampling))
    };
    let (exact, sampled) = (kept(1, Sampling::EXACT), kept(SAMPLES, Sampling::DEFAULT));
    let off: Vec<String> = exact
        .iter()
        .zip(&sampled)
        .filter(|((_, exact), (_, sampled))| (exact - sampled).abs() > 1.0)
        .map(|((name, exact), (_, sampled))| format!("{name}: exact {exact:.2}, sampled {sampled:.2}"))
        .collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// Runs estimate their own errors: over all ratios with enough accesses, the estimates are near the spread over samples
/// with the same traffic. Exact runs estimate none.
#[test]
fn runs_claim_the_error_that_they_have() {
    const SAMPLES: u64 = 10;
    let slice = Arc::new(slice());
    let run = |sample_seed: u64, sampling: Sampling| {
        let options = RunOptions { seed: 1, sample_seed, sampling };
        let mut server = VirtualServer::new(slice.clone(), options).expect("it fits");
        server.begin_stretch_at(15_000_000);
        server.wait_until(30_000_000).expect("it runs");
        let (measured, errors) = (server.measured(), server.sampling_errors());
        let workloads = measured.workloads.iter().zip(&errors.workloads);
        let ratios = workloads.map(|(measured, error)| (measured.llc_hit_ratio, error.llc));
        let devices = [
            (measured.system.dca_write_hit_ratio, errors.dca_write),
            (measured.system.dca_read_hit_ratio, errors.dca_read),
        ];
        ratios.chain(devices).collect::<Vec<_>>()
    };
    assert!(run(1, Sampling::EXACT).iter().all(|(_, error)| error.is_none()));
    // Per ratio: the error that the runs claim, and the spread that they have.
    let errors = || {
        let runs: Vec<_> = (1..=SAMPLES).map(|sample| run(sample, Sampling::DEFAULT)).collect();
        let mut errors = Numbers::new();
        for index in 0..runs[0].len() {
            let one: Option<Vec<(f64, f64)>> =
                runs.iter().map(|run| run[index].0.zip(run[index].1)).collect();
            let Some(one) = one else { continue };
            let mean = one.iter().map(|(ratio, _)| ratio).sum::<f64>() / SAMPLES as f64;
            let variance =
                one.iter().map(|(ratio, _)| (ratio - mean).powi(2)).sum::<f64>() / (SAMPLES - 1) as f64;
            let claimed = (one.iter().map(|(_, error)| error * error).sum::<f64>() / SAMPLES as f64).sqrt();
            errors.extend([("claimed".to_owned(), claimed), ("true".to_owned(), variance.sqrt())]);
        }
        errors
    };
    let shown = format!("errors of {SAMPLES} samples of the flagship");
    let errors = locked(&key(&shown, &format!("{slice:?}")), errors);
    let of = |what: &str| -> Vec<f64> {
        errors.iter().filter(|(name, _)| name == what).map(|(_, value)| *value).collect()
    };
    let (claimed, true_ones) = (of("claimed"), of("true"));
    assert!(claimed.len() >= 10, "{} ratios", claimed.len());
    // The geometric mean of the quotients, because redis-server's error is a hundred times that of the others.
    let quotients = claimed.iter().zip(&true_ones).map(|(claimed, is)| (claimed / is).ln());
    let quotient = (quotients.sum::<f64>() / claimed.len() as f64).exp();
    assert!((0.7..1.5).contains(&quotient), "claimed {claimed:?}, true {true_ones:?}: {quotient}");
}

/// A sample with one set in 128 has no line of many 4-KiB buffers; with one in 32 it has two of each.
#[test]
fn buffers_without_a_simulated_line_are_reported() {
    let gaps = |one_in: u32, sample_seed: u64| {
        let scenario = Arc::new(scenario("a4-fig5", "workload.fio.block=4096;workload.fio.depth=1"));
        let sampling = Sampling::one_in(one_in).expect("a power of two");
        let options = RunOptions { seed: 1, sample_seed, sampling };
        VirtualServer::new(scenario, options).expect("it fits").gaps()
    };
    assert!((1..=8).all(|sample| gaps(32, sample).is_empty()));
    let reported = (1..=8).flat_map(|sample| gaps(256, sample));
    assert!(reported.filter(|gap| gap.owner == "fio" && gap.region_lines == 64).count() > 0);
}

/// The quantum changes nothing beyond noise (microarchitecture.md 7: 50 to 1000 ns).
#[test]
fn the_quantum_does_not_matter() {
    let at = |quantum_ns: f64| {
        let mut one = scenario("a4-fig3b", "nic.nic0.offered_gbps=80");
        one.quantum_ns = quantum_ns;
        let one = Arc::new(one);
        let measured = run(&one, 1, 1, Sampling::DEFAULT);
        let miss = |index: usize| 100.0 - measured.workloads[index].llc_hit_ratio.unwrap_or(1.0) * 100.0;
        (miss(0), miss(1), measured.system.memory_write_bytes_per_s / 1e9)
    };
    let base = at(1000.0);
    for quantum_ns in [100.0, 400.0] {
        let other = at(quantum_ns);
        assert!((base.0 - other.0).abs() < 1.5 && (base.1 - other.1).abs() < 1.5, "{base:?} {other:?}");
        assert!((base.2 / other.2 - 1.0).abs() < 0.1, "{base:?} {other:?}");
    }
}
