//! A full disk under the journal, and other tools at work: no knob is written that could not be restored, and nothing
//! of another program's is changed.

use crate::faults::machine::machine;
use crate::faults::turning::{knobs, plan};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use waykeeper_host::{Host, Knob, KnobKind, KnobOutcome, Setting};
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions};
use waykeeper_testbed::{MS, MountedHost, state_difference};
use waykeeper_units::{WayMask, WorkloadId};
use waykeeper_vhost::faults::Operation;

/// A full file system of a few pages.
struct Full(PathBuf);

impl Full {
    fn new() -> Full {
        let path = tempfile::tempdir().expect("a temporary directory").keep();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), Some(c"size=64k,mode=755"))
            .expect("not run: needs root");
        let full = Full(path);
        full.fill();
        full
    }

    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).expect("made");
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.join("filler")).expect("removed");
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn with_a_full_disk_under_the_journal_nothing_is_touched() {
    let machine = machine();
    machine.run(MS);
    let before = machine.state();
    let disk = Full::new();
    let journal = disk.0.join("journal");
    let options = || LinuxHostOptions { journal: journal.clone(), ..machine.options() };
    machine.faults.forget();
    let error = LinuxHost::open(options()).expect_err("the disk is full").to_string();
    let start = format!("{}: cannot journal the original values: No space left on device", journal.display());
    assert!(error.starts_with(&start), "{error}");
    let touches = |operation: &Operation| matches!(operation, Operation::Write | Operation::MakeDirectory);
    let touched: Vec<_> =
        machine.faults.seen().into_keys().filter(|(_, operation)| touches(operation)).collect();
    assert!(touched.is_empty(), "{touched:#?}");
    assert_eq!(machine.state(), before);
    disk.empty();
    let mut host = LinuxHost::open(options()).unwrap_or_else(|error| panic!("{error}"));
    let plan = plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false);
    assert!(host.apply(&plan).is_ok_and(|applied| applied.is_complete()));
    // A disk that becomes full later does not prevent the restore.
    disk.fill();
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(machine.state(), before);
}

#[test]
fn another_tools_lock_is_waited_for_and_reported() {
    let machine = machine();
    machine.run(MS);
    let before = machine.state();
    let lock = File::open(machine.root().path("/sys/fs/resctrl")).expect("there");
    let held = |operation| flock(&lock, operation).expect("locked");
    held(FlockOperation::LockExclusive);
    let error = machine.try_open().expect_err("another process holds the lock").to_string();
    assert!(error.contains("/sys/fs/resctrl: locking: ") && error.contains("holds the lock"), "{error}");
    assert_eq!(machine.state(), before);
    held(FlockOperation::Unlock);
    let mut host = machine.open();
    let plan = plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false);
    held(FlockOperation::LockExclusive);
    let applied = host.apply(&plan).unwrap_or_else(|error| panic!("{error}"));
    let busy =
        |outcome: &KnobOutcome| matches!(outcome, KnobOutcome::Busy(why) if why.contains("holds the lock"));
    assert!(applied.of_kind(KnobKind::Mask).all(|(_, outcome)| busy(outcome)), "{applied:#?}");
    assert!(knobs(&mut host).masks().map(|(_, mask)| mask).all(|mask| mask.bits() == 0x7ff));
    // That lock does not cover registers.
    assert_eq!(applied[Knob::DcaWays], KnobOutcome::Applied);
    // Any user can hold the lock for ever; the restore does not wait for it.
    let report = host.close().expect("closed");
    assert!(report.is_complete(), "{report:?}");
    drop(host);
    held(FlockOperation::Unlock);
    let after = machine.state();
    assert!(after == before, "{}", state_difference(&before, &after));
}

/// A process of an unprivileged user that holds the lock.
struct UnprivilegedLockHolder(Child);

impl UnprivilegedLockHolder {
    fn locks(machine: &MountedHost) -> UnprivilegedLockHolder {
        let holds = "flock(STDIN, 2) or die $!; $| = 1; print \"locked\n\"; sleep 600";
        let mut child = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "perl", "-e", holds])
            // Only root can open the tree here; any user can open a real resctrl.
            .stdin(File::open(machine.root().path("/sys/fs/resctrl")).expect("there"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("not run: needs setpriv");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it speaks");
        assert_eq!(line, "locked\n");
        UnprivilegedLockHolder(child)
    }
}

impl Drop for UnprivilegedLockHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_lock_of_a_user_without_write_permission_stops_and_delays_nothing() {
    let machine = machine();
    machine.run(MS);
    let before = machine.state();
    let lock_holder = UnprivilegedLockHolder::locks(&machine);
    let mut host = machine.open();
    let plan = plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false);
    assert!(host.apply(&plan).is_ok_and(|applied| applied.is_complete()));
    let tenants = machine.options().tenants;
    let fewer = tenants[1..].to_vec();
    assert_eq!(host.set_tenants(fewer).left.len(), 1);
    assert_eq!(host.set_tenants(tenants).arrived.len(), 1);
    let reported = [host.notes().to_vec(), host.complaints()].concat();
    let pid = lock_holder.0.id();
    let lock: Vec<&String> = reported.iter().filter(|reported| reported.contains("the lock on ")).collect();
    assert!(
        matches!(lock[..], [one] if one.contains(&format!("perl (pid {pid}), which cannot write there"))),
        "{reported:?}"
    );
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert_eq!(machine.state(), before);
    // The process that took the lock may have ended while an unidentifiable one still holds it: that is honoured for 2
    // s.
    drop(lock_holder);
    let lock = File::open(machine.root().path("/sys/fs/resctrl")).expect("there");
    let taken = Command::new("flock").args(["-x", "0"]).stdin(lock.try_clone().expect("cloned")).status();
    assert!(taken.expect("flock (util-linux)").success());
    let mut host =
        LinuxHost::open(LinuxHostOptions { tenants: Vec::new(), ..machine.options() }).expect("a host");
    assert!(host.set_tenants(machine.options().tenants).postponed.is_some());
    let arrived = (0..100).find(|_| {
        std::thread::sleep(Duration::from_millis(50));
        host.set_tenants(machine.options().tenants).arrived.len() == 4
    });
    assert!(arrived.is_some(), "{:?}", host.complaints());
    drop(host);
    assert_eq!(machine.state(), before);
}

#[test]
fn another_tools_groups_take_the_last_classes() {
    let machine = machine();
    machine.run(MS);
    // 8 classes with MBA: the default group and five of another tool leave two for four tenants.
    for group in 0..5 {
        machine.make_foreign_group(&format!("theirs{group}"));
    }
    // Groups that other programs remove are made again.
    let options = LinuxHostOptions { correct: true, ..machine.options() };
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(host.inventory().known_llc().clos_count, 3);
    // Another program removes fio's group and takes its class.
    std::fs::remove_dir(machine.root().path("/sys/fs/resctrl/waykeeper-fio")).expect("removed");
    let last = machine.make_foreign_group("last");
    let masks = plan(&host, [0x00f, 0x7ff, 0x0f0, 0x7ff], 0x7c0, false);
    let applied = host.apply(&masks).unwrap_or_else(|error| panic!("{error}"));
    let given: Vec<bool> =
        applied.of_kind(KnobKind::Mask).map(|(_, outcome)| *outcome == KnobOutcome::Applied).collect();
    assert_eq!(given.iter().filter(|given| !**given).count(), 1, "{applied:#?}");
    for (knob, outcome) in applied.of_kind(KnobKind::Mask) {
        // The class may be free later: the control loop tries again.
        assert!(!matches!(outcome, KnobOutcome::Refused(_)), "{outcome:?}");
        if let KnobOutcome::Busy(why) = outcome {
            assert!(why.contains("making the group: No space left on device"), "{why}");
            assert_eq!(knobs(&mut host).get(knob), Some(&Setting::Ways(WayMask::from_bits(0x7ff))));
        }
    }
    std::fs::remove_dir(&last).expect("removed");
    assert!(host.apply(&masks).is_ok_and(|applied| applied.is_complete()));
    assert_eq!(knobs(&mut host).mask(WorkloadId(2)).unwrap().bits(), 0x0f0);
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    // No class at all: every tenant keeps the default group's mask, and another mask is refused with the reason.
    machine.make_foreign_group("last");
    machine.make_foreign_group("very last");
    let before = machine.state();
    let mut host = machine.open();
    let applied = host.apply(&masks).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        applied.of_kind(KnobKind::Mask).all(|(_, outcome)| matches!(outcome, KnobOutcome::Refused(_))),
        "{applied:#?}"
    );
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert_eq!(machine.state(), before);
    // A tenant's CPU in another program's group is a conflict; the error names both.
    std::fs::write(machine.root().path("/sys/fs/resctrl/theirs0/cpus_list"), "3\n").expect("written");
    let error = machine.try_open().expect_err("another manager is at work").to_string();
    assert!(error.contains("CPUs 3 of tenant scan") && error.contains("theirs0"), "{error}");
}
