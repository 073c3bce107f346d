//! Faults while a host is closed, and while the next start restores what a crash left: each failure is reported and
//! stays in the journal, and the next try restores everything.

use crate::faults::machine::machine;
use crate::faults::strike::{Case, Rotation, Verdicts, every};
use crate::faults::turning::plan;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Host;
use waykeeper_linux_host::LinuxHost;
use waykeeper_testbed::{HostState, MS, MountedHost};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

/// A host on which every knob is changed.
fn turned(machine: &MountedHost) -> LinuxHost {
    let mut host = machine.open();
    let plan = plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false);
    let applied = host.apply(&plan).unwrap_or_else(|error| panic!("{error}"));
    assert!(applied.is_complete(), "{applied:#?}");
    host
}

/// One report per reason, each with the first knob that could not be restored because of it.
fn reasons(failures: impl Iterator<Item = (String, String)>) -> BTreeSet<String> {
    let mut reasons: BTreeMap<String, String> = BTreeMap::new();
    for (knob, why) in failures {
        reasons.entry(why).or_insert(knob);
    }
    reasons.into_iter().map(|(why, knob)| format!("{knob}: {why}")).collect()
}

/// Restores what is left, by hand and by the next start in turn.
fn next(machine: &MountedHost, case: &Case, turn: usize, verdicts: &mut Verdicts) {
    match turn % 2 {
        0 => verdicts.wrong(case, &machine.restore_failures()),
        _ => match machine.try_open() {
            Err(error) => verdicts.wrong(case, &error.to_string()),
            Ok(mut host) => assert!(host.close().expect("closed").is_complete()),
        },
    }
}

fn left(machine: &MountedHost, before: &HostState) -> &'static str {
    if machine.state() == *before { "" } else { "not all is as it was" }
}

#[test]
fn what_cannot_be_given_back_is_reported_and_comes_back_later() {
    let machine = machine();
    machine.run(MS);
    let before = machine.state();
    let mut host = turned(&machine);
    machine.faults.forget();
    assert!(host.close().expect("closed").is_complete());
    let seen = machine.faults.seen();
    drop(host);
    let mut verdicts = Verdicts::default();
    for (turn, case) in Rotation::default().cases(&machine, &seen).iter().step_by(every()).enumerate() {
        let mut host = turned(&machine);
        let (result, struck) = Verdicts::strike(&machine, case, || host.close());
        let mut reports = match result {
            Err(error) => BTreeSet::from([error.to_string()]),
            Ok(report) => reasons(report.failures().map(|(knob, why)| (knob.to_string(), why.to_owned()))),
        };
        reports.extend(host.complaints());
        drop(host);
        verdicts.judge(&machine, case, struck, &reports, left(&machine, &before));
        next(&machine, case, turn, &mut verdicts);
        verdicts.same(&machine, case, &before);
        // A host that is just dropped reports nothing, but the journal has the failures.
        if turn % 3 == 0 {
            let host = turned(&machine);
            Verdicts::strike(&machine, case, || drop(host));
            if !left(&machine, &before).is_empty() && !machine.journal().exists() {
                verdicts.wrong(case, "dropped, not brought back, and forgotten");
            }
            next(&machine, case, turn + 1, &mut verdicts);
            verdicts.same(&machine, case, &before);
        }
    }
    // Restored counters are not read again, so there are fewer operations to fail than below.
    verdicts.end(25 / every());
}

/// A manager that crashes: none of its final writes reach the machine.
fn crashed(machine: &MountedHost) {
    let host = turned(machine);
    for operation in [Operation::Write, Operation::RemoveDirectory] {
        let fault = FileFault::Refuse(Errno::IO);
        machine.faults.inject(FaultRule {
            path: "*".into(),
            operation: Some(operation),
            calls: Calls::All,
            fault,
        });
    }
    drop(host);
    machine.faults.lift();
    assert!(machine.journal().exists());
}

#[test]
fn what_a_crash_left_comes_back_in_spite_of_faults() {
    let machine = machine();
    machine.run(MS);
    let before = machine.state();
    crashed(&machine);
    assert_ne!(machine.state(), before);
    machine.faults.forget();
    machine.restore().unwrap();
    let seen = machine.faults.seen();
    let mut verdicts = Verdicts::default();
    for (turn, case) in Rotation::default().cases(&machine, &seen).iter().step_by(every()).enumerate() {
        crashed(&machine);
        let (result, struck) = Verdicts::strike(&machine, case, || machine.restore());
        let reports = reasons(result.err().into_iter().flatten());
        verdicts.judge(&machine, case, struck, &reports, left(&machine, &before));
        next(&machine, case, turn, &mut verdicts);
        verdicts.same(&machine, case, &before);
    }
    verdicts.end(30 / every());
}
