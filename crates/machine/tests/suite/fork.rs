//! A clone of a running server continues as the original would, and neither changes the other.
//!
//! The comparison covers the whole state as `Debug` writes it, so that no field is left out.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waykeeper_host::{Host, Plan};
use waykeeper_machine::{FaultyServer, RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_testbed::is_long;
use waykeeper_units::WayMask;

/// Hashes what is written to it.
struct Digest(DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn state(server: &FaultyServer) -> u64 {
    let mut digest = Digest(DefaultHasher::new());
    write!(digest, "{server:?}").expect("hashing does not fail");
    digest.0.finish()
}

fn switched_on(scenario: &Arc<Scenario>) -> FaultyServer {
    let options = RunOptions { seed: 3, sample_seed: 3, sampling: Sampling::one_in(256).unwrap() };
    FaultyServer::new(VirtualServer::new(scenario.clone(), options).expect("it fits"))
}

fn run(server: &mut FaultyServer, until_ns: u64) {
    server.wait_until(until_ns).expect("it runs");
    server.sample().expect("it can be read");
}

/// Sets another mask of two ways for the first group.
fn turn(server: &mut FaultyServer) {
    let knobs = server.sample().expect("it can be read").knobs;
    let (group, mask) = knobs.masks().next().expect("a group runs");
    let other = [0b11, 0b1100].map(WayMask::from_bits).into_iter().find(|other| *other != mask);
    let plan = Plan::of_masks([(group, other.expect("one of two differs"))]);
    let applied = server.apply(&plan).expect("the server takes plans");
    assert!(applied.is_complete(), "{applied:?}");
}

/// Clones at `at_ns`, runs all servers to `until_ns` on the server's clock and compares them with a server that was
/// never cloned.
fn forks_alike(name: &str, scenario: Scenario, at_ns: u64, until_ns: u64) {
    let scenario = Arc::new(scenario);
    let mut alone = switched_on(&scenario);
    run(&mut alone, at_ns);
    let before = state(&alone);
    let mut original = switched_on(&scenario);
    run(&mut original, at_ns);
    let (mut fork, mut turned) = (original.clone(), original.clone());
    assert_eq!(state(&fork), before, "{name}: a fork is a copy");
    turn(&mut turned);
    run(&mut turned, until_ns);
    run(&mut fork, until_ns);
    assert_eq!(state(&original), before, "{name}: forks that run do not change the original");
    run(&mut alone, until_ns);
    let expected = state(&alone);
    assert_eq!(state(&fork), expected, "{name}: a fork continues as the original would");
    assert_ne!(state(&turned), expected, "{name}: a knob of a fork acts");
    run(&mut original, until_ns);
    assert_eq!(state(&original), expected, "{name}: the original continues");
}

#[test]
fn forks_of_all_scenarios_continue_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    assert!(files.len() > 30, "{} scenarios were found", files.len());
    files.sort_unstable();
    // Each program and device is in more than one of eight scenarios.
    for file in files.into_iter().step_by(if is_long() { 1 } else { 8 }) {
        let scenario = ScenarioSource::open(&file).and_then(|source| source.read()).unwrap();
        let simulated_ms = scenario.time_factor * 1e6;
        let until = |ms: f64| (ms * simulated_ms) as u64;
        forks_alike(&file.display().to_string(), scenario, until(0.4), until(0.8));
    }
}

/// Workers on several cores that share a buffer, a limit and an end; programs that start and exit; faults.
const SHARED: &str = r#"
name = "shared"
duration_s = 0.01
warmup_s = 0.002
measure_s = 0.008
time_factor = 1

[[storage]]
name = "raid0"

[[nic]]
name = "nic0"

[[workload]]
name = "load"
program = "memload"
cores = "0-3"
buffer_blocks = 500
blocks_per_s = 400000
slots_per_s = 1000
blocks = 1500

[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "4-5"

[[workload]]
name = "scan"
program = "x-mem"
cores = "6"
working_set = "4M"
start_s = 0.003
stop_s = 0.004

[[fault]]
kind = "counter-restarts"
workload = "l2fwd"
at_s = 0.0045
"#;

/// Programs that no scenario of the repository runs.
const OTHERS: &str = r#"
name = "others"
duration_s = 0.01
warmup_s = 0.002
measure_s = 0.008
time_factor = 1

[[storage]]
name = "raid0"

[[nic]]
name = "nic0"
offered_gbps = 20

[[nic]]
name = "nic1"

[[workload]]
name = "l3fwd"
program = "l3fwd"
cores = "0"
nic = "nic0"

[[workload]]
name = "memcached"
program = "memcached"
cores = "1-2"
nic = "nic0"

[[workload]]
name = "ipf"
program = "ipf"
cores = "3"
nic = "nic0"

[[workload]]
name = "dpiz"
program = "dpiz"
cores = "4"
nic = "nic0"

[[workload]]
name = "iperf"
program = "iperf"
cores = "5-6"
nic = "nic1"

[[workload]]
name = "rocksdb"
program = "rocksdb"
cores = "7"
"#;

#[test]
fn forks_of_other_programs_continue_alike() {
    for at_us in [0, 1_500] {
        let source = ScenarioSource::parse("others.toml", OTHERS, None).unwrap();
        forks_alike("others", source.read().unwrap(), at_us * 1_000, 3_000_000);
    }
}

#[test]
fn threads_of_a_fork_share_what_is_the_forks() {
    for at_us in [0, 500, 2_000, 3_500] {
        let source = ScenarioSource::parse("shared.toml", SHARED, None).unwrap();
        forks_alike("shared", source.read().unwrap(), at_us * 1_000, 6_000_000);
    }
}

/// Types with which clones of a machine could share mutable state.
const SHARING: [&str; 7] = ["Mutex", "RwLock", "RefCell", "Cell<", "Atomic", "OnceLock", "OnceCell"];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { sources(&path, into) } else { into.push(path) }
    }
}

#[test]
fn a_machine_owns_all_that_changes_in_it() {
    let mut files = Vec::new();
    for folder in ["src", "../silicon/src", "../load/src"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    // A scenario's keys and the files that they name are read before a machine exists.
    files.retain(|file| !["scenario/keys.rs", "scenario/inputs.rs"].iter().any(|read| file.ends_with(read)));
    assert!(files.len() > 60, "the sources were not found");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let shared = SHARING.iter().find(|word| text.contains(**word));
        assert_eq!(shared, None, "{}: a clone of a machine would share it", file.display());
    }
}
