//! CPUs that are switched off and on while the host is managed.

use super::{empty, ends, id, refuse, sample, tenant};
use rustix::io::Errno;
use waykeeper_host::{Host, WorkloadCounter};
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions};
use waykeeper_testbed::{MS, MountedHost};
use waykeeper_vhost::faults::Operation;

fn switch(machine: &MountedHost, cpu: u16, to: &str) {
    let path = machine.root().path(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
    std::fs::write(path, to).unwrap_or_else(|error| panic!("CPU {cpu}: {error}"));
}

#[test]
fn a_cpu_that_was_off_for_a_moment_returns_to_its_tenant() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    for correct in [false, true] {
        let options = LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal());
        let mut host = LinuxHost::open(LinuxHostOptions { correct, ..options }).expect("a host");
        let all = || vec![tenant("a", "0-1"), tenant("b", "2-3")];
        host.set_tenants(all());
        let read =
            |file: &str| machine.root().read_text(format!("/sys/fs/resctrl/{file}/cpus_list")).unwrap();
        // More often than another program's change is corrected.
        for _ in 0..5 {
            switch(&machine, 3, "0");
            switch(&machine, 3, "1");
            assert_eq!(read("waykeeper-b"), "2\n");
            machine.run(MS);
            sample(&mut host);
            assert_eq!(host.external_changes(), []);
            host.set_tenants(all());
            assert_eq!(read("waykeeper-b"), "2-3\n");
        }
        assert_eq!(host.complaints(), [""; 0]);
        // What counted on the core is started again.
        let (b, before) = (id(&host, "b"), sample(&mut host));
        machine.run(10 * MS);
        let cycles = |of: &waykeeper_host::Snapshot| of.groups[&b][WorkloadCounter::Cycles].value();
        assert!(cycles(&sample(&mut host)).zip(cycles(&before)).is_some_and(|(now, before)| now > before));
        ends(&machine, host, &found);
    }
}

#[test]
fn a_tenant_has_its_other_cpus_while_one_is_off() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0-1"), tenant("b", "2")]);
    let read = |file: &str| machine.root().read_text(format!("/sys/fs/resctrl/{file}/cpus_list")).unwrap();
    switch(&machine, 1, "0");
    machine.run(MS);
    sample(&mut host);
    assert_eq!(host.external_changes(), []);
    // The census does not know it yet, and the class gets another CPU: the kernel would refuse a list with CPU 1.
    assert_eq!(host.set_tenants(vec![tenant("a", "0-1,4"), tenant("b", "2")]).refused, []);
    assert_eq!(read("waykeeper-a"), "0,4\n");
    // Now it does: CPU 1 is listed no more, until it is on again.
    host.set_tenants(vec![tenant("a", "0,4"), tenant("b", "2")]);
    machine.run(MS);
    sample(&mut host);
    switch(&machine, 1, "1");
    host.set_tenants(vec![tenant("a", "0-1,4"), tenant("b", "2")]);
    assert_eq!(read("waykeeper-a"), "0-1,4\n");
    machine.run(MS);
    let cycles = sample(&mut host).groups[&id(&host, "a")][WorkloadCounter::Cycles];
    assert!(cycles.value().is_some(), "{cycles:?}");
    ends(&machine, host, &found);
}

#[test]
fn registers_of_a_cpu_that_is_off_at_the_end_are_restored_at_the_next_start() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0-1")]);
    sample(&mut host);
    switch(&machine, 1, "0");
    assert!(host.close().expect("closed").is_complete());
    drop(host);
    assert!(machine.journal().exists(), "it has the registers of CPU 1");
    switch(&machine, 1, "1");
    assert_ne!(machine.msr(1, 0x186), 0);
    ends(&machine, empty(&machine), &found);
}

#[test]
fn a_cpu_that_cannot_be_put_back_at_once_is_no_external_change() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0-1")]);
    switch(&machine, 1, "0");
    switch(&machine, 1, "1");
    refuse(&machine, "sys/fs/resctrl/waykeeper-a/cpus_list", Operation::Write, Errno::IO);
    // A tenant that arrives makes the host read the groups, and see that CPU 1 is back.
    let all = || vec![tenant("a", "0-1"), tenant("b", "2")];
    host.set_tenants(all());
    machine.run(MS);
    sample(&mut host);
    assert_eq!(host.external_changes(), []);
    machine.faults.lift();
    (0..8).for_each(|_| drop(host.set_tenants(all())));
    assert_eq!(machine.root().read_text("/sys/fs/resctrl/waykeeper-a/cpus_list").unwrap(), "0-1\n");
    ends(&machine, host, &found);
}

#[test]
fn a_tenant_gets_a_cpu_that_was_off_when_the_host_was_opened() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    switch(&machine, 3, "0");
    let mut host = empty(&machine);
    assert_eq!(host.set_tenants(vec![tenant("a", "2-3")]).refused.len(), 1);
    host.set_tenants(vec![tenant("a", "2")]);
    switch(&machine, 3, "1");
    assert_eq!(host.set_tenants(vec![tenant("a", "2-3")]).refused, []);
    assert_eq!(machine.root().read_text("/sys/fs/resctrl/waykeeper-a/cpus_list").unwrap(), "2-3\n");
    assert!(host.inventory().cores.contains(&waykeeper_units::CoreId(3)));
    ends(&machine, host, &found);
}

#[test]
fn another_program_that_takes_a_cpu_is_still_noticed() {
    let machine = MountedHost::new("gold-6140");
    let mut host = empty(&machine);
    host.set_tenants(vec![tenant("a", "0-1")]);
    let theirs = machine.make_foreign_group("theirs");
    std::fs::write(theirs.join("cpus_list"), "1\n").unwrap();
    machine.run(MS);
    sample(&mut host);
    assert_eq!(host.external_changes().len(), 1);
    // It is still theirs if the CPU was off since, and a fault of our write is no reason to give it up.
    switch(&machine, 1, "0");
    switch(&machine, 1, "1");
    refuse(&machine, "sys/fs/resctrl/waykeeper-a/cpus_list", Operation::Write, Errno::IO);
    sample(&mut host);
    host.set_tenants(vec![tenant("a", "0-1")]);
    machine.faults.lift();
    (0..3).for_each(|_| drop(host.set_tenants(vec![tenant("a", "0-1")])));
    let cpus = machine.root().read_text("/sys/fs/resctrl/waykeeper-a/cpus_list").unwrap();
    assert_eq!(cpus, "0-1\n", "the kernel gave CPU 1 to the default group, and no other program has it");
}
