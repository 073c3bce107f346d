//! What a policy is worth by looks back, on the virtual server, against a run under the layout as found.

use std::sync::Arc;
use waykeeper_calibration::{FetchCosts, progress};
use waykeeper_control::{ControlConfig, LookBack, Loop, WorthEstimate, WorthSource};
use waykeeper_host::{Host, Priority};
use waykeeper_machine::{RunOptions, VirtualServer};
use waykeeper_silicon::Sampling;

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

#[test]
fn what_looks_say_that_a4_is_worth_is_what_a_run_without_it_says() {
    let ((with, worth), (without, _)) = (run("a4-d"), run("none"));
    let worth = worth.expect("it was looked at");
    assert_eq!(worth.from, WorthSource::Look);
    let (hpw, expected) = (worth.hpw.unwrap(), (with - without).exp());
    assert!(hpw.value > 1.0 && hpw.error < 0.1, "{hpw:?}");
    assert!(hpw.is_within(expected, 2.0), "{hpw:?} {expected}");
}
