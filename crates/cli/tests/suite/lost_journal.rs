//! A daemon is killed and its journal cut or removed: what `restore`, `doctor`, `status` and the next daemon say and do.
//!
//! Needs root and /dev/fuse.

use crate::common::daemon;

use daemon::Setup;
use rustix::process::Signal;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use waykeeper_kernel::journal::usual_path;
use waykeeper_testbed::MountedHost;

/// A policy that makes a group for each tenant.
const ISOLATE: &str = "[metrics]\nlisten = \"off\"\n[policy]\nname = \"isolate\"";

/// A host with another tool's group, and a daemon that was killed.
struct Killed {
    machine: MountedHost,
    setup: Setup,
}

impl Killed {
    fn new() -> Killed {
        let machine = MountedHost::new("gold-6140");
        machine.make_foreign_group("pqos-a");
        let setup = Setup::plain(&machine, ISOLATE);
        let mut daemon = setup.start();
        assert!(daemon.in_charge(), "{}", daemon.log());
        daemon.signal(Signal::KILL);
        daemon.end();
        let killed = Killed { machine, setup };
        assert!(!killed.groups().is_empty() && killed.setup.journal.exists());
        killed
    }

    /// The journal of commands that name none.
    fn usual_journal(&self) -> PathBuf {
        usual_path(&self.machine.root())
    }

    fn groups(&self) -> Vec<String> {
        let names = self.machine.root().list("/sys/fs/resctrl").expect("listed");
        assert!(names.iter().any(|name| name == "pqos-a"), "another tool's group stays: {names:?}");
        names.into_iter().filter(|name| name.starts_with("waykeeper-")).collect()
    }

    /// Runs the program on this host; returns its exit status and all that it prints.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_waykeeper")).args(words).output().expect("it is built");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), said.concat())
    }

    fn restore(&self) -> (Option<i32>, String) {
        self.run(&["restore", "--config", self.setup.config.to_str().expect("ASCII")])
    }

    fn doctor(&self) -> String {
        let root = self.machine.root().prefix().display().to_string();
        self.run(&["doctor", "--root", &root]).1
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let usual = self.usual_journal();
        for other in ["lock", "seal", "unproved"] {
            let _ = std::fs::remove_file(usual.with_extension(other));
        }
        let _ = std::fs::remove_file(usual);
    }
}

#[test]
fn restore_removes_what_a_cut_journal_no_longer_names_and_exits_with_1() {
    for length in [0, 104] {
        let killed = Killed::new();
        let journal = killed.setup.journal.clone();
        let whole = std::fs::read(&journal).expect("the journal");
        std::fs::write(&journal, &whole[..length]).expect("cut");
        let (code, said) = killed.restore();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("not known: ") && said.contains("entries"), "{said}");
        assert!(said.contains("group waykeeper-scan: did not exist"), "{said}");
        assert_eq!(killed.groups(), [""; 0], "{said}");
        assert_eq!(std::fs::read(journal.with_extension("damaged")).expect("kept"), whole[..length]);
        // A second restore is no proof, and neither is a daemon that ran in between.
        assert_eq!(killed.restore().0, Some(1));
        let mut daemon = killed.setup.start();
        assert!(daemon.in_charge(), "{}", daemon.log());
        let status = daemon.answer(json!({"do": "status"})).to_string();
        assert!(status.contains("entries") && status.contains("journal"), "{status}");
        let log = daemon.log();
        daemon.ends_by(Signal::TERM);
        assert!(!log.contains("File exists") && !log.contains("another program counts"), "{log}");
        assert_eq!(killed.groups(), [""; 0]);
        assert_eq!(killed.restore().0, Some(1));
        std::fs::remove_file(journal.with_extension("unproved")).expect("it is there");
        let (code, said) = killed.restore();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn doctor_and_the_next_daemon_name_the_groups_of_a_lost_journal() {
    let killed = Killed::new();
    // The usual journal of this host is another file, so doctor sees groups without one.
    let said = killed.doctor();
    assert!(
        said.contains("left by a run of Waykeeper whose journal is not at /run/waykeeper/journal-"),
        "{said}"
    );
    for name in ["journal", "journal.seal"] {
        std::fs::remove_file(killed.setup.journal.with_file_name(name)).expect("removed");
    }
    let mut daemon = killed.setup.start();
    assert!(daemon.in_charge(), "{}", daemon.log());
    let said = daemon.log();
    assert!(
        said.contains("group waykeeper-scan: left by an earlier run whose journal is lost; removed"),
        "{said}"
    );
    assert!(said.contains("the DCA ways of socket 0 are") && !said.contains("File exists"), "{said}");
    assert!(
        !killed.doctor().contains("left by a run of Waykeeper"),
        "the groups are those of a running daemon"
    );
    daemon.ends_by(Signal::TERM);
    assert_eq!(killed.groups(), [""; 0]);
    assert!(killed.machine.journal().with_extension("unproved").exists());
}

/// In a container with its own /run neither the journal nor its lock is seen. The lock on resctrl is.
#[test]
fn groups_of_a_daemon_that_another_container_runs_are_no_orphans() {
    let killed = Killed::new();
    let info = killed.machine.root().path("/sys/fs/resctrl/info");
    let lock = std::fs::File::open(info).expect("opened");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let before = killed.groups();
    std::fs::remove_file(&killed.setup.journal).expect("removed");
    std::fs::remove_file(killed.setup.journal.with_extension("seal")).expect("removed");
    let (code, said) = killed.restore();
    assert!(code == Some(5) && said.contains("resctrl/info: another waykeeper process"), "{code:?}: {said}");
    let (status, said) = killed.setup.start().end();
    assert_eq!(status.code(), Some(5), "{said}");
    assert_eq!(killed.groups(), before);
    assert!(!killed.doctor().contains("left by a run of Waykeeper"));
    drop(lock);
    assert_eq!(killed.restore().0, Some(1));
    assert_eq!(killed.groups(), [""; 0]);
}

#[test]
fn what_a_person_repairs_after_a_lost_journal_is_not_undone() {
    let killed = Killed::new();
    let journal = killed.setup.journal.clone();
    for path in [journal.clone(), journal.with_extension("seal")] {
        std::fs::remove_file(path).expect("removed");
    }
    assert_eq!(killed.restore().0, Some(1));
    let root = killed.machine.root().prefix().display().to_string();
    let (code, said) = killed.run(&["ddio", "set", "0x7c0", "--keep", "--verify", "0", "--root", &root]);
    assert_eq!(code, Some(0), "{said}");
    let unproved = killed.usual_journal().with_extension("unproved");
    let line = format!(
        "no restore brings the old values back: an earlier run may have left them ({})",
        unproved.display()
    );
    assert!(said.contains(&line), "{said}");
    assert_eq!(killed.restore().0, Some(1));
    assert_eq!(killed.machine.msr(0, 0xc8b), 0x7c0);
    // Without such doubts it is the value before that a restore brings back.
    std::fs::remove_file(unproved).expect("it is there");
    let (_, said) = killed.run(&["ddio", "set", "0x600", "--keep", "--verify", "0", "--root", &root]);
    assert!(said.contains("`waykeeper restore` restores the old values"), "{said}");
    assert_eq!(killed.restore().0, Some(0));
    assert_eq!(killed.machine.msr(0, 0xc8b), 0x7c0);
}
