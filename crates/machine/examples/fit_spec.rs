//! Fits the profiles of `spec` to the measured curves (docs/programs.md) and prints them as TOML.
//! `cargo run --release -p waykeeper-machine --example fit_spec [NAME...] > profiles.toml`; progress is on stderr. A
//! surrogate (Che's approximation of an LRU cache, one for the MLC and one for MLC and LLC together) proposes working
//! sets, and the model measures them. The surrogate's next targets are corrected by the model's last error. Uses the
//! measurements of each program alone, and no figure of any paper that Waykeeper reproduces.

// The test compares points, the fit whole curves.
#[allow(dead_code)]
#[path = "../tests/suite/common/curves.rs"]
mod curves;

use curves::{Curve, GHZ, Point, WAYS};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use waykeeper_silicon::Sampling;

/// Sizes of working sets that the fit may use, KiB, and whether they are scanned.
const SETS: [(f64, bool); COUNT] = [
    (1536.0, false),
    (2560.0, false),
    (4096.0, false),
    (6144.0, false),
    (9216.0, false),
    (13_312.0, false),
    (18_432.0, false),
    (32_768.0, false),
    (262_144.0, false),
    (3072.0, true),
    (5120.0, true),
    (7168.0, true),
    (10_240.0, true),
];
const COUNT: usize = 13;
/// Size of the MLC, KiB.
const MLC_KIB: f64 = 1024.0;
/// Size of a way of the LLC, KiB.
const WAY_KIB: f64 = 14.0 * 2048.0 * 64.0 / 1024.0;
/// Latencies of the chip file in core cycles: MLC, LLC, memory; dependent loads and lines of a stream.
const DEPENDENT: [f64; 3] = [6.5 * GHZ, 31.0 * GHZ, 98.0 * GHZ];
const STREAM: [f64; 3] = [2.2 * GHZ, 5.5 * GHZ, 11.5 * GHZ];
/// Rounds of proposal and measurement.
const ROUNDS: usize = 14;

/// What is fitted.
#[derive(Clone, Copy, Debug)]
struct Fit {
    apki: [f64; COUNT],
    foreseen: [f64; COUNT],
    useless: f64,
    cpi: f64,
    /// Reciprocal of `mlp` and of `stream_mlp`.
    latency: f64,
    stream: f64,
    mlc_hits: f64,
    stores: f64,
}

impl Fit {
    fn toml(&self) -> String {
        let mut text = format!(
            "cpi = {:.3}\nmlp = {:.2}\nstream_mlp = {:.2}\nmlc_hits = {:.2}\nstores = {:.2}\nuseless = {:.2}\nsets = [\n",
            self.cpi,
            1.0 / self.latency,
            1.0 / self.stream,
            self.mlc_hits,
            self.stores,
            self.useless
        );
        let beyond: f64 = self.apki.iter().sum();
        let counts = |set: &usize| self.apki[*set] >= (0.004 * beyond).clamp(0.001, 0.02);
        for set in (0..COUNT).filter(counts) {
            writeln!(
                text,
                "    {{ kib = {}, apki = {:.4}, foreseen = {:.3}{} }},",
                SETS[set].0,
                self.apki[set],
                self.foreseen[set],
                if SETS[set].1 { ", scan = true" } else { "" }
            )
            .expect("text grows");
        }
        text + "]\n"
    }
}

/// Miss ratio of each set in an LRU cache of `kib` (Che, Tung, Wang 2002): exp(-rate x T), where T is the time in which
/// as many different lines are touched as fit. A scanned line comes back after 1 / rate, so it misses if T is shorter;
/// the logistic approximates the spread of lines over sets.
fn miss_ratios(apki: &[f64; COUNT], kib: f64) -> [f64; COUNT] {
    let full = |t: f64| -> f64 {
        (0..COUNT).map(|set| SETS[set].0 * (1.0 - (-apki[set] / SETS[set].0 * t).exp())).sum()
    };
    if (0..COUNT).filter(|set| apki[*set] > 0.0).map(|set| SETS[set].0).sum::<f64>() <= kib {
        return [0.0; COUNT];
    }
    let (mut low, mut high) = (0.0, 1.0);
    while full(high) < kib {
        high *= 2.0;
    }
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if full(middle) < kib { low = middle } else { high = middle }
    }
    std::array::from_fn(|set| {
        let turns = apki[set] / SETS[set].0 * high;
        if SETS[set].1 { 1.0 / (1.0 + (3.4 * (turns - 0.77)).exp()) } else { (-turns).exp() }
    })
}

/// The surrogate's misses by size and accesses that miss the MLC, without prefetchers.
fn surrogate(apki: &[f64; COUNT]) -> ([f64; 4], f64) {
    let sum = |ratios: [f64; COUNT]| (0..COUNT).map(|set| apki[set] * ratios[set]).sum::<f64>();
    let misses = WAYS.map(|ways| sum(miss_ratios(apki, MLC_KIB + f64::from(ways) * WAY_KIB)));
    (misses, sum(miss_ratios(apki, MLC_KIB)))
}

/// The same for demand with prefetchers.
fn surrogate_on(apki: &[f64; COUNT], foreseen: &[f64; COUNT]) -> ([f64; 4], f64) {
    let sum = |ratios: [f64; COUNT]| {
        (0..COUNT).map(|set| apki[set] * (1.0 - foreseen[set]) * ratios[set]).sum::<f64>()
    };
    let misses = WAYS.map(|ways| sum(miss_ratios(apki, MLC_KIB + f64::from(ways) * WAY_KIB)));
    (misses, sum(miss_ratios(apki, MLC_KIB)))
}

/// Distance of a number from its target in units of what the test allows: 15 % or 0.1 per thousand instructions.
fn distance(is: f64, target: f64) -> f64 {
    (is - target) / (0.15 * target).max(0.1)
}

/// Lowers `cost` by stretching and shrinking one coordinate at a time; coordinates stay in `bounds`.
fn search<const N: usize>(
    mut at: [f64; N],
    bounds: (f64, f64),
    mut step: f64,
    cost: impl Fn(&[f64; N]) -> f64,
) -> [f64; N] {
    let mut best = cost(&at);
    while step > 1e-3 {
        let mut better = false;
        for index in 0..N {
            for change in [step, -step, 8.0 * step, -8.0 * step] {
                let mut next = at;
                let grain = at[index].max(bounds.1 * 1e-3);
                next[index] = (at[index] + change * grain).clamp(bounds.0, bounds.1);
                let seen = cost(&next);
                if seen < best - 1e-12 {
                    (at, best, better) = (next, seen, true);
                }
            }
        }
        if !better {
            step *= 0.5;
        }
    }
    at
}

/// The simulated curve of a fit.
fn simulate(fit: &Fit, seconds: f64) -> Curve {
    let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a temporary file");
    std::fs::write(file.path(), fit.toml()).expect("it is written");
    let profile = format!("profile = {:?}", file.path().display().to_string());
    let sampling = Sampling::one_in(32).expect("a factor");
    let run = |on| WAYS.map(|ways| curves::simulated(&profile, ways, on, seconds, sampling));
    Curve { off: run(false), on: run(true), ..Curve::default() }
}

/// `is / was` where both are positive.
fn ratio(is: f64, was: f64) -> f64 {
    if is < 1e-3 || was < 1e-3 { 1.0 } else { (is / was).clamp(0.2, 5.0) }
}

/// The best of three fits, since each search ends in a local minimum: from random sets, from random sets with more
/// weight each round for the numbers that are furthest off, and from all sets.
fn fit(name: &str, target: &Curve) -> Fit {
    let random = |set: usize| !SETS[set].1;
    let fits = [
        fit_from(name, target, random, 0.0),
        fit_from(name, target, random, 0.5),
        fit_from(name, target, |_| true, 0.0),
    ];
    fits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are three").1
}

/// A fit with the sets that `with` selects, and its distance. `urge` is the weight that a number at the limit of its
/// tolerance gains per round.
fn fit_from(name: &str, target: &Curve, with: impl Fn(usize) -> bool, urge: f64) -> (f64, Fit) {
    let misses = target.off.map(|point| point.mpki);
    let (apki, apki_on) = (target.off[0].apki, target.on[0].apki);
    let mut fit = Fit {
        apki: std::array::from_fn(|set| if with(set) { apki / COUNT as f64 } else { 0.0 }),
        foreseen: [(1.0 - apki_on / apki.max(1e-6)).clamp(0.0, 1.0); COUNT],
        useless: 0.1,
        cpi: target.on[3].cpi * 0.7,
        latency: 0.33,
        stream: 0.5,
        mlc_hits: (target.l1_fills - apki).max(0.01),
        stores: target.stores,
    };
    let seconds = curves::seconds_for(target);
    // The surrogate's targets for which the model reaches the measurements.
    let (mut aim, mut aim_on) = ([1.0; 5], [1.0; 5]);
    // What is furthest off weighs more in the next round.
    let (mut weight, mut weight_on) = ([1.0; 5], [1.0; 5]);
    let mut best: Option<(f64, Fit)> = None;
    for round in 0..ROUNDS {
        let cost = |apki: &[f64; COUNT]| {
            let apki = std::array::from_fn(|set| if with(set) { apki[set] } else { 0.0 });
            let (seen, beyond) = surrogate(&apki);
            let sizes: f64 =
                (0..4).map(|at| weight[at] * distance(seen[at] * aim[at], misses[at]).powi(2)).sum::<f64>();
            sizes + weight[4] * distance(beyond * aim[4], target.off[0].apki).powi(2)
        };
        fit.apki = search(fit.apki, (0.0, 2.0 * apki), 0.5, cost);
        fit.apki = std::array::from_fn(|set| if with(set) { fit.apki[set] } else { 0.0 });
        let on = |foreseen: &[f64; COUNT]| {
            let (seen, beyond) = surrogate_on(&fit.apki, foreseen);
            let sizes: f64 = (0..4)
                .map(|at| weight_on[at] * distance(seen[at] * aim_on[at], target.on[at].mpki).powi(2))
                .sum();
            sizes + weight_on[4] * distance(beyond * aim_on[4], apki_on).powi(2)
        };
        fit.foreseen = search(fit.foreseen, (0.0, 0.995), 0.5, on);
        let seen = simulate(&fit, seconds);
        time(&mut fit, target, &seen);
        let wrong = worst(&seen, target);
        writeln!(
            std::io::stderr(),
            "{name} round {round}: misses and accesses off by {wrong:.2} of what is allowed"
        )
        .expect("a terminal or a file takes it");
        if best.is_none_or(|(least, _)| wrong < least) {
            best = Some((wrong, fit));
        }
        if wrong < 0.3 {
            break;
        }
        let (proposed, proposed_on) = (surrogate(&fit.apki), surrogate_on(&fit.apki, &fit.foreseen));
        for at in 0..4 {
            aim[at] = 0.5 * aim[at] + 0.5 * ratio(seen.off[at].mpki, proposed.0[at]);
            aim_on[at] = 0.5 * aim_on[at] + 0.5 * ratio(seen.on[at].mpki, proposed_on.0[at]);
        }
        for at in 0..5 {
            let (is, wanted) = if at < 4 {
                ((seen.off[at].mpki, seen.on[at].mpki), (misses[at], target.on[at].mpki))
            } else {
                ((seen.off[3].apki, seen.on[3].apki), (target.off[3].apki, apki_on))
            };
            weight[at] *= 1.0 + urge * distance(is.0, wanted.0).abs();
            weight_on[at] *= 1.0 + urge * distance(is.1, wanted.1).abs();
        }
        aim[4] = ratio(seen.off[3].apki, proposed.1);
        aim_on[4] = ratio(seen.on[3].apki, proposed_on.1);
        // Memory reads beyond those without prefetchers are useless prefetches.
        let (extra, wanted) =
            (seen.on[3].reads - seen.off[3].reads, target.on[3].reads - target.off[3].reads);
        let vain = (wanted - extra).clamp(-0.5 * apki_on, 0.5 * apki_on) / apki_on.max(0.05);
        fit.useless = (fit.useless + 0.5 * vain).clamp(0.0, 1.0);
    }
    best.expect("there was a round")
}

/// Chooses the three numbers of time, given the level that served each access in the model.
fn time(fit: &mut Fit, target: &Curve, seen: &Curve) {
    let l1_misses: f64 = fit.mlc_hits + fit.apki.iter().sum::<f64>();
    let dependent = |point: &Point, foreseen: f64| {
        let mlc = (l1_misses - foreseen - point.apki).max(0.0);
        (mlc * DEPENDENT[0] + (point.apki - point.mpki) * DEPENDENT[1] + point.mpki * DEPENDENT[2]) / 1000.0
    };
    // Accesses that prefetchers foresaw; some find their line in the MLC and need no fetch.
    let foreseen: f64 = (0..COUNT).map(|set| fit.apki[set] * fit.foreseen[set]).sum();
    let stream = |point: &Point| {
        let [fetched, memory] = point.prefetched;
        let held = (foreseen - fetched).max(0.0);
        (held * STREAM[0] + (fetched - memory).max(0.0) * STREAM[1] + memory * STREAM[2]) / 1000.0
    };
    // The core retires four instructions a cycle at most; a program that is faster than that alone retires fused ones.
    let least = 0.25_f64.min(0.8 * target.on[3].cpi);
    let cost = |[cpi, latency, stream_share]: &[f64; 3]| {
        let cpi = &cpi.max(least);
        let off = (0..4).map(|at| (cpi + latency * dependent(&seen.off[at], 0.0)) / target.off[at].cpi - 1.0);
        let on = (0..4).map(|at| {
            let core =
                cpi + latency * dependent(&seen.on[at], foreseen) + stream_share * stream(&seen.on[at]);
            core / target.on[at].cpi - 1.0
        });
        // A weak preference for 3 and 2, for programs whose curves do not determine them.
        let prior = 1e-5 * ((latency - 0.33).powi(2) + (stream_share - 0.5).powi(2));
        off.chain(on).map(|wrong| wrong * wrong).sum::<f64>() + prior
    };
    [fit.cpi, fit.latency, fit.stream] = search([fit.cpi, fit.latency, fit.stream], (0.05, 2.0), 0.25, cost);
    fit.cpi = fit.cpi.max(least);
}

/// The largest distance of misses and accesses from the measurements.
fn worst(seen: &Curve, target: &Curve) -> f64 {
    let misses = seen.off.iter().chain(&seen.on).zip(target.off.iter().chain(&target.on));
    let misses = misses.map(|(is, wanted)| distance(is.mpki, wanted.mpki).abs());
    let accesses = [(&seen.off[3], &target.off[3]), (&seen.on[3], &target.on[3])];
    let accesses = accesses.map(|(is, wanted)| distance(is.apki, wanted.apki).abs());
    misses.chain(accesses).fold(0.0, f64::max)
}

fn main() -> std::io::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let curves: Vec<(String, Curve)> = curves::measured()
        .into_iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.contains(name))
        .collect();
    let (queue, done) = (Mutex::new(curves.iter()), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some((name, target)) = queue.lock().expect("no fit panics in here").next() else {
                        break;
                    };
                    let fit = fit(name, target);
                    done.lock().expect("nor here").push((name.clone(), fit));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("all threads ended");
    done.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = std::io::stdout().lock();
    for (name, fit) in done {
        writeln!(out, "[{name}]\n{}", fit.toml())?;
    }
    Ok(())
}
