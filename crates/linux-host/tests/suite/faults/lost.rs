//! A manager is killed, and its journal is cut, removed or lost with its folder: the next start says so, is not kept out
//! by what the lost run left, and leaves nothing behind itself. Other tools' groups stay as they are.

use crate::faults::machine::machine;
use crate::faults::turning::plan;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use waykeeper_host::{Host, SocketCounter, WorkloadCounter};
use waykeeper_linux_host::LinuxHost;
use waykeeper_testbed::{HostState, MS, MountedHost};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault};

/// A kill: nothing that a manager does at its end reaches the machine.
fn kill(machine: &MountedHost, host: LinuxHost) {
    let fault = FileFault::Refuse(Errno::IO);
    machine.faults.inject(FaultRule { path: "*".into(), operation: None, calls: Calls::All, fault });
    drop(host);
    machine.faults.lift();
    assert!(machine.journal().exists() && machine.root().exists("/sys/fs/resctrl/waykeeper-scan"));
}

/// Another tool's control group with a CPU, and its monitoring group.
fn others(machine: &MountedHost) {
    let group = machine.make_foreign_group("pqos-a");
    fs::write(group.join("cpus_list"), "9\n").expect("written");
    fs::write(group.join("schemata"), "L3:0=0f0\n").expect("written");
    machine.root().make_dir("/sys/fs/resctrl/mon_groups/theirs").expect("made");
}

/// The names of values that differ.
fn different(before: &HostState, after: &HostState) -> BTreeSet<String> {
    let keys = before.keys().chain(after.keys());
    keys.filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
}

/// Kills a manager that has set every knob, damages its journal, and starts another one.
fn starts_after(what: &str, damage: impl Fn(&Path)) {
    let machine = machine();
    others(&machine);
    machine.run(MS);
    let found = machine.state();
    let mut host = machine.open();
    let plan = plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false);
    assert!(host.apply(&plan).expect("applied").is_complete());
    kill(&machine, host);
    damage(&machine.journal());
    // `waykeeper restore` is not run before; it does the same.
    let mut host = machine.open();
    assert!(!host.unproved().is_empty(), "{what}: {:?}", host.notes());
    let notes = host.notes().join("\n");
    assert!(!notes.contains("another program counts"), "{what}: {notes}");
    machine.run(MS);
    host.sample().expect("sampled");
    machine.run(MS);
    let sample = host.sample().expect("sampled");
    for group in sample.groups.values() {
        assert!(group[WorkloadCounter::LlcMisses].value().is_some(), "{what}: {:?}", host.complaints());
    }
    assert!(sample.socket[SocketCounter::DcaWriteHits].value().is_some(), "{what}");
    assert!(host.close().expect("closed").is_complete(), "{what}");
    drop(host);
    assert!(!machine.journal().exists(), "{what}");
    let now = machine.state();
    assert!(now.keys().all(|key| !key.contains("waykeeper-")), "{what}: {:?}", different(&found, &now));
    // Of what may have been lost, only these differ, and no group or mask: the DCA ways, the ports' switches, and
    // registers of counters, which are idle.
    for name in different(&found, &now) {
        assert!(name.starts_with("CPU ") || name.starts_with("PCI "), "{what}: {name}");
        assert!(!name.ends_with(" 0xc8f"), "{what}: {name}: a CPU is in another group");
    }
    for cpu in [0, 1, 2, 3, 4] {
        let running = (0..4).filter(|counter| machine.msr(cpu, 0x186 + counter) >> 22 & 1 == 1);
        assert_eq!(running.count(), 0, "{what}: CPU {cpu} still counts");
    }
    // What is not known stays known as such, until a person removes the file.
    assert_ne!(machine.restore_failures(), "", "{what}");
    fs::remove_file(machine.journal().with_extension("unproved")).expect("it is there");
    assert_eq!(machine.restore_failures(), "", "{what}");
}

#[test]
fn a_journal_that_was_cut_keeps_no_start_out_and_is_reported() {
    for length in [0, 104] {
        starts_after(&format!("cut to {length} bytes"), |journal| {
            let whole = fs::read(journal).expect("the journal");
            fs::write(journal, &whole[..length]).expect("cut");
        });
    }
    starts_after("cut to half", |journal| {
        let whole = fs::read(journal).expect("the journal");
        fs::write(journal, &whole[..whole.len() / 2]).expect("cut");
    });
}

#[test]
fn a_journal_that_is_lost_keeps_no_start_out_and_is_reported() {
    starts_after("removed", |journal| fs::remove_file(journal).expect("removed"));
    starts_after("its folder removed", |journal| {
        fs::remove_dir_all(journal.parent().expect("it has one")).expect("removed");
    });
}
