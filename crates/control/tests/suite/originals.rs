//! Original values of knobs: the loop restores what it changed, and nothing that another program set.

use crate::common;

use common::*;
use waykeeper_control::{ControlConfig, Loop, Problem};
use waykeeper_host::{Host, Plan, Workload};
use waykeeper_units::{WayMask, WorkloadId};

const TENANT: WorkloadId = WorkloadId(1);

fn leaves_to_others() -> ControlConfig {
    ControlConfig { take_back: 0, ..seconds(99) }
}

fn mask(host: &FakeHost) -> u32 {
    host.knobs.mask(TENANT).map_or(0x7ff, |mask| mask.bits())
}

fn sets(host: &mut FakeHost, bits: u32) {
    host.knobs.insert(waykeeper_host::Knob::Mask(TENANT), WayMask::from_bits(bits));
}

fn plans_with_mask(host: &FakeHost) -> usize {
    host.plans.iter().filter(|(_, plan)| plan.mask(TENANT).is_some()).count()
}

#[test]
fn a_restored_knob_of_a_replaced_policy_is_left_to_a_program_that_changes_it() {
    let mut host = fake();
    let mut first = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut second = Wants(|_: &[Workload]| Plan::default());
    let mut looping = Loop::start(&mut host, Box::new(&mut first), leaves_to_others()).unwrap();
    looping.replace(Box::new(&mut second));
    assert_eq!(mask(looping.host()), 0x7ff);
    sets(looping.host(), 0x600);
    looping.step().unwrap();
    let problems = &looping.record().problems;
    assert!(matches!(problems[..], [Problem::ExternalChange { other_stays: true, .. }]), "{problems:?}");
    let plans = plans_with_mask(looping.host());
    (0..3).for_each(|_| assert!(looping.step().unwrap()));
    assert_eq!((mask(looping.host()), plans_with_mask(looping.host())), (0x600, plans));
    looping.restore();
    assert_eq!(mask(looping.host()), 0x600);
}

#[test]
fn a_knob_that_is_left_and_wanted_anew_in_one_step_returns_to_the_value_of_the_other_program() {
    let mut host = fake();
    let mut step = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        step += 1;
        masks(&[(1, if step <= 2 { 0x00c } else { 0x01c })])
    });
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), leaves_to_others()).unwrap();
    looping.step().unwrap();
    sets(looping.host(), 0x600);
    looping.step().unwrap();
    assert_eq!(mask(looping.host()), 0x01c, "another value is tried");
    assert_eq!(looping.restore(), Plan::default());
    assert_eq!(mask(looping.host()), 0x600);
}

#[test]
fn a_host_without_a_first_reading_keeps_its_knobs_until_their_values_are_known() {
    let mut host = fake();
    host.blind = [0].into();
    sets(&mut host, 0x3ff);
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    assert_eq!((plans_with_mask(looping.host()), looping.record().state.as_str()), (0, "Started"));
    assert_eq!(looping.record().wanted.mask(TENANT).unwrap().bits(), 0x00c);
    (0..2).for_each(|_| assert!(looping.step().unwrap()));
    assert_eq!(mask(looping.host()), 0x00c);
    looping.restore();
    assert_eq!(mask(looping.host()), 0x3ff);
}

#[test]
fn a_change_since_the_last_step_survives_the_end_and_is_reported() {
    for replaced in [false, true] {
        let mut host = fake();
        let mut first = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
        let mut second = Wants(|_: &[Workload]| Plan::default());
        let mut looping = Loop::start(&mut host, Box::new(&mut first), leaves_to_others()).unwrap();
        looping.step().unwrap();
        sets(looping.host(), 0x600);
        if replaced {
            looping.replace(Box::new(&mut second));
        } else {
            looping.restore();
        }
        let problems = &looping.record().problems;
        assert!(matches!(problems[..], [Problem::ExternalChange { other_stays: true, .. }]), "{problems:?}");
        assert_eq!(mask(looping.host()), 0x600);
        drop(looping);
        assert_eq!(mask(&host), 0x600);
    }
}

#[test]
fn a_value_that_another_program_sets_before_the_first_write_succeeds_is_the_original_one() {
    let mut host = fake();
    host.busy = 1;
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    sets(looping.host(), 0x600);
    (0..3).for_each(|_| assert!(looping.step().unwrap()));
    assert_eq!(mask(looping.host()), 0x00c);
    looping.restore();
    assert_eq!(mask(looping.host()), 0x600);
}

#[test]
fn a_refused_knob_is_not_restored_over_another_program() {
    let mut host = fake();
    host.refused_masks.insert(WayMask::from_bits(0x00c));
    let mut policy = Wants(|_: &[Workload]| masks(&[(1, 0x00c)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    looping.step().unwrap();
    sets(looping.host(), 0x600);
    looping.restore();
    assert_eq!(mask(looping.host()), 0x600);
}

#[test]
fn a_busy_machine_is_asked_at_growing_distances_also_by_a_policy_that_changes_its_mind() {
    let mut host = fake();
    host.busy = 99;
    let mut step = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        step += 1;
        masks(&[(1, if step % 2 == 0 { 0x00c } else { 0x01c })])
    });
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(99)).unwrap();
    let mut busy = looping.record().problems.len();
    for _ in 0..20 {
        looping.step().unwrap();
        busy += looping.record().problems.len();
    }
    let times: Vec<u64> = looping.host().plans.iter().map(|(at_ns, _)| at_ns / SECOND).collect();
    assert_eq!((times, busy), (vec![0, 1, 3, 7, 15], 1));
}

#[test]
fn an_unreadable_end_of_a_step_does_not_hide_the_next_external_change() {
    let mut host = fake();
    let mut step = 0;
    let mut policy = Wants(move |_: &[Workload]| {
        step += 1;
        masks(&[(0, if step <= 2 { 0x3ff } else { 0x0ff }), (1, 0x00c)])
    });
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), leaves_to_others()).unwrap();
    looping.step().unwrap();
    // The second step sets the other mask for a second and then cannot read back. After it the program changes ours.
    looping.host().apply_ns = SECOND;
    looping.host().blind.insert(3);
    looping.step().unwrap();
    assert!(matches!(looping.record().problems[..], [Problem::Sample(_)]), "{:?}", looping.record().problems);
    looping.host().apply_ns = 0;
    sets(looping.host(), 0x600);
    looping.step().unwrap();
    let problems = &looping.record().problems;
    let left = |problem: &Problem| matches!(problem, Problem::ExternalChange { other_stays: true, .. });
    assert!(problems.iter().any(left), "{problems:?}");
    assert_eq!(mask(looping.host()), 0x600);
}

#[test]
fn too_many_classes_for_the_originals_are_reported_by_the_last_try_too() {
    let mut host = fake();
    for (id, bits) in [(0, 0x0ff), (1, 0x700), (2, 0x00f)] {
        host.knobs.insert(waykeeper_host::Knob::Mask(WorkloadId(id)), WayMask::from_bits(bits));
    }
    host.lives = [(0, vec![group(0), group(1), group(2)])].into();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x7ff), (1, 0x7ff), (2, 0x7ff)]));
    let mut looping = Loop::start(&mut host, Box::new(&mut policy), seconds(9)).unwrap();
    looping.step().unwrap();
    looping.host().inventory.llc.as_mut().unwrap().clos_count = 2;
    assert_eq!(looping.restore().masks().count(), 3);
    assert!(
        matches!(looping.record().problems[..], [Problem::Classes(_)]),
        "{:?}",
        looping.record().problems
    );
    assert_eq!(looping.host().workloads().len(), 3);
}
