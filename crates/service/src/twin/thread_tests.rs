//! Tests of the thread with answers that a closure gives. They must not need a model.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;
use waykeeper_calibration::{Candidate, Estimate, Goal, LayoutLimits, ServerDescription};
use waykeeper_host::{KnobValues, LlcGeometry, Plan};
use waykeeper_testbed::{PATIENCE, wait_for_some};

fn config(cores: Option<&str>) -> TwinConfig {
    let cores = cores.map(|text| text.parse().unwrap());
    TwinConfig { share: 1.0, cores, period_ns: 1_000_000_000 }
}

fn question(number: u64) -> LayoutQuestion {
    let llc = LlcGeometry::plain(11, 1 << 20, 4);
    let server = ServerDescription {
        chip: "test".to_owned(),
        llc,
        dca_ways: None,
        tenants: Vec::new(),
        devices: Vec::new(),
        knobs: KnobValues::default(),
        observed: Vec::new(),
    };
    let goal = Goal {
        lpw_floor: 0.97,
        lpw_each: 0.97,
        gain_per_loss: 2.0,
        hpw_floor: 0.9,
        lpw_weight: 0.1,
        latency_weight: 3.0,
        llc_cost: 1.0,
        memory_cost: 2.0,
    };
    let limits = LayoutLimits { min_ways: 1, most_classes: 4, dca_ways: Vec::new(), switches: Vec::new() };
    LayoutQuestion {
        number,
        server,
        limits,
        goal,
        since_found: BTreeMap::new(),
        kept: BTreeSet::new(),
        asked: Vec::new(),
        most: 1,
    }
}

fn answer(question: &LayoutQuestion) -> LayoutAnswer {
    LayoutAnswer { question: question.number, simulated: 1, best: Vec::new(), asked: Vec::new() }
}

/// Waits until it is so.
fn until<T>(look: impl FnMut() -> Option<T>) -> T {
    wait_for_some("it", look)
}

fn has_ended(ended: &Receiver<()>) {
    assert_eq!(ended.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn a_newer_question_replaces_one_that_waits_and_answers_to_older_ones_are_dropped() {
    let (go, may) = bounded::<()>(0);
    let (begins, begun) = bounded(8);
    let find = move |question: &LayoutQuestion| {
        begins.send(question.number).unwrap();
        may.recv().unwrap();
        answer(question)
    };
    let (mut twin, ended) = start(config(None), find).unwrap().unwrap();
    assert_eq!(twin.slots.status(), TwinStatus::default());
    twin.ask(question(1));
    assert_eq!(begun.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(twin.slots.status().state, TwinState::Computing);
    // Two more while the first is computed: only the last is looked at. Neither call waits.
    twin.ask(question(2));
    twin.ask(question(3));
    assert_eq!(twin.answer(), None);
    go.send(()).unwrap();
    assert_eq!(begun.recv_timeout(PATIENCE), Ok(3));
    // The first is answered by now, and another question was asked since.
    assert_eq!((twin.slots.status().answers, twin.answer()), (1, None));
    go.send(()).unwrap();
    assert_eq!(until(|| twin.answer()).question, 3);
    assert_eq!(twin.answer(), None);
    let status = twin.slots.status();
    assert_eq!((status.state, status.answers, status.panics), (TwinState::Idle, 2, 0));
    assert!(status.asked.is_some());
    drop(twin);
    has_ended(&ended);
}

#[test]
fn a_policy_that_counts_from_one_again_does_not_hear_the_answer_to_another_ones_first_question() {
    let (go, may) = bounded::<()>(8);
    let asked = Arc::new(AtomicU64::new(0));
    let times = asked.clone();
    let find = move |question: &LayoutQuestion| {
        may.recv().unwrap();
        LayoutAnswer { simulated: times.fetch_add(1, SeqCst), ..answer(question) }
    };
    let (mut twin, _ended) = start(config(None), find).unwrap().unwrap();
    twin.ask(question(1));
    until(|| (twin.slots.status().state == TwinState::Computing).then_some(()));
    // Another policy takes over and asks its first question.
    twin.ask(question(1));
    go.send(()).unwrap();
    until(|| (asked.load(SeqCst) == 1).then_some(()));
    go.send(()).unwrap();
    assert_eq!(until(|| twin.answer()).simulated, 1);
}

#[test]
fn a_panic_is_reported_and_the_next_question_is_answered() {
    let find = |question: &LayoutQuestion| match question.number {
        1 => panic!("a mistake of the test"),
        _ => answer(question),
    };
    let (mut twin, ended) = start(config(None), find).unwrap().unwrap();
    twin.ask(question(1));
    until(|| (twin.slots.status().state == TwinState::Failed).then_some(()));
    let status = twin.slots.status();
    assert_eq!((status.answers, status.panics), (0, 1));
    let why = twin.slots.failure.load_full().unwrap();
    assert_eq!(*why, "bug in waykeeper: a mistake of the test; it starts again after 1 s");
    twin.ask(question(2));
    assert_eq!(until(|| twin.answer()).question, 2);
    assert_eq!(twin.slots.status().state, TwinState::Idle);
    assert!(twin.slots.failure.load().is_none());
    drop(twin);
    has_ended(&ended);
}

#[test]
fn an_answer_with_a_number_that_is_none_is_a_failure_and_the_policy_does_not_hear_it() {
    let find = |question: &LayoutQuestion| {
        let one = Estimate::exact(1.0);
        let hpw = Estimate { value: f64::NAN, error: 0.0 };
        let wrong = Candidate { plan: Plan::default(), tenants: BTreeMap::new(), hpw, lpw: one };
        LayoutAnswer { best: vec![wrong], ..answer(question) }
    };
    let (mut twin, _ended) = start(config(None), find).unwrap().unwrap();
    twin.ask(question(1));
    until(|| (twin.slots.status().state == TwinState::Failed).then_some(()));
    assert_eq!(twin.answer(), None);
    assert!(twin.slots.failure.load_full().unwrap().contains("progress"));
}

#[test]
fn the_thread_ends_while_it_pauses_and_without_a_question() {
    let find = |_: &LayoutQuestion| -> LayoutAnswer { panic!("a mistake of the test") };
    let (mut twin, ended) = start(config(None), find).unwrap().unwrap();
    twin.ask(question(1));
    until(|| (twin.slots.status().panics == 1).then_some(()));
    drop(twin);
    has_ended(&ended);
    let (twin, ended) = start(config(None), answer).unwrap().unwrap();
    drop(twin);
    has_ended(&ended);
}

#[test]
fn the_thread_has_nice_19_and_rests_so_that_it_keeps_its_share() {
    let (tell, told) = bounded(1);
    let find = move |question: &LayoutQuestion| {
        let nice = rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        tell.send(nice).unwrap();
        answer(question)
    };
    let (mut twin, _ended) = start(config(None), find).unwrap().unwrap();
    let before = rustix::process::getpriority_process(None).unwrap();
    twin.ask(question(1));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(NICE));
    assert_eq!(rustix::process::getpriority_process(None).unwrap(), before, "only that thread");
    until(|| twin.answer());
    assert!(twin.slots.status().cpu > Duration::ZERO);
}

#[test]
fn cpus_that_are_not_there_are_refused_before_anything_is_asked() {
    let why = start(config(Some("0,1023")), answer).unwrap().err().unwrap();
    assert!(why.starts_with("CPU 1023 is not available to the daemon; "), "{why}");
}
