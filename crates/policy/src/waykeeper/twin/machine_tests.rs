//! Tests of the machine with answers that a table gives. They must not need a model.

use super::super::super::fixture::{interval, server};
use super::*;
use toml::Table;
use waykeeper_calibration::Estimate;
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

/// Steps under the knobs in force until the machine asks the next question.
fn next_question(machine: &mut TwinMachine, groups: &[Workload], ipc: &[f64]) -> Option<LayoutQuestion> {
    (0..6).find_map(|_| {
        let mut seen = interval(ipc, 1e9);
        seen.knobs = machine.in_force.clone();
        machine.step(groups, &seen);
        machine.question()
    })
}

/// Answers with one layout, for which that is foreseen, and steps with what is measured under it.
fn tried(
    machine: &mut TwinMachine,
    groups: &[Workload],
    question: &LayoutQuestion,
    (mask, foreseen): (u32, [f64; 2]),
    measured: [f64; 2],
) -> Vec<Event> {
    machine.hear(&answer(question, vec![candidate(question, mask, foreseen)]));
    let mut seen = interval(&[1.0, 1.0], 1e9);
    seen.knobs = machine.in_force.clone();
    machine.step(groups, &seen);
    measure(machine, groups, &measured)
}

#[test]
fn the_layout_as_found_stays_until_an_answer_is_tried_and_what_gains_is_kept() {
    let (mut machine, groups, question) = asked();
    assert!(machine.in_force.is_empty());
    // It asks for the layout with HPWs apart from LPWs too, as the HPW misses.
    assert_eq!((question.goal.lpw_floor, question.asked.len()), (0.97, 1));
    let good = candidate(&question, 0x3, [1.2, 1.0]);
    machine.hear(&answer(&question, vec![good.clone()]));
    let events = machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    assert!(events[0].text.contains(" %: try w1 "), "{events:?}");
    assert_eq!(machine.in_force, good.plan);
    let events = measure(&mut machine, &groups, &[1.1, 1.0]);
    assert_eq!(events[0].action, "keep");
    let said =
        "measured are HPWs +10.0 %, LPWs +0.0 %; expected were HPWs +20.0 +- 1.0 %, LPWs +0.0 +- 1.0 %";
    assert!(events[0].text.starts_with(said), "{}", events[0].text);
    // The next question is relative to the kept layout, and asks for the one as found too.
    machine.step(&groups, &interval(&[1.1, 1.0], 1e9));
    assert_eq!(machine.best, good.plan);
}

#[test]
fn what_costs_lpws_more_than_the_floor_is_dropped() {
    let (mut machine, groups, question) = asked();
    let greedy = candidate(&question, 0x1, [1.05, 0.99]);
    machine.hear(&answer(&question, vec![greedy]));
    machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    // LPWs lose 5 %, more than 3 %.
    let events = measure(&mut machine, &groups, &[1.05, 0.95]);
    assert_eq!(events[0].action, "drop");
    assert_eq!(Some(&machine.best), machine.found.as_ref());
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
fn a_model_that_is_wrong_about_hpws_twice_is_not_asked_again() {
    let (mut machine, groups, question) = asked();
    tried(&mut machine, &groups, &question, (0x3, [1.5, 1.0]), [1.0, 1.0]);
    let question = next_question(&mut machine, &groups, &[1.0, 1.0]).unwrap();
    let events = tried(&mut machine, &groups, &question, (0x7, [1.5, 1.0]), [1.0, 1.0]);
    let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["drop", "not-predictable", "measured-steps"]);
    assert!(machine.question().is_none());
    // First the layout as found is put back, then it searches from there.
    assert_eq!(machine.decide(Vec::new()).state, "Return");
    assert_eq!(Some(&machine.decide(Vec::new()).plan), machine.found.as_ref());
    machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    assert!(machine.decide(Vec::new()).state.starts_with("Measured: "));
}

#[test]
fn a_tenant_that_was_foreseen_wrongly_twice_keeps_its_mask() {
    let (mut machine, groups, question) = asked();
    assert!(question.kept.is_empty());
    // The HPW gains as foreseen, the LPW a tenth more each time.
    tried(&mut machine, &groups, &question, (0x3, [1.1, 1.0]), [1.1, 1.1]);
    let question = next_question(&mut machine, &groups, &[1.1, 1.1]).unwrap();
    tried(&mut machine, &groups, &question, (0x7, [1.1, 1.0]), [1.21, 1.21]);
    let question = next_question(&mut machine, &groups, &[1.21, 1.21]).unwrap();
    assert_eq!(question.kept, [WorkloadId(1)].into());
}

#[test]
fn a_layout_that_restricts_a_workload_is_opened_before_the_first_question() {
    let Server { inventory, groups, .. } = server(2);
    let mut machine = TwinMachine::new(TwinConfig::read(&Table::new()).unwrap(), &inventory, &groups);
    let mut narrow = interval(&[1.0, 1.0], 1e9);
    narrow.knobs.insert(Knob::Mask(WorkloadId(1)), WayMask::from_bits(0x3));
    let mut events = Vec::new();
    while events.is_empty() {
        events = machine.step(&groups, &narrow);
        assert!(machine.question().is_none());
    }
    assert_eq!(
        events[0].text,
        "its measurement tells more than the model knows, or it was best in this phase before: try w1 0x7ff"
    );
    assert_eq!(machine.in_force.mask(WorkloadId(1)), Some(WayMask::full(11)));
    // It costs the HPW half: back to the layout as found. A phase that begins there does not open it again.
    assert_eq!(measure(&mut machine, &groups, &[0.5, 1.0])[0].action, "drop");
    let mut actions = Vec::new();
    for _ in 0..20 {
        let mut seen = interval(&[1.0, 1.0], 5e9);
        seen.knobs = machine.in_force.clone();
        actions.extend(machine.step(&groups, &seen).into_iter().map(|event| event.action));
        machine.hear(&LayoutAnswer {
            question: machine.number,
            simulated: 1,
            best: Vec::new(),
            asked: Vec::new(),
        });
        machine.question();
        assert_ne!(machine.in_force.mask(WorkloadId(1)), Some(WayMask::full(11)));
    }
    // The one layout that is tried has HPWs apart from LPWs.
    assert_eq!(actions, ["phase", "foresee", "try", "drop", "foresee", "settle"]);
}

#[test]
fn where_no_question_is_taken_it_measures_soon() {
    let Server { inventory, groups, .. } = server(2);
    let mut machine = TwinMachine::new(TwinConfig::read(&Table::new()).unwrap(), &inventory, &groups);
    let steps = (1..20).find(|_| {
        machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
        machine.decide(Vec::new()).state.starts_with("Measured: ")
    });
    assert!(steps.is_some_and(|steps| steps <= 6), "{steps:?}");
}

#[test]
fn where_nothing_is_foreseen_for_an_hpw_that_misses_hpws_are_once_apart_from_lpws() {
    let (mut machine, groups, question) = asked();
    machine.hear(&answer(&question, vec![candidate(&question, 0x3, [1.005, 1.0])]));
    let events = machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
    assert_eq!(events[0].text, "none of 100 simulated layouts is foreseen to be better");
    assert!(events[1].text.ends_with(": try w0 0x1fc, w1 0x003"), "{}", events[1].text);
    assert_eq!(measure(&mut machine, &groups, &[1.0, 1.0])[0].action, "drop");
    assert_eq!(Some(&machine.in_force), machine.found.as_ref());
    // It is not tried again in this phase.
    let question = next_question(&mut machine, &groups, &[1.0, 1.0]).unwrap();
    machine.hear(&answer(&question, Vec::new()));
    let mut seen = interval(&[1.0, 1.0], 1e9);
    seen.knobs = machine.in_force.clone();
    machine.step(&groups, &seen);
    assert_eq!(machine.decide(Vec::new()).state, "Stable");
}

#[test]
fn hpws_are_not_apart_from_lpws_where_these_are_foreseen_to_lose_too_much() {
    // LPWs may lose 3 %. With the error in their favour they lose 4 % in the first case, and 2 % in the second.
    for (foreseen, state) in [(0.95, "Stable"), (0.97, "Try")] {
        let (mut machine, groups, question) = asked();
        let mut apart = candidate(&question, 0x3, [1.0, foreseen]);
        apart.plan = question.asked[0].clone();
        machine.hear(&LayoutAnswer { asked: vec![apart], ..answer(&question, Vec::new()) });
        machine.step(&groups, &interval(&[1.0, 1.0], 1e9));
        assert_eq!(machine.decide(Vec::new()).state, state);
    }
}

#[test]
fn where_no_hpw_misses_and_nothing_is_foreseen_nothing_is_turned() {
    let Server { inventory, groups, .. } = server(2);
    let mut machine = TwinMachine::new(TwinConfig::read(&Table::new()).unwrap(), &inventory, &groups);
    let mut seen = interval(&[1.0, 1.0], 1e9);
    let hits = &mut seen.groups.get_mut(&WorkloadId(0)).unwrap();
    hits[waykeeper_host::WorkloadCounter::LlcMisses] = waykeeper_host::Reading::Value(0.0);
    let question = (0..6).find_map(|_| {
        machine.step(&groups, &seen);
        machine.question()
    });
    machine.hear(&answer(&question.unwrap(), Vec::new()));
    let events = machine.step(&groups, &seen);
    assert_eq!(events[1].text, "settled; layouts tried in this phase: 0");
    assert!(machine.decide(Vec::new()).plan.is_empty());
}

/// Another machine for the same server, with what one has learnt as its journal would have it.
fn successor(machine: &TwinMachine, groups: &[Workload]) -> (TwinMachine, bool) {
    let Server { inventory, .. } = server(2);
    let written = serde_json::to_string(&machine.learnt().unwrap()).unwrap();
    let mut next = TwinMachine::new(TwinConfig::read(&Table::new()).unwrap(), &inventory, groups);
    let is_used = next.recall(serde_json::from_str(&written).unwrap());
    (next, is_used)
}

/// The actions of six steps with this traffic, under the knobs in force.
fn six_steps(machine: &mut TwinMachine, groups: &[Workload], ipc: &[f64], bytes: f64) -> Vec<String> {
    let mut actions = Vec::new();
    for _ in 0..6 {
        let mut seen = interval(ipc, bytes);
        seen.knobs = machine.in_force.clone();
        actions.extend(machine.step(groups, &seen).into_iter().map(|event| event.action));
    }
    actions
}

#[test]
fn a_machine_that_takes_over_keeps_the_best_layout_of_the_phase() {
    let (mut machine, groups, question) = asked();
    tried(&mut machine, &groups, &question, (0x3, [1.1, 1.0]), [1.1, 1.0]);
    while machine.decide(Vec::new()).state != "Stable" {
        if let Some(question) = next_question(&mut machine, &groups, &[1.1, 1.0]) {
            machine.hear(&answer(&question, Vec::new()));
        }
    }
    let (mut next, is_used) = successor(&machine, &groups);
    assert!(is_used);
    // The first decision has the layout, so that no knob is turned.
    assert_eq!(next.decide(Vec::new()).plan, machine.best);
    assert_eq!(next.found, machine.found);
    assert_eq!(six_steps(&mut next, &groups, &[1.1, 1.0], 1e9), ["settle"]);
    assert_eq!((next.decide(Vec::new()).state.as_str(), next.question()), ("Stable", None));
    // With other traffic it begins from that layout, and asks for the one as found too.
    let (mut next, _) = successor(&machine, &groups);
    let question = (0..6).find_map(|_| {
        let mut seen = interval(&[1.1, 1.0], 4e9);
        seen.knobs = next.in_force.clone();
        assert!(next.step(&groups, &seen).is_empty());
        next.question()
    });
    let question = question.unwrap();
    assert_eq!(question.asked.first(), machine.found.as_ref());
}

#[test]
fn what_was_learnt_with_knobs_that_are_not_there_any_more_is_not_used() {
    let (mut machine, groups, question) = asked();
    tried(&mut machine, &groups, &question, (0x3, [1.1, 1.0]), [1.1, 1.0]);
    machine.found.as_mut().unwrap().insert(Knob::Dca(waykeeper_units::PortId(7)), true);
    let (next, is_used) = successor(&machine, &groups);
    assert!(!is_used && next.found.is_none() && next.in_force.is_empty());
}

#[test]
fn a_search_by_measured_steps_that_had_settled_is_not_begun_again() {
    let (mut machine, groups, _) = asked();
    let mut actions = Vec::new();
    for _ in 0..10 {
        actions.extend(six_steps(&mut machine, &groups, &[1.0, 1.0], 1e9));
    }
    assert_eq!(machine.decide(Vec::new()).state, "Measured: Stable", "{actions:?}");
    let (mut next, is_used) = successor(&machine, &groups);
    assert!(is_used);
    assert_eq!(next.decide(Vec::new()).plan, machine.decide(Vec::new()).plan);
    assert_eq!(six_steps(&mut next, &groups, &[1.0, 1.0], 1e9), ["settle"]);
    assert_eq!(next.decide(Vec::new()).state, "Measured: Stable");
}
