//! Tests of the machine with answers that a table gives. They must not need a model.

use super::super::super::fixture::{interval, server};
use super::*;
use toml::Table;
use waykeeper_units::WorkloadId;

/// A machine on the server of an HPW and an LPW, which has asked its first question.
fn asked() -> (TwinMachine, Vec<Workload>, LayoutQuestion) {
    let Server { inventory, groups, .. } = server(2);
    let config = TwinConfig::read(&Table::new()).unwrap();
    let mut machine = TwinMachine::new(config, &inventory, &groups);
    for _ in 0..6 {
        machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
        if let Some(question) = machine.question() {
            return (machine, groups, question);
        }
    }
    panic!("it has not asked");
}

/// A layout with these ways for the LPW, of which such progress of the HPW and the LPW is foreseen.
fn candidate(question: &LayoutQuestion, mask: u32, progress: [f64; 2]) -> Candidate {
    let [hpw, lpw] = progress.map(|value| Estimate { value, error: 0.01 });
    let mut plan = question.server.knobs.clone();
    plan.insert(Knob::Mask(WorkloadId(0)), WayMask::full(11));
    plan.insert(Knob::Mask(WorkloadId(1)), WayMask::from_bits(mask));
    let tenants = [(WorkloadId(0), hpw), (WorkloadId(1), lpw)].into_iter().collect();
    Candidate { plan, tenants, hpw, lpw }
}

fn answer(question: &LayoutQuestion, best: Vec<Candidate>) -> LayoutAnswer {
    LayoutAnswer { question: question.number, simulated: 100, best, asked: Vec::new() }
}

/// Steps with these instructions per cycle until the machine is not in state Try; the last events.
fn measure(machine: &mut TwinMachine, groups: &[Workload], ipc: &[f64]) -> Vec<Event> {
    for _ in 0..6 {
        let mut seen = interval(ipc, 1e9);
        seen.knobs = machine.in_force.clone();
        let events = machine.step(groups, &seen);
        if events.iter().any(|event| event.action == "keep" || event.action == "drop") {
            return events;
        }
    }
    panic!("nothing was judged");
}

#[test]
fn the_layout_as_found_stays_until_an_answer_is_tried_and_what_gains_is_kept() {
    let (mut machine, groups, question) = asked();
    assert!(machine.in_force.is_empty());
    assert_eq!((question.goal.lpw_floor, question.asked.len()), (0.97, 0));
    let good = candidate(&question, 0x3, [1.2, 1.0]);
    machine.hear(&answer(&question, vec![good.clone()]));
    let events = machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    assert!(events[0].text.starts_with("try w1 "), "{events:?}");
    assert_eq!(machine.in_force, good.plan);
    let events = measure(&mut machine, &groups, &[1.1, 1.0]);
    assert_eq!(events[0].action, "keep");
    let said = "expected are HPWs +20.0 +- 1.0 %, LPWs +0.0 +- 1.0 %; measured are HPWs +10.0 %, LPWs +0.0 %";
    assert!(events[0].text.ends_with(said), "{}", events[0].text);
    // The next question is relative to the kept layout, and asks for the one as found too.
    machine.step(&groups, &interval(&[1.1, 1.0], 1e9));
    assert_eq!(machine.best, good.plan);
}

#[test]
fn what_costs_lpws_more_than_hpws_gain_is_dropped() {
    let (mut machine, groups, question) = asked();
    let greedy = candidate(&question, 0x1, [1.05, 0.99]);
    machine.hear(&answer(&question, vec![greedy]));
    machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    // ln 1.05 is 0.049 for one core; ln 0.95 is -0.051: less than twice as much, and more than 3 % lost.
    let events = measure(&mut machine, &groups, &[1.05, 0.95]);
    assert_eq!(events[0].action, "drop");
    assert_eq!(Some(&machine.best), machine.found.as_ref());
    // The same loss is paid by 12 %: ln 1.12 is 0.113.
    let gain = |hpw, lpw| Gain { all: 0.0, hpw, lpw, worst_hpw: hpw };
    assert!(machine.is_allowed(&gain(1.12, 0.95)) && !machine.is_allowed(&gain(1.1, 0.95)));
    assert!(machine.is_allowed(&gain(1.0, 0.97)) && !machine.is_allowed(&gain(0.89, 1.5)));
}

#[test]
fn without_an_answer_it_measures_and_an_old_answer_does_not_count() {
    let (mut machine, groups, question) = asked();
    let late = LayoutAnswer { question: question.number + 1, ..answer(&question, Vec::new()) };
    machine.hear(&late);
    let mut events = Vec::new();
    for _ in 0..=WAIT_MOST {
        events.extend(machine.step(&groups, &interval(&[1.0, 1.0], 1e9)));
    }
    assert!(events.iter().any(|event| event.action == "measured-steps"), "{events:?}");
    assert!(machine.decide(Vec::new()).state.starts_with("Measured: "));
}

#[test]
fn a_model_that_is_wrong_about_an_hpw_twice_is_not_asked_again() {
    let (mut machine, groups, question) = asked();
    let wrong = [0x3, 0x7].map(|mask| candidate(&question, mask, [1.5, 1.0]));
    machine.hear(&answer(&question, wrong.to_vec()));
    machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    measure(&mut machine, &groups, &[1.0, 1.0]);
    let events = measure(&mut machine, &groups, &[1.0, 1.0]);
    let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["drop", "not-predictable", "measured-steps"]);
    assert!(machine.question().is_none());
}

#[test]
fn nothing_foreseen_is_nothing_turned() {
    let (mut machine, groups, question) = asked();
    machine.hear(&answer(&question, vec![candidate(&question, 0x3, [1.005, 1.0])]));
    let events = machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    assert_eq!(events[0].text, "none of 100 simulated layouts is foreseen to be better");
    assert!(machine.decide(Vec::new()).plan.is_empty());
}
