//! Facts about this host, read once: CPU, topology, the managed L3, root ports and the devices behind them. Only CPUs that
//! go online later are added.
//!
//! [`super::inventory`] and [`super::count`] decide from them. Must not know tenants beyond the cores that select the
//! managed L3.

use super::Managed;
use super::error::OpenError;
use waykeeper_generations::Generation;
use waykeeper_host::DeviceKind;
use waykeeper_kernel::content::ContentError;
use waykeeper_kernel::cpuinfo::CpuIdentity;
use waykeeper_kernel::pci::{PciAddress, PciDevice, PciTree};
use waykeeper_kernel::root::{FileError, Root};
use waykeeper_kernel::topology::{L3, Topology};
use waykeeper_units::{CoreId, CoreList};

/// A root port with a NIC or disk behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PortFact {
    pub address: PciAddress,
    /// It belongs to the managed socket.
    pub is_local: bool,
    /// Its socket, if the kernel reports one.
    pub socket: Option<u16>,
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

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Facts {
    pub generation: Option<&'static Generation>,
    /// Whether this is a virtual machine, as far as is known.
    pub is_virtual: bool,
    /// The CPU's brand string.
    pub chip: String,
    /// For example `Linux 6.12.1`.
    pub host: String,
    pub topology: Topology,
    /// The managed socket.
    pub socket: u16,
    /// The managed L3; its id is its resctrl domain. `None` if the kernel shows none of the socket.
    pub l3: Option<L3>,
    /// The managed CPUs: those that share the L3, without one those of the socket.
    pub cpus: CoreList,
    /// The CPU through which package registers are read.
    pub reader: CoreId,
    pub ports: Vec<PortFact>,
    pub devices: Vec<DeviceFact>,
    /// NICs and disks that were not found behind a root port, and devices that could not be read, each with the reason.
    pub without_root_port: Vec<(PciAddress, String)>,
    /// Vendor, device and address of every function on the managed socket.
    functions: Vec<(u16, u16, PciAddress)>,
    /// Notes for the user: what could not be found out.
    pub notes: Vec<String>,
}

const OSRELEASE: &str = "/proc/sys/kernel/osrelease";

/// Whether the text begins like a kernel release, VERSION.PATCHLEVEL.
fn is_release(text: &str) -> bool {
    let number = |part: &str| part.len() <= 3 && part.parse::<u8>().is_ok();
    let mut parts = text.splitn(3, ['.', '-', '+']);
    parts.next().is_some_and(number) && parts.next().is_some_and(|part| part.parse::<u16>().is_ok())
}

impl Facts {
    /// Reads the facts; `core` is a core of the managed L3.
    ///
    /// # Errors
    /// If a file that every Linux has is missing or malformed.
    pub fn read(root: &Root, core: CoreId) -> Result<Facts, OpenError> {
        Facts::of(root, Topology::read(root)?, core)
    }

    /// Reads the facts of the L3 that `managed` names, else of core `first`'s L3, else of the lowest CPU's.
    ///
    /// # Errors
    /// As [`Facts::read`]; also if the named L3 does not exist.
    pub fn read_managed(
        root: &Root,
        managed: Option<Managed>,
        first: Option<CoreId>,
    ) -> Result<Facts, OpenError> {
        let topology = Topology::read(root)?;
        let lowest = || topology.online().find(|(_, place)| place.l3.is_some()).map(|(id, _)| id);
        let core = match managed {
            // Without any L3 the lowest CPU is named.
            None => {
                first.or_else(lowest).or_else(|| topology.online().next().map(|(lowest_cpu, _)| lowest_cpu))
            }
            Some(Managed::Cpu(cpu)) => {
                topology.online().map(|(id, _)| id).find(|id| *id == cpu).or(first).or_else(lowest)
            }
            Some(Managed::Socket(socket)) => {
                Some(topology.reader_of(socket).ok_or(OpenError::NoSocket { socket })?)
            }
            Some(Managed::Domain(domain)) => {
                let own = topology.l3.iter().find(|l3| l3.id == Some(domain));
                let known: Vec<String> =
                    topology.l3.iter().filter_map(|l3| l3.id).map(|id| id.to_string()).collect();
                let known = if known.is_empty() { "none with an id".to_owned() } else { known.join(", ") };
                let none = || OpenError::NoDomain { domain, known };
                own.ok_or_else(none)?.cpus.cores().first().copied()
            }
        };
        Facts::of(root, topology, core.unwrap_or(CoreId(0)))
    }

    /// Adds managed CPUs that are online now and were not at the start. CPUs that are offline now stay: they may return.
    pub fn add_online_cpus(&mut self, root: &Root) {
        // Without a readable topology nothing is known of new CPUs; tenants with them are refused with that reason.
        let Ok(topology) = Topology::read(root) else { return };
        let online = match &self.l3 {
            None => topology.cpus_of(self.socket),
            Some(l3) => {
                let is_same = |own: &&L3| match l3.id {
                    Some(_) => (own.id, own.socket) == (l3.id, l3.socket),
                    None => !own.cpus.common(&self.cpus).is_empty(),
                };
                topology.l3.iter().find(is_same).map_or_else(CoreList::default, |own| own.cpus.clone())
            }
        };
        self.cpus = self.cpus.with(&online);
    }

    fn of(root: &Root, topology: Topology, core: CoreId) -> Result<Facts, OpenError> {
        let place = topology.online().find(|(id, _)| *id == core).map(|(_, place)| place.clone());
        let place = place.ok_or(OpenError::NoCpu { cpu: core.0 })?;
        let l3 = place.l3.and_then(|index| topology.l3.get(index)).cloned();
        let cpus = l3.as_ref().map_or_else(|| topology.cpus_of(place.socket), |l3| l3.cpus.clone());
        // Any CPU of the package will do; a managed CPU is in it.
        let reader = cpus.cores().first().copied().unwrap_or(core);
        let identity = CpuIdentity::read(root, reader.0);
        let (generation, is_virtual) = (identity.generation(), identity.is_virtual() == Some(true));
        let cpuinfo = identity.cpuinfo?;
        let mut notes = Vec::new();
        let brand = match identity.cpuid {
            Ok(cpuid) => cpuid.brand,
            Err(error) => {
                notes.push(format!("{error}; using /proc/cpuinfo instead"));
                None
            }
        };
        let release = root.read_optional(OSRELEASE)?;
        let host = match release.as_deref().map(str::trim) {
            None => "Linux".to_owned(),
            Some(release) if is_release(release) => format!("Linux {release}"),
            Some(other) => {
                let path = root.path(OSRELEASE);
                notes.push(ContentError::new(&path, 0, other, "a release like 6.12.1-amd64").to_string());
                "Linux".to_owned()
            }
        };
        let mut facts = Facts {
            generation,
            is_virtual,
            chip: brand.or(cpuinfo.brand).unwrap_or_else(|| "unknown CPU".to_owned()),
            host,
            socket: place.socket,
            l3,
            cpus,
            reader,
            ports: Vec::new(),
            devices: Vec::new(),
            without_root_port: Vec::new(),
            functions: Vec::new(),
            notes,
            topology,
        };
        facts.read_devices(root)?;
        Ok(facts)
    }

    /// Reads NICs and disks behind root ports, in order of addresses.
    fn read_devices(&mut self, root: &Root) -> Result<(), FileError> {
        let tree = PciTree::read(root)?;
        self.without_root_port.extend(tree.unreadable());
        self.notes.extend(tree.strange());
        let mut lost = Vec::new();
        for device in tree.devices() {
            match self.socket_of(device) {
                Some(socket) if socket == self.socket => {
                    self.functions.push((device.vendor, device.device, device.address));
                }
                None if self.is_memory(device) => lost.push(device.address),
                _ => {}
            }
            let kind = match device {
                _ if device.is_network() => DeviceKind::Network,
                _ if device.is_storage() => DeviceKind::Storage,
                _ => continue,
            };
            let port = match tree.root_port(root, device.address) {
                Ok(port) => port,
                Err(error) => {
                    // Controllers inside the chipset have no root port, so no knob affects them.
                    self.without_root_port.push((device.address, error.to_string()));
                    continue;
                }
            };
            let index = match self.ports.iter().position(|known| known.address == port) {
                Some(index) => index,
                None => {
                    // A device is on the socket of its port.
                    let socket = tree.device(port).ok().and_then(|port| self.socket_of(port));
                    let socket = socket.or_else(|| self.socket_of(device));
                    let is_local = socket == Some(self.socket);
                    if socket.is_none() {
                        lost.push(port);
                    }
                    self.ports.push(PortFact { address: port, is_local, socket });
                    self.ports.len() - 1
                }
            };
            let name = device.names.first().cloned().unwrap_or_else(|| device.address.to_string());
            self.devices.push(DeviceFact { address: device.address, name, kind, port: index });
        }
        if !lost.is_empty() {
            let lost: Vec<String> = lost.iter().map(PciAddress::to_string).collect();
            self.notes.push(format!(
                "the socket of {} is not known (numa_node is -1), so they do not count as devices of socket \
                 {}",
                lost.join(", "),
                self.socket
            ));
        }
        Ok(())
    }

    /// Whether the device has the counters of a memory channel.
    fn is_memory(&self, device: &PciDevice) -> bool {
        let memory = self.generation.and_then(|generation| generation.memory.as_ref());
        memory.is_some_and(|memory| memory.pci_devices.contains(&[device.vendor, device.device]))
    }

    /// The socket of a device, from its NUMA node. Without a node, the only socket of a one-socket machine.
    fn socket_of(&self, device: &PciDevice) -> Option<u16> {
        let node = device.node.and_then(|node| self.topology.nodes.get(&node));
        let cpu = node.and_then(|cpus| cpus.cores().first());
        let place = cpu.and_then(|cpu| self.topology.online().find(|(id, _)| id == cpu));
        let only = (self.topology.sockets().len() == 1).then_some(self.socket);
        place.map(|(_, place)| place.socket).or(only)
    }

    /// The managed socket's die number in the kernel's `dieN` file names: the kernel numbers dies from 0, independent
    /// of the firmware's package ids (linux:arch/x86/kernel/cpu/topology.c, topology_get_logical_id).
    pub fn die(&self) -> u16 {
        self.topology.sockets().iter().position(|socket| *socket == self.socket).unwrap_or_default() as u16
    }

    /// Addresses of the functions with this vendor and device ID on the managed socket, in order.
    pub fn devices_of(&self, vendor: u16, device: u16) -> Vec<String> {
        let own = self.functions.iter().filter(|(v, d, _)| (*v, *d) == (vendor, device));
        own.map(|(_, _, address)| address.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::is_release;

    #[test]
    fn releases_look_like_releases() {
        for release in ["6.1.0-13-amd64", "6.12", "5.14.0-427.el9.x86_64", "6.19-rc3", "4.19.0+"] {
            assert!(is_release(release), "{release}");
        }
        for other in ["", "6", "99999999999999999999", "-2", "garbage", "\u{fffd}\0 no file of a kernel"] {
            assert!(!is_release(other), "{other}");
        }
    }
}
