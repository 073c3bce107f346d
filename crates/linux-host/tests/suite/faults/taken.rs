//! Other tools take counters while ours are running. Their values stay at the end, after a crash and at the next start,
//! and what they took is reported. Our other registers are restored.

use crate::faults::machine::machine;
use rustix::io::Errno;
use std::collections::BTreeSet;
use waykeeper_host::{Host, WorkloadCounter};
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions};
use waykeeper_testbed::{HostState, MS, MountedHost, state_difference};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

/// IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_CTRL, IA32_PERFEVTSEL1, IA32_PMC1 (SDM vol. 4).
const FIXED_CONTROL: u32 = 0x38d;
const GLOBAL_CONTROL: u32 = 0x38f;
const SELECT_1: u32 = 0x187;
const COUNTER_1: u32 = 0xc2;
/// Control of counter 1 in CHA 4, Filter1 and the box control (hardware.md 3.3).
const CHA_4_CONTROL_1: u32 = 0xe42;
const CHA_4_FILTER_1: u32 = 0xe46;
const CHA_4: u32 = 0xe40;
/// The name of a register in the machine's state.
fn key(cpu: u16, address: u32) -> String {
    format!("CPU {cpu} MSR {address:#x}")
}

/// Before we start, global control enables no counter on CPUs 2 and 3, as on a kernel whose perf was never used.
fn idle() -> MountedHost {
    let machine = machine();
    machine.set_msr(2, GLOBAL_CONTROL, 0);
    machine.set_msr(3, GLOBAL_CONTROL, 0);
    machine.run(MS);
    machine
}

/// The other tools' changes. Returns the state that must be left, given the state that was found.
fn others(machine: &MountedHost, found: &HostState) -> HostState {
    let mut expected = found.clone();
    let mut set = |cpu: u16, address: u32, value: u64, left: u64| {
        machine.set_msr(cpu, address, value);
        expected.insert(key(cpu, address), format!("{left:#x}"));
    };
    // perf starts fixed counter 2 on CPU 2, beside ours.
    let ours = machine.msr(2, FIXED_CONTROL);
    assert_eq!(ours, 0x33);
    set(2, FIXED_CONTROL, ours | 0xb00, 0xb00);
    let ours = machine.msr(2, GLOBAL_CONTROL);
    assert_eq!(ours, 0x3_0000_000f);
    set(2, GLOBAL_CONTROL, ours | 1 << 34, 1 << 34);
    // It takes general counter 1 of CPU 3; the bit in global control is already set.
    set(3, SELECT_1, 0x53_003c, 0x53_003c);
    set(3, GLOBAL_CONTROL, machine.msr(3, GLOBAL_CONTROL), 0b10);
    // pqos takes a counter of CHA 4: the filter and the box are then its own too, the other counter is not.
    set(0, CHA_4_CONTROL_1, 0x40_3435, 0x40_3435);
    for address in [CHA_4_FILTER_1, CHA_4] {
        let now = machine.msr(0, address);
        set(0, address, now, now);
    }
    expected
}

/// The registers that were reported as taken, without the reasons.
fn registers(left: impl Iterator<Item = String>) -> BTreeSet<String> {
    let place = |line: String| line.split([':', ',']).next().unwrap_or_default().to_owned();
    left.map(place).collect()
}

fn taken() -> BTreeSet<String> {
    let msr = |(address, cpu): (u32, u16)| format!("MSR {address:#x} of CPU {cpu}");
    let mut all = vec![(SELECT_1, 3), (GLOBAL_CONTROL, 3), (CHA_4_CONTROL_1, 0)];
    all.extend([(CHA_4_FILTER_1, 0), (CHA_4, 0)]);
    all.into_iter().map(msr).collect()
}

/// A crash: none of a manager's final writes reach the machine.
fn crash(machine: &MountedHost, host: LinuxHost) {
    let (operation, fault) = (Some(Operation::Write), FileFault::Refuse(Errno::IO));
    machine.faults.inject(FaultRule { path: "*".into(), operation, calls: Calls::All, fault });
    drop(host);
    machine.faults.lift();
    assert!(machine.journal().exists());
}

fn same(machine: &MountedHost, expected: &HostState) {
    let now = machine.state();
    assert!(now == *expected, "{}", state_difference(expected, &now));
    assert!(!machine.journal().exists());
    // The taken counter is still counting cycles.
    let before = machine.msr(3, COUNTER_1);
    machine.run(MS);
    assert!(machine.msr(3, COUNTER_1) > before, "the other tool's counter was switched off");
}

#[test]
fn at_the_end_what_others_took_is_theirs() {
    let machine = idle();
    let found = machine.state();
    let mut host = machine.open();
    let expected = others(&machine, &found);
    let report = host.close().expect("closed");
    assert!(report.is_complete());
    assert_eq!(registers(report.left()), taken());
    drop(host);
    same(&machine, &expected);
}

#[test]
fn after_a_crash_what_others_took_is_theirs() {
    let machine = idle();
    let found = machine.state();
    let host = machine.open();
    let expected = others(&machine, &found);
    crash(&machine, host);
    assert_eq!(machine.restore_failures(), "");
    same(&machine, &expected);
}

#[test]
fn the_next_start_tells_what_others_took_and_counts_around_it() {
    let machine = idle();
    let found = machine.state();
    let host = machine.open();
    let expected = others(&machine, &found);
    crash(&machine, host);
    let mut host = machine.open();
    let notes = host.notes().join("\n");
    for register in taken() {
        let reported = host.notes().iter().filter(|note| note.starts_with(&register)).count();
        assert_eq!(reported, 1, "{register}: {notes}");
    }
    assert!(notes.contains("uncore_cha 4: another program counts there"), "{notes}");
    let report = host.close().expect("closed");
    assert_eq!((report.is_complete(), report.left().count()), (true, 0), "it is told once");
    same(&machine, &expected);
}

/// CPU 3 is offline: its registers cannot be reached.
fn switch_off(machine: &MountedHost) {
    let nxio = FileFault::Refuse(Errno::NXIO);
    for (path, operation, fault) in [
        ("dev/cpu/3/msr", None, nxio),
        ("sys/devices/system/cpu/online", Some(Operation::Read), FileFault::Garbage(b"0-2,4-17\n".to_vec())),
    ] {
        machine.faults.inject(FaultRule { path: path.into(), operation, calls: Calls::All, fault });
    }
}

#[test]
fn registers_of_an_offline_cpu_stop_nothing_and_are_restored_with_it() {
    let machine = machine();
    machine.run(MS);
    let found = machine.state();
    let host = machine.open();
    switch_off(&machine);
    drop(host);
    // The other CPUs' registers are restored; those of CPU 3 stay in the journal.
    assert!(machine.journal().exists());
    let others: Vec<_> = machine.options().tenants.into_iter().filter(|own| own.name != "scan").collect();
    let open = |tenants| LinuxHost::open(LinuxHostOptions { tenants, ..machine.options() });
    for _ in 0..2 {
        let host = open(others.clone()).unwrap_or_else(|error| panic!("{error}"));
        let reported = |note: &&String| {
            note.contains(" knobs are restored later: ") && note.ends_with("CPU 3 is offline")
        };
        assert_eq!(host.notes().iter().filter(reported).count(), 1, "{:?}", host.notes());
    }
    // `waykeeper restore` reports no error either.
    assert_eq!(machine.restore_failures(), "");
    assert!(machine.journal().exists());
    // CPU 3 is online again while a manager is running: its tenant is counted, and everything is restored.
    let mut host = open(others).unwrap_or_else(|error| panic!("{error}"));
    machine.faults.lift();
    let changes = host.set_tenants(machine.options().tenants);
    assert_eq!((changes.arrived.len(), changes.refused), (1, vec![]));
    let sample = host.sample().unwrap_or_else(|error| panic!("{error}"));
    let scan = host.workloads().into_iter().find(|group| group.name == "scan").expect("scan");
    assert!(sample.groups[&scan.id][WorkloadCounter::Cycles].value().is_some(), "{:?}", host.complaints());
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    let after = machine.state();
    assert!(after == found && !machine.journal().exists(), "{}", state_difference(&found, &after));
}
