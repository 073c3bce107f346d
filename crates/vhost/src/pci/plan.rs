//! The PCI devices of the server: ids of root ports and register devices per generation, and the buses for the other
//! devices.
//!
//! Ids are those of linux include/linux/pci_ids.h, arch/x86/events/intel/uncore_snbep.c and the PCI id list; if a chip
//! has many, one is used for all. It must not know files.

use super::VirtualPciDevice;
use super::config::{ConfigSpaceContent, MachineField};
use super::drivers::{self, Interface};
use crate::layout::{Address, PortLayout};
use crate::package::{Server, Uncore};
use crate::pmu::boxes::BoxRegister;
use std::collections::BTreeSet;
use waykeeper_generations::{AddressSpace, BoxCount, Generation, Pmu, RegisterMap};
use waykeeper_host::DeviceKind;

const INTEL: u16 = 0x8086;

/// Offset of perfctrlsts_0 on chips that have it (hardware.md 2.1).
const PERFCTRLSTS: usize = 0x180;

/// Kinds of ports in the PCI Express capability (PCIe base specification, 7.5.3.2).
const ENDPOINT: u8 = 0;
const ROOT_PORT: u8 = 4;
const UPSTREAM: u8 = 5;
const DOWNSTREAM: u8 = 6;

/// Classes: bridge, Ethernet controller, NVMe controller, other system device (PCI code and id assignment).
const BRIDGE: u32 = 0x06_0400;
const ETHERNET: u32 = 0x02_0000;
const NVME: u32 = 0x01_0802;
const SYSTEM: u32 = 0x08_8000;

/// All devices of a server; the top level has root ports and register devices.
pub fn devices(server: &Server) -> Vec<VirtualPciDevice> {
    let layout = server.layout();
    let mut buses = Buses(layout.ports.iter().map(|port| port.address.bus).collect());
    for package in 0..layout.packages {
        buses.0.insert(layout.uncore_bus(package));
        buses.0.extend(layout.stacks[package].iter().map(|(_, bus)| *bus));
    }
    let mut all: Vec<VirtualPciDevice> = layout
        .ports
        .iter()
        .enumerate()
        .map(|(index, port)| root_port(server, index, port, &mut buses))
        .collect();
    if let Some(generation) = layout.generation {
        for package in 0..layout.packages {
            all.extend(channels(server, package, generation));
            all.extend(registers(server, package, generation));
        }
    }
    all
}

/// Bus numbers in use.
struct Buses(BTreeSet<u8>);

impl Buses {
    /// The next free one after `bus`; the last one if none is free, which no server of 16 devices reaches.
    fn next(&mut self, bus: u8) -> u8 {
        let free = (bus..=u8::MAX).chain(1..bus).find(|bus| !self.0.contains(bus)).unwrap_or(u8::MAX);
        self.0.insert(free);
        free
    }
}

fn plain(address: Address, package: usize, space: ConfigSpaceContent) -> VirtualPciDevice {
    VirtualPciDevice {
        address,
        package,
        space,
        driver: None,
        files: Vec::new(),
        functions: Vec::new(),
        classes: Vec::new(),
        drive: None,
        behind: Vec::new(),
    }
}

/// Vendor and device id of a root port: part A to D on Skylake and Ice Lake.
fn root_port_id(generation: Option<&Generation>, part: u8) -> (u16, u16) {
    let part = u16::from(part.min(3));
    match generation.map(|generation| generation.id.as_str()) {
        Some("hsx") => (INTEL, 0x2f08),
        Some("bdx") => (INTEL, 0x6f08),
        Some("skx") => (INTEL, 0x2030 + part),
        // hardware.md 2.1: 8086:347a.
        Some("icx") => (INTEL, 0x347a + part),
        Some("spr" | "emr") => (INTEL, 0x352a + part),
        Some("gnr") => (INTEL, 0x0db0 + part),
        Some("zen4" | "zen5") => (0x1022, 0x14ab),
        _ => (INTEL, 0x0101),
    }
}

fn root_port(server: &Server, index: usize, port: &PortLayout, buses: &mut Buses) -> VirtualPciDevice {
    let layout = server.layout();
    let generation = layout.generation;
    let part = port.counted.map_or(0, |(_, part)| part);
    let (vendor, id) = root_port_id(generation, part);
    let secondary = buses.next(port.address.bus);
    let behind = match port.kind {
        DeviceKind::Network => nic(server, index, port, secondary),
        DeviceKind::Storage => array(server, index, port, secondary, buses),
    };
    let subordinate = last_bus(&behind).max(secondary);
    let mut space = ConfigSpaceContent::new(vendor, id, BRIDGE, 0x04)
        .bridge(port.address.bus, secondary, subordinate)
        .express(0x90, ROOT_PORT);
    space = match generation.map(|generation| generation.id.as_str()) {
        // hardware.md 2.1: the dword at 0x180 is a vendor-specific capability, the next one at 0x190.
        Some("icx") => {
            space.dword(0x100, 0x1801_0001).dword(PERFCTRLSTS, 0x1901_000b).dword(0x190, 0x0001_0019)
        }
        // Advanced error reporting, and nothing after it.
        _ => space.dword(0x100, 0x0001_0001),
    };
    if server.has_port_registers() {
        space = space.machine_field(PERFCTRLSTS, MachineField::Port(index));
    }
    VirtualPciDevice { driver: Some("pcieport"), behind, ..plain(port.address, port.package, space) }
}

/// The highest bus below devices.
fn last_bus(devices: &[VirtualPciDevice]) -> u8 {
    let own = |device: &VirtualPciDevice| device.address.bus.max(last_bus(&device.behind));
    devices.iter().map(own).max().unwrap_or(0)
}

/// Most virtual functions of a ConnectX-5 (mlx5_core reports them as sriov_totalvfs).
const MOST_FUNCTIONS: usize = 127;

/// Virtual functions of a NIC: one per workload on it, if one of them has a share of its traffic.
fn functions(server: &Server, nic: usize) -> usize {
    let own = || server.bare().scenario().workloads.iter().filter(|workload| workload.nic == Some(nic));
    if own().any(|workload| workload.share.is_some()) { own().count().min(MOST_FUNCTIONS) } else { 0 }
}

/// A ConnectX-5 NIC and its virtual functions.
fn nic(server: &Server, index: usize, port: &PortLayout, bus: u8) -> Vec<VirtualPciDevice> {
    let before: usize = (0..index).map(|nic| 1 + functions(server, nic)).sum();
    let count = functions(server, index);
    let gbps = server.bare().scenario().nics[index].gbps;
    // The first virtual function follows the physical one, and each the one before (First VF Offset, VF Stride).
    let at = |number: usize| Address {
        bus,
        device: (number / 8) as u8,
        function: (number % 8) as u8,
        ..port.address
    };
    let function = |number: usize, id: u16| {
        // systemd.net-naming-scheme(7): `v` and the number of the virtual function.
        let name = if number == 0 { port.device.clone() } else { format!("{}v{}", port.device, number - 1) };
        let interface = Interface { name: &name, number: before + number, address: at(number), gbps };
        let space = ConfigSpaceContent::new(0x15b3, id, ETHERNET, 0)
            .subsystem(0x15b3, 0x0008)
            .express(0x60, ENDPOINT);
        let classes = vec![interface.net(), interface.infiniband()];
        VirtualPciDevice { driver: Some("mlx5_core"), classes, ..plain(at(number), port.package, space) }
    };
    let mut all = vec![function(0, 0x1017)];
    all[0].files = vec![("sriov_totalvfs", MOST_FUNCTIONS.to_string()), ("sriov_numvfs", count.to_string())];
    all[0].functions = (0..count).map(|number| (format!("virtfn{number}"), at(1 + number))).collect();
    for number in 1..=count {
        let physical = vec![("physfn".to_owned(), at(0))];
        all.push(VirtualPciDevice { functions: physical, ..function(number, 0x1018) });
    }
    all
}

/// NVMe drives: a single one directly behind the root port, several behind a switch.
fn array(
    server: &Server,
    index: usize,
    port: &PortLayout,
    bus: u8,
    buses: &mut Buses,
) -> Vec<VirtualPciDevice> {
    let scenario = server.bare().scenario();
    let first = scenario.nics.len();
    let drives =
        index.checked_sub(first).map_or(1, |array| scenario.storage[array].array.drives).clamp(1, 32);
    // Drives are numbered over all arrays, as in the kernel.
    let before: u32 =
        scenario.storage.iter().take(index.saturating_sub(first)).map(|array| array.array.drives).sum();
    let at = |bus, device| Address { bus, device, function: 0, ..port.address };
    if drives == 1 {
        return vec![drive(port, at(bus, 0), before)];
    }
    let inner = buses.next(bus);
    let downstream = |slot: u32| {
        let below = buses.next(inner);
        let address = at(inner, slot as u8);
        // A PEX 9700 switch.
        let space = ConfigSpaceContent::new(0x10b5, 0x9765, BRIDGE, 0xaa)
            .bridge(inner, below, below)
            .express(0x68, DOWNSTREAM);
        let behind = vec![drive(port, at(below, 0), before + slot)];
        VirtualPciDevice { driver: Some("pcieport"), behind, ..plain(address, port.package, space) }
    };
    let behind: Vec<VirtualPciDevice> = (0..drives).map(downstream).collect();
    let space = ConfigSpaceContent::new(0x10b5, 0x9765, BRIDGE, 0xaa)
        .bridge(bus, inner, last_bus(&behind))
        .express(0x68, UPSTREAM);
    vec![VirtualPciDevice { driver: Some("pcieport"), behind, ..plain(at(bus, 0), port.package, space) }]
}

/// A Samsung 980 PRO drive.
fn drive(port: &PortLayout, address: Address, number: u32) -> VirtualPciDevice {
    let space =
        ConfigSpaceContent::new(0x144d, 0xa80a, NVME, 0).subsystem(0x144d, 0xa801).express(0x70, ENDPOINT);
    let classes = vec![drivers::controller(number, address, port.package)];
    VirtualPciDevice {
        driver: Some("nvme"),
        classes,
        drive: Some(number),
        ..plain(address, port.package, space)
    }
}

/// The devices with the memory channels' counters, on chips that have these in configuration space.
fn channels(server: &Server, package: usize, generation: &Generation) -> Vec<VirtualPciDevice> {
    let Some(memory) = &generation.memory else { return Vec::new() };
    let Some(registers) = memory.pmu.registers.as_ref().filter(|map| map.space == AddressSpace::PciConfig)
    else {
        return Vec::new();
    };
    let bus = server.layout().uncore_bus(package);
    let count = server.boxes(package, Uncore::Memory).min(CHANNELS.len());
    let ids = memory.pci_devices.iter().cycle();
    (0..count)
        .zip(ids)
        .map(|(channel, [vendor, id])| {
            let space = ConfigSpaceContent::new(*vendor, *id, SYSTEM, 0x04).express(0x40, 9);
            let space = counters(space, package, channel, &memory.pmu, registers);
            let (device, function) = CHANNELS[channel];
            plain(Address::new(bus, device, function), package, space)
        })
        .collect()
}

/// Device and function of each channel's device on Skylake (linux uncore_snbep.c: skx_uncore_pci_ids); other chips use
/// other addresses, and tools search by id.
const CHANNELS: [(u8, u8); 8] =
    [(0x0a, 2), (0x0a, 6), (0x0b, 2), (0x0c, 2), (0x0c, 6), (0x0d, 2), (0x0e, 2), (0x0e, 6)];

fn counters(
    mut space: ConfigSpaceContent,
    package: usize,
    channel: usize,
    pmu: &Pmu,
    map: &RegisterMap,
) -> ConfigSpaceContent {
    // Offsets are the same in every channel's device.
    let at = |offset: Option<u32>, register| {
        offset.map(|at| (at as usize, MachineField::Channel(package, channel, register)))
    };
    let mut fields = vec![at(map.box_control_of(0), BoxRegister::Control)];
    for counter in 0..pmu.counters {
        fields.push(at(map.control_of(0, counter), BoxRegister::Select(counter)));
        fields.push(at(map.counter_of(0, counter), BoxRegister::Count(counter)));
    }
    for (place, field) in fields.into_iter().flatten() {
        space = space.machine_field(place, field);
    }
    space
}

/// Devices that report the number of slices and the stack of a root bus (hardware.md 3.4, 4.4).
fn registers(server: &Server, package: usize, generation: &Generation) -> Vec<VirtualPciDevice> {
    let layout = server.layout();
    let bus = layout.uncore_bus(package);
    let slices = server.boxes(package, Uncore::Cache);
    let mut all = Vec::new();
    let words = |slices: usize, word: usize| {
        let ones = |count: usize| if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        ones(slices.saturating_sub(32 * word))
    };
    if let Some(BoxCount::PciBits { vendor, device, offsets }) =
        generation.cache.as_ref().map(|c| &c.pmu.boxes)
    {
        // Bits 7:6 of word 0x94 are the die: 1 is MCC, whose stacks `layout` numbers.
        let mut space = ConfigSpaceContent::new(*vendor, *device, SYSTEM, 0).dword(0x94, 1 << 6);
        for (word, offset) in offsets.iter().enumerate() {
            space = space.dword(usize::from(*offset), words(slices, word));
        }
        all.push(plain(Address::new(bus, 0x1e, 3), package, space));
    }
    if generation.id == "skx" {
        // CAPID6 (linux uncore_snbep.c: SKX_CAPID6 0x9c).
        let space =
            ConfigSpaceContent::new(INTEL, 0x2083, SYSTEM, 0x04).dword(0x9c, words(slices, 0) & 0x0fff_ffff);
        all.push(plain(Address::new(bus, 0x1e, 3), package, space));
    }
    if generation.id == "icx" {
        for (stack, root) in &layout.stacks[package] {
            // SAD_CONTROL: the stack's own number in bits 6:4, which differs from the PMU's (linux uncore_snbep.c:
            // SAD_CONTROL_STACK_ID; pcm-iio-topology.cpp: 1 to 5 are PMUs 0 to 4, 0 is PMU 5).
            let own = if *stack == 5 { 0 } else { u32::from(*stack) + 1 };
            let space = ConfigSpaceContent::new(INTEL, 0x09a2, SYSTEM, 0x04).dword(0x3f4, own << 4);
            all.push(plain(Address::new(*root, 0, 0), package, space));
        }
    }
    all
}
