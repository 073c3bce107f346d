//! What a policy is worth by looks back, on the virtual server, against a run under the layout as found.

use std::sync::Arc;
use waykeeper_calibration::{Estimate, FetchCosts, progress};
use waykeeper_control::{ControlConfig, LookBack, Loop, WorthEstimate, WorthSource};
use waykeeper_host::{Host, Priority};
use waykeeper_lab::results::{RunSummary, Score};
use waykeeper_lab::runner::{Experiment, ExperimentOutcome, RunPlan};
use waykeeper_lab::table::{self, Extent, Medium};
use waykeeper_machine::{RunOptions, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_testbed::is_long;

const SECOND: u64 = 1_000_000_000;

/// Mean logarithm of the HPWs' progress in the last 30 of 70 intervals, weighted by cores, and what the loop says at the
/// end.
fn run(policy: &str) -> (f64, Option<WorthEstimate>) {
    let scenario = Arc::new(waykeeper_lab::registry::open("a4-hpw-heavy").unwrap().read().unwrap());
    let options = RunOptions { seed: 7, sample_seed: 11, sampling: Sampling::DEFAULT };
    let mut server = VirtualServer::new(scenario, options).unwrap();
    let inventory = server.inventory().clone();
    let look_back = Some(LookBack { every_ns: 20 * SECOND, intervals: 4 });
    let config = ControlConfig { look_back, ..ControlConfig::every(SECOND).lasting(70 * SECOND) };
    let policy = waykeeper_policy::build(policy, &toml::Table::new()).unwrap();
    let mut looping = Loop::start(&mut server, policy, config).unwrap();
    let (mut sum, mut count, mut step, mut worth) = (0.0, 0.0, 0, None);
    while looping.step().unwrap() {
        step += 1;
        worth = looping.record().worth.known().cloned().or(worth);
        let Some(seen) = looping.seen().cloned() else { continue };
        if step <= 40 || looping.record().look_back {
            continue;
        }
        for group in looping.host().workloads().iter().filter(|group| group.priority == Priority::High) {
            if let Some(value) = progress(group, &seen, &inventory, FetchCosts::default()) {
                sum += group.cores.len() as f64 * value.ln();
                count += group.cores.len() as f64;
            }
        }
    }
    (sum / count, worth)
}

/// The loop itself at the usual sampling: in the long form. The same is asked of a result below, at a 64th of the sets.
#[test]
fn what_looks_say_that_a4_is_worth_is_what_a_run_without_it_says() {
    if !is_long() {
        return;
    }
    let ((with, worth), (without, _)) = (run("a4-d"), run("none"));
    let worth = worth.expect("it was looked at");
    assert_eq!(worth.from, WorthSource::Look);
    let (hpw, expected) = (worth.hpw.unwrap(), (with - without).exp());
    assert!(hpw.value > 1.0 && hpw.error < 0.1, "{hpw:?}");
    assert!(hpw.is_within(expected, 2.0), "{hpw:?} {expected}");
}

/// A4's mix for 70 s under these policies, measured from second 40 on.
fn summary(policies: &[&str], look_back: Option<LookBack>) -> RunSummary {
    let plan = RunPlan {
        policies: policies.iter().map(|name| (*name).to_owned()).collect(),
        seed: 7,
        sample_seed: Some(11),
        sampling: Sampling::one_in(64).unwrap(),
        warmup_s: Some(40.0),
        look_back,
        ..RunPlan::default()
    };
    let mut source = waykeeper_lab::registry::open("a4-hpw-heavy").unwrap();
    // A third of its traffic: an interval is still long enough for caches to settle.
    source.set("time_factor", &toml::Value::Integer(60)).unwrap();
    match Experiment::prepare(&source, plan).unwrap().run(&|_| ()).unwrap() {
        ExperimentOutcome::Run(summary) => *summary,
        ExperimentOutcome::Sweep(_) => panic!("it sweeps nothing"),
    }
}

#[test]
fn what_a_result_says_of_looks_is_what_the_comparison_with_default_says() {
    let looks = RunPlan::looks(40.0).unwrap();
    let looked = summary(&["a4-d"], Some(looks));
    let compared = summary(&["default", "a4-d"], None);
    let worth = looked.policies["a4-d"].worth.as_ref().unwrap();
    assert_eq!((worth.from, worth.unknown.as_deref()), (Some(WorthSource::Look), None));
    assert!(worth.look_intervals >= 6, "a look of four intervals, its first step and the one after it");
    let mut gains = 0;
    for (name, workload) in &compared.policies["a4-d"].workloads {
        let it = worth.workloads[name];
        // Of the others the comparison has the latency, and a loop counts packets and bytes.
        if workload.score != Score::Ipc {
            continue;
        }
        let expected = workload.metrics.performance_ratio.unwrap();
        gains += u32::from(expected > 1.02);
        // Three standard errors, or a point: looks delay the policy's steps, so that the runs have each layout at other
        // times.
        let bound = Estimate { value: it.ratio, error: it.error.max(0.01 / 3.0) };
        assert!(bound.is_within(expected, 3.0), "{name}: {it:?}, compared {expected}");
    }
    assert!(gains >= 4, "with no gain the bound would hold for anything");
    // Without looks the policy's loop cannot tell, since it turned knobs at once; nothing was turned under `default`.
    let unknown = compared.policies["a4-d"].worth.as_ref().unwrap();
    assert!(
        unknown.unknown.is_some() && unknown.hpw.is_none() && unknown.workloads.is_empty(),
        "{unknown:?}"
    );
    let default = compared.policies["default"].worth.as_ref().unwrap();
    assert_eq!((default.from, default.hpw.unwrap().ratio), (Some(WorthSource::Unchanged), 1.0));
    // It is on the first screen only where looks were asked for.
    let screen = |summary: &RunSummary, extent| table::run(summary, Medium::Stream, extent);
    assert!(screen(&looked, Extent::Screen).contains("worth: progress since the state as found"));
    assert!(!screen(&compared, Extent::Screen).contains("worth"));
    let details = screen(&compared, Extent::Details);
    assert!(details.contains("worth is unknown: a4-d (the policy changed knobs before"), "{details}");
}

#[test]
fn a_time_between_looks_is_above_zero() {
    for every_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let why = RunPlan::looks(every_s).unwrap_err().to_string();
        assert!(why.contains("the time between two looks"), "{why}");
    }
}
