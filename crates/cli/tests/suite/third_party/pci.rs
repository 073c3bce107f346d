//! lspci and setpci (pciutils): the tree of root ports and devices, and the switch of a port's DCA.

use crate::third_party::host::{Host, has, needed};

/// Root port of the NIC.
const PORT: &str = "16:00.0";

#[test]
fn lspci_draws_the_tree() {
    let host = Host::start(&[]);
    let said = host.good(&[&needed("lspci", "pciutils"), "-n"]);
    has(&said, &["16:00.0 0604: 8086:2030", "17:00.0 0200:"]);
    let tree = host.good(&[&needed("lspci", "pciutils"), "-tv"]);
    has(&tree, &["[0000:16]---00.0-[17]----00.0", "ConnectX", "NVMe"]);
}

#[test]
fn lspci_reads_a_root_port_through() {
    let host = Host::start(&[]);
    let said = host.good(&[&needed("lspci", "pciutils"), "-vvv", "-s", PORT]);
    has(
        &said,
        &["PCI bridge", "Bus: primary=16, secondary=17, subordinate=17", "Root Port (Slot-)", "NUMA node: 0"],
    );
}

#[test]
fn setpci_switches_dca_of_a_port() {
    let host = Host::start(&[]);
    let setpci = needed("setpci", "pciutils");
    assert_eq!(host.good(&[&setpci, "-s", PORT, "180.b"]).trim(), "80");
    // Only bit 7, as rpma's script does it.
    host.good(&[&setpci, "-s", PORT, "180.b=00:80"]);
    assert_eq!(host.good(&[&setpci, "-s", PORT, "180.b"]).trim(), "00");
    assert_eq!(host.good(&[&setpci, "-s", "5d:00.0", "180.b"]).trim(), "80", "the other port is as it was");
}

#[test]
fn without_a_namespace_setpci_finds_the_tree_by_an_option() {
    let host = Host::start(&[]);
    let path = format!("sysfs.path={}/sys/bus/pci", host.root().display());
    let mut command = std::process::Command::new(needed("setpci", "pciutils"));
    let done = command.args(["-A", "linux-sysfs", "-O", &path, "-s", PORT, "180.b"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "80");
}

#[test]
fn an_ice_lake_has_a_capability_where_the_switch_was() {
    let host = Host::start(&["--set", "chip=gold-5320"]);
    // hardware.md 2.1: the header 0x1901000b.
    assert_eq!(host.good(&[&needed("setpci", "pciutils"), "-s", "16:02.0", "180.l"]).trim(), "1901000b");
}
