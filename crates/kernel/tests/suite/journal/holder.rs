//! A process that cannot be identified holds the lock of resctrl/info. What a journal proves is restored; a group that no
//! journal has as made, and counter programs, are left until the lock is ours, and the restore says so.
//!
//! The holder is real: the process that took the lock has ended, and its child has it still.

use crate::journal::restoring::TableCell;
use crate::journal::*;
use rustix::fs::FlockOperation;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use waykeeper_kernel::resctrl::GROUP_PREFIX;
use waykeeper_kernel::restore::{Leftovers, Report};

/// The register that the run set, and one with a counter program that it left.
const WAYS: u32 = 0xc8b;
const SELECT: u32 = 0x186;

struct Holder(Child);

impl Holder {
    fn of(host: &Host) -> Holder {
        let info = host.root.path("/sys/fs/resctrl/info");
        fs::create_dir_all(&info).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "exec 9<\"$0\" && flock -x 9 && echo locked && exec sleep 600"])
            .arg(&info)
            .stdout(Stdio::piped())
            .spawn()
            .expect("not run: needs sh");
        let mut line = [0; 7];
        let mut out = child.stdout.take().expect("it is piped");
        out.read_exact(&mut line).expect("not run: needs flock (util-linux)");
        Holder(child)
    }

    fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn group(name: &str) -> Group {
    Group::control(name).expect("a name")
}

fn make(host: &Host, name: &str) -> PathBuf {
    let path = host.root.path("/sys/fs/resctrl").join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn registers() -> TableCell {
    let table = TableCell::default();
    table.borrow_mut().msrs.extend([((0, WAYS), 0x7ff), ((0, SELECT), 0x43_412e)]);
    table
}

/// What a lost run left: a select with its event.
fn leftovers() -> Leftovers {
    Leftovers { registers: vec![Original::whole_msr(0, None, SELECT, 0)], unproved: Vec::new() }
}

/// What `waykeeper restore` does.
fn restore(host: &Host, table: &TableCell) -> (Report, Result<(), JournalError>) {
    let mut journal = host.open().unwrap();
    let resctrl = mounted(&host.root, GROUP_PREFIX);
    let mut restorer = Restorer { root: &host.root, resctrl: resctrl.as_ref(), registers: table };
    let mut report = restorer.restore(&mut journal).unwrap();
    let known = journal.originals().to_vec();
    let adopted = restorer.adopt_orphans(&mut journal, &known, &mut leftovers, &mut report);
    (report, adopted)
}

#[test]
fn a_holder_that_cannot_be_identified_keeps_orphans_and_no_restore() {
    let host = Host::new();
    let holder = Holder::of(&host);
    let (ours, orphan) = (make(&host, "waykeeper-a"), make(&host, "waykeeper-x"));
    let mut journal = host.open().unwrap();
    journal.record(&[Original::NoGroup { group: group("waykeeper-a") }, msr(0, 0x600)]).unwrap();
    drop(journal);
    let table = registers();
    let (report, adopted) = restore(&host, &table);
    assert!(report.is_as_found() && table.borrow().msrs[&(0, WAYS)] == 0x600, "{report:?}");
    assert!(!ours.exists() && orphan.exists());
    let why = adopted.unwrap_err();
    assert!(matches!(&why, JournalError::Unidentified { .. }), "{why}");
    let said = "resctrl/info: a process that cannot be identified holds this lock, and no journal proves that waykeeper \
                made the resctrl groups waykeeper-x: they may be those of another manager";
    assert!(why.to_string().contains(said), "{why}");
    holder.end();
    let (report, adopted) = restore(&host, &table);
    assert!(adopted.is_ok() && !orphan.exists(), "{adopted:?}");
    assert!(!report.is_as_found() && table.borrow().msrs[&(0, SELECT)] == 0, "{report:?}");
}

#[test]
fn a_holder_that_ends_soon_is_waited_for() {
    let host = Host::new();
    let holder = Holder::of(&host);
    let orphan = make(&host, "waykeeper-x");
    let table = registers();
    let (_, adopted) = std::thread::scope(|scope| {
        scope.spawn(|| {
            // Longer than the lock of a reader is waited for.
            std::thread::sleep(Duration::from_millis(600));
            holder.end();
        });
        restore(&host, &table)
    });
    assert!(adopted.is_ok() && !orphan.exists(), "{adopted:?}");
}

#[test]
fn counter_programs_that_are_left_to_a_holder_are_named_and_removed_later() {
    let host = Host::new();
    let holder = Holder::of(&host);
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600)]).unwrap();
    drop(journal);
    fs::remove_file(&host.path).unwrap();
    let table = registers();
    let due =
        |report: &Report| report.unproved.iter().filter(|line| line.contains("may still be there")).count();
    let set = |report: &Report| report.unproved.iter().any(|line| line.contains("were set to 0"));
    for _ in 0..2 {
        let (report, adopted) = restore(&host, &table);
        assert!(adopted.is_ok() && due(&report) == 1 && !set(&report), "{report:?}");
        assert_eq!(table.borrow().msrs[&(0, SELECT)], 0x43_412e);
    }
    holder.end();
    let (report, _) = restore(&host, &table);
    assert!(due(&report) == 0 && set(&report) && !report.is_as_found(), "{report:?}");
    assert_eq!(table.borrow().msrs[&(0, SELECT)], 0);
    // It has been looked for: a counter of this kind is another tool's from now on.
    table.borrow_mut().msrs.insert((0, SELECT), 0x43_412e);
    let (_, adopted) = restore(&host, &table);
    assert!(adopted.is_ok(), "{adopted:?}");
    assert_eq!(table.borrow().msrs[&(0, SELECT)], 0x43_412e);
}

#[test]
fn what_a_lost_run_left_is_looked_for_after_a_restore_that_was_killed() {
    let host = Host::new();
    let mut journal = host.open().unwrap();
    journal.record(&[msr(0, 0x600)]).unwrap();
    drop(journal);
    fs::remove_file(&host.path).unwrap();
    let table = registers();
    // Killed between the journal and what no journal has.
    let mut journal = host.open().unwrap();
    let mut restorer = Restorer { root: &host.root, resctrl: None, registers: &table };
    assert!(!restorer.restore(&mut journal).unwrap().is_as_found());
    drop(journal);
    let (report, _) = restore(&host, &table);
    assert!(report.damage.is_empty(), "{report:?}");
    assert_eq!(table.borrow().msrs[&(0, SELECT)], 0, "{report:?}");
}

#[test]
fn a_group_that_was_about_to_be_made_is_removed_like_an_orphan_and_left_to_a_holder() {
    let host = Host::new();
    let planned = Original::Planned { group: group("waykeeper-a") };
    let plan = || host.open().unwrap().record(std::slice::from_ref(&planned)).unwrap();
    let table = registers();
    let holder = Holder::of(&host);
    plan();
    let path = make(&host, "waykeeper-a");
    for _ in 0..2 {
        let (report, adopted) = restore(&host, &table);
        // It stays in the journal, so it is no orphan either.
        assert!(adopted.is_ok() && report.is_complete() && !report.is_as_found(), "{report:?}");
        let [(knob, RestoreOutcome::Away(why))] = &report.knobs[..] else { panic!("{report:?}") };
        assert!(*knob == planned && why.contains("does not prove"), "{why}");
        assert!(path.exists() && report.unproved.is_empty() && host.path.exists());
    }
    holder.end();
    let (report, _) = restore(&host, &table);
    assert!(report.is_as_found() && !path.exists() && !host.path.exists(), "{report:?}");
}

#[test]
fn a_manager_that_runs_takes_the_lock_once_it_is_free() {
    let host = Host::new();
    let holder = Holder::of(&host);
    let mut journal = host.open().unwrap();
    let info = rustix::fs::open(
        host.root.path("/sys/fs/resctrl/info"),
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let is_free = || {
        let taken = rustix::fs::flock(&info, FlockOperation::NonBlockingLockExclusive).is_ok();
        let _ = rustix::fs::flock(&info, FlockOperation::Unlock);
        taken
    };
    holder.end();
    assert!(is_free(), "the holder has ended");
    journal.record(&[msr(0, 0x600)]).unwrap();
    assert!(!is_free(), "the manager has it");
    drop(journal);
    assert!(is_free(), "the manager has ended");
}
