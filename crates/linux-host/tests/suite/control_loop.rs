//! The control loop through LinuxHost on the virtual host: with the same policy and mix, the high-priority workloads
//! gain as much as in process. The root prefix is the only difference from a real machine.
//!
//! The clock is held and advances only to the times that the loop waits for, so a busy machine only makes the test
//! slower. Needs root and /dev/fuse.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use waykeeper_control::{ControlConfig, LookBack, StepRecord, WorthEstimate, WorthSource};
use waykeeper_host::{Host, Interval, Priority};
use waykeeper_machine::{Measured, RunOptions, Scenario, ScenarioSource, ScoreKind, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_testbed::{MS, MountedHost, is_long, manual_clock, run_options};

/// One second of the server's clock, ns.
const SECOND: u64 = 1_000_000_000;
/// Length of a run, and the start of its measured end. A4 settles within 30 s on this mix.
const LENGTH: u64 = 40 * SECOND;
const MEASURED_FROM: u64 = 30 * SECOND;
/// One LLC set in this many is simulated: half the usual sample, since both hosts have the same sets.
const ONE_IN: u32 = 64;

/// The flagship.
fn flagship() -> Arc<Scenario> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/a4-hpw-heavy.toml");
    let source = ScenarioSource::open(&path).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")))
}

/// Runs a policy, and returns the problems of its records.
fn run(host: &mut dyn Host, policy: &str) -> Vec<String> {
    let mut policy =
        waykeeper_policy::build(policy, &toml::Table::new()).unwrap_or_else(|error| panic!("{error}"));
    let mut problems = Vec::new();
    let mut observe = |record: &StepRecord, _: Option<&Interval>| {
        problems.extend(record.problems.iter().map(ToString::to_string));
        ControlFlow::Continue(())
    };
    let config = ControlConfig::every(SECOND).lasting(LENGTH);
    waykeeper_control::run(host, policy.as_mut(), config, &mut observe)
        .unwrap_or_else(|error| panic!("{error}"));
    problems
}

fn in_process(scenario: &Arc<Scenario>, policy: &str, seed: u64) -> Measured {
    let sampling = Sampling::one_in(ONE_IN).expect("a power of two");
    let options = RunOptions { seed, sample_seed: seed, sampling };
    let mut server = VirtualServer::new(scenario.clone(), options).unwrap_or_else(|error| panic!("{error}"));
    server.begin_stretch_at(MEASURED_FROM);
    run(&mut server, policy);
    server.measured()
}

fn through_files(scenario: &Arc<Scenario>, policy: &str) -> Measured {
    let machine = MountedHost::with(scenario.clone(), manual_clock(ONE_IN));
    let found = machine.state();
    let mut host = machine.on_model_clock().measured_from(MEASURED_FROM);
    let problems = run(&mut host, policy);
    assert_eq!(host.host.complaints(), [""; 0], "{policy}");
    assert!(problems.is_empty(), "{policy}: {problems:?}");
    drop(host);
    assert_eq!(machine.state(), found, "{policy} leaves what it found");
    machine.with_model(|server| server.bare().measured())
}

/// The performance of the high-priority workloads relative to a run without a policy, weighted by cores (A4 s6: inverse
/// latency for programs with that score, IPC for the others).
fn gain(scenario: &Scenario, run: &Measured, base: &Measured) -> f64 {
    let (mut sum, mut cores) = (0.0, 0.0);
    for (spec, (run, base)) in scenario.workloads.iter().zip(run.workloads.iter().zip(&base.workloads)) {
        if spec.priority != Priority::High {
            continue;
        }
        let ratio = match spec.program.score {
            ScoreKind::InverseLatency => {
                base.latency_mean_ns.zip(run.latency_mean_ns).map(|(base, run)| base / run)
            }
            ScoreKind::Ipc => run.ipc.zip(base.ipc).map(|(run, base)| run / base),
        };
        let weight = spec.cores.len() as f64;
        sum += weight * ratio.expect("a measure of every workload");
        cores += weight;
    }
    sum / cores
}

/// Largest difference between a gain through files and one in process. With one seed the two hosts differ by rounded
/// counters and by the new RMIDs of tenants that change their class; seeds differ by several times as much.
const TOLERANCE: f64 = 0.05;

/// Least gain of a working policy on this mix. parest's ways are worth 1.04 in every run. FastClick's gain differs by
/// seed, since one of its queues is offered almost as much as it can process (1.075 with waykeeper and seed 1).
const PAYS: f64 = 1.03;

#[test]
fn policies_gain_through_files_what_they_gain_in_process() {
    let scenario = flagship();
    let scenario = &scenario;
    std::thread::scope(|threads| {
        let policies: &[&str] = if is_long() { &["a4", "waykeeper-search"] } else { &["a4"] };
        // Two threads: the runs in process, and those through files.
        let inside = threads.spawn(|| {
            let base = in_process(scenario, "default", 1);
            let managed: Vec<Measured> =
                policies.iter().map(|policy| in_process(scenario, policy, 1)).collect();
            (base, managed)
        });
        let outside: Vec<Measured> = policies.iter().map(|policy| through_files(scenario, policy)).collect();
        let (base, inside) = inside.join().expect("the runs in process");
        for (policy, (inside, outside)) in policies.iter().zip(inside.iter().zip(&outside)) {
            let (inside, outside) = (gain(scenario, inside, &base), gain(scenario, outside, &base));
            assert!(
                (outside - inside).abs() < TOLERANCE,
                "{policy}: {outside:.3} through files, {inside:.3} in process"
            );
            assert!(inside > PAYS, "{policy} pays on this mix: {inside:.3}");
        }
    });
}

/// What a fixed layout is worth after two looks back, and the number of steps that the policy did not see.
fn looked(host: &mut dyn Host) -> (WorthEstimate, usize) {
    let settings = "masks = { scan = \"0x003\" }".parse().unwrap_or_else(|error| panic!("{error}"));
    let mut policy = waykeeper_policy::build("fixed", &settings).unwrap_or_else(|error| panic!("{error}"));
    let (mut worth, mut unseen) = (None, 0);
    let mut observe = |record: &StepRecord, _: Option<&Interval>| {
        assert!(record.problems.is_empty(), "{:?}", record.problems);
        worth = record.worth.known().cloned();
        unseen += usize::from(record.look_back);
        ControlFlow::Continue(())
    };
    let look_back = Some(LookBack { every_ns: 400 * MS, intervals: 4 });
    let config = ControlConfig { look_back, ..ControlConfig::every(20 * MS).lasting(900 * MS) };
    waykeeper_control::run(host, policy.as_mut(), config, &mut observe)
        .unwrap_or_else(|error| panic!("{error}"));
    (worth.expect("it was looked at"), unseen)
}

#[test]
fn looks_through_files_say_what_looks_in_process_say_and_leave_what_they_found() {
    let scenario = waykeeper_testbed::scenario("gold-6140", waykeeper_testbed::SCENARIO);
    let mut server =
        VirtualServer::new(scenario.clone(), run_options(16)).unwrap_or_else(|why| panic!("{why}"));
    let (inside, unseen_inside) = looked(&mut server);
    let machine = MountedHost::with(scenario, manual_clock(16));
    let found = machine.state();
    let mut host = machine.on_model_clock();
    let (outside, unseen) = looked(&mut host);
    drop(host);
    assert_eq!(machine.state(), found, "looks leave what they found");
    // Two looks of four intervals, each with the step that begins it and the one after it.
    assert_eq!((unseen, unseen_inside), (12, 12));
    assert_eq!((outside.from, inside.from), (WorthSource::Look, WorthSource::Look));
    // The scan loses nine of its eleven ways. Both hosts measure its progress, and agree within their errors.
    let tenants = |of: &WorthEstimate| of.tenants.values().copied().collect::<Vec<_>>();
    for (outside, inside) in tenants(&outside).into_iter().zip(tenants(&inside)) {
        let error = 3.0 * outside.error.hypot(inside.error) + 0.01;
        assert!(
            (outside.value - inside.value).abs() < error,
            "{outside:?} through files, {inside:?} in process"
        );
    }
    assert_eq!(outside.tenants.len(), 3);
    let scan = tenants(&outside)[2];
    assert!(scan.value + 3.0 * scan.error < 1.0, "{scan:?}");
}
