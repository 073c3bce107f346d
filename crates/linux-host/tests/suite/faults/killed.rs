//! A manager that is killed at any point: its journal restores everything.
//!
//! The manager is this test program in a child process; the parent has the mount.

use crate::faults::machine::{machine, tenants};
use crate::faults::turning::plan;
use std::process::{Child, Command};
use std::time::Duration;
use waykeeper_host::Host;
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions};
use waykeeper_testbed::{MS, MountedHost, state_difference};
use waykeeper_vhost::faults::Operation;

/// Set for the child: root and journal.
const ROOT: &str = "WAYKEEPER_FAULTS_ROOT";
const JOURNAL: &str = "WAYKEEPER_FAULTS_JOURNAL";

/// Changes knobs back and forth until it is killed. The bound ends it if the parent is gone.
fn live(root: &Root) {
    let journal = std::env::var_os(JOURNAL).expect("both are set").into();
    let options = LinuxHostOptions::new(root.clone(), tenants(root), journal);
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let plans =
        [plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false), plan(&host, [0x7ff; 4], 0x700, true)];
    for plan in plans.iter().cycle().take(100_000) {
        host.apply(plan).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A child that is killed with its test.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        // It has already ended if it failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn turns(machine: &MountedHost) -> u64 {
    let turning = |operation: &Operation| matches!(operation, Operation::Write | Operation::MakeDirectory);
    let seen = machine.faults.seen();
    seen.iter().filter(|((_, operation), _)| turning(operation)).map(|(_, count)| count).sum()
}

#[test]
fn a_manager_that_is_killed_leaves_its_originals() {
    if let Some(root) = std::env::var_os(ROOT) {
        return live(&Root::at(root));
    }
    let machine = machine();
    machine.run(MS);
    let before = machine.state();
    let mut journals = 0;
    // Among the first groups, between groups and counters, among counters, among knobs.
    for (turn, writes) in [1, 5, 9, 40, 150, 300, 320].into_iter().enumerate() {
        machine.faults.forget();
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program)
            .args(["--exact", "faults::killed::a_manager_that_is_killed_leaves_its_originals", "--nocapture"])
            .env(ROOT, machine.root().prefix())
            .env(JOURNAL, machine.journal())
            .stdout(std::process::Stdio::null())
            .spawn();
        let mut manager = Manager(child.expect("started"));
        while turns(&machine) < writes {
            assert!(manager.0.try_wait().expect("asked").is_none(), "the manager ended by itself");
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(manager);
        journals += u32::from(machine.journal().exists());
        match turn % 2 {
            0 => assert_eq!(machine.restore_failures(), ""),
            _ => assert!(machine.open().close().expect("closed").is_complete()),
        }
        let after = machine.state();
        assert!(after == before, "after {writes} writes:\n{}", state_difference(&before, &after));
        assert!(!machine.journal().exists());
    }
    assert_eq!(journals, 7);
}
