//! The knobs of direct cache access, and how sure it is that they act (hardware.md 1 and 2).

use serde::{Deserialize, Serialize};
use waykeeper_units::WayMask;

/// How sure it is that a knob does something on this generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Shown to act: it may be turned.
    Confirmed,
    /// Somebody wrote that it is there; nobody showed it: it is read and never written.
    Claimed,
    /// It answers, and turning it was seen to do nothing: it is read and never written.
    AnswersWithoutEffect,
    /// Nothing trustworthy is known: it is read where reading is harmless and never written.
    Unknown,
    /// It is not there: neither read nor written.
    Absent,
}

impl Standing {
    /// Whether it may be written.
    pub fn may_write(self) -> bool {
        self == Standing::Confirmed
    }

    /// Whether it may be read.
    pub fn may_read(self) -> bool {
        self != Standing::Absent
    }
}

/// The knobs of direct cache access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dca {
    /// Ways that devices allocate in.
    pub ways: WaysSwitch,
    /// On or off for a root port.
    pub port: PortSwitch,
}

/// The way mask of devices (IIO_LLC_WAYS).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaysSwitch {
    /// How sure it is.
    pub standing: Standing,
    /// The register, unless it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<WayRegister>,
    /// What is known besides, for people.
    pub note: String,
    /// Where this is written.
    pub source: String,
}

/// The register and its rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayRegister {
    /// MSR, one a package.
    pub msr: u32,
    /// Value at power-on, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<WayMask>,
    /// Fewest ways it takes, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewest: Option<u32>,
    /// Whether the ways must be next to each other.
    pub contiguous: bool,
    /// Whether the bits of power-on cannot be cleared.
    pub keeps_default: bool,
    /// Whether the mask must reach the topmost way.
    pub reaches_top: bool,
}

impl WayRegister {
    /// The mask with `count` ways that keeps the rules: the power-on bits, then downwards from the lowest of them, then
    /// upwards (hardware.md 1.2: DDIOTune takes the topmost `count` ways; on chips whose power-on bits reach
    /// the top these are the same). `None` if there is no such mask. `at_power_on` is what the register held.
    pub fn with_ways(&self, count: u32, ways: u32, at_power_on: WayMask) -> Option<WayMask> {
        if count == 0 || count > ways || ways > 32 || count < self.fewest.unwrap_or(1) {
            return None;
        }
        let top = WayMask::span(ways - count, count);
        if self.reaches_top || !self.keeps_default {
            return (!self.keeps_default || at_power_on.minus(top).is_empty()).then_some(top);
        }
        let high = at_power_on.highest()?;
        let mask = match (high + 1).checked_sub(count) {
            Some(low) => WayMask::span(low, count),
            None => WayMask::span(0, count),
        };
        at_power_on.minus(mask).is_empty().then_some(mask)
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

    /// The byte with the bit so.
    pub fn set(self, byte: u8, on: bool) -> u8 {
        if on { byte | 1 << self.bit } else { byte & !(1 << self.bit) }
    }
}

/// Direct cache access on or off for everything behind a root port (perfctrlsts, hardware.md 2.1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSwitch {
    /// How sure it is.
    pub standing: Standing,
    /// Use_Allocating_Flow_Wr: 1 is on. The one bit that is ever turned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocating: Option<RegisterBit>,
    /// NoSnoopOpWrEn: shown, never turned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_snoop: Option<RegisterBit>,
    /// TPHDIS: shown, never turned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints_off: Option<RegisterBit>,
    /// What is known besides, for people.
    pub note: String,
    /// Where this is written.
    pub source: String,
}
