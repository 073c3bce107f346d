//! What an interval of the daemon costs: looking who is there, reading, deciding, showing; CPU time an hour, and memory.
//!
//! The host is the flagship on a mounted virtual server (18 cores, 11 tenants) whose clock is held, so that nobody simulates
//! while it is measured. CPU time is that of the thread that steps: serving the files is the kernel's part on a real host.
//! What a decision alone costs, with 11 and with 256 tenants, is measured beside the policies.

// The figures are what this program is for.
#![allow(clippy::print_stdout)]

use hdrhistogram::Histogram;
use rustix::thread::ClockId;
use rustix::time::clock_gettime;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use waykeeper_control::{ControlConfig, Loop};
use waykeeper_machine::ScenarioSource;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::engine::ManagedHost;
use waykeeper_service::linux::Keeper;
use waykeeper_stand::{MS, Machine, held};

/// Steps that are measured, after as many to warm up as a tenth of them.
const STEPS: u64 = 500;
/// Nanoseconds between two steps: they follow each other at once, as what is measured is not the waiting.
const PERIOD_NS: u64 = 1;
/// Intervals of an hour at the usual period of 1 s.
const HOUR: f64 = 3600.0;

fn main() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let scenario = ScenarioSource::open(&path).expect("the flagship").read().expect("the flagship");
    let machine = Machine::with(Arc::new(scenario), held(256));
    machine.run_to(MS);
    let tenants = machine.options().tenants;
    println!("18 cores, {} tenants, through files; {STEPS} steps", tenants.len());
    for policy in ["none", "a4", "iat", "waykeeper"] {
        measure(&machine, policy);
    }
    println!("memory of this process, its virtual server included: {} KiB", resident_kib());
}

fn config(machine: &Machine) -> Config {
    let (root, journal) =
        (machine.root().prefix().display().to_string(), machine.journal().display().to_string());
    let mut text = format!("[daemon]\nroot = {root:?}\njournal = {journal:?}\n");
    for tenant in machine.options().tenants {
        let devices: Vec<String> = tenant.devices.iter().map(ToString::to_string).collect();
        let priority = if tenant.priority == waykeeper_host::Priority::High { "high" } else { "low" };
        let (name, cores) = (&tenant.name, &tenant.cores);
        write!(text, "[[tenant]]\nname = {name:?}\npriority = \"{priority}\"\ncores = \"{cores}\"\ndevices = {devices:?}\n")
            .expect("room");
    }
    let file = machine.folder().join("bench.toml");
    std::fs::write(&file, text).expect("written");
    Config::load(&Inputs { file: Some(file), ..Inputs::default() }).unwrap_or_else(|error| panic!("{error}"))
}

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a kernel");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn measure(machine: &Machine, name: &str) {
    let mut keeper = Keeper::open(&config(machine)).unwrap_or_else(|error| panic!("{error}"));
    keeper.refresh();
    let policy = waykeeper_policy::build(name, &toml::Table::new()).expect("a policy");
    let mut looping = Loop::start(&mut keeper, policy, ControlConfig::every(PERIOD_NS)).expect("a loop");
    let histogram = || Histogram::<u64>::new(3).expect("three digits");
    let (mut refreshes, mut steps) = (histogram(), histogram());
    let mut cpu = 0;
    for number in 0..STEPS + STEPS / 10 {
        // Counters are to move, or nothing is decided.
        machine.run(MS / 20);
        let (begun, before) = (Instant::now(), cpu_ns());
        looping.host().refresh();
        let looked = begun.elapsed();
        looping.step().expect("a step");
        let all = begun.elapsed();
        if number >= STEPS / 10 {
            cpu += cpu_ns() - before;
            refreshes.saturating_record(looked.as_nanos() as u64);
            steps.saturating_record((all - looked).as_nanos() as u64);
        }
    }
    drop(looping);
    keeper.give_back().unwrap_or_else(|left| panic!("{left:?}"));
    let us = |histogram: &Histogram<u64>, quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    println!(
        "{name}: looking who is there {:.0} us (p99 {:.0}), a step {:.0} us (p99 {:.0}); CPU of a step {:.0} us, an hour of \
         steps of 1 s {:.1} s",
        us(&refreshes, 0.5),
        us(&refreshes, 0.99),
        us(&steps, 0.5),
        us(&steps, 0.99),
        cpu as f64 / STEPS as f64 / 1e3,
        cpu as f64 / STEPS as f64 * HOUR / 1e9,
    );
}
