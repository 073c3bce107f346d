//! Faults while a host is opened: either nothing is changed, or what is missing is reported.

use crate::faults::machine::machine;
use crate::faults::strike::{Case, Rotation, Verdicts, every};
use rustix::io::Errno;
use std::collections::BTreeSet;
use waykeeper_host::{Host, Inventory, Reading, Snapshot};
use waykeeper_linux_host::LinuxHost;
use waykeeper_testbed::{MS, MountedHost};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

/// What a fault could have changed without a report: the inventory, and which readings have values.
struct Undisturbed {
    inventory: Inventory,
    notes: BTreeSet<String>,
    sample: Snapshot,
}

impl Undisturbed {
    fn of(host: &mut LinuxHost) -> Undisturbed {
        Undisturbed {
            inventory: host.inventory().clone(),
            notes: host.notes().iter().cloned().collect(),
            sample: host.sample().unwrap_or_else(|error| panic!("{error}")),
        }
    }

    /// Unreported differences.
    fn differs(&self, host: &mut LinuxHost) -> String {
        if *host.inventory() != self.inventory {
            return "the inventory is another".to_owned();
        }
        let sample = match host.sample() {
            Err(error) => return error.to_string(),
            Ok(sample) => sample,
        };
        match () {
            () if kinds(&sample) != kinds(&self.sample) => "other readings have values".to_owned(),
            () if sample.knobs != self.sample.knobs => "the knobs read otherwise".to_owned(),
            () => String::new(),
        }
    }
}

/// Which readings have values.
fn kinds(sample: &Snapshot) -> Vec<Reading<()>> {
    let groups = sample.groups.values().flat_map(|group| group.iter().map(|(_, reading)| reading));
    let ports = sample.ports.values().flat_map(|port| port.iter().map(|(_, reading)| reading));
    let socket = sample.socket.iter().map(|(_, reading)| reading);
    groups.chain(ports).chain(socket).map(|reading| reading.map(|_| ())).collect()
}

#[test]
fn a_host_is_opened_whole_or_with_what_is_missing_reported() {
    let machine = machine();
    machine.run(2 * MS);
    let before = machine.state();
    machine.faults.forget();
    let mut host = machine.open();
    let seen = machine.faults.seen();
    let undisturbed = Undisturbed::of(&mut host);
    host.close().expect("closed");
    drop(host);
    assert_eq!(machine.state(), before);
    let mut verdicts = Verdicts::default();
    for case in Rotation::default().cases(&machine, &seen).iter().step_by(every()) {
        opened(&machine, case, &undisturbed, &mut verdicts);
        verdicts.same(&machine, case, &before);
    }
    verdicts.end(150 / every());
}

fn opened(machine: &MountedHost, case: &Case, undisturbed: &Undisturbed, verdicts: &mut Verdicts) {
    let (result, struck) = Verdicts::strike(machine, case, || machine.try_open());
    let (reports, whole) = match result {
        Err(error) => (BTreeSet::from([error.to_string()]), String::new()),
        Ok(mut host) => {
            let notes: BTreeSet<String> = host.notes().iter().cloned().collect();
            let reports: BTreeSet<String> = notes.difference(&undisturbed.notes).cloned().collect();
            let whole = undisturbed.differs(&mut host);
            match host.close() {
                Err(error) => verdicts.wrong(case, &error.to_string()),
                Ok(report) => {
                    for (knob, why) in report.failures() {
                        verdicts.wrong(case, &format!("{knob}: {why}"));
                    }
                }
            }
            (reports, whole)
        }
    };
    verdicts.judge(machine, case, struck, &reports, &whole);
    // What could not be restored while the fault was active is restored now.
    verdicts.wrong(case, &machine.restore_failures());
}

/// If an operation that every register needs fails, each kind of counter is reported once, not each box.
#[test]
fn a_device_that_refuses_everything_is_not_reported_a_hundred_times() {
    let machine = machine();
    let before = machine.state();
    for (operation, errno) in
        [(Operation::Open, Errno::ACCESS), (Operation::Read, Errno::IO), (Operation::Write, Errno::PERM)]
    {
        let fault = FileFault::Refuse(errno);
        let rule =
            FaultRule { path: "dev/cpu/*/msr".into(), operation: Some(operation), calls: Calls::All, fault };
        machine.faults.inject(rule);
        let mut host = machine.open();
        let notes = host.notes().to_vec();
        assert!((2..=7).contains(&notes.len()), "{operation:?}: {notes:#?}");
        assert!(
            notes.iter().any(|note| note.contains("CPU 0") || note.contains("/dev/cpu/0/msr")),
            "{notes:#?}"
        );
        machine.faults.lift();
        assert!(host.close().expect("closed").is_complete());
        drop(host);
        assert_eq!(machine.state(), before);
    }
}
