//! Tenants by device: addresses, interfaces, virtual functions.

use crate::census::machine::{Machine, Process};
use std::os::unix::fs::symlink;
use waykeeper_host::WorkloadKind;

/// Gives the first port of the NIC this many virtual functions.
fn functions(machine: &Machine, count: u8) {
    let bus = machine.tree.path("sys/bus/pci/devices");
    for number in 0..count {
        let address = format!("0000:3b:02.{number}");
        let folder = format!("sys/devices/pci0000:3a/0000:3a:00.0/{address}");
        machine.tree.write(&format!("{folder}/class"), "0x020000\n");
        symlink(format!("../../../devices/pci0000:3a/0000:3a:00.0/{address}"), bus.join(&address)).unwrap();
        symlink(format!("../{address}"), bus.join(format!("0000:3b:00.0/virtfn{number}"))).unwrap();
    }
}

#[test]
fn devices_go_by_address_interface_and_number_of_function() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"nfv\"\ncores = \"0\"\ndevices = [\"ens1f1\", \"3b:00.0/vf1\"]\n\
         [[tenant]]\nname = \"db\"\nprocess = \"db\"\ndevices = \"nvme0\"\n\
         [[tenant]]\nname = \"x\"\nkind = \"non-io\"\ncores = \"1\"\ndevices = [\"0000:3b:00.1\", \"eth7\"]\n",
    );
    functions(&machine, 2);
    machine.process(&Process { cpus: "2", ..Process::new(10, "db") });
    let roster = machine.take();
    let shown: Vec<String> = roster.tenants.iter().map(crate::census::machine::show).collect();
    assert_eq!(shown, ["nfv [0] [] 0000:3b:00.1 0000:3b:02.1", "db [2] [10] 0000:86:00.0", "x [1] []"]);
    let kinds: Vec<WorkloadKind> = roster.tenants.iter().map(|tenant| tenant.kind).collect();
    assert_eq!(kinds, [WorkloadKind::NetworkIo, WorkloadKind::StorageIo, WorkloadKind::NonIo]);
    let notes: Vec<String> = roster.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "tenant x: there is no device `eth7`; `waykeeper ddio show` lists the devices behind root ports",
            "tenant x: device 0000:3b:00.1 belongs to nfv, which is declared earlier"
        ]
    );
    // The disk is unplugged: the tenant keeps its kind.
    machine.tree.remove("sys/class/nvme/nvme0");
    let roster = machine.take();
    assert_eq!((roster.tenants[1].devices.len(), roster.tenants[1].kind), (0, WorkloadKind::StorageIo));
    assert_eq!(roster.notes.len(), 1, "{:?}", roster.notes);
}

#[test]
fn each_virtual_function_is_a_tenant_while_it_is_there() {
    let mut machine = Machine::new("[[tenant]]\nname = \"vm-{name}\"\ndevices = \"ens1f0/vf*\"\n");
    assert_eq!(machine.look().0, [""; 0]);
    functions(&machine, 3);
    let (shown, notes) = machine.look();
    assert_eq!(
        shown,
        [
            "vm-ens1f0-vf0 [] [] 0000:3b:02.0",
            "vm-ens1f0-vf1 [] [] 0000:3b:02.1",
            "vm-ens1f0-vf2 [] [] 0000:3b:02.2"
        ]
    );
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(
        notes[0],
        "tenant vm-ens1f0-vf1: its 0000:3b:02.1 and 0000:3b:02.0 of vm-ens1f0-vf0 are behind root port 0000:3a:00.0: \
         DCA is on or off for both"
    );
    assert!(machine.look().1.is_empty());
    machine.tree.remove("sys/bus/pci/devices/0000:3b:00.0/virtfn2");
    assert_eq!(machine.look().0.len(), 2);
}

#[test]
fn links_that_lead_nowhere_sensible_are_no_devices() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"a\"\ncores = \"0\"\ndevices = [\"ens9\", \"3b:00.0/vf0\", \"3b:00.0/vf*\"]\n",
    );
    symlink("../../devices/virtual/net/ens9", machine.tree.path("sys/class/net/ens9")).unwrap();
    symlink("..", machine.tree.path("sys/bus/pci/devices/0000:3b:00.0/virtfn0")).unwrap();
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [0] []"]);
    assert_eq!(
        notes,
        [
            "tenant a: device `ens9` is not part of a PCI device (/sys/class/net/ens9 links to \
             ../../devices/virtual/net/ens9)",
            "tenant a: device `0000:3b:00.0` has no virtual function `0`; it has none",
            "tenant a: device `0000:3b:00.0` has no virtual function `*`; it has none",
        ]
    );
}
