//! The verdict: which policies are compared, the text, and its limit of seven lines.

use crate::common;

use waykeeper_lab::results::*;
use waykeeper_lab::table::{self, Extent, Medium, PAGE_COLUMNS};

/// A run of one seed: per policy the IPC of `parest` (high priority) and `omnetpp` (low priority).
fn seed(seed: u64, policies: &[(&str, f64, f64)]) -> RunSummary {
    let mut summary = common::flagship(seed);
    let template = summary.policies["a4-d"].clone();
    summary.policies.clear();
    for (name, high, low) in policies {
        let mut policy = template.clone();
        policy.workloads.retain(|name, _| name == "parest" || name == "omnetpp");
        policy.workloads["parest"].metrics.ipc = Some(*high);
        policy.workloads["omnetpp"].metrics.ipc = Some(*low);
        summary.policies.insert((*name).to_owned(), policy);
    }
    summary
}

fn lines(runs: Vec<RunSummary>) -> Vec<String> {
    combine(runs).unwrap().verdict.unwrap().lines
}

#[test]
fn the_verdict_by_hand() {
    // HPWs: under a4 1.4, 1.5 and 1.6 times as fast: mean 1.5, deviation 0.1, error 0.0577, limit 0.248, a gain of 0.5.
    // Under waykeeper 1.41, 1.5 and 1.59. The two differ by +0.01, 0 and -0.01: 0 ± 0.01.
    // LPWs: under a4 0.9 each time, a loss without spread; under waykeeper 0.99, 1 and 1.01.
    let runs = vec![
        seed(1, &[("default", 1.0, 1.0), ("waykeeper", 1.41, 0.99), ("a4", 1.4, 0.9)]),
        seed(2, &[("default", 1.0, 1.0), ("waykeeper", 1.5, 1.0), ("a4", 1.5, 0.9)]),
        seed(3, &[("default", 1.0, 1.0), ("waykeeper", 1.59, 1.01), ("a4", 1.6, 0.9)]),
    ];
    let verdict = combine(runs).unwrap().verdict.unwrap();
    let wanted = [
        "verdict against default, 3 seeds (clear: by a paired t test over the seeds, 5 % level)",
        "HPWs: gain under waykeeper x1.50 ±0.09, a4 x1.50 ±0.10",
        "LPWs: lose under a4 x0.90 ±0.00; no clear change under waykeeper x1.00 ±0.01",
        "waykeeper against a4: HPWs +0.00 ±0.01, no clear difference; LPWs +0.10 ±0.01, clearly better",
        "best for HPWs: waykeeper x1.50 ±0.09, LPWs x1.00 ±0.01 (no clear price); not distinguishable from it: a4",
        "workloads: parest gains most, x1.50 ±0.10 under a4; omnetpp loses most, x0.90 ±0.00 under a4",
        "next: `--details` shows why omnetpp loses under a4",
    ];
    assert_eq!(verdict.lines, wanted);
    let a4 = verdict.comparisons.iter().find(|one| one.policy == "a4" && one.name == "HPW").unwrap();
    let near = |value: Option<f64>, wanted: f64| (value.unwrap() - wanted).abs() < 5e-4;
    assert!((a4.difference - 0.5).abs() < 1e-12 && near(a4.deviation, 0.1), "{a4:?}");
    assert!(near(a4.standard_error, 0.0577) && near(a4.limit, 0.2484), "{a4:?}");
    assert_eq!((a4.against.as_str(), a4.finding), ("default", Finding::Better));
}

#[test]
fn a_gain_within_the_spread_is_not_called_one() {
    // 1.1, 1.5 and 1.3: mean 1.3, deviation 0.2, error 0.115, limit 0.497.
    let high = [1.1, 1.5, 1.3];
    let runs = (1..=3).zip(high).map(|(at, high)| seed(at, &[("default", 1.0, 1.0), ("a4", high, 1.0)]));
    let lines = lines(runs.collect());
    // There is only one policy beside the baseline, and no workload changes clearly. (2 x 0.2 / 0.3)^2 is 1.8, and a
    // quarter more 2.2; at least twice as many seeds are proposed.
    assert_eq!(
        lines[1..],
        [
            "HPWs: no clear change under a4 x1.30 ±0.20",
            "LPWs: no clear change under a4 x1.00 ±0.00",
            "best for HPWs: none; a4 x1.30 ±0.20 is not distinguishable from default",
            "next: not distinguishable: `--seeds 6` may show it",
        ]
    );
}

#[test]
fn one_seed_has_no_spread_and_that_is_said() {
    let runs = vec![seed(1, &[("default", 1.0, 1.0), ("iat", 1.1, 1.0), ("a4", 1.4, 0.9)])];
    let verdict = combine(runs).unwrap().verdict.unwrap();
    let wanted = [
        "verdict against default, one seed: no error known",
        "HPWs, best policy first: a4 x1.40, iat x1.10",
        "LPWs, best policy first: iat x1.00, a4 x0.90",
        "a4 against iat: HPWs +0.30; LPWs -0.10",
        "best for HPWs: a4 x1.40, LPWs x0.90",
        "workloads: parest gains most, x1.40 under a4; omnetpp loses most, x0.90 under a4",
        "next: `--seeds 4` shows mean and spread",
    ];
    assert_eq!(verdict.lines, wanted);
    assert!(verdict.comparisons.iter().all(|one| one.finding == Finding::Unknown && one.limit.is_none()));
}

#[test]
fn the_price_for_the_other_group_and_the_rivals_are_with_the_best_policy() {
    // HPWs: a4 gains 0.5 in each seed, iat 0.4, 0.5 and 0.55: 0.1, 0 and -0.05 apart, which is not distinguishable.
    let runs = (0..3).map(|at| {
        let iat = [1.4, 1.5, 1.55][at];
        seed(
            at as u64 + 1,
            &[("default", 1.0, 1.0), ("iat", iat, 1.0), ("a4", 1.5, 0.9), ("isolate", 1.1, 1.0)],
        )
    });
    let verdict = combine(runs.collect()).unwrap().verdict.unwrap();
    let best = verdict.lines.iter().find(|line| line.starts_with("best")).unwrap();
    assert_eq!(
        best,
        "best for HPWs: a4 x1.50 ±0.00, price: LPWs x0.90 ±0.00; not distinguishable from it: iat"
    );
    // Every other policy is compared with the best one, each pair once.
    let mut rivals: Vec<&str> = verdict
        .comparisons
        .iter()
        .filter(|one| one.name == "HPW" && one.policy == "a4")
        .map(|one| one.against.as_str())
        .collect();
    rivals.sort_unstable();
    assert_eq!(rivals, ["default", "iat", "isolate"]);
    // If every policy loses, the baseline is the best.
    let runs = (1..=3).map(|at| seed(at, &[("default", 1.0, 1.0), ("a4", 0.9, 1.0)]));
    assert!(
        lines(runs.collect()).contains(&"best for HPWs: default; all others are clearly worse".to_owned())
    );
}

#[test]
fn without_default_the_first_policy_is_the_baseline() {
    let runs = |high: f64| seed(1, &[("a4", 1.0, 1.0), ("iat", high, 1.0)]);
    assert!(lines(vec![runs(0.5)])[0].starts_with("verdict against a4, one seed"));
}

#[test]
fn one_policy_alone_has_no_verdict_and_its_numbers_are_printed() {
    let summary = combine(vec![seed(1, &[("a4", 1.0, 1.0)])]).unwrap();
    assert_eq!(summary.verdict, None);
    let text = table::run(&summary, Medium::Stream, Extent::Screen);
    for part in ["throughput", "system", "DCA write hit", "one seed: ", "--details"] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!text.contains("performance relative to") && text.lines().count() <= 45, "{text}");
}

#[test]
fn without_any_ratio_there_is_no_verdict() {
    let mut run = seed(1, &[("default", 1.0, 1.0), ("a4", 1.0, 1.0)]);
    for policy in run.policies.values_mut() {
        policy.workloads.values_mut().for_each(|workload| workload.metrics.ipc = None);
    }
    assert_eq!(combine(vec![run]).unwrap().verdict, None);
    let mut run = seed(1, &[]);
    run.policies.clear();
    assert_eq!(combine(vec![run]).unwrap().verdict, None);
    // Scoring changed numbers removes the verdict on the former ones.
    let mut summary = common::five_seeds();
    summary.score();
    assert_eq!(summary.verdict, None);
}

#[test]
fn many_policies_with_long_names_still_fit_seven_lines() {
    let names: Vec<String> = (0..12).map(|i| format!("a-policy-with-a-name-of-{i}")).collect();
    for count in [2, 3, 7, 12] {
        let run = |at: u64| {
            let ratio = |i: usize| {
                1.0 + 0.1 * (i as f64 - 4.0) + if i.is_multiple_of(3) { 0.2 * at as f64 } else { 0.0 }
            };
            let policies: Vec<(&str, f64, f64)> = names
                .iter()
                .enumerate()
                .map(|(i, name)| (name.as_str(), ratio(i).max(0.1), ratio(11 - i).max(0.1)))
                .collect();
            seed(at, &policies[..count])
        };
        for seeds in [1, 3] {
            let lines = lines((1..=seeds).map(run).collect());
            assert!(lines.len() <= 7, "{lines:#?}");
            for line in &lines {
                assert!(line.chars().count() + 2 <= PAGE_COLUMNS, "{} columns: {line}", line.chars().count());
            }
        }
    }
}
