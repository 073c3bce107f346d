//! The loop under faults: other programs change its knobs, the host is busy, the clock jumps, a policy panics.

use crate::common;

use common::*;
use waykeeper_control::{ControlConfig, Loop, Problem};
use waykeeper_host::{Interval, Inventory, Knob, Plan, Workload};
use waykeeper_policy::{Decision, Policy};
use waykeeper_units::{PortId, WayMask, WorkloadId};

fn reported(all: &[Seen]) -> Vec<String> {
    all.iter().flat_map(|(record, _)| &record.problems).map(ToString::to_string).collect()
}

#[test]
fn a_mask_that_another_program_turned_is_reported_and_restored_even_if_the_policy_names_it_no_more() {
    let mut host = fake();
    host.outsiders = [(3, (WorkloadId(1), WayMask::from_bits(0x600)))].into();
    let mut first = true;
    let mut policy = Wants(move |_: &[Workload]| {
        let plan = if first { masks(&[(1, 0x00c)]) } else { Plan::default() };
        first = false;
        plan
    });
    let (all, _) = records(&mut host, &mut policy, seconds(5));
    assert_eq!(
        reported(&all),
        ["mask 0x00c of group 1 was changed to 0x600 by another program; the policy's value is restored"]
    );
    assert_eq!(all[3].0.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x00c, "in the same step");
    let causes: Vec<f64> = all[3].0.problems[0].causes().iter().map(|cause| cause.value).collect();
    assert_eq!(causes, [2.0, 2.0]);
    assert_eq!(host.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x7ff, "and it goes back in the end");
}

#[test]
fn a_knob_taken_back_three_times_is_left_to_the_other_and_stays_theirs_at_the_end() {
    let mut host = fake();
    host.outsiders = (2..9).map(|second| (second, (WorkloadId(1), WayMask::from_bits(0x600)))).collect();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x0ff), (1, 0x00c)]));
    let (all, _) = records(&mut host, &mut policy, seconds(8));
    let reported = reported(&all);
    assert_eq!(reported.len(), 4);
    assert!(reported[..3].iter().all(|text| text.ends_with("the policy's value is restored")));
    assert!(reported[3].ends_with("the other value stays"));
    assert_eq!(all[8].0.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x600);
    let ends = [WorkloadId(0), WorkloadId(1)].map(|group| host.knobs.mask(group).unwrap().bits());
    assert_eq!(ends, [0x7ff, 0x600], "ours goes back, theirs is not touched");
}

#[test]
fn a_busy_machine_is_waited_for_and_the_wait_is_reported_once() {
    let mut host = fake();
    host.busy = 2;
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let (all, _) = records(&mut host, &mut policy, seconds(6));
    assert_eq!(reported(&all), ["mask 0x00c of group 1 is retried later: device or resource busy"]);
    // At the start, at 1 s, at 3 s; and the restoring plan at the end.
    let times: Vec<u64> = host.plans.iter().map(|(at, _)| at / SECOND).collect();
    assert_eq!(times, [0, 1, 3, 6]);
    assert_eq!(all[3].0.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x00c);
}

#[test]
fn the_end_of_a_run_waits_for_a_busy_machine_too() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(5)).unwrap();
    looping.step().unwrap();
    drop(looping);
    assert_eq!(host.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x7ff);
    host.busy = 0;
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(5)).unwrap();
    looping.step().unwrap();
    looping.restore();
    assert_eq!(looping.record().state, "Restored");
    assert_eq!(looping.record().events[0].action, "restored");
    assert_eq!(looping.record().knobs.mask(WorkloadId(1)).unwrap().bits(), 0x7ff);
}

#[test]
fn what_does_not_come_back_is_named_and_comes_back_at_the_next_try() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x600), (1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(50)).unwrap();
    looping.step().unwrap();
    // Three tries of two masks each; all fail.
    looping.host().busy = 6;
    let full = WayMask::full(11);
    let left = Plan::of_masks([(WorkloadId(0), full), (WorkloadId(1), full)]);
    assert_eq!(looping.restore(), left);
    // The problems are those of the last try, a busy mask each, and the tries are 100 and 200 ms apart.
    assert_eq!(looping.record().problems.len(), 2, "{:?}", looping.record().problems);
    let tries = looping.host().plans.iter().rev().take(3).map(|(at_ns, _)| at_ns / 1_000_000);
    assert_eq!(tries.rev().collect::<Vec<u64>>(), [1000, 1100, 1300]);
    // `watch` sets nothing, and does not mistake the value still in force for the original one.
    looping.watch().unwrap();
    assert_eq!(looping.record().knobs.mask(WorkloadId(1)).unwrap().bits(), 0x00c);
    // The new policy wants one of them and gets it; the other is restored, and in the end both are.
    looping.replace(Box::new(Wants(|_: &[Workload]| masks(&[(1, 0x030)]))));
    let in_force = |looping: &Loop<'_, FakeHost>| {
        [0, 1].map(|id| looping.record().knobs.mask(WorkloadId(id)).unwrap().bits())
    };
    assert_eq!(in_force(&looping), [0x7ff, 0x030]);
    assert_eq!(looping.restore(), Plan::default());
    assert_eq!(in_force(&looping), [0x7ff, 0x7ff]);
}

#[test]
fn a_clock_that_runs_back_costs_no_step_and_leaves_the_runs_length() {
    let mut host = fake();
    host.now_ns = 100 * SECOND;
    host.jump = Some((103 * SECOND, 40 * SECOND));
    let mut policy = Wants(|_: &[Workload]| Plan::default());
    let (all, summary) = records(&mut host, &mut policy, seconds(6));
    let times: Vec<u64> = all.iter().map(|(record, _)| record.at_ns / SECOND).collect();
    assert_eq!(times, [100, 101, 102, 40, 41, 42, 43]);
    assert_eq!(summary.steps, 6);
    assert_eq!(all[3].0.problems, [Problem::NoTime], "no interval spans the jump");
    assert_eq!(all[4].0.problems, [Problem::ClockBack { by_ns: 63 * SECOND }]);
    assert_eq!(all[4].1, Some((40 * SECOND, 41 * SECOND)));
}

#[test]
fn a_clock_that_begins_anew_is_followed() {
    let mut host = fake();
    host.now_ns = 2 * SECOND;
    host.jump = Some((5 * SECOND, 0));
    let mut policy = Wants(|_: &[Workload]| Plan::default());
    let (all, _) = records(&mut host, &mut policy, seconds(6));
    let times: Vec<u64> = all.iter().map(|(record, _)| record.at_ns / SECOND).collect();
    assert_eq!(times, [2, 3, 4, 0, 1, 2, 3]);
}

#[test]
fn a_clock_that_jumps_ahead_misses_deadlines_and_continues() {
    let mut host = fake();
    host.jump = Some((2 * SECOND, 7 * SECOND));
    let mut policy = Wants(|_: &[Workload]| Plan::default());
    let (all, summary) = records(&mut host, &mut policy, seconds(10));
    let times: Vec<u64> = all.iter().map(|(record, _)| record.at_ns / SECOND).collect();
    assert_eq!(times, [0, 1, 7, 8, 9, 10]);
    assert_eq!(summary.missed_deadlines, 5, "those of 3 s to 7 s");
}

/// Sets three knobs and then panics.
struct Panics(u32);

impl Policy for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn start(&mut self, _: &Inventory, _: &[Workload]) -> Decision {
        let ways = WayMask::from_bits(0x700);
        let plan = masks(&[(1, 0x00c)]).with(Knob::Dca(PortId(0)), false).with(Knob::DcaWays, ways);
        Decision { plan, ..Decision::default() }
    }

    fn step(&mut self, _: &[Workload], _: &Interval) -> Decision {
        self.0 += 1;
        assert!(self.0 < 3, "a bug");
        Decision::default()
    }
}

#[test]
fn a_policy_that_panics_leaves_nothing_turned() {
    let mut host = fake();
    let before = host.knobs.clone();
    let run = std::panic::AssertUnwindSafe(|| records(&mut host, &mut Panics(0), seconds(9)));
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(
        (host.knobs.dca_ways(), host.knobs.dca(PortId(0))),
        (before.dca_ways(), before.dca(PortId(0)))
    );
    assert!(host.knobs.masks().map(|(_, mask)| mask).all(|mask| mask.bits() == 0x7ff));
}

#[test]
fn a_host_that_dies_is_given_its_knobs_back_as_far_as_it_takes_them() {
    let mut host = fake();
    host.blind = (1..9).collect();
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let (all, _) = records(&mut host, &mut policy, seconds(4));
    assert!(all[1..].iter().all(|(record, _)| record.problems.len() == 1));
    // Nothing could be read at the end, but the original values are known from the start.
    assert_eq!(host.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x7ff);
}

#[test]
fn an_operator_can_leave_what_others_turn_at_once() {
    let mut host = fake();
    host.outsiders.insert(3, (WorkloadId(1), WayMask::from_bits(0x600)));
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let (all, _) = records(&mut host, &mut policy, ControlConfig { take_back: 0, ..seconds(5) });
    assert_eq!(
        reported(&all),
        ["mask 0x00c of group 1 was changed to 0x600 by another program; the other value stays"]
    );
    assert_eq!(host.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x600);
}

#[test]
fn a_loop_that_only_watches_tells_of_others_at_every_step() {
    let mut host = fake();
    host.outsiders =
        [(2, (WorkloadId(1), WayMask::from_bits(0x600))), (4, (WorkloadId(0), WayMask::from_bits(0x300)))]
            .into();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x0ff), (1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    let reported: Vec<usize> = (0..5)
        .map(|_| {
            looping.watch().unwrap();
            looping.record().problems.len()
        })
        .collect();
    assert_eq!(reported, [0, 1, 0, 1, 0], "each once, and the second although the first was told before");
}

#[test]
fn on_a_host_whose_llc_is_not_known_no_policy_starts_and_counters_are_read() {
    let mut host = fake();
    host.inventory.llc = None;
    let mut policy = Wants(|_: &[Workload]| panic!("it was started"));
    let (all, _) = records(&mut host, &mut policy, seconds(3));
    let said: Vec<&str> =
        all.iter().flat_map(|(record, _)| &record.events).map(|event| event.text.as_str()).collect();
    assert_eq!(said, ["the ways of the LLC are not known, so wants cannot plan and nothing is set"]);
    assert!(all.iter().all(|(record, _)| record.state == "Watching" && record.wanted.is_empty()));
    assert_eq!(all.iter().filter(|(_, seen)| seen.is_some()).count(), 3);
    assert_eq!(reported(&all), [""; 0]);
    assert!(host.plans.is_empty());
}
