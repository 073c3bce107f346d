//! A change of DDIO ways or of root ports' DCA as steps: which registers change, what is journaled, and the write
//! with its read-back.
//!
//! Plans from a [`Survey`], writes through [`RegisterIo`]. Must not know files, nor how long a change lasts.

use super::DdioError;
use super::survey::{PortDca, SocketWays, Survey};
use serde::Serialize;
use std::fmt;
use waykeeper_generations::Evidence;
use waykeeper_kernel::dca_ways::{self, Wanted};
use waykeeper_kernel::journal::{Journal, Original, OriginalBits, OwnershipCheck};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::registers::{RegisterAddress, RegisterIo};
use waykeeper_units::{CoreId, WayMask};

/// One register to change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "knob", rename_all = "kebab-case")]
pub enum RegisterChange {
    /// The way mask of a socket.
    Ways {
        /// The socket.
        socket: u16,
        /// CPU through which the register is accessed.
        cpu: u16,
        /// The MSR.
        register: u32,
        /// Current value.
        from: WayMask,
        /// New value.
        to: WayMask,
    },
    /// DCA of a root port.
    Port {
        /// The port.
        address: PciAddress,
        /// Offset of the byte in its config space.
        offset: u16,
        /// The bit of that byte.
        bit: u8,
        /// Current value.
        from: bool,
        /// New value.
        to: bool,
    },
}

impl RegisterChange {
    /// The bits of a register that it changes, with their current value.
    pub fn original(&self) -> Original {
        let (address, package, mask, from) = match self {
            RegisterChange::Ways { socket, cpu, register, from, .. } => {
                let address = RegisterAddress::Msr { cpu: CoreId(*cpu), address: *register };
                (address, Some(*socket), u64::MAX, from.bits().into())
            }
            RegisterChange::Port { address, offset, bit, from, .. } => {
                let device = address.to_string();
                let address = RegisterAddress::Pci { device, offset: *offset, bytes: 1 };
                (address, None, 1 << bit, u64::from(*from) << bit)
            }
        };
        Original::of_register(&address, package, mask, from, OwnershipCheck::default())
    }

    /// The new value of these bits.
    fn wanted(&self) -> u64 {
        match self {
            RegisterChange::Ways { to, .. } => to.bits().into(),
            RegisterChange::Port { bit, to, .. } => u64::from(*to) << bit,
        }
    }

    /// Whether it changes the register.
    pub fn is_needed(&self) -> bool {
        match self {
            RegisterChange::Ways { from, to, .. } => from != to,
            RegisterChange::Port { from, to, .. } => from != to,
        }
    }

    /// Writes the register and reads it back.
    fn turn(&self, registers: &dyn RegisterIo) -> Result<(), DdioError> {
        let failed = |why| DdioError::Failed { what: self.to_string(), why };
        let original = self.original();
        let Some(OriginalBits { address, mask, .. }) = original.register() else { return Ok(()) };
        // Only these bits are changed; the others keep their current values.
        let found = registers.read(&address).map_err(failed)?;
        let value = found & !mask | self.wanted();
        registers.write(&address, value).map_err(failed)?;
        match registers.read(&address).map_err(failed)? {
            now if now & mask == self.wanted() => Ok(()),
            now => {
                let now = match self {
                    RegisterChange::Ways { .. } => format!("{now:#x}"),
                    RegisterChange::Port { .. } => format!("{now:#04x}"),
                };
                Err(DdioError::ReadsBack { what: self.to_string(), now })
            }
        }
    }
}

impl fmt::Display for RegisterChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterChange::Ways { socket, from, to, .. } => {
                write!(f, "socket {socket}: DDIO ways {from} ({}) -> {to} ({})", from.count(), to.count())
            }
            RegisterChange::Port { address, from, to, .. } => {
                let word = |on: &bool| if *on { "on" } else { "off" };
                write!(f, "root port {address}: DCA {} -> {}", word(from), word(to))
            }
        }
    }
}

/// Why a mask that was read cannot be changed.
pub const NO_WIDTH: &str = "the width of the LLC's masks is not known";

/// The steps that change the DDIO ways of all sockets, or of one.
///
/// # Errors
/// The first reason against the change; nothing has been written then.
pub fn plan_ways(
    survey: &Survey,
    wanted: Wanted,
    socket: Option<u16>,
) -> Result<Vec<RegisterChange>, DdioError> {
    let generation = survey.known_generation("setting the DDIO ways")?;
    let chosen: Vec<&SocketWays> =
        survey.sockets.iter().filter(|own| socket.is_none_or(|socket| own.socket == socket)).collect();
    if let (Some(socket), true) = (socket, chosen.is_empty()) {
        let known: Vec<String> = survey.sockets.iter().map(|own| own.socket.to_string()).collect();
        return Err(DdioError::NoSuchSocket { socket, known: known.join(", ") });
    }
    if chosen.is_empty() {
        return Err(DdioError::unsupported("setting the DDIO ways", "the sockets are not known"));
    }
    let mut steps = Vec::new();
    for own in chosen {
        // The rules come first: if a register must not be written, the error says that, not how it reads.
        let unread = dca_ways::may_write(generation).err();
        let (from, llc_ways) = match (own.mask, own.llc_ways, unread) {
            (_, _, Some(error)) => return Err(error.into()),
            (Some(mask), Some(ways), None) => (mask, ways),
            _ if own.denied => return Err(DdioError::Denied(own.note.clone().unwrap_or_default())),
            _ => {
                let why = own.note.clone().unwrap_or_else(|| NO_WIDTH.to_owned());
                return Err(DdioError::unsupported("setting the DDIO ways", why));
            }
        };
        let to = dca_ways::plan(generation, llc_ways, from, wanted)?;
        let register = generation.dca.ways.register.as_ref().map_or(0, |register| register.msr);
        steps.push(RegisterChange::Ways { socket: own.socket, cpu: own.cpu, register, from, to });
    }
    Ok(steps)
}

/// The steps that switch DCA of the root ports above these devices; each port once.
///
/// # Errors
/// The first reason against the change; nothing has been written then.
pub fn plan_ports(
    survey: &Survey,
    devices: &[PciAddress],
    on: bool,
) -> Result<Vec<RegisterChange>, DdioError> {
    let what = "switching DCA of a root port";
    let generation = survey.known_generation(what)?;
    let switch = &generation.dca.port;
    let mut steps: Vec<RegisterChange> = Vec::new();
    for device in devices {
        let port = survey.port_of(*device)?;
        let Some(place) = switch.allocating.filter(|_| switch.evidence.may_write()) else {
            let why = match switch.evidence {
                Evidence::Absent => format!("{}: {}", generation.name, switch.note),
                standing => {
                    format!(
                        "on {} the switch {}: {}; it is only read",
                        generation.name,
                        dca_ways::words(standing),
                        switch.note
                    )
                }
            };
            return Err(DdioError::unsupported(what, why));
        };
        let Some(from) = port.dca else {
            if port.denied {
                return Err(DdioError::Denied(port.note.clone().unwrap_or_default()));
            }
            let why = port.note.clone().unwrap_or_else(|| "its state cannot be read".to_owned());
            return Err(DdioError::unsupported(what, format!("{}: {why}", port.address)));
        };
        let step = RegisterChange::Port {
            address: port.address,
            offset: place.offset,
            bit: place.bit,
            from,
            to: on,
        };
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    Ok(steps)
}

/// Journals the originals of all steps, then applies the steps in order.
///
/// # Errors
/// The first failure. The steps before it have been applied; restoring the journal undoes them and the failed one.
pub fn turn(
    steps: &[RegisterChange],
    journal: &mut Journal,
    registers: &dyn RegisterIo,
) -> Result<(), DdioError> {
    let needed: Vec<&RegisterChange> = steps.iter().filter(|step| step.is_needed()).collect();
    let originals: Vec<Original> = needed.iter().map(|step| step.original()).collect();
    journal.record(&originals).map_err(|error| DdioError::Journal(error.to_string()))?;
    needed.into_iter().try_for_each(|step| step.turn(registers))
}

/// The ports that the steps change.
pub fn ports_of<'s>(survey: &'s Survey, steps: &[RegisterChange]) -> Vec<&'s PortDca> {
    let is_meant = |port: &&PortDca| {
        steps
            .iter()
            .any(|step| matches!(step, RegisterChange::Port { address, .. } if *address == port.address))
    };
    survey.ports.iter().filter(is_meant).collect()
}
