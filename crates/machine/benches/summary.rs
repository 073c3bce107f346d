//! `make bench`: how fast the model is, as medians over repeated runs, on a named machine.
//!
//! Single-threaded line events per second (random over 4 MiB, stream over 64 MiB, half and half; exact and
//! 1/32), the bare cache path, and simulated seconds per wall second of the flagship at 1/32. Prints a table
//! and writes `target/bench/latest.json`; `BENCH_BASELINE=FILE` compares with an earlier one. Figures of one
//! machine at one time: compare ratios, not days.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use waykeeper_host::Host;
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::{AddressMap, Chip, ChipSpec, Fill, Line, OneLevel, Rules, Sampling, SliceHash};

/// Runs of each figure; the median is kept.
const RUNS: usize = 7;
/// Accesses per run of a trace.
const ACCESSES: usize = 4_000_000;
/// Accesses ahead that are asked for early on the bare path (performance.md 1: 8 to 32).
const AHEAD: usize = 16;

/// A small generator of its own, so that a trace never changes.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 32) * n as u128) >> 32) as usize
    }
}

/// The traces of performance.md 1 over `random` and `stream` items.
fn trace(kind: char, random: usize, stream: usize) -> Vec<(bool, usize)> {
    let mut draw = Draw(1);
    let mut at = 0;
    let step = |at: &mut usize| {
        *at = (*at + 1) % stream;
        (true, *at)
    };
    (0..ACCESSES)
        .map(|_| match kind {
            'a' => (false, draw.below(random)),
            'b' => step(&mut at),
            _ if draw.below(2) == 0 => (false, draw.below(random)),
            _ => step(&mut at),
        })
        .collect()
}

/// Median of `RUNS` rates: `work` items per second of what `run` does.
fn median(work: f64, mut run: impl FnMut()) -> f64 {
    run();
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            work / start.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[RUNS / 2]
}

fn bare_path(kind: char) -> f64 {
    let mut cache = OneLevel::new(36_864, 11);
    let random = if kind == 'c' { 24_576 } else { 65_536 };
    // The stream lies behind the random lines, as different memory would.
    let places: Vec<_> = trace(kind, random, 1 << 20)
        .into_iter()
        .map(|(streams, at)| cache.place((at + if streams { 1 << 17 } else { 0 }) as u32))
        .collect();
    median(ACCESSES as f64, || {
        let mut hits = 0u64;
        for (index, place) in places.iter().enumerate() {
            cache.prefetch(places[(index + AHEAD).min(ACCESSES - 1)]);
            hits += u64::from(cache.access(*place));
        }
        black_box(hits);
    })
}

fn whole_chip(kind: char, sampling: Sampling) -> f64 {
    let spec = ChipSpec::built_in("gold-6140").expect("built in");
    let mut memory = AddressMap::new(&spec, SliceHash::Uniform, sampling, 1, 1);
    let mut chip = Chip::new(&spec, Rules::default(), sampling, 1);
    let random = memory.ordinary(if kind == 'c' { 3 << 19 } else { 4 << 20 }).expect("it fits");
    let stream = memory.ordinary(64 << 20).expect("it fits");
    let lines: Vec<Line> = trace(kind, random.lines().len(), stream.lines().len())
        .into_iter()
        .map(|(streams, at)| if streams { stream.lines()[at] } else { random.lines()[at] })
        .collect();
    median(ACCESSES as f64, || {
        for (index, line) in lines.iter().enumerate() {
            chip.prefetch(0, lines[(index + AHEAD).min(ACCESSES - 1)]);
            black_box(chip.read(0, *line, Fill::Ordinary));
        }
    })
}

/// Simulated seconds per wall second, before any time factor, and line events per second in it.
fn flagship() -> (f64, f64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let source = ScenarioSource::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let scenario = Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
    let mut server = VirtualServer::new(scenario.clone(), options).expect("it fits");
    let stretch_ns = 2_000_000_000u64;
    let simulated_s = stretch_ns as f64 * 1e-9 / scenario.time_factor;
    server.wait_until(2 * stretch_ns).expect("it runs");
    server.begin_stretch();
    let rate = median(simulated_s, || {
        let until = server.now_ns() + stretch_ns;
        server.wait_until(until).expect("it runs");
    });
    let measured = server.measured();
    (rate, measured.system.line_events as f64 / measured.seconds * rate)
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.unwrap_or("unknown CPU").trim())
}

#[expect(clippy::print_stdout, reason = "a benchmark prints")]
fn main() {
    // `cargo test --benches` runs this binary too; measuring is for `cargo bench` alone.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let mut figures: Vec<(String, f64)> = Vec::new();
    for kind in ['a', 'b', 'c'] {
        figures.push((format!("bare path {kind}, M accesses/s"), bare_path(kind) / 1e6));
    }
    for sampling in [Sampling::EXACT, Sampling::DEFAULT] {
        for kind in ['a', 'b', 'c'] {
            let rate = whole_chip(kind, sampling) / 1e6;
            figures.push((format!("whole chip {kind}, {sampling}, M line events/s"), rate));
        }
    }
    let (rate, events) = flagship();
    figures.push(("flagship, 1/32, simulated s per wall s".to_owned(), rate));
    figures.push(("flagship, 1/32, M line events/s".to_owned(), events / 1e6));

    let baseline: Option<serde_json::Value> = std::env::var_os("BENCH_BASELINE").map(|path| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    });
    println!("{}; medians of {RUNS}; a random over 4 MiB, b stream over 64 MiB, c half and half", machine());
    for (name, value) in &figures {
        let before = baseline.as_ref().and_then(|b| b["figures"][name].as_f64());
        let ratio = before.map_or_else(String::new, |before| format!("   x{:.2}", value / before));
        println!("{name:48} {value:9.2}{ratio}");
    }
    let figures: serde_json::Map<String, serde_json::Value> =
        figures.into_iter().map(|(name, value)| (name, value.into())).collect();
    let json = serde_json::json!({
        "schema": "waykeeper.bench/1",
        "machine": machine(),
        "version": env!("CARGO_PKG_VERSION"),
        "runs": RUNS,
        "figures": figures,
    });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&folder).expect("target can be written");
    let file = folder.join("latest.json");
    std::fs::write(&file, format!("{json:#}\n")).expect("target can be written");
    println!("written: {}", file.display());
}
