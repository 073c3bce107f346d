//! Workloads that start repeatedly: each time as a new process and group, with memory and queues that earlier launches
//! used.

use std::collections::BTreeSet;
use std::sync::Arc;
use waykeeper_host::{Host, Knob, KnobOutcome, Plan};
use waykeeper_machine::{BareMachine, FaultyServer, RunOptions, Scenario, ScenarioSource, VirtualServer};
use waykeeper_silicon::Sampling;
use waykeeper_units::{WayMask, WorkloadId};

const MS: u64 = 1_000_000;

/// A scan that runs from 10 to 30 ms of every 50, a reader from 5 to 15 ms of every 20, and a workload that never
/// exits.
const CHURN: &str = r#"
name = "churn"
duration_s = 1
warmup_s = 0.1
measure_s = 0.1
time_factor = 10

[[storage]]
name = "raid0"

[[workload]]
name = "scan"
program = "x-mem"
cores = "0-1"
working_set = "4M"
mask = "0x0ff"
start_s = 0.01
stop_s = 0.03
every_s = 0.05

[[workload.phase]]
at_s = 0.02
priority = "high"

[[workload]]
name = "reader"
program = "fio"
cores = "2"
block = "64K"
start_s = 0.005
stop_s = 0.015
every_s = 0.02

[[workload]]
name = "stays"
program = "x-mem"
cores = "3"
working_set = "2M"
"#;

const OPTIONS: fn() -> RunOptions =
    || RunOptions { seed: 3, sample_seed: 3, sampling: Sampling::one_in(32).expect("a power of two") };

fn scenario(text: &str) -> Arc<Scenario> {
    let source = ScenarioSource::parse("churn", text, None).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(source.read().unwrap_or_else(|error| panic!("{error}")))
}

fn refused(text: &str) -> String {
    ScenarioSource::parse("churn", text, None).unwrap().read().unwrap_err().to_string()
}

#[test]
fn each_run_is_a_group_of_its_own_and_none_comes_twice() {
    let mut host = VirtualServer::new(scenario(CHURN), OPTIONS()).unwrap();
    let mut seen: Vec<(u64, WorkloadId, String)> = Vec::new();
    let mut met = BTreeSet::new();
    for ms in 0..=110 {
        host.wait_until(ms * MS).unwrap();
        for group in host.workloads() {
            if met.insert(group.id) {
                seen.push((ms, group.id, group.name));
            }
        }
        let counted: BTreeSet<WorkloadId> = host.sample().unwrap().groups.into_keys().collect();
        assert_eq!(counted, host.workloads().iter().map(|group| group.id).collect());
    }
    let names: Vec<(u64, u32, &str)> = seen.iter().map(|(ms, id, name)| (*ms, id.0, name.as_str())).collect();
    // The scan starts at 10, 60, 110 ms, the reader at 5, 25, 45, 65, 85, 105: the first launch has the workload's
    // index, later ones have increasing numbers from 3 on.
    let expected = [
        (0, 2, "stays"),
        (5, 1, "reader"),
        (10, 0, "scan"),
        (25, 3, "reader"),
        (45, 4, "reader"),
        (60, 5, "scan"),
        (65, 6, "reader"),
        (85, 7, "reader"),
        (105, 8, "reader"),
        (110, 9, "scan"),
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_run_begins_with_what_the_scenario_gives_and_nothing_of_the_one_before() {
    let mut host = VirtualServer::new(scenario(CHURN), OPTIONS()).unwrap();
    let mask = |bits| WayMask::from_bits(bits);
    let plan = |group: u32, bits| Plan::of_masks([(WorkloadId(group), mask(bits))]);
    host.wait_until(12 * MS).unwrap();
    assert_eq!(host.sample().unwrap().knobs.mask(WorkloadId(0)).unwrap(), mask(0x0ff));
    assert!(host.apply(&plan(0, 0x003)).unwrap().is_complete());
    assert_eq!(host.sample().unwrap().knobs.mask(WorkloadId(0)).unwrap(), mask(0x003));
    let priority = |host: &VirtualServer, id: u32| {
        host.workloads()
            .iter()
            .find(|group| group.id == WorkloadId(id))
            .map(|group| format!("{:?}", group.priority))
    };
    assert_eq!(priority(&host, 0).as_deref(), Some("Low"));
    host.wait_until(22 * MS).unwrap();
    assert_eq!(priority(&host, 0).as_deref(), Some("High"));
    host.wait_until(62 * MS).unwrap();
    // 25 and 45: the reader; 60: the scan, as group 5.
    assert_eq!((priority(&host, 0), priority(&host, 5).as_deref()), (None, Some("Low")));
    assert_eq!(host.sample().unwrap().knobs.mask(WorkloadId(5)).unwrap(), mask(0x0ff));
    let outcome = host.apply(&plan(0, 0x003)).unwrap()[Knob::Mask(WorkloadId(0))].clone();
    assert!(matches!(outcome, KnobOutcome::Refused(why) if why.contains("does not exist")));
    assert!(host.apply(&plan(5, 0x00f)).unwrap().is_complete());
    host.wait_until(72 * MS).unwrap();
    assert_eq!(priority(&host, 5).as_deref(), Some("High"), "phases come again, too");
}

#[test]
fn a_fault_follows_its_workload_from_run_to_run() {
    let text = format!("{CHURN}\n[[fault]]\nkind = \"dead-mask\"\nat_s = 0.055\nworkload = \"scan\"\n");
    let mut host = FaultyServer::new(VirtualServer::new(scenario(&text), OPTIONS()).unwrap());
    host.wait_until(62 * MS).unwrap();
    let masks = [(WorkloadId(5), WayMask::from_bits(0x003))];
    assert!(host.apply(&Plan::of_masks(masks)).unwrap().is_complete());
    assert_eq!(
        host.sample().unwrap().knobs.mask(WorkloadId(5)).unwrap(),
        WayMask::from_bits(0x003),
        "it says"
    );
    host.wait_until(82 * MS).unwrap();
    assert!(
        !host.sample().unwrap().knobs.names(Knob::Mask(WorkloadId(5))),
        "nothing is said of who has gone"
    );
}

#[test]
fn the_same_seed_gives_the_same_course_whenever_it_is_sampled() {
    let run = |step: u64| {
        let mut bare = BareMachine::new(scenario(CHURN), OPTIONS()).unwrap();
        for clock in (step..=400 * MS).step_by(step as usize) {
            bare.run_until(clock).unwrap();
        }
        (bare.cores(0..4), bare.memory(), bare.port(0), bare.processes())
    };
    // Whole quanta: 4 us of simulated time are 40 us of the clock.
    assert_eq!(run(400 * MS), run(40_000));
}

#[test]
fn a_hundred_thousand_launches_leave_nothing_behind() {
    // A scan of 64 KiB and a reader with commands in flight, 50 us of simulated time on and 50 us off, 50,000 times.
    let text = CHURN
        .replace("time_factor = 10", "time_factor = 1000")
        .replace("working_set = \"4M\"", "working_set = \"64K\"")
        .replace("start_s = 0.01\nstop_s = 0.03\nevery_s = 0.05", "start_s = 0\nstop_s = 0.05\nevery_s = 0.1")
        .replace("at_s = 0.02", "at_s = 0.01")
        .replace("block = \"64K\"", "block = \"4K\"\ndepth = 4")
        .replace(
            "start_s = 0.005\nstop_s = 0.015\nevery_s = 0.02",
            "start_s = 0\nstop_s = 0.05\nevery_s = 0.1",
        );
    let mut bare = BareMachine::new(scenario(&text), OPTIONS()).unwrap();
    let clock = |launches: u64| launches / 2 * 100 * MS + 20 * MS;
    bare.run_until(clock(200)).unwrap();
    let before = bare.footprint();
    bare.run_until(clock(100_000)).unwrap();
    let processes = bare.processes();
    assert_eq!(processes.iter().map(|process| process.serial).max(), Some(100_002), "and three of the start");
    assert_eq!(bare.footprint(), before);
}

#[test]
fn what_cannot_come_again_is_refused_by_key() {
    let without = CHURN.replace("stop_s = 0.015\n", "");
    assert!(refused(&without).contains("`workload[reader].stop_s` is missing"), "{}", refused(&without));
    let short = CHURN.replace("every_s = 0.05", "every_s = 0.02");
    let reported = refused(&short);
    assert!(
        reported.contains("workload[scan].every_s") && reported.contains("more than stop_s - start_s"),
        "{reported}"
    );
    let late = CHURN.replace("at_s = 0.02", "at_s = 0.04");
    assert!(refused(&late).contains("workload[scan].phase"), "{}", refused(&late));
}
