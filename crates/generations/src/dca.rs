//! The knobs of direct cache access, and the evidence that they have an effect (hardware.md 1 and 2). Must not know how
//! registers are accessed.

use serde::{Deserialize, Serialize};
use waykeeper_units::WayMask;

/// The evidence that a knob has an effect on this generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// An effect was shown: the knob may be written.
    Confirmed,
    /// A source says that it exists, without evidence of an effect: it is read and never written.
    Claimed,
    /// It can be read and written, and was seen to have no effect: it is read and never written.
    AnswersWithoutEffect,
    /// No reliable information: it is read where that is harmless, and never written.
    Unknown,
    /// It does not exist: neither read nor written.
    Absent,
}

impl Evidence {
    /// Whether it may be written.
    pub fn may_write(self) -> bool {
        self == Evidence::Confirmed
    }

    /// Whether it may be read.
    pub fn may_read(self) -> bool {
        self != Evidence::Absent
    }
}

/// The knobs of direct cache access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dca {
    /// Ways in which devices allocate.
    pub ways: WaysSwitch,
    /// On or off per root port.
    pub port: PortSwitch,
}

/// The way mask of devices (IIO_LLC_WAYS).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaysSwitch {
    /// The evidence for an effect.
    #[serde(rename = "standing")]
    pub evidence: Evidence,
    /// The register, unless it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<WayRegister>,
    /// Further facts, as text.
    pub note: String,
    /// Source of the values.
    pub source: String,
}

/// The register and the values that it accepts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayRegister {
    /// MSR number; one register per package.
    pub msr: u32,
    /// Value at power-on, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<WayMask>,
    /// Smallest accepted value, as a number, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest: Option<WayMask>,
    /// Whether the ways must be next to each other.
    pub contiguous: bool,
    /// Whether the bits set at power-on cannot be cleared.
    pub keeps_default: bool,
}

impl WayRegister {
    /// Whether the register of a chip with `ways` ways accepts a value, as far as its rules are known.
    pub fn takes(&self, mask: WayMask, ways: u32) -> bool {
        let kept = if self.keeps_default { self.default.unwrap_or_default() } else { WayMask::EMPTY };
        ways <= 32
            && !mask.is_empty()
            && mask.minus(WayMask::full(ways)).is_empty()
            && self.lowest.is_none_or(|lowest| mask.bits() >= lowest.bits())
            && (!self.contiguous || mask.is_contiguous())
            && kept.minus(mask).is_empty()
    }

    /// The mask of `count` ways that is safe to write: what the register held at power-on if that has `count` ways,
    /// else the topmost `count` ways if these hold every bit of power-on (hardware.md 1.4: contiguous, the boot-time
    /// bits, up to the top). `None` if there is no such mask.
    pub fn with_ways(&self, count: u32, ways: u32, at_power_on: WayMask) -> Option<WayMask> {
        if count == 0 || count > ways || ways > 32 {
            return None;
        }
        if count == at_power_on.count() {
            return Some(at_power_on);
        }
        let top = WayMask::span(ways - count, count);
        (at_power_on.minus(top).is_empty() && self.takes(top, ways)).then_some(top)
    }
}

/// A bit of a byte in a root port's configuration space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterBit {
    /// Offset of the byte.
    pub offset: u16,
    /// Bit of that byte.
    pub bit: u8,
}

impl RegisterBit {
    /// Its value in the byte.
    pub fn of(self, byte: u8) -> bool {
        byte >> self.bit & 1 == 1
    }

    /// The byte with the bit set to `on`.
    pub fn set(self, byte: u8, on: bool) -> u8 {
        if on { byte | 1 << self.bit } else { byte & !(1 << self.bit) }
    }
}

/// Direct cache access on or off for everything behind a root port (perfctrlsts, hardware.md 2.1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSwitch {
    /// The evidence for an effect.
    #[serde(rename = "standing")]
    pub evidence: Evidence,
    /// Use_Allocating_Flow_Wr: 1 is on. The only bit that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocating: Option<RegisterBit>,
    /// NoSnoopOpWrEn: shown, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_snoop: Option<RegisterBit>,
    /// TPHDIS: shown, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints_off: Option<RegisterBit>,
    /// Further facts, as text.
    pub note: String,
    /// Source of the values.
    pub source: String,
}
