//! One piece of counting hardware (a core, a box of the uncore) as a list of what to look at, write and read.
//!
//! Plain data: which registers must be free, which are written to what, which are counters. Must not know how a register
//! is reached.

use crate::counting::Quantity;
use waykeeper_units::CoreId;

/// Where a register is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
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
        /// Bytes: 4 for controls, 8 for counters.
        bytes: u8,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Msr { cpu, address } => write!(f, "MSR {address:#x} of CPU {}", cpu.0),
            Place::Pci { device, offset, .. } => write!(f, "register {offset:#x} of PCI device {device}"),
        }
    }
}

/// Registers, however they are reached.
pub trait Bank: std::fmt::Debug {
    /// The value of a register.
    ///
    /// # Errors
    /// In words that name the file.
    fn read(&self, place: &Place) -> Result<u64, String>;

    /// The value of a register that stands still unless somebody writes it, read twice: what is journaled as an original,
    /// or decides whether a register is free, must not rest on one bad answer.
    ///
    /// # Errors
    /// As [`Bank::read`], and two values.
    fn read_still(&self, place: &Place) -> Result<u64, String> {
        match (self.read(place)?, self.read(place)?) {
            (first, second) if first == second => Ok(first),
            (first, second) => Err(format!(
                "{place} reads {first:#x} and then {second:#x}: somebody else is at work there, or it does not answer"
            )),
        }
    }

    /// Writes a register.
    ///
    /// # Errors
    /// In words that name the file.
    fn write(&self, place: &Place, value: u64) -> Result<(), String>;
}

/// Bits that tell of another user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The register.
    pub place: Place,
    /// Bits that are clear as long as nobody counts here.
    pub mask: u64,
}

/// A register to write: the bits of `mask` become those of `value`, the others stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The register.
    pub place: Place,
    /// Bits that are ours.
    pub mask: u64,
    /// What they become.
    pub value: u64,
}

impl Write {
    /// A register that is ours as a whole.
    pub fn whole(place: Place, value: u64) -> Write {
        Write { place, mask: u64::MAX, value }
    }

    /// The value to write, given what is there.
    pub fn over(&self, found: u64) -> u64 {
        found & !self.mask | self.value & self.mask
    }
}

/// A register that counts.
#[derive(Clone, PartialEq, Debug)]
pub struct Counter {
    /// The register.
    pub place: Place,
    /// Its width.
    pub bits: u32,
    /// What it counts.
    pub quantity: Quantity,
    /// What one count stands for.
    pub stands_for: f64,
}

/// One core or box.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Job {
    /// For messages: `core 3`, `uncore_cha 5`.
    pub name: String,
    /// Must be clear before anything is written.
    pub guards: Vec<Guard>,
    /// Written in this order; put back in the opposite one.
    pub writes: Vec<Write>,
    /// Read at every sample.
    pub counters: Vec<Counter>,
}
