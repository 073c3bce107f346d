//! `make bench`: how fast the model is, as medians over repeated runs, on a named machine.
//!
//! Single-threaded line events per second on three traces (the bare cache path; the whole chip, exact and 1/32), beside
//! other cache simulators if they are installed, and simulated seconds per second of the flagship at several samplings.
//! All by CPU time. Prints tables and writes `target/bench/latest.json`; `BENCH_BASELINE=FILE` compares with an earlier
//! one. Figures of one machine at one time: compare ratios, not days. scripts/bench_ab.py compares two builds of the
//! program. Knows nothing of tests: none asserts a time.

mod compare;
mod pace;
mod peers;

use pace::{Contender, ROUNDS, median_s};
use std::path::Path;
use std::sync::Arc;
use waykeeper_host::Host;
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;

/// Part of the flagship that one run simulates, on the server's clock.
const STRETCH_NS: u64 = 2_000_000_000;

/// The flagship at each sampling, in turn: simulated seconds per CPU second, before any time factor, and line events per
/// second.
fn flagship() -> Vec<(Sampling, f64, f64)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let source = ScenarioSource::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let scenario = Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")));
    let sparser = [64, 128, 256].into_iter().filter_map(Sampling::one_in);
    let settings =
        std::iter::once(Sampling::DEFAULT).chain(sparser.filter(|other| *other != Sampling::DEFAULT));
    let mut servers: Vec<(Sampling, VirtualServer)> = settings
        .map(|sampling| {
            let options = RunOptions { seed: 1, sample_seed: 1, sampling };
            let mut server = VirtualServer::new(scenario.clone(), options).expect("it fits");
            server.wait_until(2 * STRETCH_NS).expect("it runs");
            server.begin_stretch();
            (sampling, server)
        })
        .collect();
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for (_, server) in &mut servers {
        contenders.push(Box::new(|| {
            pace::timed(|| {
                let until = server.now_ns() + STRETCH_NS;
                server.wait_until(until).expect("it runs");
                0
            })
        }));
    }
    let passes = pace::in_turn(&mut contenders);
    drop(contenders);
    let simulated_s = STRETCH_NS as f64 * 1e-9 / scenario.time_factor;
    let figures = servers.iter().zip(passes).map(|((sampling, server), passes)| {
        let measured = server.measured();
        let rate = simulated_s / median_s(&passes);
        (*sampling, rate, measured.system.line_events as f64 / measured.seconds * rate)
    });
    figures.collect()
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&folder).expect("target can be written");
    let mut comparisons: Vec<_> =
        compare::TRACES.into_iter().flat_map(|kind| compare::run(kind, &folder)).collect();
    comparisons.sort_by(|one, other| one.ours.cmp(&other.ours));
    let mut figures: Vec<(String, f64)> = Vec::new();
    for comparison in &comparisons {
        figures.push((format!("{} {}, M lines/s", comparison.ours, comparison.kind), comparison.rate()));
    }
    for (sampling, rate, events) in flagship() {
        figures.push((format!("flagship, {sampling}, simulated s per s"), rate));
        figures.push((format!("flagship, {sampling}, M line events/s"), events / 1e6));
    }

    let baseline: Option<serde_json::Value> = std::env::var_os("BENCH_BASELINE").map(|path| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
    });
    println!(
        "{}; CPU time, medians of {ROUNDS}; a random over 4 MiB, b stream over 64 MiB, c half and half",
        machine()
    );
    for (name, value) in &figures {
        let before = baseline.as_ref().and_then(|b| b["figures"][name].as_f64());
        let ratio = before.map_or_else(String::new, |before| format!("   x{:.2}", value / before));
        println!("{name:48} {value:9.2}{ratio}");
    }
    let table = compare::table(&comparisons);
    if table.is_empty() {
        println!("{}", peers::HOW_TO_INSTALL);
    } else {
        println!(
            "\nother simulators in turn with ours: M lines/s of CPU time (hits), ours over theirs; theirs have three"
        );
        println!(
            "levels beside our whole chip; a line that our chip samples counts for those that it represents"
        );
        print!("{table}");
    }
    let ratios = comparisons.iter().flat_map(|comparison| {
        let ours = format!("{} {}", comparison.ours, comparison.kind);
        comparison.ratios().map(move |(peer, ratio)| (format!("{ours} over {peer}"), ratio))
    });
    let ratios: serde_json::Map<String, serde_json::Value> =
        ratios.map(|(name, ratio)| (name, ratio.into())).collect();
    let figures: serde_json::Map<String, serde_json::Value> =
        figures.into_iter().map(|(name, value)| (name, value.into())).collect();
    let json = serde_json::json!({
        "schema": "waykeeper.bench/2",
        "machine": machine(),
        "version": env!("CARGO_PKG_VERSION"),
        "runs": ROUNDS,
        "figures": figures,
        "peers": ratios,
    });
    let file = folder.join("latest.json");
    std::fs::write(&file, format!("{json:#}\n")).expect("target can be written");
    println!("written: {}", file.display());
}
