//! Looks back at the layout as found: when they begin and end, and that the policy does not see them.

use crate::common::{SECOND, Wants, fake, group, masks, records, seconds};
use waykeeper_control::{ControlConfig, LookBack, Worth, WorthSource};
use waykeeper_host::Workload;
use waykeeper_units::{WayMask, WorkloadId};

fn looking(steps: u64, every: u64) -> ControlConfig {
    ControlConfig { look_back: Some(LookBack { every_ns: every * SECOND, intervals: 3 }), ..seconds(steps) }
}

#[test]
fn the_layout_as_found_is_in_force_for_three_intervals_and_the_policy_does_not_see_them() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x7f0), (1, 0x00f)]));
    let (all, _) = records(&mut host, &mut policy, looking(20, 600));
    let mask_of = |step: usize| all[step].0.knobs.mask(WorkloadId(0)).unwrap();
    let found = (1..=20).filter(|step| mask_of(*step) == WayMask::full(11)).collect::<Vec<_>>();
    // Five quiet steps of the policy, then the look; nothing before ten minutes have passed.
    assert_eq!(found, [6, 7, 8]);
    // The step in which the look begins, its intervals, and the one that has lines of both layouts.
    let unseen = (0..=20).filter(|step| all[*step].0.look_back).collect::<Vec<_>>();
    assert_eq!(unseen, [6, 7, 8, 9, 10]);
    let actions: Vec<&str> =
        all.iter().flat_map(|(record, _)| &record.events).map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["look-back", "look-back-ends", "restored"][..actions.len()]);
    let Worth::Known(worth) = &all[12].0.worth else { panic!("{:?}", all[12].0.worth) };
    assert_eq!(worth.from, WorthSource::Look);
    assert_eq!(worth.hpw.unwrap().value, 1.0, "knobs change nothing on this host");
}

#[test]
fn a_look_ends_when_a_workload_starts_or_another_program_turns_a_knob() {
    let end_of = |host: &mut crate::common::FakeHost| {
        let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x7f0), (1, 0x00f)]));
        let (all, _) = records(host, &mut policy, looking(20, 600));
        all.iter().position(|(record, _)| record.events.iter().any(|e| e.action == "look-back-ends")).unwrap()
    };
    let mut host = fake();
    host.lives.insert(7, vec![group(0), group(1), group(2)]);
    assert_eq!(end_of(&mut host), 7);
    let mut host = fake();
    host.outsiders.insert(7, (WorkloadId(0), WayMask::from_bits(0x003)));
    assert_eq!(end_of(&mut host), 7);
}

#[test]
fn without_permission_the_loop_never_looks_back() {
    let mut host = fake();
    let mut policy = Wants(|_: &[Workload]| masks(&[(0, 0x7f0), (1, 0x00f)]));
    let (all, _) = records(&mut host, &mut policy, seconds(30));
    assert!(all.iter().all(|(record, _)| !record.look_back));
    assert!(all[20].0.worth.known().is_none(), "the policy changed knobs at once");
}
