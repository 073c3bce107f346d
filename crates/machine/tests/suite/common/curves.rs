//! SPEC CPU2017 programs alone, over the size of the LLC: the measurements, and the same runs on the simulated chip.
//!
//! Shared by the test that compares them and by the example that fits the profiles. The measured chip is a Xeon Gold
//! 5120 (docs/reference/spec2017-skylake-sp.csv). Its rows for 1.75 and 3.5 MB agree to the last digit for programs
//! with a wide range of working sets, so both are taken as one size of two ways.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use waykeeper_host::Host;
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;

/// Ways of the LLC that the program had in a measurement.
pub const WAYS: [u32; 4] = [2, 4, 8, 11];
/// Their size, MB, as in the file.
const SIZES: [&str; 4] = ["3.5", "7", "14", "19.25"];
/// Clock of the measured chip, GHz, as in its chip file.
pub const GHZ: f64 = 2.2;

/// A program at one size, measured or simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    /// Cycles per instruction.
    pub cpi: f64,
    /// Demand accesses served by memory, per thousand instructions.
    pub mpki: f64,
    /// Demand accesses that missed the MLC, per thousand instructions.
    pub apki: f64,
    /// Lines read from memory, per thousand instructions.
    pub reads: f64,
    /// Prefetched lines that were used, and of these those from memory, per thousand instructions. Model only.
    pub prefetched: [f64; 2],
}

/// A program's measurements. [`Point::apki`] and [`Point::reads`] are those of the whole LLC at every size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Curve {
    /// Without prefetchers, by size.
    pub off: [Point; 4],
    /// With prefetchers.
    pub on: [Point; 4],
    /// Lines fetched into the L1, per thousand instructions, prefetchers on.
    pub l1_fills: f64,
    /// Stores per load or store.
    pub stores: f64,
}

/// The curves of the rate programs by name; a program with several inputs is their mean, weighted by instructions.
pub fn measured() -> BTreeMap<String, Curve> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/spec2017-skylake-sp.csv");
    let mut file = csv::ReaderBuilder::new().comment(Some(b'#')).from_path(path).expect("the file is there");
    let mut curves: BTreeMap<String, Curve> = BTreeMap::new();
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    for row in file.deserialize() {
        let row: BTreeMap<String, String> = row.expect("a row");
        if row["suite"] != "2K17Rate" {
            continue;
        }
        let number = |column: &str| -> f64 {
            let text = &row[column];
            let share =
                text.strip_suffix('%').map(|percent| percent.parse::<f64>().expect("a share") / 100.0);
            share.unwrap_or_else(|| text.parse().expect("a number"))
        };
        let name = row["benchmark"].split(['.', '_']).nth(1).expect("a number and a name").to_owned();
        let weight = number("ginstr");
        let curve = curves.entry(name.clone()).or_default();
        let on = row["prefetch"] == "on";
        if let Some(at) = SIZES.iter().position(|size| *size == row["llc_mb"]) {
            let point = if on { &mut curve.on[at] } else { &mut curve.off[at] };
            point.cpi += weight * number("cpi");
            point.mpki += weight * number("llc_mpki");
            point.apki += weight * number("apki_full");
            point.reads += weight * number("reads");
            if on && at == 0 {
                curve.l1_fills += weight * number("mpki1");
                let (loads, stores) = (number("loads"), number("stores"));
                curve.stores += weight * stores / (loads + stores);
                *weights.entry(name).or_default() += weight;
            }
        }
    }
    for (name, curve) in &mut curves {
        let weight = weights[name];
        for point in curve.off.iter_mut().chain(&mut curve.on) {
            for number in [&mut point.cpi, &mut point.mpki, &mut point.apki, &mut point.reads] {
                *number /= weight;
            }
        }
        curve.l1_fills /= weight;
        curve.stores /= weight;
    }
    curves
}

/// One point of a program's curve: measured, and simulated with its built-in profile.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The program.
    pub name: String,
    /// `on` or `off`.
    pub prefetchers: &'static str,
    /// Ways of the LLC.
    pub ways: u32,
    /// The measured values.
    pub was: Point,
    /// The simulated values.
    pub is: Point,
}

/// Every point of every program, by name, prefetchers and ways; on two threads.
pub fn compared() -> Vec<Compared> {
    let curves: Vec<_> = measured().into_iter().collect();
    let (queue, found) = (Mutex::new(curves.iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no run panics in the lock").next();
    let work = || {
        while let Some((name, target)) = next() {
            let (profile, seconds) = (format!("benchmark = \"{name}\""), seconds_for(target));
            let sampling = Sampling::one_in(32).expect("a factor");
            for (prefetchers, points) in [("off", target.off), ("on", target.on)] {
                for (ways, was) in WAYS.into_iter().zip(points) {
                    let is = simulated(&profile, ways, prefetchers == "on", seconds, sampling);
                    let point = Compared { name: name.clone(), prefetchers, ways, was, is };
                    found.lock().expect("no push panics").push(point);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut found = found.into_inner().expect("the threads ended");
    found.sort_by(|a, b| (&a.name, a.prefetchers, a.ways).cmp(&(&b.name, b.prefetchers, b.ways)));
    found
}

/// A SPEC program alone on the simulated chip. `profile` is a key with its value: `benchmark = "lbm"`.
pub fn simulated(profile: &str, ways: u32, prefetchers: bool, seconds: f64, sampling: Sampling) -> Point {
    alone(&format!("program = \"spec\"\n{profile}"), ways, prefetchers, seconds, sampling)
}

/// A program alone on the simulated chip. `keys` are the lines of its `[[workload]]`.
pub fn alone(keys: &str, ways: u32, prefetchers: bool, seconds: f64, sampling: Sampling) -> Point {
    let text = format!(
        "name = \"curve\"\nchip = \"gold-5120\"\ntime_factor = 1\nduration_s = {seconds}\nwarmup_s = {warmup}\n\
         measure_s = {measured}\n[model]\nquantum_ns = 20000\n[knobs]\nprefetchers = {prefetchers}\n\
         [[workload]]\nname = \"alone\"\ncores = \"0\"\nmask = \"{mask:#x}\"\n{keys}\n",
        warmup = seconds * 0.6,
        measured = seconds * 0.4,
        mask = (1u32 << ways) - 1,
    );
    let source = ScenarioSource::parse("curve", &text, None).unwrap_or_else(|error| panic!("{error}"));
    let scenario = Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling };
    let mut server = VirtualServer::new(scenario, options).expect("it fits");
    server.wait_until((seconds * 0.6e9) as u64).expect("it runs");
    server.begin_stretch();
    server.wait_until((seconds * 1e9) as u64).expect("it runs");
    let all = server.measured();
    let alone = &all.workloads[0];
    let per_kilo = 1000.0 / alone.operations_per_s;
    let useful = alone.prefetches_per_s - alone.useless_prefetches_per_s;
    let from_memory = alone.llc_misses_per_s - alone.demand_llc_misses_per_s;
    Point {
        cpi: 1.0 / alone.ipc.expect("it ran"),
        mpki: alone.demand_llc_misses_per_s * per_kilo,
        apki: alone.demand_mlc_misses_per_s * per_kilo,
        reads: all.system.memory_read_bytes_per_s / 64.0 * per_kilo,
        prefetched: [useful * per_kilo, from_memory * per_kilo],
    }
}

/// Simulated time, s, until working sets are in their caches: each line that fits into the LLC is accessed often enough
/// to enter it, although three of four clean victims are dropped.
pub fn seconds_for(target: &Curve) -> f64 {
    let accesses_per_s = target.off[0].apki / 1000.0 / target.off[0].cpi * GHZ * 1e9;
    let lines = 11.0 * 14.0 * 2048.0;
    (30.0 * lines / accesses_per_s.max(1.0)).clamp(0.25, 3.0)
}
