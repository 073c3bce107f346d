//! The real program: a daemon hands its knobs over to the next one. A thread that reads them every few milliseconds sees no
//! change, and beside a plain restart it sees one. Needs root and /dev/fuse.

use crate::common::daemon;

use daemon::Setup;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use waykeeper_kernel::journal::usual_path;
use waykeeper_kernel::root::Root;
use waykeeper_testbed::{MountedHost, assert_same_state};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Masks, CPUs and tasks of our groups, the default group's CPUs, and the DCA ways.
fn knobs(root: &Root) -> String {
    let mut all = String::new();
    let mut groups = vec!["/sys/fs/resctrl".to_owned()];
    while let Some(group) = groups.pop() {
        for file in ["schemata", "cpus_list", "tasks"] {
            // The default group has tasks that come and go.
            if file != "tasks" || group.contains("waykeeper-") {
                // A group may end between two readings.
                let text = root.read_text(format!("{group}/{file}")).unwrap_or_default();
                all.push_str(&format!("{group}/{file}\n{text}"));
            }
        }
        for parent in [group.clone(), format!("{group}/mon_groups")] {
            let names = root.list(&parent).unwrap_or_default();
            let ours = names.into_iter().filter(|name| name.starts_with("waykeeper-"));
            groups.extend(ours.map(|name| format!("{parent}/{name}")));
        }
    }
    let mut ways = [0; 8];
    let registers = std::fs::File::open(root.path("/dev/cpu/0/msr")).expect("registers");
    registers.read_exact_at(&mut ways, 0xc8b).expect("the DCA ways");
    all + &format!("{:#x}\n", u64::from_le_bytes(ways))
}

/// Looks at the knobs while `work` runs. Returns how often, and all that it saw.
fn watch(root: &Root, work: impl FnOnce()) -> (usize, BTreeSet<String>) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let (mut looks, mut seen) = (0, BTreeSet::new());
            while !done.load(Ordering::Relaxed) {
                seen.insert(knobs(root));
                looks += 1;
                thread::sleep(PAUSE);
            }
            (looks, seen)
        });
        work();
        done.store(true, Ordering::Relaxed);
        looks.join().expect("it only reads")
    })
}

/// Runs the program; returns its exit status and all that it prints.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_waykeeper")).args(words).output().expect("it is built");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), said.concat())
}

/// The host's usual journal, as `doctor` looks for it; its lock is removed at the end.
struct UsualJournal(PathBuf);

impl Drop for UsualJournal {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.with_extension("lock"));
    }
}

#[test]
fn between_two_daemons_no_knob_changes_after_a_hand_over_and_they_do_after_a_plain_restart() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let (root, journal) = (machine.root(), UsualJournal(usual_path(&machine.root())));
    let socket = machine.folder().join("socket");
    let setup = Setup::with(&machine, journal.0.clone(), socket, "[metrics]\nlisten = \"off\"\n");
    let (config, at) = (setup.config.display().to_string(), setup.socket.display().to_string());
    let tree = root.prefix().display().to_string();

    let mut first = setup.start();
    assert!(first.in_charge(), "{}", first.log());
    let mut second = None;
    let (looks, seen) = watch(&root, || {
        let (code, said) = run(&["hand-over", "--within", "2m", "--socket", &at]);
        assert!(code == Some(0) && said.contains("its knobs stay in force for the next one"), "{said}");
        // A client also finds the daemon by its configuration, and refuses one with a mistake.
        let (code, said) = run(&["status", "--config", &format!("{config}.missing")]);
        assert!(code == Some(2) && said.contains(".missing"), "{said}");
        let (_, said) = run(&["status", "--config", &config]);
        assert!(said.contains("the next daemon takes its knobs over"), "{said}");
        let log = first.ends_by(Signal::TERM);
        assert!(log.contains("the knobs stay in force for the next daemon"), "{log}");
        let (_, said) = run(&["doctor", "--root", &tree]);
        assert!(said.contains("to the next one, which has 1"), "{said}");
        let (code, said) = run(&["status", "--root", &tree]);
        assert!(code == Some(3) && said.contains("left its knobs to the next one, which has 1"), "{said}");
        let (code, said) = run(&["restore", "--passing", "--config", &config]);
        assert!(code == Some(0) && said.contains("left its knobs to the next one"), "{said}");
        let mut next = setup.start();
        assert!(next.in_charge(), "{}", next.log());
        second = Some(next);
    });
    let second = second.expect("it was started");
    assert_eq!(seen.len(), 1, "{seen:#?}");
    assert!(looks > 20, "{looks} looks");
    let log = second.log();
    assert!(log.contains("the daemon before left its knobs to this one"), "{log}");
    assert!(log.contains("the daemon before had the same workloads: what it measured is used"), "{log}");

    let mut third = None;
    let (_, seen) = watch(&root, || {
        second.ends_by(Signal::TERM);
        let mut next = setup.start();
        assert!(next.in_charge(), "{}", next.log());
        third = Some(next);
    });
    assert!(seen.len() > 1, "a plain restart changes knobs, and the thread sees it: {seen:#?}");
    third.expect("it was started").ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after three daemons");
    assert!(!setup.journal.exists());
}

#[test]
fn a_daemon_that_does_not_come_leaves_the_knobs_to_the_second_passing_restore() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let state = machine.folder().join("state");
    std::fs::create_dir_all(&state).expect("a folder beside the tree");
    let setup = Setup::new(&machine, &state);
    let config = setup.config.display().to_string();
    let mut daemon = setup.start();
    assert!(daemon.in_charge(), "{}", daemon.log());
    let answer = daemon.answer(serde_json::json!({"do": "hand-over", "within_s": 120}));
    assert!(answer["ok"]["text"].is_string(), "{answer}");
    daemon.ends_by(Signal::TERM);
    let restore = || run(&["restore", "--passing", "--config", &config]);
    assert!(restore().1.contains("left its knobs to the next one"));
    // The next daemon has a mistake in its configuration.
    let text = std::fs::read_to_string(&setup.config).expect("the configuration");
    std::fs::write(&setup.config, format!("{text}\n[policy]\n")).expect("written");
    let (code, said) = run(&["daemon", "--config", &config]);
    assert_eq!(code, Some(2), "{said}");
    std::fs::write(&setup.config, text).expect("written");
    let (code, said) = restore();
    assert!(code == Some(0) && said.contains("restored"), "{said}");
    assert_same_state(&machine.state(), &found, "after the second restore");
    assert!(!setup.journal.exists());
}
