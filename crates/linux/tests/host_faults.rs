//! A fault in each kind of file operation of a LinuxHost's life: one report, no wrong state, no lost original.
//!
//! The kinds are found by letting a life pass and looking which operations were seen, so a new one is struck as soon as it
//! is there. Needs root and /dev/fuse.

mod on_vhost;

use on_vhost::Machine;
use rustix::io::Errno;
use std::collections::BTreeSet;
use waykeeper_host::{Host, Plan};
use waykeeper_linux::host::LinuxHost;
use waykeeper_units::{GroupId, PortId, WayMask};
use waykeeper_vhost::faults::{Calls, Fault, Operation, Rule};

/// What a manager does in its life, and all that was said about it.
fn live(machine: &Machine) -> String {
    let mut host = match machine.try_open() {
        Ok(host) => host,
        Err(error) => return error.to_string(),
    };
    let mut said = host.notes().join("\n");
    let mut plan = Plan { dca_ways: Some(WayMask::from_bits(0x700)), ..Plan::default() };
    plan.masks.insert(GroupId(2), WayMask::from_bits(0x003));
    plan.dca.insert(PortId(1), false);
    let mut look = |host: &mut LinuxHost| match host.sample() {
        // What is there must be true: of nothing else were these knobs ever made.
        Ok(snapshot) => {
            let masks = [WayMask::from_bits(0x7ff), WayMask::from_bits(0x003)];
            assert!(snapshot.knobs.masks.values().all(|mask| masks.contains(mask)), "{:?}", snapshot.knobs);
            let ways = [None, Some(WayMask::from_bits(0x600)), Some(WayMask::from_bits(0x700))];
            assert!(ways.contains(&snapshot.knobs.dca_ways), "{:?}", snapshot.knobs);
        }
        Err(error) => said += &error.to_string(),
    };
    look(&mut host);
    let applied = host.apply(&plan).unwrap_or_else(|error| panic!("{error}"));
    look(&mut host);
    if !applied.is_complete() {
        said += &format!("{applied:?}");
    }
    said += &host.complaints().join("\n");
    match host.close() {
        Ok(report) => {
            said += &report.failures().map(|(knob, why)| format!("{knob}: {why}\n")).collect::<String>()
        }
        Err(error) => said += &error.to_string(),
    }
    said
}

/// A path with every number in it made any number, so that one CPU or device stands for all.
fn kind(path: &str) -> String {
    let mut kind = String::new();
    for part in path.split('/') {
        let is_device =
            part.len() == 12 && part.ends_with(".0") || part.ends_with(".2") || part.ends_with(".6");
        let numbered = part.starts_with("cpu") && part.len() > 3 && part.as_bytes()[3].is_ascii_digit();
        let part = match part {
            _ if is_device => "*",
            _ if numbered => "cpu*",
            part if part.bytes().all(|byte| byte.is_ascii_digit()) => "*",
            part => part,
        };
        kind += if kind.is_empty() { "" } else { "/" };
        kind += part;
    }
    kind
}

#[test]
fn whatever_fails_is_told_and_everything_comes_back() {
    let machine = Machine::new("gold-6140");
    let found = machine.state();
    machine.faults.forget();
    let quiet = live(&machine);
    let kinds: BTreeSet<(String, Operation)> =
        machine.faults.seen().into_keys().map(|(path, operation)| (kind(&path), operation)).collect();
    assert!(kinds.len() > 40, "{kinds:?}");
    for (path, operation) in kinds {
        for fault in faults(&path, operation) {
            let what = format!("{operation:?} of {path}: {}", short(&fault));
            // A file that comes in pieces is read on; names are for people; the status is asked when something else fails.
            let names = ["osrelease", "driver", "/net", "/nvme", "last_cmd_status"];
            let harmless =
                matches!(fault, Fault::ShortRead(_)) || names.iter().any(|name| path.ends_with(name));
            let before = machine.faults.struck();
            let rule = Rule { path: path.clone(), operation: Some(operation), calls: Calls::All, fault };
            machine.faults.inject(rule);
            let said = live(&machine);
            let struck = machine.faults.struck() > before;
            machine.faults.lift();
            assert!(said != quiet || !struck || harmless, "{what} is told");
            // What could not be brought back is still in the journal: the next start does it.
            if machine.journal().exists() {
                drop(machine.try_open().unwrap_or_else(|error| panic!("after {what}: {error}")));
            }
            let now = machine.state();
            for (now, then) in now.lines().zip(found.lines()) {
                assert_eq!(now, then, "{what}");
            }
            assert_eq!(now.len(), found.len(), "{what}");
        }
    }
}

/// The faults that are tried: every refusal where a manager turns something, else one that stands for all; short reads
/// where a file is held open and read in one call.
fn faults(path: &str, operation: Operation) -> Vec<Fault> {
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    let all = [Errno::IO, Errno::BUSY, Errno::NOSPC, Errno::NODEV, Errno::ACCESS];
    let turns = matches!(operation, Operation::Write | Operation::MakeDirectory | Operation::RemoveDirectory);
    let mut faults: Vec<Fault> =
        all[..if turns { all.len() } else { 1 }].iter().map(|e| Fault::Refuse(*e)).collect();
    match operation {
        Operation::Read => faults.push(Fault::Garbage(vec![0xff; 0x1000])),
        Operation::Write => faults.push(Fault::ShortWrite(1)),
        _ => {}
    }
    if operation == Operation::Read && has(&["schemata", "mon_data", "/msr", "/config"]) {
        faults.push(Fault::ShortRead(1));
    }
    faults
}

fn short(fault: &Fault) -> String {
    match fault {
        Fault::Garbage(_) => "garbage".to_owned(),
        fault => format!("{fault:?}"),
    }
}
