//! The state of direct cache access on a host: the way register of every socket, the switch of every root port, and
//! the devices behind each port.
//!
//! Only reads. A value that cannot be read has a note instead; the survey itself never fails. Must not know how its
//! result is used.

use super::{DdioError, ports};
use serde::Serialize;
use std::fmt;
use waykeeper_generations::{Evidence, Generation};
use waykeeper_kernel::cpuinfo::CpuIdentity;
use waykeeper_kernel::msr::{Allowed, MsrDevice, MsrError};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::resctrl::{CacheInfo, Resctrl};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_units::WayMask;

/// The way register of one socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SocketWays {
    /// The socket's number.
    pub socket: u16,
    /// CPU through which the register is read.
    pub cpu: u16,
    /// Its value; `None` if it cannot be read.
    pub mask: Option<WayMask>,
    /// Its value at power-on, if known.
    pub default: Option<WayMask>,
    /// Ways that CPUID reports as shared with devices; it does not follow the register (hardware.md 1.3).
    pub shareable: Option<WayMask>,
    /// Ways of the LLC.
    pub llc_ways: Option<u32>,
    /// How certain it is that the register has an effect.
    pub standing: Evidence,
    /// Why there is no mask.
    pub note: Option<String>,
    /// The mask is missing because this user may not read it.
    #[serde(skip)]
    pub denied: bool,
}

/// A device behind a root port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PortDevice {
    /// Its PCI address.
    pub address: PciAddress,
    /// Vendor and device id, in the format of lspci -n.
    pub id: String,
    /// Class, subclass and interface.
    pub class: u32,
    /// The kernel's names for it: interfaces, NVMe controllers, disks.
    pub names: Vec<String>,
}

impl fmt::Display for PortDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = kind(self.class).unwrap_or(&self.id);
        let words: Vec<&str> = std::iter::once(kind).chain(self.names.iter().map(String::as_str)).collect();
        write!(f, "{} ({})", self.address, words.join(" "))
    }
}

/// Base class and sub-class of the devices that move much data (PCI Code and ID Assignment, 1).
fn kind(class: u32) -> Option<&'static str> {
    match class >> 8 {
        0x0108 => Some("NVMe"),
        0x0100..=0x01ff => Some("storage"),
        0x0200 => Some("Ethernet"),
        0x0207 => Some("InfiniBand"),
        0x0201..=0x02ff => Some("network"),
        0x0300..=0x03ff => Some("display"),
        0x0b40 | 0x1000..=0x12ff => Some("accelerator"),
        _ => None,
    }
}

/// One root port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PortDca {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its socket, if sysfs reports it.
    pub socket: Option<u16>,
    /// Whether writes of devices behind it allocate in the LLC; `None` if that cannot be read.
    pub dca: Option<bool>,
    /// NoSnoopOpWrEn; shown, never written.
    pub no_snoop: Option<bool>,
    /// TPHDIS; shown, never written.
    pub hints_off: Option<bool>,
    /// Why there is no state.
    pub note: Option<String>,
    /// The state is missing because this user may not read it.
    #[serde(skip)]
    pub denied: bool,
    /// The devices behind it.
    pub devices: Vec<PortDevice>,
}

/// The state of the whole host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Survey {
    /// The CPU's name and generation, for display.
    pub cpu: String,
    /// The generation, if known.
    #[serde(serialize_with = "id_of")]
    pub generation: Option<&'static Generation>,
    /// How certain it is that root ports can be switched.
    pub port_standing: Option<Evidence>,
    /// What is known about the way register.
    pub ways_note: Option<String>,
    /// What is known about the switches.
    pub ports_note: Option<String>,
    /// Sockets by number.
    pub sockets: Vec<SocketWays>,
    /// Root ports by address, including those without devices.
    pub ports: Vec<PortDca>,
    /// What could not be read, so that a port or a device behind one is missing.
    pub blind: Option<String>,
}

fn id_of<S: serde::Serializer>(generation: &Option<&Generation>, serializer: S) -> Result<S::Ok, S::Error> {
    generation.map(|generation| generation.id.as_str()).serialize(serializer)
}

impl Survey {
    /// The generation, or the error that nothing is written on an unknown CPU.
    pub(super) fn known_generation(&self, what: &str) -> Result<&'static Generation, DdioError> {
        self.generation.ok_or_else(|| {
            DdioError::unsupported(
                what,
                format!("{}: no built-in table describes this CPU, so nothing is written", self.cpu),
            )
        })
    }

    /// The root port above a device (or the port itself).
    pub(super) fn port_of(&self, address: PciAddress) -> Result<&PortDca, DdioError> {
        let is_above = |port: &&PortDca| {
            port.address == address || port.devices.iter().any(|device| device.address == address)
        };
        let why = || match &self.blind {
            Some(why) => why.clone(),
            None => "it is not behind a root port: it is part of the socket itself or of a virtual machine"
                .to_owned(),
        };
        let port = self.ports.iter().find(is_above);
        port.ok_or_else(|| DdioError::NoRootPort { address, why: why() })
    }
}

/// Reads all of it.
pub fn survey(root: &Root) -> Survey {
    let identity = CpuIdentity::read(root, 0);
    let generation = identity.generation();
    let cpu = match (identity.brand(), generation, identity.signature()) {
        (brand, Some(generation), _) => {
            format!("{} ({})", brand.unwrap_or_default(), generation.name).trim().to_owned()
        }
        (Some(brand), None, _) => brand.to_owned(),
        (None, None, Some(signature)) => signature.to_string(),
        (None, None, None) => "unknown CPU".to_owned(),
    };
    let dca = generation.map(|generation| &generation.dca);
    let topology = Topology::read(root).ok();
    let (ports, blind) = ports::all(root, generation, topology.as_ref());
    let blind = (!blind.is_empty()).then(|| blind.join("; "));
    Survey {
        cpu,
        generation,
        port_standing: dca.map(|dca| dca.port.evidence),
        ways_note: dca.map(|dca| dca.ways.note.clone()),
        ports_note: dca.map(|dca| dca.port.note.clone()),
        sockets: topology
            .map(|topology| sockets(root, generation, &topology, identity.is_virtual() == Some(true)))
            .unwrap_or_default(),
        ports,
        blind,
    }
}

fn sockets(
    root: &Root,
    generation: Option<&Generation>,
    topology: &Topology,
    is_virtual: bool,
) -> Vec<SocketWays> {
    // resctrl's value before the cache's: the register is compared with masks (hardware.md 0.1).
    let resctrl =
        Resctrl::open(root, waykeeper_kernel::resctrl::GROUP_PREFIX).and_then(|resctrl| resctrl.info()).ok();
    let l3: Option<&CacheInfo> = resctrl.as_ref().and_then(|info| info.l3());
    let standing = generation.map_or(Evidence::Unknown, |generation| generation.dca.ways.evidence);
    let register = generation.and_then(|generation| generation.dca.ways.register.as_ref());
    let one = |socket: u16| {
        let cpu = topology.reader_of(socket)?;
        let llc_ways =
            l3.map(|l3| l3.cbm_mask.count()).or_else(|| topology.l3_of(socket).find_map(|l3| l3.ways));
        let read = match register {
            None if generation.is_none() => Err(("no built-in table describes this CPU".to_owned(), false)),
            None => Err(("no such register is known on this CPU".to_owned(), false)),
            Some(register) => read_mask(root, cpu.0, register.msr, is_virtual),
        };
        let (note, denied) = read.as_ref().err().cloned().unzip();
        Some(SocketWays {
            socket,
            cpu: cpu.0,
            default: register.and_then(|register| register.default),
            shareable: l3.and_then(|l3| l3.shareable_bits),
            llc_ways,
            standing,
            note,
            denied: denied.unwrap_or_default(),
            mask: read.ok(),
        })
    };
    topology.sockets().into_iter().filter_map(one).collect()
}

/// Why a virtual machine without the msr driver has no mask.
pub const NO_GUEST_REGISTER: &str = "a virtual machine is given no register of the DDIO ways";

/// The register's mask; else why there is none, and whether permission is missing.
fn read_mask(root: &Root, cpu: u16, register: u32, is_virtual: bool) -> Result<WayMask, (String, bool)> {
    let msr = MsrDevice::open(root, cpu, Allowed::nothing());
    let value = msr.and_then(|msr| msr.read(register)).map_err(|error| {
        let why = match error {
            // Loading the driver would not help.
            MsrError::NoModule { .. } if is_virtual => NO_GUEST_REGISTER.to_owned(),
            // The CPU is online: a container may have been given the devices of some CPUs.
            MsrError::Offline { .. } if !root.exists(format!("/dev/cpu/{cpu}/msr")) => {
                format!("CPU {cpu} has no msr device, although others have one; a container needs that of each socket")
            }
            _ => error.with_remedy(),
        };
        (why, matches!(error, MsrError::Permission { .. }))
    })?;
    match u32::try_from(value) {
        Ok(bits) if bits != 0 => Ok(WayMask::from_bits(bits)),
        // Guests read 0 from registers that the hypervisor does not provide (virtual-host.md 4).
        _ => {
            Err((format!("MSR {register:#x} of CPU {cpu} reads {value:#x}, which is not a way mask"), false))
        }
    }
}
