//! The PCI devices of the server and their directories in sysfs: root ports, the devices behind them, and the package's
//! own devices with registers.
//!
//! It must not know a register's effect ([`config`] reaches the machine), nor how ports' addresses were chosen.

pub mod config;
mod drivers;
mod plan;

use crate::class::ClassDevice;
use crate::layout::{Address, Layout};
use crate::machine_clock::MachineClock;
use crate::node::Tree;
use crate::topology::{list, map};
use config::{ConfigFile, ConfigSpaceContent};
pub use plan::devices;

/// A device and the devices behind it.
#[derive(Clone, Debug)]
pub struct VirtualPciDevice {
    /// Its address.
    pub address: Address,
    /// Package it belongs to.
    pub package: usize,
    /// Its configuration space at power-on.
    pub space: ConfigSpaceContent,
    /// Its driver, if it has one.
    pub driver: Option<&'static str>,
    /// Files of its SR-IOV capability, with their content.
    pub files: Vec<(&'static str, String)>,
    /// Links of its SR-IOV capability to other functions of its bus.
    pub functions: Vec<(String, Address)>,
    /// Devices that its driver registers with a class.
    pub classes: Vec<ClassDevice>,
    /// The number of its drive, if it is one.
    pub drive: Option<u32>,
    /// Devices behind it.
    pub behind: Vec<VirtualPciDevice>,
}

/// Adds all devices to the tree.
pub fn add(tree: &mut Tree, devices: Vec<VirtualPciDevice>, layout: &Layout, clock: &MachineClock) {
    tree.directory("sys/bus/pci/devices");
    tree.directory("sys/bus/pci/drivers");
    drivers::loopback().add_virtual(tree);
    // The kernel registers the class before it finds a disk.
    tree.directory("sys/block");
    tree.directory("sys/class/block");
    for device in devices {
        let Address { domain, bus, .. } = device.address;
        add_device(tree, device, &format!("pci{domain:04x}:{bus:02x}"), 1, layout, clock);
    }
}

/// Adds a device's directory, `depth` directories below `sys/devices`, and those of the devices behind it.
fn add_device(
    tree: &mut Tree,
    device: VirtualPciDevice,
    folder: &str,
    depth: usize,
    layout: &Layout,
    clock: &MachineClock,
) {
    let VirtualPciDevice { address, package, space, driver, files, functions, classes, drive, behind } =
        device;
    let path = format!("{folder}/{address}");
    let here = format!("sys/devices/{path}");
    let up = "../".repeat(depth + 2);
    let (vendor, number) = (space.word(0x00), space.word(0x02));
    let class = space.dword_at(0x08) >> 8;
    let bridge = space.word(0x0e) & 0x7f == 1;
    let (subvendor, subdevice) = if bridge { (0, 0) } else { (space.word(0x2c), space.word(0x2e)) };
    let cpus = layout.cpus_of(package);
    let mut all = vec![
        ("vendor", format!("{vendor:#06x}")),
        ("device", format!("{number:#06x}")),
        ("class", format!("{class:#08x}")),
        ("revision", format!("{:#04x}", space.dword_at(0x08) & 0xff)),
        ("subsystem_vendor", format!("{subvendor:#06x}")),
        ("subsystem_device", format!("{subdevice:#06x}")),
        ("irq", "0".to_owned()),
        ("enable", "1".to_owned()),
        ("numa_node", package.to_string()),
        ("local_cpulist", list(cpus.clone())),
        ("local_cpus", map(cpus, layout.cpus())),
        (
            "modalias",
            format!(
                "pci:v{vendor:08X}d{number:08X}sv{subvendor:08X}sd{subdevice:08X}bc{:02X}sc{:02X}i{:02X}",
                class >> 16,
                class >> 8 & 0xff,
                class & 0xff
            ),
        ),
        // No address windows, since these devices' registers are never mapped. Six, a ROM, and four of a bridge.
        ("resource", vec![["0x0000000000000000"; 3].join(" "); if bridge { 11 } else { 7 }].join("\n")),
    ];
    if bridge {
        let [_, secondary, subordinate, _] = space.dword_at(0x18).to_le_bytes();
        all.push(("secondary_bus_number", secondary.to_string()));
        all.push(("subordinate_bus_number", subordinate.to_string()));
    }
    for (name, text) in all.into_iter().chain(files) {
        tree.text(&format!("{here}/{name}"), format!("{text}\n"));
    }
    tree.file(&format!("{here}/config"), ConfigFile::new(clock.clone(), space));
    tree.link(&format!("{here}/subsystem"), format!("{up}bus/pci"));
    tree.link(&format!("sys/bus/pci/devices/{address}"), format!("../../../devices/{path}"));
    if let Some(driver) = driver {
        tree.link(&format!("{here}/driver"), format!("{up}bus/pci/drivers/{driver}"));
        tree.link(&format!("sys/bus/pci/drivers/{driver}/{address}"), format!("../../../../devices/{path}"));
    }
    for (name, other) in functions {
        tree.link(&format!("{here}/{name}"), format!("../{other}"));
    }
    for class in classes {
        class.add_to(tree, &path);
    }
    if let Some(number) = drive {
        drivers::add_subsystem(tree, number, &path);
    }
    for inner in behind {
        add_device(tree, inner, &path, depth + 1, layout, clock);
    }
}
