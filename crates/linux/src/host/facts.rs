//! What this host is, read once: CPU, topology, the managed L3, root ports and the devices behind them.
//!
//! Plain facts for [`super::inventory`] and [`super::count`] to decide by. Must not know tenants beyond the cores that say
//! which L3 is meant.

use super::error::OpenError;
use crate::cpuid;
use crate::cpuinfo::Cpuinfo;
use crate::pci::{PciAddress, PciDevice, PciTree};
use crate::root::{FileError, Root};
use crate::topology::{L3, Topology};
use waykeeper_generations::Generation;
use waykeeper_host::DeviceKind;
use waykeeper_units::CoreId;

/// A root port with devices that bring traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PortFact {
    pub address: PciAddress,
    /// It belongs to the managed socket.
    pub is_local: bool,
    /// The socket it belongs to, as far as the kernel tells.
    pub socket: u16,
}

/// A NIC or a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DeviceFact {
    pub address: PciAddress,
    pub name: String,
    pub kind: DeviceKind,
    /// Index of its root port in [`Facts::ports`].
    pub port: usize,
}

/// All of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Facts {
    pub generation: Option<&'static Generation>,
    /// The CPU's own name.
    pub chip: String,
    /// `Linux 6.12.1`.
    pub host: String,
    pub topology: Topology,
    /// The managed socket.
    pub socket: u16,
    /// The managed L3 and its id, which is its resctrl domain.
    pub l3: L3,
    pub domain: u32,
    /// The CPU through which registers of the package are reached.
    pub reader: CoreId,
    pub ports: Vec<PortFact>,
    pub devices: Vec<DeviceFact>,
    /// Vendor, device and address of every function on the managed socket.
    functions: Vec<(u16, u16, PciAddress)>,
    /// What could not be found out.
    pub notes: Vec<String>,
}

impl Facts {
    /// Reads them; `core` is a core of the managed L3.
    ///
    /// # Errors
    /// A file that every Linux has and this one has not, or that makes no sense.
    pub fn read(root: &Root, core: CoreId) -> Result<Facts, OpenError> {
        let topology = Topology::read(root)?;
        let place = topology.online().find(|(id, _)| *id == core).map(|(_, place)| place.clone());
        let l3 = place.as_ref().and_then(|place| topology.l3.get(place.l3?)).cloned();
        let lost = OpenError::NoL3 { cpu: core.0 };
        let Some((place, l3)) = place.zip(l3) else { return Err(lost) };
        let Some(domain) = l3.id else { return Err(lost) };
        // Any CPU of the package does; that of the managed L3 is in it.
        let reader = l3.cpus.cores().first().copied().unwrap_or(core);
        let cpu = cpuid::Facts::read(root, reader.0);
        let cpuinfo = Cpuinfo::read(root)?;
        let mut notes = Vec::new();
        let told = match cpu {
            Ok(facts) => Some(facts),
            Err(error) => {
                notes.push(format!("{error}; /proc/cpuinfo is believed instead"));
                None
            }
        };
        let signature = told.as_ref().and_then(|facts| facts.signature).or(cpuinfo.signature);
        let brand = told.and_then(|facts| facts.brand).or(cpuinfo.brand);
        let release = root.read_optional("/proc/sys/kernel/osrelease")?;
        // A name for people, of 64 characters at most (uts.h); what is none is left out.
        let plain = |release: &&str| {
            (1..=64).contains(&release.len()) && release.bytes().all(|b| b.is_ascii_graphic())
        };
        let host = match release.as_deref().map(str::trim).filter(plain) {
            Some(release) => format!("Linux {release}"),
            None => "Linux".to_owned(),
        };
        let mut facts = Facts {
            generation: signature.and_then(|signature| Generation::find(&signature)),
            chip: brand.unwrap_or_else(|| "unknown CPU".to_owned()),
            host,
            socket: place.socket,
            l3,
            domain,
            reader,
            ports: Vec::new(),
            devices: Vec::new(),
            functions: Vec::new(),
            notes,
            topology,
        };
        facts.read_devices(root)?;
        Ok(facts)
    }

    /// NICs and disks behind root ports, in the order of addresses.
    fn read_devices(&mut self, root: &Root) -> Result<(), FileError> {
        let tree = PciTree::read(root)?;
        for device in tree.devices() {
            if self.socket_of(device) == self.socket {
                self.functions.push((device.vendor, device.device, device.address));
            }
            let kind = match device {
                _ if device.is_network() => DeviceKind::Network,
                _ if device.is_storage() => DeviceKind::Storage,
                _ => continue,
            };
            let port = match tree.root_port(root, device.address) {
                Ok(port) => port,
                Err(error) => {
                    // Controllers inside the chip set have none; whatever they do is steered by nobody.
                    self.notes.push(error.to_string());
                    continue;
                }
            };
            let index = match self.ports.iter().position(|known| known.address == port) {
                Some(index) => index,
                None => {
                    let socket = tree.device(port).map_or(0, |port| self.socket_of(port));
                    let is_local = socket == self.socket;
                    self.ports.push(PortFact { address: port, is_local, socket });
                    self.ports.len() - 1
                }
            };
            let name = device.names.first().cloned().unwrap_or_else(|| device.address.to_string());
            self.devices.push(DeviceFact { address: device.address, name, kind, port: index });
        }
        Ok(())
    }

    /// The socket of a device, by its NUMA node; where the firmware tells none there is one socket to think of.
    fn socket_of(&self, device: &PciDevice) -> u16 {
        let node = device.node.and_then(|node| self.topology.nodes.get(&node));
        let cpu = node.and_then(|cpus| cpus.cores().first());
        let place = cpu.and_then(|cpu| self.topology.online().find(|(id, _)| id == cpu));
        place.map_or(self.socket, |(_, place)| place.socket)
    }

    /// Addresses of the functions of a kind on the managed socket, in order.
    pub fn devices_of(&self, vendor: u16, device: u16) -> Vec<String> {
        let own = self.functions.iter().filter(|(v, d, _)| (*v, *d) == (vendor, device));
        own.map(|(_, _, address)| address.to_string()).collect()
    }
}
