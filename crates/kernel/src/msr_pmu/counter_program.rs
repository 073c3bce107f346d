//! A piece of counting hardware (a core, a box of the uncore) as a list of registers to check, write and read.
//!
//! Plain data: which registers must be free, which values are written, which registers are counters. Must not know
//! how a register is accessed.

use crate::counting::SampledQuantity;
use crate::registers::RegisterAddress;

/// Bits that show whether another program uses a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterBits {
    /// The register.
    pub register: RegisterAddress,
    /// Bits that are clear as long as no other program counts here.
    pub mask: u64,
}

/// A register to write: the bits of `mask` become those of `value`, the others stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The register.
    pub register: RegisterAddress,
    /// Bits that this write may change.
    pub mask: u64,
    /// Their new value.
    pub value: u64,
    /// Groups of these bits that are restored together.
    pub parts: Vec<Part>,
}

/// Bits of a register that are restored together, and what then identifies their owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The bits.
    pub mask: u64,
    /// Their value identifies the owner: any other than ours is another program's.
    pub tells: bool,
    /// Bits elsewhere that another program must not have changed.
    pub claims: Vec<RegisterBits>,
}

impl Write {
    /// A write of a whole register, whose value identifies the owner.
    pub fn whole(register: RegisterAddress, value: u64) -> Write {
        let part = Part { mask: u64::MAX, tells: true, claims: Vec::new() };
        Write { register, mask: u64::MAX, value, parts: vec![part] }
    }

    /// A write of a whole register whose owner is the owner of `claims`, whatever its value.
    pub fn with(register: RegisterAddress, value: u64, claims: Vec<RegisterBits>) -> Write {
        Write { register, mask: u64::MAX, value, parts: vec![Part { mask: u64::MAX, tells: false, claims }] }
    }

    /// The value to write over `found`.
    pub fn over(&self, found: u64) -> u64 {
        found & !self.mask | self.value & self.mask
    }

    /// The bits whose value identifies the owner; the register must hold them as written.
    pub fn telling(&self) -> u64 {
        self.parts.iter().filter(|part| part.tells).fold(0, |bits, part| bits | part.mask)
    }
}

/// A register that counts.
#[derive(Clone, PartialEq, Debug)]
pub struct CounterRegister {
    /// The register.
    pub register: RegisterAddress,
    /// Its width.
    pub bits: u32,
    /// What it counts.
    pub quantity: SampledQuantity,
    /// The factor for its count.
    pub stands_for: f64,
    /// Most counts per tick of the time stamp counter.
    pub most_per_tick: u64,
}

/// Most clocks of a core, or of the mesh, per tick of the time stamp counter, which runs at the base frequency (SDM
/// vol. 3, 18.17). Assumption, on the safe side: no part turbos to three times that.
pub const CLOCKS_PER_TICK: u64 = 8;

/// Most events of one kind in one clock of a core: no core of these generations retires more than eight instructions
/// per clock, and caches answer less often (SDM, optimization manual; Zen 5 software optimization guide).
pub const EVENTS_PER_CLOCK: u64 = 8;

/// Most bytes through a root port or a memory channel per tick: 128 GB/s are 16 lanes of PCI Express 6.0 and more
/// than a channel of MRDIMM-12800; no server's time stamp counter runs below 0.5 GHz (assumption, with a margin).
pub const BYTES_PER_TICK: u64 = 256;

/// One core or box.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CounterProgram {
    /// For messages: `core 3`, `uncore_cha 5`.
    pub name: String,
    /// The package whose registers these are; `None` for those of one CPU.
    pub package: Option<u16>,
    /// Bits that must be clear before anything is written.
    pub in_use: Vec<RegisterBits>,
    /// Writes, in this order; restored in the reverse order.
    pub writes: Vec<Write>,
    /// Counters, read at every sample.
    pub counters: Vec<CounterRegister>,
}
