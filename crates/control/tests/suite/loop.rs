//! The loop against a fake host that can be slow, fail to read counters and refuse values. Times are in seconds for
//! readability.

use crate::common;

use common::*;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use waykeeper_control::{ControlConfig, ControlError, Loop, LoopSummary, Problem, StepRecord, run};
use waykeeper_host::{Interval, Knob, Plan, Workload};
use waykeeper_units::{PortId, WayMask, WorkloadId};

#[test]
fn one_step_a_period_at_absolute_times_and_intervals_that_join() {
    let mut host = fake();
    host.now_ns = 7 * SECOND / 2; // the run starts at 3.5 s
    host.apply_ns = SECOND / 4;
    let mut flip = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        flip ^= 1;
        masks(&[(0, 0x00c + flip * 0x4)])
    });
    let config = ControlConfig::every(SECOND).lasting(3 * SECOND + 1);
    let (all, summary) = records(&mut host, &mut policy, config);
    let times: Vec<u64> = all.iter().map(|(record, _)| record.at_ns).collect();
    assert_eq!(times, [7 * SECOND / 2, 9 * SECOND / 2, 11 * SECOND / 2, 13 * SECOND / 2]);
    assert_eq!(summary, LoopSummary { steps: 3, blind_steps: 0, missed_deadlines: 0 });
    // The first interval starts after the initial knobs (setting takes 0.25 s); the others join without a gap.
    let spans: Vec<_> = all.iter().filter_map(|(_, seen)| *seen).collect();
    assert_eq!(spans[0], (15 * SECOND / 4, 9 * SECOND / 2));
    assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0));
    // One plan at the last step, and one that restores.
    assert_eq!(host.now_ns, 13 * SECOND / 2 + 2 * SECOND / 4);
}

#[test]
fn the_run_is_brought_to_its_end() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| Plan::default());
    let config = ControlConfig::every(SECOND).lasting(5 * SECOND / 2);
    let (all, _) = records(&mut host, &mut policy, config);
    assert_eq!(all.len(), 3);
    assert_eq!(host.now_ns, 5 * SECOND / 2);
}

#[test]
fn knobs_that_stand_are_not_turned_again_and_lost_ones_are() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x7ff), (1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    assert_eq!(looping.record().applied.len(), 1, "group 0 has all ways already");
    assert_eq!(looping.record().knobs.mask(WorkloadId(1)).unwrap().bits(), 0x00c);
    assert!(looping.step().unwrap());
    assert!(looping.record().applied.is_empty());
    assert_eq!(looping.record().wanted.masks().count(), 2, "the wanted values are recorded whole");
    assert_eq!(looping.summary().steps, 1);
    assert!(looping.seen().is_some());
    drop(looping);
    assert_eq!(host.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x7ff, "what was turned goes back");
    assert_eq!(host.plans.len(), 2);
}

#[test]
fn a_refused_knob_is_reported_once_and_not_tried_at_every_step() {
    let mut host = fake();
    host.refused_masks.insert(WayMask::from_bits(0x00c));
    host.dead_ports.insert(PortId(0));
    let mut policy =
        Wants(|_: &[Workload]| masks(&[(0, 0x3ff), (1, 0x00c)]).with(Knob::Dca(PortId(0)), false));
    let (all, _) = records(&mut host, &mut policy, seconds(5));
    let reported: Vec<String> =
        all.iter().flat_map(|(record, _)| &record.problems).map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "mask 0x00c of group 1 was refused: invalid argument",
            "DCA off on port 0 did not take effect: on reads back"
        ]
    );
    assert_eq!(host.plans.len(), 2, "at the start and at the end");
    assert_eq!(all[5].0.knobs.mask(WorkloadId(0)).unwrap().bits(), 0x3ff, "the others are in force");
}

#[test]
fn a_host_that_calls_a_lost_write_applied_is_not_believed() {
    let mut host = fake();
    let wanted = || masks(&[(1, 0x00c)]).with(Knob::DcaWays, WayMask::from_bits(0x0e0));
    let mut policy = Wants(move |_: &[Workload]| wanted());
    let (all, _) = records(&mut host, &mut policy, seconds(5));
    let reported: Vec<&Problem> = all.iter().flat_map(|(record, _)| &record.problems).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].to_string(), "DCA ways 0x0e0 did not take effect: 0x600 reads back");
    // The numbers behind it: three ways wanted, two in force.
    let causes: Vec<_> = reported[0].causes().into_iter().map(|cause| (cause.what, cause.value)).collect();
    let expected = [("DCA ways, wanted", 3.0), ("DCA ways, in force", 2.0)];
    assert_eq!(causes, expected.map(|(what, value)| (what.to_owned(), value)));
    assert_eq!(host.plans.len(), 2, "at the start and at the end, not at every step");
    assert_eq!(all[5].0.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x00c, "the others are in force");
    assert_eq!(all[5].0.knobs.dca_ways(), Some(WayMask::from_bits(0x600)));
}

#[test]
fn a_knob_that_cannot_be_read_is_turned_once() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| Plan::from([(Knob::RxBurst(PortId(0)), 16)]));
    let (all, _) = records(&mut host, &mut policy, seconds(4));
    let reported: Vec<String> =
        all.iter().flat_map(|(record, _)| &record.problems).map(ToString::to_string).collect();
    assert_eq!(reported, ["RX burst of 16 on port 0 was refused: the host reported no result"]);
    assert_eq!(host.plans.len(), 1);
}

#[test]
fn a_policy_is_replaced_while_running_and_the_knobs_it_leaves_are_restored() {
    let mut host = fake();
    let mut first = Wants(|_: &[Workload]| {
        masks(&[(0, 0x3ff), (1, 0x00c)])
            .with(Knob::Dca(PortId(0)), false)
            .with(Knob::DcaWays, WayMask::from_bits(0x700))
            .with(Knob::RxRing(PortId(0)), 512)
    });
    let mut second = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut third = Wants(|_: &[Workload]| Plan::default());
    let mut looping = Loop::start(&mut host, Box::new(&mut first), seconds(9)).unwrap();
    for _ in 0..2 {
        looping.step().unwrap();
    }
    looping.replace(Box::new(&mut second));
    let record = looping.record();
    assert_eq!((record.at_ns, record.state.as_str()), (2 * SECOND, "Started"));
    assert_eq!(record.events[0].text, "policy wants replaces wants");
    assert_eq!(record.events[0].causes[0].value, 5.0);
    // Group 1 keeps its mask without a write; everything else has its original value.
    assert_eq!(
        record.applied.knobs().filter(|knob| knob.workload().is_some()).collect::<Vec<_>>(),
        [Knob::Mask(WorkloadId(0))]
    );
    let knobs = &record.knobs;
    assert_eq!(
        [knobs.mask(WorkloadId(0)).unwrap().bits(), knobs.mask(WorkloadId(1)).unwrap().bits()],
        [0x7ff, 0x00c]
    );
    assert_eq!((knobs.dca_ways().unwrap().bits(), knobs.rx_ring(PortId(0)).unwrap()), (0x600, 2048));
    assert!(knobs.dca(PortId(0)).unwrap());
    // The next interval begins when the new policy's knobs were in force.
    looping.step().unwrap();
    assert!(looping.record().applied.is_empty() && looping.record().problems.is_empty());
    let seen = looping.seen().unwrap();
    assert_eq!((seen.from_ns, seen.to_ns), (2 * SECOND, 3 * SECOND));
    // The original values are remembered over two changes.
    looping.replace(Box::new(&mut third));
    assert_eq!(looping.record().knobs.mask(WorkloadId(1)).unwrap().bits(), 0x7ff);
    drop(looping);
    assert_eq!(host.plans.len(), 3, "one plan for the start and one for each change");
}

#[test]
fn what_a_follower_names_later_is_its_own_and_stays_when_it_stops() {
    let mut host = fake();
    let mut first = Wants(|_: &[Workload]| masks(&[(0, 0x3ff)]));
    let mut step = 0;
    let mut second = Wants(move |_: &[Workload]| {
        step += 1;
        if step == 2 { masks(&[(0, 0x0ff)]) } else { Plan::default() }
    });
    let mut third = Wants(|_: &[Workload]| Plan::default());
    let mut looping = Loop::start(&mut host, Box::new(&mut first), seconds(9)).unwrap();
    looping.replace(Box::new(&mut second));
    let mask = |looping: &Loop<'_, FakeHost>| looping.record().knobs.mask(WorkloadId(0)).unwrap().bits();
    assert_eq!(mask(&looping), 0x7ff);
    let mut seen = Vec::new();
    for _ in 0..3 {
        looping.step().unwrap();
        seen.push(mask(&looping));
    }
    assert_eq!(seen, [0x0ff; 3], "only what is named is touched");
    looping.replace(Box::new(&mut third));
    assert_eq!(mask(&looping), 0x7ff, "and it goes back when its turn is over");
}

#[test]
fn an_external_change_is_repaired_and_a_refused_value_stays_refused() {
    let mut host = fake();
    host.refused_masks.insert(WayMask::from_bits(0x00c));
    let mut first = Wants(|_: &[Workload]| masks(&[(0, 0x3ff), (1, 0x00c)]));
    let mut second = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut first), seconds(9)).unwrap();
    assert_eq!(looping.record().problems.len(), 1);
    looping.replace(Box::new(&mut second));
    assert!(looping.record().problems.is_empty(), "the machine said so already");
    looping.step().unwrap();
    assert_eq!(
        looping.record().wanted.mask(WorkloadId(0)).unwrap().bits(),
        0x7ff,
        "the wanted values are recorded whole"
    );
    drop(looping);
    assert_eq!(host.plans.len(), 2);
}

#[test]
fn another_value_is_tried_again() {
    let mut host = fake();
    host.refused_masks.extend([WayMask::from_bits(0x00c), WayMask::from_bits(0x01c)]);
    let mut step = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        step += 1;
        masks(&[(1, if step <= 3 { 0x00c } else { 0x01c })])
    });
    let (all, _) = records(&mut host, &mut policy, seconds(6));
    let reported = all.iter().flat_map(|(record, _)| &record.problems).count();
    assert_eq!((reported, host.plans.len()), (2, 2));
}

#[test]
fn a_blind_step_is_recorded_and_the_next_interval_spans_it() {
    let mut host = fake();
    host.blind = [2, 3].into();
    let mut policy = Wants(|_: &[Workload]| Plan::default());
    let (all, summary) = records(&mut host, &mut policy, seconds(5));
    assert_eq!(summary, LoopSummary { steps: 5, blind_steps: 2, missed_deadlines: 0 });
    assert_eq!(all[2].0.problems, [Problem::Sample("counters: blind".to_owned())]);
    assert_eq!(all[2].0.state, "Stepped", "the policy is where it was");
    let spans: Vec<_> =
        all.iter().map(|(_, seen)| seen.map(|(from, to)| (from / SECOND, to / SECOND))).collect();
    assert_eq!(spans, [None, Some((0, 1)), None, None, Some((1, 4)), Some((4, 5))]);
}

#[test]
fn a_host_that_is_blind_at_the_start_is_waited_for() {
    let mut host = fake();
    host.blind = [0].into();
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let (all, summary) = records(&mut host, &mut policy, seconds(3));
    assert!(all[0].0.problems.iter().all(|problem| matches!(problem, Problem::Sample(_))));
    assert_eq!(all[1].1, None, "one reading alone is no interval");
    assert_eq!(all[2].1, Some((SECOND, 2 * SECOND)));
    assert_eq!(summary.blind_steps, 1);
    assert_eq!(all[2].0.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x00c);
}

#[test]
fn missed_deadlines_are_skipped_and_counted() {
    let mut host = fake();
    host.apply_ns = 5 * SECOND / 2;
    let mut step = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        step += 1;
        if step == 2 { masks(&[(1, 0x00c)]) } else { Plan::default() }
    });
    let (all, summary) = records(&mut host, &mut policy, seconds(6));
    // The step at 1 s lasts until 3.5 s: 2 s and 3 s are missed, 4 s is kept.
    let times: Vec<u64> = all.iter().map(|(record, _)| record.at_ns / SECOND).collect();
    assert_eq!(times, [0, 1, 4, 5, 6]);
    assert_eq!(all[2].0.problems, [Problem::Late { missed: 2 }]);
    assert_eq!(summary.missed_deadlines, 2);
}

#[test]
fn launch_and_exit_reach_the_policy_and_no_plan_names_an_ended_workload() {
    let mut host = fake();
    host.lives.insert(2, vec![group(0), group(1), group(2)]);
    host.lives.insert(4, vec![group(2)]);
    // A policy that plans for every group that it ever saw.
    let mut known = BTreeSet::new();
    let mut policy = Wants(move |groups: &[Workload]| {
        known.extend(groups.iter().map(|group| group.id.0));
        masks(&known.iter().map(|id| (*id, 0x00c)).collect::<Vec<_>>())
    });
    let (all, _) = records(&mut host, &mut policy, seconds(5));
    assert_eq!(all[2].0.applied.knobs().collect::<Vec<_>>(), [Knob::Mask(WorkloadId(2))]);
    assert!(all.iter().all(|(record, _)| record.problems.is_empty()));
    assert_eq!(all[5].0.knobs.masks().map(|(id, _)| id).collect::<Vec<_>>(), [WorkloadId(2)]);
    assert!(host.plans.iter().all(|(at, plan)| *at < 4 * SECOND || !plan.names(Knob::Mask(WorkloadId(0)))));
}

#[test]
fn more_masks_than_classes_are_refused_as_a_whole_and_reported_once() {
    let mut host = fake();
    host.lives = [(0, (0..4).map(group).collect())].into();
    // Four distinct masks and the root class: five classes, the chip has four.
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x400), (1, 0x200), (2, 0x100), (3, 0x080)]));
    let (all, _) = records(&mut host, &mut policy, seconds(4));
    let reported: Vec<&Problem> = all.iter().flat_map(|(record, _)| &record.problems).collect();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].to_string().starts_with("5 classes of service are needed but the chip has 4"));
    assert!(host.plans.is_empty());
}

#[test]
fn a_mask_of_all_ways_needs_a_class_where_the_root_class_has_fewer() {
    let wanted = [(0, 0x7ff), (1, 0x200), (2, 0x100), (3, 0x080)];
    let problems = |root: u32| {
        let mut host = fake();
        host.root = WayMask::from_bits(root);
        host.lives = [(0, (0..4).map(group).collect())].into();
        let mut policy = Wants(move |_: &[Workload]| masks(&wanted));
        let (all, _) = records(&mut host, &mut policy, seconds(2));
        all.iter().flat_map(|(record, _)| &record.problems).map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(problems(0x7ff), [""; 0], "three masks beside the root class's: four classes");
    let one = problems(0x07f);
    assert!(one.len() == 1 && one[0].contains("5 classes of service") && one[0].contains("0x07f"), "{one:?}");
}

#[test]
fn the_observer_can_end_the_run() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| Plan::default());
    let config = ControlConfig::every(SECOND);
    let mut stop = |record: &StepRecord, _: Option<&Interval>| {
        if record.at_ns >= 3 * SECOND { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let summary = run(&mut host, &mut policy, config, &mut stop).unwrap();
    assert_eq!(summary.steps, 3);
    let config = ControlConfig::every(0);
    let refused = run(&mut host, &mut policy, config, &mut stop);
    assert!(matches!(refused, Err(ControlError::NoPeriod)));
}

#[test]
fn records_survive_being_written_down() {
    let mut host = fake();
    host.refused_masks.insert(WayMask::from_bits(0x003));
    let mut policy = waykeeper_policy::build("a4", &Default::default()).unwrap();
    let (all, _) = records(&mut host, policy.as_mut(), seconds(4));
    assert!(!all[0].0.events.is_empty() && !all[0].0.problems.is_empty());
    for (record, _) in all {
        let line = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<StepRecord>(&line).unwrap(), record);
    }
}

#[test]
fn full_a4_settles_on_a_quiet_server() {
    let mut host = fake();
    let mut policy = waykeeper_policy::build("a4", &Default::default()).unwrap();
    let (all, _) = records(&mut host, policy.as_mut(), seconds(30));
    let states: Vec<&str> = all.iter().map(|(record, _)| record.state.as_str()).collect();
    assert!(
        ["InitMeasure", "Expand", "Stable", "Revert"].iter().all(|state| states.contains(state)),
        "{states:?}"
    );
    assert_eq!(all[30].0.knobs.mask(WorkloadId(1)).unwrap().bits(), 0x0ff);
    assert!(all.iter().all(|(record, _)| record.problems.is_empty()));
}

#[test]
fn a_loop_that_only_watches_asks_no_policy_and_turns_nothing() {
    let mut host = fake();
    let mut step = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        step += 1;
        masks(&[(1, 1 << step)])
    });
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    let stood = looping.record().knobs.clone();
    for second in 1..=3 {
        assert!(looping.watch().unwrap());
        assert_eq!(looping.seen().unwrap().to_ns, second * SECOND, "counters are read as ever");
        assert_eq!((&looping.record().knobs, looping.record().state.as_str()), (&stood, "Started"));
        assert!(looping.record().applied.is_empty() && looping.record().events.is_empty());
    }
    looping.step().unwrap();
    assert_eq!(
        looping.record().knobs.mask(WorkloadId(1)).unwrap().bits(),
        0x004,
        "asked for the second time"
    );
    assert_eq!(looping.seen().unwrap().from_ns, 3 * SECOND);
    assert_eq!(looping.snapshot().unwrap().at_ns, 4 * SECOND);
}
