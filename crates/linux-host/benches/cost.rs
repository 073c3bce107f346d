//! Measures the cost of one sample: system calls and bytes of the sampling thread (`/proc/thread-self/io`), and which
//! files it reads (the served tree counts its reads).
//!
//! Through registers both are measured, on the flagship (18 cores, 11 tenants) and on a server of 128 cores with 64
//! tenants in 15 classes, whose registers are a table. Through perf, the reads of the plan are counted without
//! opening it. At most two reads per core and one per uncore unit are allowed. Must not know how a sample is used.

// This program's purpose is to print the figures.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use waykeeper_generations::{Generation, Pmu};
use waykeeper_host::{Host, Plan};
use waykeeper_kernel::cha::slice_events;
use waykeeper_kernel::counting::CoreEventPlan;
use waykeeper_kernel::event_source::{CounterUnit, TermFormat};
use waykeeper_kernel::iio::StackPart;
use waykeeper_kernel::perf::{IioUnits, UncorePlan, core_groups};
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::LinuxHost;
use waykeeper_machine::ScenarioSource;
use waykeeper_testbed::{LargeServer, MS, MountedHost, manual_clock};
use waykeeper_units::{CoreId, WayMask, WorkloadId};
use waykeeper_vhost::faults::{Faults, Operation};

/// Samples per measurement.
const SAMPLES: u64 = 10;

fn main() {
    println!("system calls and bytes of one sample");
    flagship();
    large();
    for (name, id, cores, slices, channels) in
        [("18 cores, 11 tenants", "skx", 18, 18, 6), ("128 cores, 64 tenants", "gnr", 128, 128, 12)]
    {
        for watchdog in [false, true] {
            perf(name, id, cores, slices, channels, watchdog);
        }
    }
}

/// Reads of this thread so far: calls and bytes.
fn io() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/io").expect("a kernel with task I/O accounting");
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("its line");
        line.trim().parse::<u64>().expect("a number")
    };
    (number("syscr:"), number("rchar:"))
}

/// Samples and prints the cost.
fn measure(name: &str, host: &mut LinuxHost, faults: &Faults) {
    host.sample().expect("a sample");
    let idle = {
        let (a, b) = (io(), io());
        (b.0 - a.0, b.1 - a.1)
    };
    faults.forget();
    let before = io();
    for _ in 0..SAMPLES {
        host.sample().expect("a sample");
    }
    let after = io();
    let calls = (after.0 - before.0 - idle.0) as f64 / SAMPLES as f64;
    let bytes = (after.1 - before.1 - idle.1) as f64 / SAMPLES as f64;
    println!("{name}, through {}: {calls} reads, {bytes} bytes", host.counted_by());
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for ((path, operation), count) in faults.seen() {
        let kind = match path.as_str() {
            _ if operation != Operation::Read => "other than reads",
            "dev/cpu/0/msr" => "MSRs of CPU 0 (its core and the package)",
            path if path.starts_with("dev/cpu") => "MSRs of other cores",
            path if path.ends_with("config") => "PCI configuration space",
            path if path.ends_with("schemata") => "schemata",
            path if path.contains("mon_data") => "mon_data",
            _ => "anything else",
        };
        *kinds.entry(kind).or_default() += count;
    }
    for (kind, count) in kinds {
        println!("    {kind}: {}", count as f64 / SAMPLES as f64);
    }
}

/// 18 cores and 11 tenants; all registers are simulated.
fn flagship() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let source = ScenarioSource::open(&path).expect("the flagship");
    let scenario = source.read().expect("the flagship");
    let machine = MountedHost::with(Arc::new(scenario), manual_clock(256));
    machine.run_to(MS);
    measure("18 cores, 11 tenants", &mut machine.open(), &machine.faults);
}

/// 128 cores and 64 tenants in all fifteen classes.
fn large() {
    let server = LargeServer::new();
    let mut host = LinuxHost::open(server.options()).unwrap_or_else(|error| panic!("{error}"));
    let masks = (0..64).map(|index| (WorkloadId(index), WayMask::from_bits(1 << (index % 15))));
    let applied = host.apply(&Plan::of_masks(masks)).expect("a report");
    assert!(applied.is_complete(), "{applied:?}");
    measure("128 cores, 64 tenants", &mut host, &server.faults);
    drop(host);
}

/// A unit as the kernel would list it, with the formats from the table.
fn unit(pmu: &Pmu, number: u32) -> CounterUnit {
    let format = |(term, field): (&String, &waykeeper_generations::Field)| {
        let format = TermFormat::parse(Path::new("format"), &field.format).expect("a table's format");
        (term.clone(), format)
    };
    CounterUnit {
        name: format!("{}_{number}", pmu.perf),
        kind: number,
        cpumask: Some(vec![CoreId(0)].into()),
        formats: pmu.fields.iter().map(format).collect(),
    }
}

/// Prints the reads of one sample through perf, from the plan: all cores, slices and channels, two root ports on two
/// stacks.
fn perf(name: &str, id: &str, cores: u16, slices: u32, channels: u32, watchdog: bool) {
    let generation = Generation::by_id(id).expect("a table");
    let events = CoreEventPlan::of(&generation.core);
    let of_core = |cpu| core_groups(&generation.core, &events, CoreId(cpu), watchdog).len();
    let core_reads: usize = (0..cores).map(of_core).sum();
    let package = (0..cores).map(CoreId).collect::<Vec<_>>().into();
    let mut plan = UncorePlan::default();
    let units = |pmu: &Pmu, count: u32| (0..count).map(|number| unit(pmu, number)).collect::<Vec<_>>();
    let cache = generation.cache.as_ref().expect("slices");
    plan.add_slices(cache, &units(&cache.pmu, slices), &package, slice_events);
    let memory = generation.memory.as_ref().expect("memory");
    plan.add_memory(memory, &units(&memory.pmu, channels), &package);
    let iio = generation.iio.as_ref().expect("stacks");
    let stacks = IioUnits { programmed: units(&iio.pmu, 4), running: Vec::new() };
    let parts = [(0, StackPart { stack: 1, part: 0 }), (1, StackPart { stack: 2, part: 0 })];
    plan.add_ports(&Root::at("/nowhere"), iio, &parts, &stacks, &package);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let uncore_units = (slices + channels + 2) as usize;
    println!(
        "{name}, through perf{}: {} reads of counters: {core_reads} of {cores} cores, {} of {uncore_units} uncore units",
        if watchdog { " with the NMI watchdog" } else { "" },
        core_reads + plan.groups.len(),
        plan.groups.len()
    );
    assert!(core_reads <= 2 * usize::from(cores), "two reads a core are allowed");
    assert!(plan.groups.len() <= uncore_units, "one read an uncore unit is allowed");
}
