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
                "{place} reads {first:#x} and then {second:#x}: another program writes it, or it does not \
                 answer"
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
    /// Those of them that come back together; without any, all of them, which then tell by their value whose they are.
    pub parts: Vec<Part>,
}

/// Bits of a register that come back together, and what tells whose they are by then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The bits.
    pub mask: u64,
    /// Their value tells: another one than ours is somebody else's.
    pub tells: bool,
    /// Bits elsewhere that must not have become somebody else's.
    pub claims: Vec<Guard>,
}

impl Write {
    /// A register that is ours as a whole.
    pub fn whole(place: Place, value: u64) -> Write {
        Write { place, mask: u64::MAX, value, parts: Vec::new() }
    }

    /// A register that belongs to whoever has others, and holds what is of use to him, too.
    pub fn with(place: Place, value: u64, claims: Vec<Guard>) -> Write {
        Write { place, mask: u64::MAX, value, parts: vec![Part { mask: u64::MAX, tells: false, claims }] }
    }

    /// The value to write, given what is there.
    pub fn over(&self, found: u64) -> u64 {
        found & !self.mask | self.value & self.mask
    }

    /// What comes back together.
    pub fn parts(&self) -> Vec<Part> {
        match self.parts.is_empty() {
            true => vec![Part { mask: self.mask, tells: true, claims: Vec::new() }],
            false => self.parts.clone(),
        }
    }

    /// The bits whose value tells whose they are: the register must hold them as they were written.
    pub fn telling(&self) -> u64 {
        self.parts().iter().filter(|part| part.tells).fold(0, |bits, part| bits | part.mask)
    }
}

/// Bits that are turned: what they were, and what tells them from somebody else's later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turned {
    /// The register.
    pub place: Place,
    /// The package, if it is one register for all CPUs of it.
    pub package: Option<u16>,
    /// The bits.
    pub mask: u64,
    /// Their value before.
    pub before: u64,
    /// What we make of them; none if that does not tell.
    pub ours: Vec<u64>,
    /// Registers, bits and the values that they have as long as nobody else is there.
    pub claims: Vec<(Place, u64, Vec<u64>)>,
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
    /// Most that it counts in a tick of the time stamp counter.
    pub most_per_tick: u64,
}

/// Most clocks of a core, or of the mesh, in a tick of the time stamp counter, which runs at the base frequency (SDM vol. 3,
/// 18.17): no part turbos to three times that, and the rest is room. Assumption, on the safe side.
pub const CLOCKS_PER_TICK: u64 = 8;

/// Most of any event of a core in one clock: no core of these generations retires more than eight instructions in one, and
/// caches answer less (SDM, optimization manual; Zen 5 software optimization guide).
pub const EVENTS_PER_CLOCK: u64 = 8;

/// Most bytes through a root port or a memory channel in a tick: 128 GB/s are 16 lanes of PCI Express 6.0, and more than a
/// channel of MRDIMM-12800 brings; no server's time stamp counter runs below 0.5 GHz (assumption, with room).
pub const BYTES_PER_TICK: u64 = 256;

/// One core or box.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Job {
    /// For messages: `core 3`, `uncore_cha 5`.
    pub name: String,
    /// The package whose registers these are; `None` for those of one CPU.
    pub package: Option<u16>,
    /// Must be clear before anything is written.
    pub guards: Vec<Guard>,
    /// Written in this order; put back in the opposite one.
    pub writes: Vec<Write>,
    /// Read at every sample.
    pub counters: Vec<Counter>,
}
