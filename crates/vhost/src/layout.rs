//! The layout of the virtual server: packages, their CPUs, and the root buses and stacks of its devices' ports.
//!
//! Computed once from the scenario and the generation's tables and used by all other files. It must not know files or
//! counters.

use waykeeper_generations::{Generation, Signature, Vendor};
use waykeeper_host::DeviceKind;
use waykeeper_machine::Scenario;
use waykeeper_silicon::Identity;

/// Why a scenario cannot be shown as a host.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The chip file does not say which CPU it is.
    #[error(
        "the chip `{chip}` has no table [identity], so no file can say which CPU this is; add one to the chip's file \
         (`waykeeper chip show gold-6140` has it), or take another chip"
    )]
    NoIdentity {
        /// The chip.
        chip: String,
    },
    /// The chip names a generation without a table.
    #[error("identity.generation of the chip `{chip}` is `{generation}`; known are {known}")]
    Generation {
        /// The chip.
        chip: String,
        /// The generation that it names.
        generation: String,
        /// The generations that exist.
        known: String,
    },
    /// A port's address is not a PCI address.
    #[error("the port of `{device}` is at `{address}`; it must be a PCI address like 0000:16:00.0")]
    Address {
        /// The device.
        device: String,
        /// Its port.
        address: String,
    },
    /// Two devices behind one port: the machine counts and switches them separately, which one root port could not.
    #[error(
        "the ports of `{device}` and `{other}` are both at {address}; each device needs a root port of its own"
    )]
    Shared {
        /// The later device.
        device: String,
        /// The earlier one.
        other: String,
        /// Where.
        address: Address,
    },
}

/// A PCI address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// Domain.
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl Address {
    /// An address in domain 0.
    pub const fn new(bus: u8, device: u8, function: u8) -> Address {
        Address { domain: 0, bus, device, function }
    }

    /// Reads `0000:16:00.0`.
    pub fn parse(text: &str) -> Option<Address> {
        let (front, function) = text.rsplit_once('.')?;
        let mut parts = front.split(':');
        let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, digits: usize| {
            let right = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            right.then(|| u16::from_str_radix(text, 16).ok()).flatten()
        };
        if parts.next().is_some() {
            return None;
        }
        let (device, function) = (hex(device, 2)?, hex(function, 1)?);
        (device < 32 && function < 8).then_some(Address {
            domain: hex(domain, 4)?,
            bus: hex(bus, 2)? as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// A root port and its device; its index is that of the machine's port.
#[derive(Clone, Debug)]
pub struct PortLayout {
    /// Name of the device behind it.
    pub device: String,
    /// NIC or storage.
    pub kind: DeviceKind,
    /// Its address in the scenario.
    pub address: Address,
    /// Package it belongs to.
    pub package: usize,
    /// IIO stack and part that count its bytes, if the generation has them and one was free.
    pub counted: Option<(u16, u8)>,
}

/// The server's layout.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The CPU's identity.
    pub identity: Identity,
    /// Tables of its generation, if there are any.
    pub generation: Option<&'static Generation>,
    /// Number of packages: a second one exists only for remote devices, and no program runs on it.
    pub packages: usize,
    /// Cores of a package.
    pub cores: usize,
    /// Root ports, by index.
    pub ports: Vec<PortLayout>,
    /// Root bus of each IIO stack, per package; the first is the package's own bus.
    pub stacks: Vec<Vec<(u16, u8)>>,
}

impl Layout {
    /// The layout of a scenario.
    ///
    /// # Errors
    /// If the scenario's chip or ports cannot be shown.
    pub fn new(scenario: &Scenario) -> Result<Layout, LayoutError> {
        let chip = &scenario.chip;
        let identity =
            chip.identity.clone().ok_or_else(|| LayoutError::NoIdentity { chip: chip.name.clone() })?;
        let generation = match &identity.generation {
            None => None,
            Some(id) => {
                Some(
                    Generation::by_id(id).ok_or_else(|| LayoutError::Generation {
                        chip: chip.name.clone(),
                        generation: id.clone(),
                        known: Generation::all()
                            .iter()
                            .map(|known| known.id.as_str())
                            .collect::<Vec<_>>()
                            .join(", "),
                    })?,
                )
            }
        };
        let nics = scenario.nics.iter().map(|nic| (&nic.name, DeviceKind::Network, &nic.port, nic.remote));
        let arrays = scenario
            .storage
            .iter()
            .map(|array| (&array.name, DeviceKind::Storage, &array.port, array.remote));
        let mut ports: Vec<PortLayout> = Vec::new();
        for (name, kind, text, remote) in nics.chain(arrays) {
            let bad = || LayoutError::Address { device: name.clone(), address: text.clone() };
            let address = legal(Address::parse(text).ok_or_else(bad)?, generation);
            if let Some(other) = ports.iter().find(|port| port.address == address) {
                return Err(LayoutError::Shared {
                    device: name.clone(),
                    other: other.device.clone(),
                    address,
                });
            }
            let package = usize::from(remote);
            ports.push(PortLayout { device: name.clone(), kind, address, package, counted: None });
        }
        let packages = 1 + usize::from(ports.iter().any(|port| port.package == 1));
        let stacks = (0..packages).map(|package| stacks(package, &ports, generation)).collect::<Vec<_>>();
        for port in &mut ports {
            let stack = stacks[port.package].iter().find(|(_, bus)| *bus == port.address.bus);
            let part =
                generation.and_then(|generation| generation.iio.as_ref()?.part_map.part(port.address.device));
            port.counted = stack.zip(part).map(|((stack, _), part)| (*stack, part));
        }
        Ok(Layout { identity, generation, packages, cores: chip.cores as usize, ports, stacks })
    }

    /// Number of CPUs: one per core.
    pub fn cpus(&self) -> usize {
        self.packages * self.cores
    }

    /// The package of a CPU.
    pub fn package_of(&self, cpu: usize) -> usize {
        cpu / self.cores
    }

    /// The CPUs of a package.
    pub fn cpus_of(&self, package: usize) -> std::ops::Range<usize> {
        package * self.cores..(package + 1) * self.cores
    }

    /// Whether it is an AMD CPU.
    pub fn is_amd(&self) -> bool {
        Vendor::from_id(&self.identity.vendor) == Some(Vendor::Amd)
    }

    /// Whether memory traffic is monitored by RMID: from Broadwell on (SDM vol. 3, 17.18).
    pub fn counts_traffic(&self) -> bool {
        self.generation.is_none_or(|generation| generation.id != "hsx")
    }

    /// The signature in CPUID leaf 1; `None` for a vendor without tables.
    pub fn signature(&self) -> Option<Signature> {
        let identity = &self.identity;
        Some(Signature {
            vendor: Vendor::from_id(&identity.vendor)?,
            family: identity.family as u16,
            model: identity.model as u16,
            stepping: identity.stepping as u8,
        })
    }

    /// The bus of a package's own devices (memory controllers, registers): one that no port uses.
    pub fn uncore_bus(&self, package: usize) -> u8 {
        // Skylake's first package has them on 0x3a or 0x3b, the second on 0xae.
        let first = [0x3a, 0xae][package.min(1)];
        let taken = |bus: &u8| self.ports.iter().any(|port| port.address.bus == *bus);
        (first..=u8::MAX).find(|bus| !taken(bus)).unwrap_or(first)
    }
}

/// Root ports have fixed device numbers, by which their bytes are counted (hardware.md 4.4). A scenario's port with a
/// number that the generation does not use is shown at the first one that it uses.
fn legal(address: Address, generation: Option<&Generation>) -> Address {
    match generation.and_then(|generation| generation.iio.as_ref()).map(|iio| iio.part_map) {
        Some(map) if map.part(address.device).is_none() => Address { device: map.first, ..address },
        _ => address,
    }
}

/// Stack numbers and root buses of a package: its own bus first, then the ports' buses in rising order.
fn stacks(package: usize, ports: &[PortLayout], generation: Option<&Generation>) -> Vec<(u16, u8)> {
    let Some(generation) = generation.filter(|generation| generation.iio.is_some()) else {
        return Vec::new();
    };
    let own = [0x00, 0x80][package.min(1)];
    let mut buses: Vec<u8> =
        ports.iter().filter(|port| port.package == package).map(|port| port.address.bus).collect();
    buses.sort_unstable();
    buses.dedup();
    buses.retain(|bus| *bus != own);
    let (dmi, pcie) = numbers(&generation.id);
    let rest = pcie.iter().copied().zip(buses);
    std::iter::once((dmi, own)).chain(rest).collect()
}

/// Numbers of the IIO stacks: first the one of the package's own bus, then those of PCIe in the order of their buses
/// (hardware.md 4.4: pcm-iio-topology.cpp; Skylake's go by bus, Sapphire Rapids' are those of its MCC die).
fn numbers(generation: &str) -> (u16, &'static [u16]) {
    match generation {
        "icx" => (5, &[0, 1, 2, 3, 4]),
        "spr" => (10, &[0, 1, 2, 4, 5]),
        "emr" => (7, &[1, 2, 3, 8, 6]),
        "gnr" => (9, &[3, 4, 2, 5, 11, 12, 0, 7, 8]),
        _ => (0, &[1, 2, 3, 4, 5]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        let address = Address::parse("0000:3a:1f.7").unwrap();
        assert_eq!(address, Address::new(0x3a, 0x1f, 7));
        assert_eq!(address.to_string(), "0000:3a:1f.7");
        for bad in ["", "3a:00.0", "0000:3a:20.0", "0000:3a:00.8", "0000:3a:00", "0000:+a:00.0", "0:0:0:0.0"]
        {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
