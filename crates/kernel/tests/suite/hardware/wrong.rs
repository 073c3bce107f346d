//! Machines with missing, truncated or malformed files: one clear error that names the file, or the right absence.

use crate::hardware::machine::Machine;
use std::fs;
use waykeeper_kernel::event_source;
use waykeeper_kernel::pci::{PciAddress, PciError, PciTree};
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_kernel::topology::Topology;

fn fails_naming(error: &FileError, file: &str) {
    assert!(error.to_string().contains(file), "{error} does not name {file}");
}

#[test]
fn nonsense_in_any_topology_file_names_it() {
    let files = [
        ("sys/devices/system/cpu/online", "0-"),
        ("sys/devices/system/cpu/present", "many"),
        ("sys/devices/system/cpu/cpu3/topology/physical_package_id", "-1"),
        ("sys/devices/system/cpu/cpu3/topology/core_id", "99999999999"),
        ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "3;7"),
        ("sys/devices/system/cpu/cpu0/cache/index3/level", "three"),
        ("sys/devices/system/cpu/cpu0/cache/index3/size", "lots"),
        ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-99999"),
        ("sys/devices/system/cpu/cpu0/cache/index3/id", "0x"),
        ("sys/devices/system/node/node0/cpulist", "\u{0}"),
    ];
    let machine = Machine::recorded("skx");
    for (file, content) in files {
        machine.with(file, content, |root| fails_naming(&Topology::read(root).unwrap_err(), file));
    }
    assert!(Topology::read(&machine.root).is_ok());
    fs::remove_file(machine.place("sys/devices/system/cpu/cpu3/topology/core_id")).unwrap();
    fails_naming(&Topology::read(&machine.root).unwrap_err(), "cpu3/topology/core_id");
}

#[test]
fn what_a_kernel_need_not_have_is_no_error() {
    let machine = Machine::recorded("skx");
    fs::remove_dir_all(machine.place("sys/devices/system/node")).unwrap();
    fs::remove_file(machine.place("sys/devices/system/cpu/present")).unwrap();
    for cpu in 0..16 {
        let _ = fs::remove_file(machine.place(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/id")));
    }
    let topology = Topology::read(&machine.root).unwrap();
    assert!(topology.nodes.is_empty() && topology.l3.iter().all(|l3| l3.id.is_none() && l3.clusters() == 1));
    let empty = tempfile::tempdir().unwrap();
    let root = Root::at(empty.path());
    assert_eq!(PciTree::read(&root).unwrap(), PciTree::default());
    assert_eq!(event_source::names(&root).unwrap(), Vec::<String>::new());
}

#[test]
fn nonsense_in_pci_and_counter_units_names_the_file() {
    let nic = "sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
    let machine = Machine::recorded("skx");
    let whole = PciTree::read(&machine.root).unwrap();
    for (file, content) in [("vendor", "8086h"), ("device", ""), ("class", "0xffffffff"), ("numa_node", "-2")]
    {
        machine.with(&format!("{nic}/{file}"), content, |root| {
            // That device is reported and left out; all others are listed.
            let tree = PciTree::read(root).unwrap();
            let reported: Vec<_> = tree.unreadable().collect();
            let address: PciAddress = "0000:3b:00.0".parse().unwrap();
            assert!(
                matches!(&reported[..], [(own, why)] if *own == address && why.contains(&format!("0000:3b:00.0/{file}"))),
                "{reported:?}"
            );
            let whole: Vec<_> = whole.devices().filter(|device| device.address != address).collect();
            assert_eq!(tree.devices().collect::<Vec<_>>(), whole);
            assert!(matches!(tree.device(address), Err(PciError::File(_))));
        });
    }
    for (file, content) in
        [("type", "x"), ("cpumask", "0;1"), ("format/umask", "config:x"), ("type", "4294967296")]
    {
        machine.with(&format!("sys/devices/uncore_cha_0/{file}"), content, |root| {
            let error = event_source::units(root, "uncore_cha").unwrap_err();
            fails_naming(&error, &format!("uncore_cha_0/{file}"));
        });
    }
    let unit = &event_source::units(&machine.root, "uncore_imc").unwrap()[0];
    fs::write(machine.place("sys/devices/uncore_imc_0/events/cas_count_read.scale"), "nan").unwrap();
    fails_naming(&unit.event(&machine.root, "cas_count_read").unwrap_err(), "cas_count_read.scale");
    let error = unit.encode(&"event=0x4,filter=1".parse().unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "uncore_imc_0 has no term `filter`; it has edge, event, inv, thresh, umask"
    );
    let error = unit.encode(&"umask=0x100".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "0x100 does not fit the term `umask` of uncore_imc_0");
}

/// Replaces the links of a machine's PCI devices by directories: sysfs paths no longer show the bridges above a device.
fn without_links(machine: &Machine) {
    let links = machine.place("sys/bus/pci/devices");
    for entry in fs::read_dir(&links).unwrap() {
        let path = entry.unwrap().path();
        let target = fs::canonicalize(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        for file in fs::read_dir(target)
            .unwrap()
            .map(Result::unwrap)
            .filter(|file| file.file_type().unwrap().is_file())
        {
            fs::copy(file.path(), path.join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn without_links_the_bridges_buses_tell_the_same() {
    for name in ["skx", "spr"] {
        let machine = Machine::recorded(name);
        let ports = |machine: &Machine| {
            let tree = PciTree::read(&machine.root).unwrap();
            let ports = tree.devices().map(|device| tree.root_port(&machine.root, device.address).ok());
            ports.collect::<Vec<_>>()
        };
        let by_path = ports(&machine);
        without_links(&machine);
        assert_eq!(ports(&machine), by_path, "{name}");
    }
}

#[test]
fn a_bridge_that_cannot_be_read_blinds_only_what_might_be_behind_it() {
    let machine = Machine::recorded("skx");
    without_links(&machine);
    let config = machine.place("sys/bus/pci/devices/0000:3a:00.0/config");
    fs::write(&config, "").unwrap();
    let tree = PciTree::read(&machine.root).unwrap();
    let nic = "0000:3b:00.0".parse().unwrap();
    assert!(
        matches!(tree.root_port(&machine.root, nic), Err(PciError::Blind { .. })),
        "never another bridge"
    );
    let unread = "0000:3a:00.0".parse().unwrap();
    assert!(matches!(tree.behind(&machine.root, unread), Err(PciError::Blind { .. })));
    // The SSD's bridges are found without it, and nothing below the unread bridge is listed as behind them.
    let ssd = "0000:88:00.0".parse().unwrap();
    let port = tree.root_port(&machine.root, ssd).unwrap();
    assert_eq!(port.to_string(), "0000:85:00.0");
    assert_eq!(tree.behind(&machine.root, port).unwrap().len(), 1);
}

#[test]
fn an_ordinary_user_gets_an_error_that_the_space_is_cut() {
    let machine = Machine::recorded("skx");
    let config = machine.place("sys/devices/pci0000:3a/0000:3a:00.0/config");
    let bytes = fs::read(&config).unwrap();
    fs::write(&config, &bytes[..64]).unwrap();
    let tree = PciTree::read(&machine.root).unwrap();
    let error = tree.root_port(&machine.root, "0000:3b:00.0".parse().unwrap()).unwrap_err();
    assert!(matches!(error, PciError::Cut { shown: 64, .. }), "{error}");
    assert!(error.to_string().contains("needs root"));
}
