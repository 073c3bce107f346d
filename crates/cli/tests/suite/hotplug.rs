//! CPUs that are switched off and on under a running daemon: each returns to its tenant, and in the end everything is as
//! it was found.

use crate::common::daemon::{Daemon, Setup};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;
use waykeeper_testbed::{MountedHost, assert_same_state};

const FIXED: &str =
    "[policy]\nname = \"fixed\"\n[policy.settings]\nmasks = { l2fwd = \"0x600\", scan = \"0x003\" }";

fn switch(machine: &MountedHost, cpu: u16, to: &str) {
    let path = machine.root().path(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
    std::fs::write(path, to).unwrap_or_else(|error| panic!("CPU {cpu}: {error}"));
}

/// The CPUs of a tenant's class; empty if it has none.
fn class(machine: &MountedHost, tenant: &str) -> String {
    let text = machine.root().read_text(format!("/sys/fs/resctrl/waykeeper-{tenant}/cpus_list"));
    text.unwrap_or_default().trim().to_owned()
}

fn status(daemon: &Daemon) -> Option<Value> {
    Some(daemon.ask(json!({"do": "status"}))?["ok"].clone())
}

/// Whether the daemon manages a tenant; `None` without an answer.
fn manages(daemon: &Daemon, tenant: &str) -> Option<bool> {
    let status = status(daemon)?;
    Some(status["tenants"].as_array()?.iter().any(|own| own["name"] == tenant))
}

#[test]
fn cpus_leave_and_return_while_the_daemon_runs_and_all_is_as_found() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let setup = Setup::plain(&machine, FIXED);
    let mut daemon = setup.start();
    let is = |tenant: &str, cpus: &str| class(&machine, tenant) == cpus;
    daemon.comes("the classes", |_| is("l2fwd", "0-1") && is("fio", "2") && is("scan", "3"));
    daemon.comes("the masks", |_| machine.mask_of(0) != machine.mask_of(3));
    let masks = [1, 2, 3].map(|cpu| machine.mask_of(cpu));
    for _ in 0..4 {
        // One of two CPUs, until the daemon has published steps without it.
        switch(&machine, 1, "0");
        let step = |daemon: &Daemon| status(daemon).and_then(|status| status["step"].as_u64());
        let mut first = None;
        daemon.comes("steps without CPU 1", |daemon| {
            first = first.or_else(|| step(daemon));
            step(daemon).zip(first).is_some_and(|(now, first)| now > first + 2)
        });
        assert!(is("l2fwd", "0"));
        switch(&machine, 1, "1");
        daemon.comes("CPU 1", |_| is("l2fwd", "0-1"));
        // For a moment that no step sees.
        switch(&machine, 3, "0");
        switch(&machine, 3, "1");
        daemon.comes("CPU 3", |_| is("scan", "3"));
        assert_eq!([1, 2, 3].map(|cpu| machine.mask_of(cpu)), masks);
    }
    // The only CPU of a tenant: the tenant ends, and begins again.
    switch(&machine, 3, "0");
    daemon.comes("the end of scan", |daemon| manages(daemon, "scan") == Some(false));
    switch(&machine, 3, "1");
    daemon.comes("scan", |daemon| is("scan", "3") && manages(daemon, "scan") == Some(true));
    daemon.comes("its mask", |_| machine.mask_of(3) == masks[2]);
    daemon.ends_by(Signal::TERM);
    assert_same_state(&machine.state(), &found, "after SIGTERM");
    assert!(!setup.journal.exists());
}

#[test]
fn the_registers_of_a_cpu_that_is_off_at_the_end_are_restored_when_it_is_on() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let setup = Setup::plain(&machine, FIXED);
    let mut daemon = setup.start();
    daemon.comes("the classes", |_| class(&machine, "fio") == "2");
    daemon.comes("its counters", |_| machine.msr(2, 0x186) != 0);
    switch(&machine, 2, "0");
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(1), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.contains("stay in the journal") && last.contains("restored later: CPU 2 is offline"),
        "{log}"
    );
    assert!(setup.journal.exists(), "it has the registers of CPU 2");
    switch(&machine, 2, "1");
    let mut restore = Command::new(env!("CARGO_BIN_EXE_waykeeper"));
    restore.args(["restore", "--root"]).arg(machine.root().prefix()).arg("--journal").arg(&setup.journal);
    let output = restore.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_same_state(&machine.state(), &found, "after the restore");
    assert!(!setup.journal.exists());
}
