//! Faults while knobs are set: each knob's outcome agrees with the machine's state.

use crate::faults::machine::machine;
use crate::faults::strike::{Case, Rotation, Verdicts, every};
use std::collections::BTreeSet;
use waykeeper_host::{Applied, Host, Knob, KnobOutcome, KnobValues, Plan};
use waykeeper_linux_host::LinuxHost;
use waykeeper_testbed::{MS, MountedHost, state_difference};
use waykeeper_units::{WayMask, WorkloadId};

/// Masks of the tenants in order, DCA ways, and DCA of all ports.
pub fn plan(host: &LinuxHost, masks: [u32; 4], ways: u32, dca: bool) -> Plan {
    let masks = (0..).zip(masks).map(|(group, bits)| (WorkloadId(group), WayMask::from_bits(bits)));
    Plan::of_dca(host.inventory().ports.iter().map(|port| (port.id, dca)))
        .with_masks(masks)
        .with(Knob::DcaWays, WayMask::from_bits(ways))
}

/// The values that the knobs read back without faults.
pub fn knobs(host: &mut LinuxHost) -> KnobValues {
    let sample = host.sample().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(host.complaints(), [""; 0]);
    sample.knobs
}

/// The values that a plan requests.
pub fn wanted(plan: &Plan) -> KnobValues {
    plan.clone()
}

/// Each outcome, with whether the knob has the requested value, and whether it has its old one.
fn outcomes<'a>(
    applied: &'a Applied,
    old: &KnobValues,
    plan: &Plan,
    now: &KnobValues,
) -> Vec<(&'a KnobOutcome, bool, bool)> {
    let outcome = |(knob, outcome): (Knob, &'a KnobOutcome)| {
        let now = now.get(knob);
        (outcome, now == plan.get(knob), now == old.get(knob))
    };
    applied.iter().map(outcome).collect()
}

fn text(outcome: &KnobOutcome) -> Option<&str> {
    match outcome {
        KnobOutcome::Applied => None,
        KnobOutcome::Refused(why) | KnobOutcome::Busy(why) | KnobOutcome::ReadsBack(why) => Some(why),
    }
}

/// The values that the knobs read back, checked against the machine.
fn now(machine: &MountedHost, host: &mut LinuxHost, case: &Case, verdicts: &mut Verdicts) -> KnobValues {
    let sample = host.sample().unwrap_or_else(|error| panic!("{error}"));
    // A tenant that moved and has no monitoring group any more is reported here.
    let reported = host.complaints().iter().all(|complaint| complaint.contains("the LLC occupancy of"));
    verdicts.wrong(case, if reported { "" } else { "complaints after it" });
    for (group, mask) in (0..).zip(&machine.tenants).map(|(id, tenant)| (WorkloadId(id), tenant)) {
        let truth = machine.mask_of(mask.cores.cores()[0].0);
        let shown = sample.knobs.mask(group).map(|mask| format!("{:x}", mask.bits()));
        if shown.as_deref().is_some_and(|shown| shown != truth) {
            verdicts.wrong(case, &format!("{group} is said to have {shown:?} and has {truth}"));
        }
    }
    sample.knobs
}

fn turned(machine: &MountedHost, masks: [u32; 4], verdicts: &mut Verdicts) {
    let open = || machine.open();
    let mut host = open();
    machine.run(MS);
    let (there, back) = (plan(&host, masks, 0x7c0, false), plan(&host, [0x7ff; 4], 0x700, true));
    let complete = |host: &mut LinuxHost, plan: &Plan| {
        machine.faults.forget();
        let applied = host.apply(plan).unwrap_or_else(|error| panic!("{error}"));
        let seen = machine.faults.seen();
        assert!(applied.is_complete(), "{applied:#?}");
        assert_eq!(knobs(host), wanted(plan));
        seen
    };
    let mut first = complete(&mut host, &there);
    complete(&mut host, &back);
    let steady = complete(&mut host, &there);
    complete(&mut host, &back);
    // Operations of the first time only need a new host each.
    first.retain(|operation, _| !steady.contains_key(operation));
    let mut rotation = Rotation::default();
    let again: Vec<Case> = (0..2).flat_map(|_| rotation.cases(machine, &steady)).collect();
    let steady = again.into_iter().map(|case| (case, false));
    let first = rotation.cases(machine, &first).into_iter().step_by(every()).map(|case| (case, true));
    for (case, fresh) in steady.chain(first) {
        let case = &case;
        if fresh {
            assert!(host.close().expect("closed").is_complete());
            drop(host);
            host = open();
        }
        let (result, struck) = Verdicts::strike(machine, case, || host.apply(&there));
        let applied = result.unwrap_or_else(|error| panic!("{case}: {error}"));
        let now = now(machine, &mut host, case, verdicts);
        let mut reports = BTreeSet::new();
        for (outcome, is_there, is_back) in outcomes(&applied, &wanted(&back), &there, &now) {
            reports.extend(text(outcome).map(str::to_owned));
            match outcome {
                KnobOutcome::Applied if !is_there => {
                    verdicts.wrong(case, &format!("said to be applied: {now:?}"))
                }
                KnobOutcome::Refused(_) if !is_back => {
                    verdicts.wrong(case, &format!("{outcome:?} and turned: {now:?}"));
                }
                _ if !is_there && !is_back => {
                    verdicts.wrong(case, &format!("no plan asked for this: {now:?}"))
                }
                _ => {}
            }
        }
        let whole = if now == wanted(&there) { "" } else { "not all is turned" };
        verdicts.judge_knobs(case, struck, &reports, whole);
        complete(&mut host, &there);
        complete(&mut host, &back);
    }
    assert!(host.close().expect("closed").is_complete());
}

#[test]
fn an_outcome_says_what_the_machine_has() {
    let machine = machine();
    let before = machine.state();
    let mut verdicts = Verdicts::default();
    turned(&machine, [0x00f, 0x030, 0x0c0, 0x700], &mut verdicts);
    let after = machine.state();
    assert!(after == before, "{}", state_difference(&before, &after));
    verdicts.end(30);
}

#[test]
fn tenants_that_share_classes_move_or_stay() {
    let machine = machine();
    // 8 classes with MBA: the default group, five of another tool, two for four tenants.
    for group in 0..5 {
        machine.make_foreign_group(&format!("theirs{group}"));
    }
    let before = machine.state();
    let mut verdicts = Verdicts::default();
    turned(&machine, [0x00f, 0x00f, 0x0f0, 0x7ff], &mut verdicts);
    let after = machine.state();
    assert!(after == before, "{}", state_difference(&before, &after));
    verdicts.end(50);
}
