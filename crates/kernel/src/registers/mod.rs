//! The address of a register outside resctrl, an MSR or a field of PCI configuration space, and access to registers.
//!
//! Counting, the DCA knobs and restoring share these types; [`RegisterFiles`] gives access through kernel files. Must
//! not know why a register is read or written.

mod files;

pub use files::RegisterFiles;

use std::fmt;
use waykeeper_units::CoreId;

/// Address of a register.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RegisterAddress {
    /// An MSR, through one CPU.
    Msr {
        /// The CPU.
        cpu: CoreId,
        /// Its address.
        address: u32,
    },
    /// In the configuration space of a PCI device.
    Pci {
        /// The device, for example `0000:3a:0a.2`.
        device: String,
        /// Offset of its first byte.
        offset: u16,
        /// Bytes: 1 for a switch, 4 for controls, 8 for counters.
        bytes: u8,
    },
}

impl RegisterAddress {
    /// The MSR's number, or the offset in configuration space.
    pub fn number(&self) -> u32 {
        match self {
            RegisterAddress::Msr { address, .. } => *address,
            RegisterAddress::Pci { offset, .. } => u32::from(*offset),
        }
    }

    /// The register of this number, of the same CPU or device and as wide.
    ///
    /// # Errors
    /// A number beyond any configuration space, in words.
    pub fn beside(&self, number: u32) -> Result<RegisterAddress, String> {
        Ok(match self {
            RegisterAddress::Msr { cpu, .. } => RegisterAddress::Msr { cpu: *cpu, address: number },
            RegisterAddress::Pci { device, bytes, .. } => {
                let offset = u16::try_from(number)
                    .map_err(|_| format!("offset {number:#x} is beyond any config space"))?;
                RegisterAddress::Pci { device: device.clone(), offset, bytes: *bytes }
            }
        })
    }
}

impl fmt::Display for RegisterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterAddress::Msr { cpu, address } => write!(f, "MSR {address:#x} of CPU {}", cpu.0),
            RegisterAddress::Pci { device, offset, .. } => {
                write!(f, "register {offset:#x} of PCI device {device}")
            }
        }
    }
}

/// Access to registers.
pub trait RegisterIo: fmt::Debug {
    /// The value of a register.
    ///
    /// # Errors
    /// In words that name the file.
    fn read(&self, register: &RegisterAddress) -> Result<u64, String>;

    /// Writes a register.
    ///
    /// # Errors
    /// In words that name the file.
    fn write(&self, register: &RegisterAddress, value: u64) -> Result<(), String>;

    /// Reads a register that only changes by writes, twice: one bad reading must not be journaled as an original, be
    /// written back, or decide whether a register is free.
    ///
    /// # Errors
    /// As [`RegisterIo::read`], and two different values.
    fn read_still(&self, register: &RegisterAddress) -> Result<u64, String> {
        match (self.read(register)?, self.read(register)?) {
            (first, second) if first == second => Ok(first),
            (first, second) => Err(format!(
                "{register} reads {first:#x} and then {second:#x}: another program writes it, or it does not \
                 answer"
            )),
        }
    }
}
