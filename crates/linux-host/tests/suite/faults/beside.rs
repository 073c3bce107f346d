//! A tenant that is refused does not keep others from being counted on their new cores.

use rustix::io::Errno;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_linux_host::{LinuxHost, LinuxHostOptions};
use waykeeper_tenants::Tenant;
use waykeeper_testbed::{MountedHost, assert_same_state};
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault};

fn tenant(name: &str, cores: &str) -> Tenant {
    Tenant {
        name: name.to_owned(),
        priority: Priority::Low,
        kind: WorkloadKind::NonIo,
        cores: cores.parse().expect("cores"),
        pids: Vec::new(),
        devices: Vec::new(),
        stack: false,
        mask: None,
    }
}

/// IA32_PERFEVTSEL0: zero while no event is counted on a core.
const EVENT_SELECT: u32 = 0x186;

#[test]
fn a_tenant_that_changes_beside_one_that_cannot_start_is_counted_where_it_is() {
    let machine = MountedHost::new("gold-6140");
    let found = machine.state();
    let unused = machine.msr(1, EVENT_SELECT);
    let options = LinuxHostOptions::new(machine.root(), Vec::new(), machine.journal());
    let mut host = LinuxHost::open(options).unwrap_or_else(|error| panic!("{error}"));
    let before = vec![tenant("a", "0-1")];
    let after = vec![tenant("a", "0"), tenant("b", "2")];
    host.set_tenants(before.clone());
    assert_ne!(machine.msr(1, EVENT_SELECT), unused, "core 1 is counted");
    let mut cases = 0;
    for nth in 1..=60 {
        let path = "sys/fs/resctrl*".to_owned();
        let fault = FileFault::Refuse(Errno::IO);
        machine.faults.inject(FaultRule { path, operation: None, calls: Calls::Nth(nth), fault });
        let changes = host.set_tenants(after.clone());
        machine.faults.lift();
        if changes.postponed.is_some() && !changes.changed.is_empty() {
            cases += 1;
            assert_eq!(
                machine.msr(1, EVENT_SELECT),
                unused,
                "operation {nth}: a has left core 1: {changes:?}"
            );
        }
        host.set_tenants(after.clone());
        host.set_tenants(before.clone());
    }
    assert!(cases > 0, "no fault struck between the two halves");
    assert!(host.close().expect("closed").is_complete());
    assert_same_state(&machine.state(), &found, "at the end");
}
