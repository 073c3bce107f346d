//! The PCI devices of a machine and what is above and below them.
//!
//! The bridges above a device are in the path that its entry in `/sys/bus/pci/devices` links to (hardware.md 2.3). If
//! the entries are not links, the bridges' bus numbers are used; a bridge that cannot be read is then an error only
//! for the devices that could be behind it. Must not know what a device is used for.

use super::config::ROOT_PORT;
use super::{PciAddress, PciConfigSpace, PciError, functions_on};
use crate::content::{self, ContentError};
use crate::root::{FileError, Root};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::Path;

const DEVICES: &str = "/sys/bus/pci/devices";

/// One PCI function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class, subclass and interface: 0x020000 is Ethernet, 0x010802 NVMe, 0x060400 a bridge.
    pub class: u32,
    /// NUMA node; `None` if the firmware does not report it.
    pub node: Option<u16>,
    /// Its driver.
    pub driver: Option<String>,
    /// Names of the devices that its driver made of it: `eth0`, `nvme0`, `vda`, `mlx5_0`; interfaces come first.
    pub names: Vec<String>,
    /// The physical function, if this is a virtual one (SR-IOV).
    pub physical: Option<PciAddress>,
    /// Functions above it from the root bus down; `None` if sysfs has no links.
    above: Option<Vec<PciAddress>>,
}

impl PciDevice {
    /// Whether it is a bridge to another PCI bus.
    pub fn is_bridge(&self) -> bool {
        self.class >> 8 == 0x0604
    }

    /// Whether it is a network interface.
    pub fn is_network(&self) -> bool {
        self.class >> 16 == 0x02
    }

    /// Whether it is a storage controller.
    pub fn is_storage(&self) -> bool {
        self.class >> 16 == 0x01
    }
}

/// All PCI functions of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PciTree {
    devices: BTreeMap<PciAddress, PciDevice>,
    /// Devices whose files cannot be read or parsed.
    unreadable: BTreeMap<PciAddress, FileError>,
    /// Entries whose names are not PCI addresses.
    strange: Vec<ContentError>,
}

impl PciTree {
    /// Reads every device; a machine without PCI has an empty tree. A device that cannot be read is left out and
    /// listed by [`PciTree::unreadable`]; the others are unaffected.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn read(root: &Root) -> Result<PciTree, FileError> {
        let mut tree = PciTree::default();
        for name in root.list_existing(DEVICES)? {
            let address: PciAddress = match name.parse() {
                Ok(address) => address,
                Err(super::AddressError(_)) => {
                    let path = root.path(DEVICES);
                    tree.strange.push(ContentError::new(&path, 0, &name, "addresses like 0000:3a:00.0"));
                    continue;
                }
            };
            match read_device(root, &name, address) {
                Ok(device) => drop(tree.devices.insert(address, device)),
                // The device may have been unplugged since the listing.
                Err(error) if error.is_absent() && !root.exists(format!("{DEVICES}/{name}")) => {}
                Err(error) => drop(tree.unreadable.insert(address, error)),
            }
        }
        Ok(tree)
    }

    /// Every device, by address.
    pub fn devices(&self) -> impl Iterator<Item = &PciDevice> {
        self.devices.values()
    }

    /// Devices that could not be read, each with a message.
    pub fn unreadable(&self) -> impl Iterator<Item = (PciAddress, String)> {
        let line = |(address, why): (&PciAddress, &FileError)| {
            (*address, format!("PCI device {address} cannot be read and is left alone: {why}"))
        };
        self.unreadable.iter().map(line)
    }

    /// A message for each entry that is not a device.
    pub fn strange(&self) -> impl Iterator<Item = String> {
        self.strange.iter().map(ToString::to_string)
    }

    /// One device.
    ///
    /// # Errors
    /// [`PciError::NoDevice`], or why it could not be read.
    pub fn device(&self, address: PciAddress) -> Result<&PciDevice, PciError> {
        let missing = || match self.unreadable.get(&address) {
            Some(why) => PciError::File(why.clone()),
            None => PciError::NoDevice(address),
        };
        self.devices.get(&address).ok_or_else(missing)
    }

    /// Bridges above a device, from the root bus down.
    ///
    /// # Errors
    /// [`PciError::NoDevice`], or [`PciError::Blind`] if a bridge that could be above it cannot be read.
    pub fn above(&self, root: &Root, address: PciAddress) -> Result<Vec<PciAddress>, PciError> {
        if let Some(above) = &self.device(address)?.above {
            return Ok(above.clone());
        }
        let blind = |cause: PciError| PciError::Blind { device: address, cause: Box::new(cause) };
        let mut chain: Vec<PciAddress> = Vec::new();
        let mut bus = address.bus;
        // Each step leads to another bus, of which a domain has 256.
        while chain.len() < 256 {
            let mut bridge = None;
            let mut unread = None;
            let same_domain = self.devices().filter(|other| other.address.domain == address.domain);
            for other in same_domain.filter(|other| other.is_bridge() && other.address.bus != bus) {
                match PciConfigSpace::open(root, other.address).and_then(|config| config.bridge_buses()) {
                    Ok(Some((secondary, _))) if secondary == bus => bridge = Some(other.address),
                    Ok(Some(_)) => {}
                    // Without bus numbers its configuration space was not read properly.
                    Ok(None) => unread = Some(PciError::NoBridge { device: other.address }),
                    Err(error) => unread = Some(error),
                }
            }
            // A device that could not be read may be a bridge.
            let unread = unread.or_else(|| self.unread_beside(address.domain, bus));
            match (bridge, unread) {
                (Some(found), _) if chain.contains(&found) => break,
                (Some(found), _) => {
                    chain.push(found);
                    // A root port is the topmost bridge, so bridges that could not be read do not matter.
                    if matches!(
                        PciConfigSpace::open(root, found).and_then(|config| config.port_type()),
                        Ok(Some(ROOT_PORT))
                    ) {
                        chain.reverse();
                        return Ok(chain);
                    }
                }
                (None, Some(error)) => return Err(blind(error)),
                (None, None) => {
                    chain.reverse();
                    return Ok(chain);
                }
            }
            bus = chain[chain.len() - 1].bus;
        }
        Err(PciError::NoRootPort {
            device: address,
            why: "the bus numbers of the bridges form a loop".to_owned(),
        })
    }

    /// The error of an unreadable device on another bus of the domain.
    fn unread_beside(&self, domain: u32, bus: u8) -> Option<PciError> {
        let mut all = self.unreadable.iter();
        let other = all.find(|(address, _)| address.domain == domain && address.bus != bus);
        other.map(|(_, why)| PciError::File(why.clone()))
    }

    /// The root port above a device: the topmost function above it, checked by class and port type. A root port's own
    /// root port is itself.
    ///
    /// # Errors
    /// [`PciError::NoRootPort`], [`PciError::Blind`], or why the port's configuration space cannot be read.
    pub fn root_port(&self, root: &Root, address: PciAddress) -> Result<PciAddress, PciError> {
        let none = |why: String| PciError::NoRootPort { device: address, why };
        let itself = self.device(address)?;
        let port = match self.above(root, address)?.first() {
            Some(port) => self.device(*port)?,
            None if itself.is_bridge() => itself,
            None => return Err(none("it is part of the root complex".to_owned())),
        };
        if !port.is_bridge() {
            return Err(none(format!(
                "{} is of class {:#08x}, which is not a bridge",
                port.address, port.class
            )));
        }
        match PciConfigSpace::open(root, port.address)?.port_type()? {
            Some(ROOT_PORT) => Ok(port.address),
            Some(other) => {
                Err(none(format!("{} is a PCIe port of type {other}; a root port has type 4", port.address)))
            }
            None => Err(none(format!("{} has no PCI Express capability", port.address))),
        }
    }

    /// Devices behind a bridge, those behind further bridges included, bridges excluded; by address.
    ///
    /// # Errors
    /// As [`PciTree::above`] for any device that could be behind it.
    pub fn behind(&self, root: &Root, bridge: PciAddress) -> Result<Vec<&PciDevice>, PciError> {
        // A device of unknown position cannot be behind a bridge whose bus range excludes its bus.
        let buses = PciConfigSpace::open(root, bridge).and_then(|config| config.bridge_buses());
        let elsewhere = |bus: u8| matches!(buses, Ok(Some((first, last))) if !(first..=last).contains(&bus));
        let mut found = Vec::new();
        let same_domain = self.devices().filter(|device| device.address.domain == bridge.domain);
        for device in same_domain.filter(|device| !device.is_bridge()) {
            match self.above(root, device.address) {
                Ok(above) if above.contains(&bridge) => found.push(device),
                Err(error) if !elsewhere(device.address.bus) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(found)
    }
}

fn read_device(root: &Root, name: &str, address: PciAddress) -> Result<PciDevice, FileError> {
    let folder = format!("{DEVICES}/{name}");
    let hex = |file: &str, most: u64| {
        root.parsed(&format!("{folder}/{file}"), |path, text| content::hex_up_to(path, text, most))
    };
    let node = |path: &Path, text: &str| match text.trim() {
        // The firmware does not report the node.
        "-1" => Ok(None),
        found => {
            let node = u16::try_from(content::decimal(path, found)?);
            node.map(Some).map_err(|_| ContentError::new(path, 0, found, "a NUMA node"))
        }
    };
    let last = |file: &str| -> Result<Option<String>, FileError> {
        let target = match root.read_link(format!("{folder}/{file}")) {
            // Missing, or not a link, as in a tree of plain files.
            Err(error) if error.is_absent() || error.errno() == Some(Errno::INVAL) => return Ok(None),
            target => target?,
        };
        Ok(target.file_name().and_then(|name| name.to_str()).map(str::to_owned))
    };
    let driver = last("driver")?;
    Ok(PciDevice {
        address,
        vendor: hex("vendor", 0xffff)? as u16,
        device: hex("device", 0xffff)? as u16,
        class: hex("class", 0xff_ffff)? as u32,
        node: root.parsed_optional(&format!("{folder}/numa_node"), node)?.flatten(),
        names: names(root, &folder, driver.as_deref())?,
        driver,
        physical: last("physfn")?.and_then(|name| name.parse().ok()),
        above: above(root, &folder)?,
    })
}

/// Names of its devices in the classes that have PCI functions.
fn names(root: &Root, folder: &str, driver: Option<&str>) -> Result<Vec<String>, FileError> {
    let mut parents = vec![folder.to_owned()];
    if driver == Some("virtio-pci") {
        // virtio adds a level between the function and its interface or disk.
        let inner = root.list_existing(folder)?;
        let inner = inner.into_iter().filter(|name| name.starts_with("virtio"));
        parents.extend(inner.map(|name| format!("{folder}/{name}")));
    }
    let mut names = Vec::new();
    for kind in ["net", "nvme", "block", "infiniband"] {
        for parent in &parents {
            names.extend(root.list_existing(&format!("{parent}/{kind}"))?);
        }
    }
    Ok(names)
}

/// The functions on the path that an entry links to, without the device itself; `None` if the entry is not a link.
fn above(root: &Root, folder: &str) -> Result<Option<Vec<PciAddress>>, FileError> {
    let target = match root.read_link(folder) {
        Ok(target) => target,
        Err(error) if error.errno() == Some(Errno::INVAL) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut functions = functions_on(&target);
    functions.pop();
    Ok(Some(functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bridge to bus 1 and a NIC on it, as plain files; `header` is the start of the bridge's configuration space.
    fn machine(header: &[u8]) -> (tempfile::TempDir, Result<Vec<PciAddress>, PciError>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, class, config) in
            [("0000:00:01.0", "0x060400", header), ("0000:01:00.0", "0x020000", &[0; 64])]
        {
            let place = folder.path().join("sys/bus/pci/devices").join(name);
            std::fs::create_dir_all(&place).unwrap();
            for (file, text) in [("vendor", "0x8086"), ("device", "0x2030"), ("class", class)] {
                std::fs::write(place.join(file), text).unwrap();
            }
            std::fs::write(place.join("config"), config).unwrap();
        }
        let root = Root::at(folder.path());
        let above = PciTree::read(&root).unwrap().above(&root, "0000:01:00.0".parse().unwrap());
        (folder, above)
    }

    #[test]
    fn a_bridge_that_cannot_be_read_is_no_bridge_without_devices() {
        let mut header = [0; 64];
        (header[0x0e], header[0x19], header[0x1a]) = (1, 1, 1);
        let bridge: PciAddress = "0000:00:01.0".parse().unwrap();
        assert_eq!(machine(&header).1, Ok(vec![bridge]));
        for bad in [&header[..0x19], &header[..0], &[0; 64]] {
            let error = machine(bad).1.unwrap_err();
            assert!(
                matches!(error, PciError::Blind { .. }) && error.to_string().contains("0000:00:01.0"),
                "{error}"
            );
        }
    }
}
