//! A virtual server whose replacement rule, sets and seed differ from the twin's: described by its counters, then compared
//! with what the twin foresaw.

use crate::goal::GOAL;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use waykeeper_calibration::{Calibrator, LayoutQuestion, limits};
use waykeeper_host::{Host, Interval, Plan, WorkloadCounter};
use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_twin::{Budget, answer};
use waykeeper_units::{WayMask, WorkloadId};

const SECOND: u64 = 1_000_000_000;

/// Two programs with reuse and a stream, on a chip with another replacement rule than the twin's.
const SERVER: &str = r#"
name = "unlike-the-twin"
about = "three programs on a chip that replaces at random"
duration_s = 60
time_factor = 20
chip = "gold-5320"

[model]
replacement = "random"

[knobs]
prefetchers = false

[[workload]]
name = "chaser"
program = "x-mem"
cores = "0-1"
working_set = "6 MiB"
pattern = "random"
priority = "high"

[[workload]]
name = "xalancbmk"
program = "spec"
cores = "2"
benchmark = "xalancbmk"
priority = "high"

[[workload]]
name = "lbm"
program = "spec"
cores = "3-6"
benchmark = "lbm"
priority = "low"
"#;

pub(crate) fn server() -> VirtualServer {
    let source = ScenarioSource::parse("unlike.toml", SERVER, None).expect("it is TOML");
    let scenario = Arc::new(source.read().expect("it is legal"));
    let options = RunOptions { seed: 11, sample_seed: 12, sampling: Sampling::DEFAULT };
    VirtualServer::new(scenario, options).expect("it fits")
}

pub(crate) fn interval(server: &mut VirtualServer) -> Interval {
    let before = server.sample().expect("it can");
    server.wait_until(server.now_ns() + SECOND).expect("it can");
    Interval::between(&before, &server.sample().expect("it can")).expect("a second has passed")
}

pub(crate) fn watch(server: &mut VirtualServer, calibrator: &mut Calibrator, intervals: usize) {
    for _ in 0..intervals {
        let seen = interval(server);
        calibrator.observe(&server.workloads(), &seen);
    }
}

/// Instructions per cycle of each workload, after some seconds under a plan.
fn measured(server: &VirtualServer, plan: &Plan) -> Vec<f64> {
    let mut server = server.clone();
    server.apply(plan).expect("it takes it");
    (0..4).for_each(|_| drop(interval(&mut server)));
    let rates: Vec<Interval> = (0..4).map(|_| interval(&mut server)).collect();
    let sum = |id, counter: WorkloadCounter| {
        rates.iter().filter_map(|seen| seen.groups[&id][counter].value()).sum::<f64>()
    };
    server
        .workloads()
        .iter()
        .map(|group| sum(group.id, WorkloadCounter::Instructions) / sum(group.id, WorkloadCounter::Cycles))
        .collect()
}

#[test]
fn what_is_foreseen_on_another_chip_comes_true_within_eight_points() {
    let mut server = server();
    let mut calibrator = Calibrator::new(server.inventory());
    watch(&mut server, &mut calibrator, 4);
    // A second layout: a quarter of the ways for each.
    let parts = [0x00f, 0x0f0, 0xf00].map(WayMask::from_bits);
    let ids = [0, 1, 2].map(WorkloadId);
    server.apply(&Plan::of_masks(ids.into_iter().zip(parts))).expect("it takes it");
    watch(&mut server, &mut calibrator, 5);
    let plans = [[0xffe, 0xffe, 0x001], [0x3f0, 0xc00, 0x00f], [0xfff, 0xfff, 0xfff], [0x003, 0x0fc, 0xff0]];
    let asked: Vec<Plan> = plans
        .iter()
        .map(|masks| Plan::of_masks(ids.into_iter().zip(masks.map(WayMask::from_bits))))
        .collect();
    let question = LayoutQuestion {
        number: 1,
        server: calibrator.describe().expect("it was seen for five seconds"),
        limits: limits(server.inventory()),
        goal: GOAL,
        since_found: BTreeMap::new(),
        kept: BTreeSet::new(),
        asked,
        most: 1,
    };
    let found = answer(&question, Budget::default());
    let before = measured(&server, &Plan::default());
    let mut errors = Vec::new();
    for candidate in &found.asked {
        let after = measured(&server, &candidate.plan);
        for (index, id) in ids.iter().enumerate() {
            errors.push((candidate.tenants[id].value - after[index] / before[index]).abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    // The bars of the issue: half of the predictions within three points, nine of ten within eight.
    assert!(errors[errors.len() / 2] <= 0.03, "{errors:?}");
    assert!(errors[errors.len() * 9 / 10] <= 0.08, "{errors:?}");
}
