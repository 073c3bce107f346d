//! The modules that read hardware, on the virtual host: what plain files cannot represent (cpuid leaves that overlap,
//! MSRs, configuration space with read-only bits), and a fault in every kind of file that they read.

use crate::hardware::cpuid::Facts;
use rustix::io::Errno;
use std::collections::BTreeMap;
use waykeeper_generations::{Evidence, Generation};
use waykeeper_kernel::cpuinfo::Cpuinfo;
use waykeeper_kernel::msr::{Allowed, MsrDevice, MsrError};
use waykeeper_kernel::pci::{PciConfigSpace, PciError, PciTree, Writable};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_testbed::MountedHost;
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

/// A host with a stopped clock.
struct Host {
    machine: MountedHost,
    root: Root,
}

impl Host {
    fn on(chip: &str) -> Host {
        let machine = MountedHost::new(chip);
        Host { root: machine.root(), machine }
    }

    fn generation(&self) -> &'static Generation {
        let signature = Facts::read(&self.root, 0).unwrap().signature.unwrap();
        Generation::find(&signature).unwrap_or_else(|| panic!("{signature} is of no generation"))
    }

    fn strike<R>(
        &self,
        path: &str,
        operation: Operation,
        fault: FileFault,
        look: impl FnOnce(&Root) -> R,
    ) -> R {
        let operation = Some(operation);
        self.machine.faults.inject(FaultRule { path: path.to_owned(), operation, calls: Calls::All, fault });
        let found = look(&self.root);
        self.machine.faults.lift();
        found
    }
}

#[test]
fn cpuid_cpuinfo_topology_and_resctrl_tell_of_one_machine() {
    let chips = [
        ("e5-2667v3", "hsx"),
        ("gold-6140", "skx"),
        ("gold-5320", "icx"),
        ("gold-6430", "spr"),
        ("platinum-8570", "emr"),
        ("xeon-6980p", "gnr"),
        ("epyc-9554", "zen4"),
        ("epyc-9755", "zen5"),
    ];
    for (chip, id) in chips {
        let host = Host::on(chip);
        assert_eq!(host.generation().id, id);
        let facts = Facts::read(&host.root, 0).unwrap();
        let info = Cpuinfo::read(&host.root).unwrap();
        assert_eq!((facts.signature, facts.brand), (info.signature, info.brand.clone()), "{chip}");
        let topology = Topology::read(&host.root).unwrap();
        assert_eq!(info.cpus, topology.online().count(), "{chip}");
        let l3 = facts.caches.iter().find(|cache| cache.level == 3).unwrap();
        let seen = &topology.l3[0];
        assert_eq!((l3.bytes, Some(l3.ways)), (seen.bytes, seen.ways), "{chip}");
        let mask = host.root.read_optional("/sys/fs/resctrl/info/L3/cbm_mask").unwrap();
        let width = mask.map(|mask| u32::from_str_radix(mask.trim(), 16).unwrap().count_ones());
        if let Some(cat) = facts.l3_cat {
            assert_eq!((Some(cat.mask_bits), cat.mask_bits), (width, l3.ways), "{chip}");
        }
        // The last CPU reports the same as the first.
        let last = topology.cpus.last().unwrap().id.0;
        assert_eq!(Facts::read(&host.root, last).unwrap().signature, facts.signature, "{chip}");
    }
}

#[test]
fn the_ways_of_devices_are_turned_where_they_are_known_to_act() {
    let host = Host::on("gold-6140");
    let allowed = Allowed::ddio_ways(host.generation());
    let msr = MsrDevice::open(&host.root, 0, allowed).unwrap();
    assert_eq!(msr.read(0xc8b), Ok(0x600));
    msr.write(0xc8b, 0x7f0).unwrap();
    assert_eq!(
        MsrDevice::open(&host.root, 1, Allowed::nothing()).unwrap().read(0xc8b),
        Ok(0x7f0),
        "one a package"
    );
    // hardware.md 1.2: the ways of power-on cannot be cleared. Whether the write fails is not known; the read-back
    // value decides.
    let _ = msr.write(0xc8b, 0x001);
    assert_eq!(msr.read(0xc8b).unwrap() & 0x600, 0x600);
    assert_eq!(msr.write(0xc90, 1), Err(MsrError::NotAllowed { address: 0xc90 }));
    let error = MsrDevice::open(&host.root, 4000, Allowed::nothing()).unwrap_err();
    assert_eq!(error, MsrError::Offline { cpu: 4000 });

    let other = Host::on("epyc-9554");
    assert_eq!(other.generation().dca.ways.evidence, Evidence::Absent);
    let msr = MsrDevice::open(&other.root, 0, Allowed::ddio_ways(other.generation())).unwrap();
    assert_eq!(msr.read(0xc8b), Err(MsrError::NotThere { cpu: 0, address: 0xc8b }));
}

#[test]
fn the_switch_of_a_root_port_is_found_and_turned() {
    let host = Host::on("gold-6140");
    let tree = PciTree::read(&host.root).unwrap();
    let nic = tree.devices().find(|device| device.is_network()).expect("a NIC");
    let port = tree.root_port(&host.root, nic.address).unwrap();
    assert!(tree.behind(&host.root, port).unwrap().iter().any(|device| device.address == nic.address));
    let config = PciConfigSpace::open_write(&host.root, port).unwrap();
    let bit = host.generation().dca.port.allocating.unwrap();
    let switch = Writable::dca_switch(host.generation()).unwrap();
    let before = config.dword(bit.offset).unwrap();
    assert_eq!((config.bit(bit), config.turn(switch, false)), (Ok(true), Ok(false)));
    assert_eq!(config.dword(bit.offset), Ok(before & !0x80), "no other bit changed");
    assert_eq!(config.turn(switch, true), Ok(true));
    assert_eq!(config.dword(bit.offset), Ok(before));
    // The endpoint has no such switch.
    let endpoint = PciConfigSpace::open_write(&host.root, nic.address).unwrap();
    assert!(matches!(endpoint.turn(switch, false), Err(PciError::NoRootPort { .. })));
    // Every storage controller is behind a root port other than the NIC's.
    for ssd in tree.devices().filter(|device| device.is_storage()) {
        assert_ne!(tree.root_port(&host.root, ssd.address).unwrap(), port);
    }
}

#[test]
fn ice_lakes_capability_header_is_left_alone() {
    let host = Host::on("gold-5320");
    assert!(Writable::dca_switch(host.generation()).is_none());
    let tree = PciTree::read(&host.root).unwrap();
    let nic = tree.devices().find(|device| device.is_network()).expect("a NIC");
    let port = tree.root_port(&host.root, nic.address).unwrap();
    let config = PciConfigSpace::open_write(&host.root, port).unwrap();
    assert_eq!(config.dword(0x180), Ok(0x1901_000b), "hardware.md 2.1");
    let skylakes = Writable::dca_switch(Generation::by_id("skx").unwrap()).unwrap();
    assert!(matches!(config.turn(skylakes, false), Err(PciError::CapabilityThere { id: 0x000b, .. })));
    assert_eq!(config.dword(0x180), Ok(0x1901_000b));
}

#[test]
fn the_msr_devices_refusals_are_distinguished() {
    let host = Host::on("gold-6140");
    let path = "dev/cpu/0/msr";
    let open = |root: &Root| MsrDevice::open(root, 0, Allowed::nothing());
    let refuse = |operation, errno, look: &dyn Fn(&Root) -> Result<u64, MsrError>| {
        host.strike(path, operation, FileFault::Refuse(errno), |root| look(root).unwrap_err())
    };
    let read = |root: &Root| open(root)?.read(0xc8b);
    assert!(matches!(refuse(Operation::Open, Errno::ACCESS, &read), MsrError::Permission { .. }));
    assert!(matches!(refuse(Operation::Open, Errno::NXIO, &read), MsrError::Offline { cpu: 0 }));
    assert!(matches!(refuse(Operation::Read, Errno::IO, &read), MsrError::NotThere { address: 0xc8b, .. }));
    for errno in [Errno::BUSY, Errno::NOSPC, Errno::NODEV] {
        let error = refuse(Operation::Read, errno, &read);
        assert!(error.to_string().contains(path), "{error}");
    }
    let short = host.strike(path, Operation::Read, FileFault::ShortRead(5), read).unwrap_err();
    assert!(short.to_string().contains(path), "{short}");
    let msr = MsrDevice::open(&host.root, 0, Allowed::ddio_ways(host.generation())).unwrap();
    let write = |fault| host.strike(path, Operation::Write, fault, |_| msr.write(0xc8b, 0x7f0).unwrap_err());
    let forbidden = write(FileFault::Refuse(Errno::PERM));
    assert!(
        matches!(forbidden, MsrError::Forbidden { address: 0xc8b, .. })
            && forbidden.remedy().contains("lockdown")
    );
    assert!(write(FileFault::ShortWrite(4)).to_string().contains("4 of 8 bytes"));
    assert_eq!(msr.read(0xc8b), Ok(0x600), "nothing was written");
}

/// Reads everything that is read once at the start; returns the first error.
fn look_at_all(root: &Root) -> Result<(), String> {
    let reported = |error: &dyn std::fmt::Display| error.to_string();
    Cpuinfo::read(root).map_err(|error| reported(&error))?;
    Topology::read(root).map_err(|error| reported(&error))?;
    Facts::read(root, 0).map_err(|error| reported(&error))?;
    let tree = PciTree::read(root).map_err(|error| reported(&error))?;
    // A device that cannot be read is reported, and the others are listed.
    tree.unreadable().next().map_or(Ok(()), |(_, why)| Err(why))?;
    for device in tree.devices().filter(|device| device.is_network() || device.is_storage()) {
        tree.root_port(root, device.address).map_err(|error| reported(&error))?;
    }
    Ok(())
}

/// Last directory and file name; links may lead to the file through another path.
fn ending(path: &str) -> String {
    let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
    parts.reverse();
    parts.join("/")
}

#[test]
fn a_fault_in_any_kind_of_file_is_an_error_that_names_it() {
    let host = Host::on("gold-6140");
    host.machine.faults.forget();
    look_at_all(&host.root).unwrap();
    // One file of each kind: paths that differ only in digits are of one kind.
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    for (path, operation) in host.machine.faults.seen().into_keys() {
        if operation == Operation::Read {
            let kind: String = path.chars().filter(|letter| !letter.is_ascii_hexdigit()).collect();
            kinds.entry(kind).or_insert(path);
        }
    }
    assert!(kinds.len() > 12, "{kinds:?}");
    for path in kinds.values() {
        for errno in [Errno::IO, Errno::NODEV] {
            let found = host.strike(path, Operation::Read, FileFault::Refuse(errno), look_at_all);
            let error = found.expect_err(path);
            assert!(error.contains(&ending(path)), "{error} does not name {path}");
        }
        // Bytes that are neither text nor a number: an error that names the file, or valid (registers hold any bits).
        let garbage = FileFault::Garbage(vec![0xff, 0xfe, b'=', b'\n']);
        let named = ending(path);
        if let Err(error) = host.strike(path, Operation::Read, garbage, look_at_all) {
            assert!(error.contains(&named) || path.ends_with("config"), "{error} does not name {path}");
        } else {
            assert!(path.ends_with("config"), "{path}: garbage was understood");
        }
    }
    look_at_all(&host.root).unwrap();
}
