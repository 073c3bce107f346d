//! The schema's documentation is complete, and the numbers in a summary are the ones it describes.

use crate::common;

use serde_json::Value;
use std::collections::BTreeSet;
use waykeeper_lab::files::{Cells, ResultRows};
use waykeeper_lab::results::*;

/// Maps whose keys are names from a scenario or of metrics, not part of the schema.
const FREE: [&str; 7] = ["policies", "workloads", "groups", "masks", "spread", "sampling_error", "at"];

fn keys(value: &Value, parent: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if !FREE.contains(&parent) {
                    found.insert(key.clone());
                }
                keys(value, if FREE.contains(&parent) { "" } else { key }, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, "", found)),
        _ => {}
    }
}

/// A result in which every key has a value.
fn complete() -> RunSummary {
    let mut summary = common::five_seeds();
    summary.sample_seed = Some(1);
    summary.partial = true;
    summary.missing = vec![MissingRun {
        policy: "a4".to_owned(),
        seed: 6,
        at: [("nic.nic0.ring".to_owned(), SweepValue::Integer(64))].into(),
    }];
    let (text, advice) = ("a made-up one".to_owned(), "nothing to do".to_owned());
    summary.warnings = vec![Warning { key: WarningKey::SampleGap, text, advice }];
    for policy in summary.policies.values_mut() {
        policy
            .workloads
            .values_mut()
            .for_each(|w| w.metrics.iter_mut().for_each(|(_, value)| *value = Some(0.5)));
        policy.system.metrics.iter_mut().for_each(|(_, value)| *value = Some(0.5));
        policy.regret = Some(Regret {
            hpw_regret_ratio: 0.02,
            hpw_regret_deviation: Some(0.01),
            lpw_regret_ratio: Some(0.01),
            near_best_s: Some(9.0),
            lost_s: Some(1.5),
            knobs_turned: 12,
        });
        let ratio = ProgressRatio { ratio: 1.1, error: 0.01, deviation: Some(0.02) };
        policy.worth = Some(PolicyWorth {
            from: Some(waykeeper_control::WorthSource::Look),
            unknown: Some("a made-up reason".to_owned()),
            at_s: Some(70.0),
            age_s: Some(6.0),
            hpw: Some(ratio),
            lpw: Some(ratio),
            workloads: [("x264".to_owned(), ratio)].into(),
            look_intervals: 5,
        });
    }
    summary
}

#[test]
fn every_key_is_documented() {
    let documentation = include_str!("../../../../docs/results-schema.md");
    let mut found = BTreeSet::new();
    keys(&serde_json::to_value(complete()).unwrap(), "", &mut found);
    keys(&serde_json::to_value(common::sweep(true)).unwrap(), "", &mut found);
    let (run, sweep) = (complete(), common::sweep(true));
    let of_run = ResultRows::of_run(&run, Cells::Spreadsheet);
    let of_sweep = ResultRows::of_sweep(&sweep, Cells::Spreadsheet);
    for line in of_sweep.decisions_jsonl().unwrap().lines().chain(of_run.decisions_jsonl().unwrap().lines()) {
        keys(&serde_json::from_str(line).unwrap(), "", &mut found);
    }
    let table = of_run.timeseries_csv().unwrap();
    found.extend(table.lines().next().unwrap().split(',').map(str::to_owned));
    let table = of_sweep.results_csv().unwrap();
    // The first two columns are the swept keys.
    found.extend(table.lines().next().unwrap().split(',').skip(2).map(str::to_owned));
    assert!(found.len() > 60, "the walk over the result found only {found:?}");
    let missing: Vec<_> = found.iter().filter(|key| !documentation.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/results-schema.md does not describe {missing:?}");
    for schema in [RUN_SCHEMA, SWEEP_SCHEMA] {
        assert!(documentation.contains(schema));
    }
}

#[test]
fn a_summary_as_json() {
    let mut summary = common::flagship(1);
    summary.policies.retain(|name, _| name == "a4-d");
    summary.policies[0].workloads.retain(|name, _| name == "fastclick" || name == "ffsb-heavy");
    summary.policies[0].decisions.truncate(5);
    summary.policies[0].way_map.truncate(1);
    let summary = combine(vec![summary]).unwrap();
    insta::assert_snapshot!(summary.deterministic_json().unwrap());
}

/// Two workloads whose score is their IPC, under `default` and `other`.
fn small(seed: u64, default: [f64; 2], other: [f64; 2]) -> RunSummary {
    let mut summary = common::flagship(seed);
    summary.policies.retain(|name, _| name == "default" || name == "a4-d");
    for (policy, ipcs) in summary.policies.values_mut().zip([default, other]) {
        policy.workloads.retain(|name, _| name == "x264" || name == "parest");
        for (workload, ipc) in policy.workloads.values_mut().zip(ipcs) {
            workload.metrics.ipc = Some(ipc);
        }
        policy.workloads["parest"].cores = "7-9".parse().unwrap();
    }
    summary
}

#[test]
fn ratios_and_means_by_hand() {
    let mut summary = small(1, [1.0, 2.0], [2.0, 1.0]);
    summary.score();
    assert_eq!(summary.baseline.as_deref(), Some("default"));
    let policy = &summary.policies["a4-d"];
    assert_eq!(policy.workloads["x264"].metrics.performance_ratio, Some(2.0));
    assert_eq!(policy.workloads["parest"].metrics.performance_ratio, Some(0.5));
    // x264 has one core and parest three: (1 x 2.0 + 3 x 0.5) / 4.
    assert_eq!(policy.groups["HPW"].performance_ratio, Some(0.875));
    assert_eq!(policy.groups["HPW"].cores, 4);
    assert!(!policy.groups.contains_key("LPW"), "there is no low-priority workload");

    // Without `default` the first policy is the baseline, and the result says so.
    summary.policies.shift_remove("default");
    summary.score();
    assert_eq!(summary.baseline.as_deref(), Some("a4-d"));
    assert_eq!(summary.policies["a4-d"].groups["HPW"].performance_ratio, Some(1.0));

    // A workload without a score is left out of the mean.
    let mut summary = small(1, [1.0, 2.0], [2.0, 1.0]);
    summary.policies["a4-d"].workloads["parest"].metrics.ipc = None;
    summary.score();
    assert_eq!(summary.policies["a4-d"].groups["HPW"].performance_ratio, Some(2.0));
    assert_eq!(summary.policies["a4-d"].groups["HPW"].cores, 1);
}

#[test]
fn seeds_by_hand() {
    // Seed 1: the IPC of x264 rises from 1 to 2 (ratio 2); seed 2: from 2 to 2 (ratio 1). The mean of the ratios is
    // 1.5; the ratio of the mean IPCs would be 4/3.
    let mut runs = vec![small(1, [1.0, 1.0], [2.0, 1.0]), small(2, [2.0, 1.0], [2.0, 1.0])];
    runs[1].policies["a4-d"].workloads["x264"].metrics.mlc_hit_ratio = None;
    let combined = combine(runs).unwrap();
    assert_eq!((combined.seed, combined.seeds, combined.wall_s), (1, 2, Some(28.4)));
    let workload = &combined.policies["a4-d"].workloads["x264"];
    assert_eq!(workload.metrics.performance_ratio, Some(1.5));
    // Deviation of 2 and 1: sqrt((0.25 + 0.25) / 1).
    assert_eq!(workload.spread["performance_ratio"], 0.5f64.sqrt());
    assert_eq!(workload.metrics.ipc, Some(2.0));
    assert_eq!(workload.spread["ipc"], 0.0);
    assert_eq!(workload.metrics.mlc_hit_ratio, None);
    assert!(!workload.spread.contains_key("mlc_hit_ratio"));
    // One core at 2 then 1, three cores at 1: means 1.25 and 1.
    assert_eq!(combined.policies["a4-d"].groups["HPW"].performance_ratio, Some(1.125));
    assert_eq!(combine(vec![small(3, [1.0; 2], [1.0; 2])]).unwrap().seeds, 1);
}

#[test]
fn sampling_errors_of_seeds_by_hand() {
    let runs = || -> Vec<RunSummary> { (1..=4).map(common::flagship).collect() };
    let combined = combine(runs()).unwrap();
    let errors =
        |run: &RunSummary, name: &str| run.policies["default"].workloads[name].sampling_error.clone();
    // Four seeds with an error of 1.1 each: 1.1 / 2.
    assert_eq!(errors(&combined, "parest")["llc_hit_ratio"], 0.55);
    assert_eq!(errors(&combined, "x264")["llc_hit_ratio"], 0.2);
    // Of eleven workloads ten have 0.2, under each policy; of the system there is one.
    assert_eq!(combined.sampling_error["llc_hit_ratio"], 0.2);
    assert_eq!(combined.sampling_error["dca_write_hit_ratio"], 0.15);
    // With the same sets for all seeds the mean has the same error as each seed.
    let mut same = runs();
    same.iter_mut().for_each(|run| run.sample_seed = Some(7));
    let same = combine(same).unwrap();
    assert!((errors(&same, "parest")["llc_hit_ratio"] - 1.1).abs() < 1e-12);
    // One seed has its own errors.
    assert_eq!(combine(vec![common::flagship(1)]).unwrap().sampling_error["llc_hit_ratio"], 0.4);
}

#[test]
fn different_scenarios_do_not_mix() {
    let mut other = common::flagship(2);
    other.policies.shift_remove("a4-b");
    let error = combine(vec![common::flagship(1), other]).unwrap_err();
    assert!(error.to_string().contains("seed 2 ran policies"), "{error}");
}
