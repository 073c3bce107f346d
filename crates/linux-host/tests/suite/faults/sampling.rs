//! Faults while a host is sampled: each number is true or missing, and the next sample is complete again.

use crate::faults::machine::machine;
use crate::faults::strike::{Case, Rotation, Verdicts};
use std::collections::BTreeSet;
use waykeeper_host::{Host, HostCounter, Reading, Snapshot};
use waykeeper_linux_host::LinuxHost;
use waykeeper_testbed::MS;

pub fn readings(sample: &Snapshot) -> Vec<(String, Reading<u64>)> {
    let mut readings = Vec::new();
    for (id, group) in &sample.groups {
        let named = group.iter().map(|(counter, reading)| (format!("{} of {id}", counter.name()), reading));
        readings.extend(named);
    }
    readings.extend(sample.socket.iter().map(|(counter, reading)| (counter.name().to_owned(), reading)));
    for (id, port) in &sample.ports {
        let named = port.iter().map(|(counter, reading)| (format!("{} of {id}", counter.name()), reading));
        readings.extend(named);
    }
    readings
}

/// Values that are neither true nor missing.
fn untrue(truth: &Snapshot, sample: &Snapshot) -> String {
    let mut wrong = Vec::new();
    for ((name, expected), (_, found)) in readings(truth).iter().zip(readings(sample)) {
        if found.value().is_some() && found != *expected {
            wrong.push(format!("{name} is {found:?}, not {expected:?}"));
        }
    }
    let (expected, found) = (&truth.knobs, &sample.knobs);
    if found.iter().any(|(knob, setting)| expected.get(knob) != Some(setting)) {
        wrong.push(format!("the knobs are {found:?}, not {expected:?}"));
    }
    wrong.join("; ")
}

/// What is missing; a complete sample needs no report.
fn missing(truth: &Snapshot, sample: &Snapshot) -> String {
    match readings(truth) == readings(sample) && truth.knobs == sample.knobs {
        true => String::new(),
        false => "something is missing".to_owned(),
    }
}

#[test]
fn a_number_is_true_or_missing_and_reported() {
    let machine = machine();
    let before = machine.state();
    let mut host = machine.open();
    let sample = |host: &mut LinuxHost| host.sample().unwrap_or_else(|error| panic!("{error}"));
    machine.run(2 * MS);
    sample(&mut host);
    machine.run(2 * MS);
    machine.faults.forget();
    let truth = sample(&mut host);
    let seen = machine.faults.seen();
    let values =
        readings(&truth).iter().filter(|(_, reading)| reading.value().is_some_and(|value| value > 0)).count();
    assert!(values > 25, "{:#?}", readings(&truth));
    let mut verdicts = Verdicts::default();
    let mut rotation = Rotation::default();
    // Samples are fast: eight rounds, so that every operation gets most kinds of faults.
    let cases: Vec<Case> = (0..8).flat_map(|_| rotation.cases(&machine, &seen)).collect();
    for case in &cases {
        let (result, struck) = Verdicts::strike(&machine, case, || host.sample());
        let mut reports: BTreeSet<String> = host.complaints().into_iter().collect();
        let mut whole = "nothing could be read".to_owned();
        match result {
            // This one error covers all complaints.
            Err(error) => reports = BTreeSet::from([error.to_string()]),
            Ok(found) => {
                verdicts.wrong(case, &untrue(&truth, &found));
                whole = missing(&truth, &found);
            }
        }
        verdicts.judge(&machine, case, struck, &reports, &whole);
        let next = sample(&mut host);
        verdicts.wrong(case, &untrue(&truth, &next));
        verdicts.wrong(case, &missing(&truth, &next));
        verdicts.wrong(case, &host.complaints().join("; "));
    }
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(machine.state(), before);
    verdicts.end(100);
}
