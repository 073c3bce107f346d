//! Which faults are injected into which operations, and what a good report is.
//!
//! All operations of a phase are known with their counts. They are thinned: of files of one kind (a topology file of
//! each CPU, the configuration space of each device of one class, a tenant's group) a different one is used each time.
//! Each kind of operation fails at one call with one fault and at all calls with another, the faults in rotation; files
//! with many registers fail at ten calls. False values are implausible (no kernel writes them) or zero: a plausible
//! false value that is always the same cannot be detected. Writes that report success without effect are left out, as
//! counters are not read back. It must not know the purpose of the operations.

use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_testbed::{HostState, MountedHost, is_long, state_difference};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

/// One fault at one place.
#[derive(Clone, Debug)]
pub struct Case {
    pub path: String,
    pub operation: Operation,
    pub calls: Calls,
    pub fault: FileFault,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fault = match &self.fault {
            FileFault::Garbage(bytes) => {
                format!("garbage {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(8)]))
            }
            other => format!("{other:?}"),
        };
        write!(f, "{:?} ({:?}) of {}: {fault}", self.operation, self.calls, self.path)
    }
}

/// Errors of refused operations.
const REFUSALS: [Errno; 5] = [Errno::IO, Errno::BUSY, Errno::NOSPC, Errno::NODEV, Errno::ACCESS];

/// Files that hold registers, not text.
fn is_binary(path: &str) -> bool {
    ["/msr", "/cpuid", "/config"].iter().any(|end| path.ends_with(end))
}

/// False results of a read. The last MSR is below 0x2000.
fn lies(path: &str) -> Vec<FileFault> {
    match is_binary(path) {
        true => vec![
            FileFault::Garbage(vec![0xff; 0x2000]),
            FileFault::ShortRead(1),
            FileFault::Garbage(vec![0; 0x2000]),
            FileFault::ShortRead(0),
        ],
        false => vec![
            FileFault::Garbage(b"\xff\x00 no file of a kernel".to_vec()),
            FileFault::ShortRead(1),
            FileFault::Garbage(Vec::new()),
            FileFault::Garbage(b"99999999999999999999\n".to_vec()),
            FileFault::Garbage(b"-2\n".to_vec()),
        ],
    }
}

/// Takes faults in turn, so that each is used.
#[derive(Default)]
pub struct Rotation {
    turn: usize,
}

impl Rotation {
    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        self.turn += 1;
        all[self.turn % all.len()].clone()
    }

    /// The cases for the operations that were seen: all in the long form, else every second one of each kind of operation.
    pub fn cases(&mut self, machine: &MountedHost, seen: &BTreeMap<(String, Operation), u64>) -> Vec<Case> {
        let mut kinds: BTreeMap<(String, Operation), Vec<(&String, u64)>> = BTreeMap::new();
        for ((path, operation), count) in seen {
            let kind = (kind(machine, path), *operation);
            kinds.entry(kind).or_default().push((path, *count));
        }
        let mut cases = Vec::new();
        for (index, ((_, operation), places)) in (0..).zip(kinds) {
            let calls = places.iter().map(|(_, count)| *count).max().unwrap_or(1);
            // A file with that many calls has many registers.
            let strikes = if calls >= 40 { 10 } else { 2 };
            for strike in 0..strikes {
                let (path, count) = self.of(&places);
                let refusal = FileFault::Refuse(self.of(&REFUSALS));
                let fault = match operation {
                    Operation::Read if strike % 2 == 1 => self.of(&lies(path)),
                    Operation::Write if strike % 2 == 1 => FileFault::ShortWrite(1),
                    _ => refusal,
                };
                let nth = Calls::Nth(1 + (count * strike / strikes + strike) % count);
                let calls = if strike == 1 { Calls::All } else { nth };
                // The faults rotate alike in both forms.
                if !is_long() && (index + strike) % 2 == 1 {
                    continue;
                }
                cases.push(Case { path: path.clone(), operation, calls, fault });
            }
        }
        cases
    }
}

/// Which of the cases are tried where each takes a host that is opened first.
pub fn every() -> usize {
    if is_long() { 1 } else { 2 }
}

/// The kind of a path: files with the same kind replace each other.
fn kind(machine: &MountedHost, path: &str) -> String {
    let mut kind = Vec::new();
    for part in path.split('/') {
        if let Some(class) = machine.classes().get(part) {
            // Only the last device of the path counts.
            kind.clear();
            kind.push(class.clone());
        } else if part.starts_with(GROUP_PREFIX) {
            kind.push("group".to_owned());
        } else {
            let digits = |letter: char| if letter.is_ascii_digit() { '#' } else { letter };
            let plain = part.chars().map(digits).collect::<String>().replace("##", "#");
            kind.push(if part.contains("L3") || part.contains("L2") { part.to_owned() } else { plain });
        }
    }
    kind.join("/")
}

/// The failed checks of one phase.
#[derive(Default)]
pub struct Verdicts {
    wrong: Vec<String>,
    reports: usize,
    cases: usize,
}

impl Verdicts {
    /// Injects the fault, runs `act`, lifts the fault. The second value is how often the fault was hit.
    pub fn strike<R>(machine: &MountedHost, case: &Case, act: impl FnOnce() -> R) -> (R, u64) {
        let Case { path, operation, calls, fault } = case.clone();
        let struck = machine.faults.struck();
        machine.faults.inject(FaultRule { path, operation: Some(operation), calls, fault });
        let result = act();
        machine.faults.lift();
        (result, machine.faults.struck() - struck)
    }

    /// Checks the reports. `whole` is why a report was needed, or empty if it was not.
    pub fn judge(
        &mut self,
        machine: &MountedHost,
        case: &Case,
        struck: u64,
        reports: &BTreeSet<String>,
        whole: &str,
    ) {
        let named = reports.is_empty() || reports.iter().any(|report| names(machine, report, &case.path));
        if !named {
            self.wrong(case, &format!("the report does not say where: {reports:#?}"));
        }
        self.judge_knobs(case, struck, reports, whole);
    }

    /// The same for reports that are listed with their knob, and need not name it.
    pub fn judge_knobs(&mut self, case: &Case, struck: u64, reports: &BTreeSet<String>, whole: &str) {
        self.cases += 1;
        self.reports += reports.len();
        let mut wrong = |why: String| self.wrong.push(format!("{case}: {why}"));
        if struck == 0 {
            wrong("was not struck".to_owned());
        }
        if reports.is_empty() && !whole.is_empty() {
            wrong(format!("silent, and {whole}"));
        }
        if case.calls != Calls::All && reports.len() > 1 {
            wrong(format!("{} reports of one failure: {reports:#?}", reports.len()));
        }
        for report in reports {
            // The length includes the path of a temporary directory.
            if report.contains('\n') || report.len() > 600 || report.chars().any(char::is_control) {
                wrong(format!("not one line: {report:?}"));
            }
        }
    }

    /// Adds another error of a case.
    pub fn wrong(&mut self, case: &Case, why: &str) {
        if !why.is_empty() {
            self.wrong.push(format!("{case}: {why}"));
        }
    }

    /// Checks that the state is as before the phase, and panics if not: later cases would mean nothing.
    pub fn same(&mut self, machine: &MountedHost, case: &Case, before: &HostState) {
        let after = machine.state();
        if after != *before {
            self.wrong(case, &format!("left behind:\n{}", state_difference(before, &after)));
            panic!("{}", self.text());
        }
        if machine.journal().exists() {
            self.wrong(case, "the journal is still there");
        }
    }

    fn text(&self) -> String {
        format!("{} of {} cases:\n{}", self.wrong.len(), self.cases, self.wrong.join("\n"))
    }

    /// Ends the phase, which must have had at least `cases` cases in the long form and half as many else, more than half
    /// of them with a report.
    pub fn end(self, cases: usize) {
        let cases = if is_long() { cases } else { cases / 2 };
        assert!(self.wrong.is_empty(), "{}", self.text());
        assert!(
            self.cases >= cases && self.reports * 2 > self.cases,
            "{} cases, {} reports",
            self.cases,
            self.reports
        );
    }
}

/// Whether a report names the place: the file, or its CPU, device or group.
fn names(machine: &MountedHost, report: &str, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    if report.contains(&machine.root().path(path).display().to_string()) {
        return true;
    }
    match parts[..] {
        ["dev", "cpu", cpu, _] => {
            report.contains(&format!("CPU {cpu}")) || report.contains(&format!("core {cpu}"))
        }
        ["sys", "fs", "resctrl", group, ..] if group.starts_with(GROUP_PREFIX) => report.contains(group),
        _ => parts.iter().rev().any(|part| machine.classes().contains_key(*part) && report.contains(part)),
    }
}
