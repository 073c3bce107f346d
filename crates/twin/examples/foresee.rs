//! What the twin foresees against what the virtual server then does, for one scenario.
//!
//! `cargo run --release -p waykeeper-twin --example foresee -- FILE [--set KEY=VALUE]... [--seed N] [--observe N] [--best FILE] [--quiet]`
//!
//! The server runs under its own layout, and with `--observe 2` under `isolate` too; the calibrator sees its counters
//! through the seam alone. Then the twin predicts seven layouts, each of them is simulated on a copy of the server, and the
//! progress that counters show is compared with the prediction.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a table for people")]

#[path = "../tests/suite/goal.rs"]
mod goal;

use goal::GOAL;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use waykeeper_calibration::{Calibrator, LayoutQuestion, limits};
use waykeeper_host::{
    DeviceKind, Host, Interval, Inventory, Knob, Plan, PortCounter, Priority, Workload, WorkloadCounter,
    WorkloadKind,
};
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_twin::{Budget, answer};
use waykeeper_units::{WayMask, WorkloadId};

const SECOND: u64 = 1_000_000_000;
/// Intervals before a layout is measured, and intervals of a measurement.
const SETTLE: u64 = 5;
const MEASURE: u64 = 6;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut file, mut sets, mut seed, mut observe, mut quiet) = (None, Vec::new(), 5, 2, false);
    let mut best = None;
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().expect("a value");
        match argument.as_str() {
            "--set" => sets.push(next()),
            "--seed" => seed = next().parse().expect("a number"),
            "--observe" => observe = next().parse().expect("a number"),
            "--best" => best = Some(next()),
            "--quiet" => quiet = true,
            _ => file = Some(argument),
        }
    }
    let file = file.expect("a scenario file");
    let mut source = ScenarioSource::open(Path::new(&file)).expect("a scenario");
    for set in &sets {
        let (key, value) = set.split_once('=').expect("KEY=VALUE");
        let value: toml::Table = format!("v = {value}").parse().expect("a TOML value");
        source.set(key, &value["v"]).expect("a key");
    }
    let scenario = Arc::new(source.read().expect("a legal scenario"));
    let options = RunOptions { seed, sample_seed: seed + 4, sampling: Sampling::DEFAULT };
    let mut server = VirtualServer::new(scenario, options).expect("it fits");
    let inventory = server.inventory().clone();
    let mut calibrator = Calibrator::new(&inventory);
    watch(&mut server, &mut calibrator, 8);
    let groups = server.workloads();
    if observe > 1 {
        let mut isolate = waykeeper_policy::build("isolate", &toml::Table::new()).expect("it is registered");
        let plan = isolate.start(&inventory, &groups).plan;
        server.apply(&plan).expect("it takes it");
        watch(&mut server, &mut calibrator, 7);
    }
    for _ in 0..8 {
        if calibrator.describe().is_none() {
            watch(&mut server, &mut calibrator, 1);
        }
    }
    let description = calibrator.describe().expect("it was seen");
    let mut layouts = layouts(&inventory, &groups, seed);
    layouts.extend(best.map(|file| ("given", given(&file, &inventory, &groups))));
    let question = LayoutQuestion {
        number: 1,
        server: description.clone(),
        limits: limits(&inventory),
        goal: GOAL,
        since_found: BTreeMap::new(),
        kept: BTreeSet::new(),
        asked: layouts.iter().map(|(_, plan)| plan.clone()).collect(),
        most: 3,
    };
    let from = std::time::Instant::now();
    let found = answer(&question, Budget::default());
    let took = from.elapsed();
    if !quiet {
        for tenant in &description.tenants {
            let sets: Vec<String> = tenant
                .reuse
                .iter()
                .map(|set| {
                    let lines =
                        set.lines.map_or_else(|| "once".to_owned(), |l| format!("{:.0}k", l.value / 1e3));
                    format!("{:.2} of {lines}", set.share.value)
                })
                .collect();
            eprintln!(
                "{:14} refs {:6.1}M hits {:.3} base {:5.2} hit {:5.1} miss {:5.1} ±{:4.1} held {:6.1}k  {}",
                tenant.workload.name,
                tenant.references.value / 1e6,
                tenant.hits.value,
                tenant.base_cycles.value,
                tenant.hit_cycles.value,
                tenant.miss_cycles.value,
                tenant.miss_cycles.error,
                tenant.held_lines.unwrap_or(f64::NAN) / 1e3,
                sets.join(", ")
            );
        }
    }
    let before = measured(&mut server.clone(), &groups, &inventory);
    let mut errors = Vec::new();
    let mut within = 0;
    let all = found.asked.iter().zip(&layouts).map(|(candidate, (name, _))| (*name, candidate));
    let best = found.best.iter().take(1).map(|candidate| ("best", candidate));
    let mut gaps = Vec::new();
    for (name, candidate) in all.chain(best) {
        let mut copy = server.clone();
        copy.apply(&candidate.plan).expect("it takes it");
        let after = measured(&mut copy, &groups, &inventory);
        let ratio = |id: &WorkloadId| Some(after.get(id)? / before.get(id)?);
        let mean = |priority| {
            let of = groups.iter().filter(|g| g.priority == priority);
            let (sum, weight) = of.fold((0.0, 0.0), |(sum, weight), g| match ratio(&g.id) {
                Some(r) => (sum + g.cores.len() as f64 * r.ln(), weight + g.cores.len() as f64),
                None => (sum, weight),
            });
            if weight > 0.0 { f64::exp(sum / weight) } else { 1.0 }
        };
        println!(
            "{name:12} HPW foreseen {:.3} ±{:.3} measured {:.3}   LPW foreseen {:.3} ±{:.3} measured {:.3}",
            candidate.hpw.value,
            candidate.hpw.error,
            mean(Priority::High),
            candidate.lpw.value,
            candidate.lpw.error,
            mean(Priority::Low)
        );
        gaps.push((candidate.hpw.value - mean(Priority::High)).abs());
        gaps.push((candidate.lpw.value - mean(Priority::Low)).abs());
        for group in &groups {
            let (Some(foreseen), Some(real)) = (candidate.tenants.get(&group.id), ratio(&group.id)) else {
                continue;
            };
            let off = foreseen.value - real;
            errors.push(off.abs());
            within += usize::from(off.abs() <= 2.0 * foreseen.error);
            if !quiet {
                let mark = if off.abs() > 0.03 { "  <--" } else { "" };
                println!(
                    "    {:14} foreseen {:.3} ±{:.3} measured {:.3} off {:+.3}{mark}",
                    group.name, foreseen.value, foreseen.error, real, off
                );
            }
        }
        if !quiet {
            println!("    {:?}", candidate.plan.settings().map(|s| s.to_string()).collect::<Vec<_>>());
        }
    }
    let quantile = |values: &mut Vec<f64>, q: f64| {
        values.sort_by(f64::total_cmp);
        values.get(((values.len() as f64 - 1.0) * q).round() as usize).copied().unwrap_or(f64::NAN)
    };
    let count = errors.len();
    println!(
        "{file} {}: tenants: median {:.1} 90 % {:.1} worst {:.1} points; {:.0} % within two errors; groups: median {:.1} 90 % {:.1}; {} layouts in {:.0} ms",
        sets.join(" "),
        100.0 * quantile(&mut errors, 0.5),
        100.0 * quantile(&mut errors, 0.9),
        100.0 * quantile(&mut errors, 1.0),
        100.0 * within as f64 / count as f64,
        100.0 * quantile(&mut gaps, 0.5),
        100.0 * quantile(&mut gaps, 0.9),
        found.simulated,
        took.as_secs_f64() * 1e3
    );
}

/// Lets the calibrator see some intervals of a second.
fn watch(server: &mut VirtualServer, calibrator: &mut Calibrator, intervals: u64) {
    let mut before = server.sample().expect("it can");
    for _ in 0..intervals {
        let until = server.now_ns() + SECOND;
        server.wait_until(until).expect("it can");
        let after = server.sample().expect("it can");
        let seen = Interval::between(&before, &after).expect("time has passed");
        calibrator.observe(&server.workloads(), &seen);
        before = after;
    }
}

/// Progress by counters, as the policy has it.
fn measured(
    server: &mut VirtualServer,
    groups: &[Workload],
    inventory: &Inventory,
) -> BTreeMap<WorkloadId, f64> {
    let until = server.now_ns() + SETTLE * SECOND;
    server.wait_until(until).expect("it can");
    let before = server.sample().expect("it can");
    server.wait_until(until + MEASURE * SECOND).expect("it can");
    let after = server.sample().expect("it can");
    let seen = Interval::between(&before, &after).expect("time has passed");
    let progress = |group: &Workload| {
        let rates = &seen.groups[&group.id];
        if group.kind == WorkloadKind::NonIo {
            return rates.ipc();
        }
        let ports = group.devices.iter().flat_map(|id| &inventory.devices[id.index()].ports);
        let lines: f64 = ports
            .filter_map(|port| {
                seen.ports[port].sum(PortCounter::InboundBytes, PortCounter::OutboundBytes).value()
            })
            .sum::<f64>()
            / 64.0;
        if lines <= 0.0 {
            return None;
        }
        let (hits, misses) =
            (rates[WorkloadCounter::LlcHits].value()?, rates[WorkloadCounter::LlcMisses].value()?);
        let fetching = (0.5 * hits + 2.0 * misses) / lines;
        Some(if group.kind == WorkloadKind::StorageIo { lines } else { lines / (1.0 + fetching) })
    };
    groups.iter().filter_map(|group| Some((group.id, progress(group).filter(|p| *p > 0.0)?))).collect()
}

/// The layout in a result of `waykeeper best`.
fn given(file: &str, inventory: &Inventory, groups: &[Workload]) -> Plan {
    let text = std::fs::read_to_string(file).expect("a file");
    let result: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mask = |value: &serde_json::Value| {
        let bits = value.as_str().and_then(|text| text.strip_prefix("0x")).expect("0x and digits");
        WayMask::from_bits(u32::from_str_radix(bits, 16).expect("hexadecimal digits"))
    };
    let layout = &result["layout"];
    let mut plan = Plan::of_masks(groups.iter().map(|group| (group.id, mask(&layout["masks"][&group.name]))));
    if layout["dca_ways"].is_string() {
        plan.insert(Knob::DcaWays, mask(&layout["dca_ways"]));
    }
    for device in &inventory.devices {
        if let Some(on) = layout["dca"][&device.name].as_bool() {
            device.ports.iter().for_each(|port| plan.insert(Knob::Dca(*port), on));
        }
    }
    plan
}

/// Layouts of several shapes, by rules that know priorities and devices only.
fn layouts(inventory: &Inventory, groups: &[Workload], seed: u64) -> Vec<(&'static str, Plan)> {
    let ways = inventory.known_llc().ways;
    let full = WayMask::full(ways);
    let dca = inventory.dca_ways_default.map_or(0, WayMask::count);
    let of = |mask: &dyn Fn(&Workload) -> WayMask| Plan::of_masks(groups.iter().map(|g| (g.id, mask(g))));
    let low = |count| WayMask::span(0, count);
    let zones = |count: u32, outside: bool| {
        of(&|group: &Workload| match group.priority {
            Priority::Low => low(count),
            Priority::High if !group.devices.is_empty() => full.minus(low(count)),
            Priority::High => WayMask::span(count, ways - count - if outside { dca } else { 0 }),
        })
    };
    let storage = inventory.devices.iter().filter(|device| device.kind == DeviceKind::Storage);
    let storage: Vec<_> = storage.flat_map(|device| device.ports.iter().copied()).collect();
    let without = |plan: Plan| storage.iter().fold(plan, |plan, port| plan.with(Knob::Dca(*port), false));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |n: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 33) % u64::from(n)) as u32
    };
    let mut any = || {
        let masks: Vec<(WorkloadId, WayMask)> = groups
            .iter()
            .map(|group| {
                let (a, b) = (random(ways), random(ways));
                (group.id, WayMask::span(a.min(b), a.max(b) - a.min(b) + 1))
            })
            .collect();
        Plan::of_masks(masks)
    };
    vec![
        ("open", of(&|_| full)),
        ("zones 2", zones(2, true)),
        ("zones 4", zones(4, false)),
        ("zones 2 d", without(zones(2, true))),
        ("open d", without(of(&|_| full))),
        ("random 1", any()),
        ("random 2", any()),
    ]
}
