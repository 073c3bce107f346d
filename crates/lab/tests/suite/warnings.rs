//! Warnings: each kind from a result that has the fault, none from one that has not, and the sweep's summary of them.

use crate::common;

use waykeeper_lab::results::*;
use waykeeper_lab::table::{self, Extent, Medium};

/// One seed of the flagship under two policies, without faults.
fn seed(seed: u64) -> RunSummary {
    let mut run = common::flagship(seed);
    run.policies.retain(|name, _| name == "default" || name == "a4-d");
    for policy in run.policies.values_mut() {
        for workload in policy.workloads.values_mut() {
            workload.metrics.dropped_ratio = workload.metrics.drops_per_s.map(|_| 0.0);
            workload.metrics.llc_time_ratio = Some(0.4);
            workload.sampling_error.clear();
        }
    }
    run
}

/// The seeds as one result.
fn result(change: impl Fn(&mut RunSummary)) -> RunSummary {
    let seeds = (1..=3).map(|number| {
        let mut run = seed(number);
        change(&mut run);
        run
    });
    combine(seeds.collect()).unwrap()
}

/// The only warning.
fn only(summary: &RunSummary, key: WarningKey) -> String {
    let [warning] = summary.warnings.as_slice() else { panic!("{:#?}", summary.warnings) };
    assert_eq!(warning.key, key);
    warning.to_string()
}

fn of<'a>(run: &'a mut RunSummary, policy: &str, workload: &str) -> &'a mut WorkloadResult {
    &mut run.policies[policy].workloads[workload]
}

#[test]
fn a_result_without_faults_has_no_warning() {
    let summary = result(|_| {});
    assert!(summary.warnings.is_empty(), "{:#?}", summary.warnings);
    let lines = summary.verdict.unwrap().lines;
    assert_eq!(lines.last().unwrap(), "next: `--details` shows why omnetpp loses under a4-d");
}

#[test]
fn dropped_packets_are_named_with_the_load_that_would_fit() {
    let drop = |ratio: f64| {
        move |run: &mut RunSummary| of(run, "default", "fastclick").metrics.dropped_ratio = Some(ratio)
    };
    assert!(result(drop(0.0099)).warnings.is_empty());
    let summary = result(drop(0.0651));
    assert_eq!(
        only(&summary, WarningKey::PacketsDropped),
        "packets are dropped: fastclick 0.0 % to 6.5 %; latencies are those of full queues; `--find-zero-loss=nic0` finds \
         the load without loss; set it with `--set nic.nic0.offered_gbps=N`"
    );
    let lines = summary.verdict.unwrap().lines;
    assert!(
        lines.last().unwrap().starts_with("next: packets dropped: `--find-zero-loss=nic0` finds"),
        "{lines:#?}"
    );
}

#[test]
fn a_workload_that_no_policy_can_change_is_named_with_the_reason() {
    let summary = result(|run| {
        for policy in ["default", "a4-d"] {
            of(run, policy, "exchange2").metrics.llc_time_ratio = Some(0.0099);
            of(run, policy, "ffsb-heavy").metrics.drive_busy_ratio = Some(0.96);
        }
        // Under one of the policies these can react.
        of(run, "default", "bwaves").metrics.llc_time_ratio = Some(0.001);
        of(run, "default", "omnetpp").metrics.drive_busy_ratio = Some(0.99);
        of(run, "a4-d", "omnetpp").metrics.drive_busy_ratio = Some(0.5);
    });
    assert_eq!(
        only(&summary, WarningKey::CannotReact),
        "no policy can change much for exchange2 (less than 1 % of the time beyond the MLC), ffsb-heavy (drives at \
         their limit); compare policies by the other workloads: the means move less than they do"
    );
    // A single policy is compared with nothing.
    let mut alone = seed(1);
    alone.policies.shift_remove("default");
    of(&mut alone, "a4-d", "exchange2").metrics.llc_time_ratio = Some(0.0);
    assert!(combine(vec![alone]).unwrap().warnings.is_empty());
}

#[test]
fn a_spread_larger_than_the_effect_is_named_and_more_seeds_are_proposed() {
    // The HPWs' ratio under a4-d is about 1.33 in each seed; scaling every IPC and latency by the seed moves the mean.
    let summary = result(|run| {
        let scale = [1.0, 0.7, 0.5][run.seed as usize - 1];
        for (_, workload) in &mut run.policies["a4-d"].workloads {
            workload.metrics.ipc = workload.metrics.ipc.map(|ipc| ipc * scale);
            workload.metrics.latency_mean_us = workload.metrics.latency_mean_us.map(|us| us / scale);
        }
    });
    let verdict = summary.verdict.clone().unwrap();
    let group = verdict.comparisons.iter().find(|one| one.name == "HPW").unwrap();
    assert_eq!(group.finding, Finding::NotDistinguishable);
    let text = only(&summary, WarningKey::SpreadLargerThanEffect);
    assert!(text.starts_with("the spread over the seeds is larger than the effect: HPWs x"), "{text}");
    assert!(verdict.lines.iter().any(|line| line.starts_with("best for HPWs: none; a4-d x")), "{verdict:#?}");
    assert!(verdict.lines.last().unwrap().starts_with("next: not distinguishable: "), "{verdict:#?}");
}

#[test]
fn policies_that_settled_too_late_are_named() {
    let settled = |at_s: Option<f64>| move |run: &mut RunSummary| run.policies["a4-d"].settled_s = at_s;
    // Measured from 12 s on.
    assert!(result(settled(Some(12.0))).warnings.is_empty());
    assert_eq!(
        only(&result(settled(Some(13.0))), WarningKey::NotSettled),
        "policies settled too late for the measurement from 12 s: a4-d at 13 s; try a longer run, `--duration 60`"
    );
    assert!(only(&result(settled(None)), WarningKey::NotSettled).contains(": a4-d never;"));
    // `default` changes no knob, so it need not settle.
    assert!(result(|run| run.policies["default"].settled_s = None).warnings.is_empty());
}

#[test]
fn a_hit_ratio_with_an_error_larger_than_its_difference_is_named() {
    let summary = result(|run| {
        for (policy, ratio) in [("default", 0.50), ("a4-d", 0.52)] {
            let workload = of(run, policy, "parest");
            workload.metrics.llc_hit_ratio = Some(ratio);
            // Over three seeds 4 points become 4 / sqrt(3) = 2.31; of a difference 3.27, more than 2 points.
            workload.sampling_error.insert("llc_hit_ratio".to_owned(), 4.0);
        }
    });
    assert_eq!(
        only(&summary, WarningKey::SamplingError),
        "the sampling error of LLC hit ratios is larger than their difference: parest differs by 2.00 points under \
         a4-d, with an error of 3.27; `--sets 1/8` halves it"
    );
}

#[test]
fn a_sweep_counts_the_points_with_a_warning_of_a_kind() {
    let mut sweep = common::sweep(false);
    for (index, point) in sweep.points.iter_mut().enumerate() {
        let warning = |text: String| Warning { key: WarningKey::PacketsDropped, text, advice: "cure".into() };
        point.run.warnings = if index < 2 { vec![warning(format!("point {index}"))] } else { Vec::new() };
    }
    let text = table::curve(&sweep, Medium::Stream);
    assert!(text.contains("warning: at 2 of 6 points, the first: point 0; cure\n"), "{text}");
    let page = waykeeper_lab::report::sweep_html(&sweep).unwrap();
    assert!(page.contains("at 2 of 6 points, the first: point 0; cure"));
}

#[test]
fn warnings_are_in_the_text_the_page_and_the_json() {
    let summary = result(|run| of(run, "default", "fastclick").metrics.dropped_ratio = Some(0.912));
    let json: serde_json::Value = serde_json::from_str(&summary.to_json().unwrap()).unwrap();
    assert_eq!(json["warnings"][0]["key"], "packets-dropped");
    assert!(json["warnings"][0]["text"].as_str().unwrap().contains("0.0 % to 91.2 %"));
    assert!(json["warnings"][0]["advice"].as_str().unwrap().contains("offered_gbps"));
    assert!(
        table::run(&summary, Medium::Stream, Extent::Screen)
            .contains("warning: packets are dropped: fastclick")
    );
    assert!(waykeeper_lab::report::run_html(&summary).unwrap().contains("fastclick 0.0 % to 91.2 %"));
}
