//! Regret against the best layout, in results and in the verdict.

use crate::common;
use waykeeper_lab::results::{RunSummary, combine};

/// The flagship's fixture with its last policy as the best layout.
fn with_best(seed: u64) -> RunSummary {
    let mut run = common::flagship(seed);
    let (_, last) = run.policies.pop().unwrap();
    run.policies.insert("best".to_owned(), last);
    run
}

#[test]
fn a_regret_is_the_part_of_the_best_mean_that_is_missing() {
    let run = combine(vec![with_best(1)]).unwrap();
    let hpw = |name: &str| run.policies[name].groups["HPW"].performance_ratio.unwrap();
    assert!(run.policies["best"].regret.is_none());
    for (name, policy) in run.policies.iter().filter(|(name, _)| *name != "best") {
        let regret = policy.regret.as_ref().unwrap();
        let missing = 1.0 - hpw(name) / hpw("best");
        assert!((regret.hpw_regret_ratio - missing).abs() < 1e-12, "{name}: {regret:?}");
        let turned: usize = policy.decisions.iter().map(|decision| decision.knobs.len()).sum();
        assert_eq!(regret.knobs_turned, turned as u64, "{name}");
    }
    // The default policy is below the best layout and turns nothing.
    let default = run.policies["default"].regret.as_ref().unwrap();
    assert!(default.hpw_regret_ratio > 0.05 && default.knobs_turned == 0, "{default:?}");
}

#[test]
fn the_verdict_ends_with_the_regrets_and_best_is_no_rival() {
    let run = combine(vec![with_best(1), with_best(2), with_best(3)]).unwrap();
    assert!(run.policies["default"].regret.as_ref().unwrap().hpw_regret_deviation.is_some());
    let verdict = run.verdict.unwrap();
    let [.., regrets, next] = verdict.lines.as_slice() else { panic!("{:?}", verdict.lines) };
    assert!(
        regrets.starts_with("HPWs below best (HPWs x") && next.starts_with("next: "),
        "{:?}",
        verdict.lines
    );
    assert!(verdict.comparisons.iter().all(|one| one.against != "best"), "{:?}", verdict.lines);
    let widest = verdict.lines.iter().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 108, "{:?}", verdict.lines);
    // A summary that is scored again has no regret of the former numbers.
    let mut again = combine(vec![with_best(1)]).unwrap();
    again.score();
    assert!(again.policies.values().all(|policy| policy.regret.is_none()));
}
