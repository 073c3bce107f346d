//! One kind of counter box: its name in perf, its counters, and how an event's terms become register values.
//!
//! With perf, the kernel's `format/` files give the position of a term. The fields here are for programs that write the
//! registers themselves or that serve such files. Must not know how registers are accessed.

use crate::{RegisterMap, Terms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The register that contains a term of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldRegister {
    /// The counter's control.
    Control,
    /// The box's first filter.
    Filter0,
    /// The box's second filter.
    Filter1,
}

/// The position of one term of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The register.
    #[serde(default = "control")]
    pub register: FieldRegister,
    /// First and last bit of each piece, the value's low bits first.
    pub bits: Vec<[u8; 2]>,
    /// The kernel's format string, as `format/NAME` in sysfs prints it, for example `config1:41-50`.
    pub format: String,
}

fn control() -> FieldRegister {
    FieldRegister::Control
}

impl Field {
    /// Number of its bits.
    pub fn width(&self) -> u32 {
        self.bits.iter().map(|[low, high]| u32::from(high - low) + 1).sum()
    }

    /// `value` shifted to its bits; `None` if it does not fit.
    pub fn place(&self, value: u64) -> Option<u64> {
        if self.width() < 64 && value >> self.width() != 0 {
            return None;
        }
        let mut rest = value;
        let mut word = 0;
        for &[low, high] in &self.bits {
            let width = u32::from(high - low) + 1;
            let part = if width == 64 { rest } else { rest & ((1 << width) - 1) };
            word |= part << low;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
        Some(word)
    }

    /// The value of these bits in `word`.
    pub fn take(&self, word: u64) -> u64 {
        let mut value = 0;
        let mut at = 0;
        for &[low, high] in &self.bits {
            let width = u32::from(high - low) + 1;
            let part = (word >> low) & if width == 64 { u64::MAX } else { (1 << width) - 1 };
            value |= part << at;
            at += width;
        }
        value
    }
}

/// How many boxes of a kind a package has (hardware.md 3.4). Where the PMU has directories in sysfs, these are counted
/// instead; this is for programs that write registers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case", deny_unknown_fields)]
pub enum BoxCount {
    /// A fixed number.
    Fixed {
        /// The number.
        count: u16,
    },
    /// One per physical core of the package.
    Cores,
    /// A number in an MSR of the package.
    Msr {
        /// The MSR.
        address: u32,
        /// First and last bit of the number.
        bits: [u8; 2],
    },
    /// The set bits of words in the configuration space of a PCI device.
    PciBits {
        /// Vendor.
        vendor: u16,
        /// Device.
        device: u16,
        /// Offsets of the 32-bit words.
        offsets: Vec<u16>,
    },
    /// Only sysfs contains the number.
    Sysfs,
}

/// One kind of counter box.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pmu {
    /// Its name under `/sys/bus/event_source/devices`, without `_N`: `uncore_cha`.
    pub perf: String,
    /// Programmable counters of a box.
    pub counters: u8,
    /// Bits of a counter.
    pub width: u8,
    /// Number of boxes.
    pub boxes: BoxCount,
    /// Position of each term of an event.
    pub fields: BTreeMap<String, Field>,
    /// Register addresses, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<RegisterMap>,
    /// Source of the values.
    pub source: String,
}

/// An event as register values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Programmed {
    /// The counter's control, enable bit included.
    pub control: u64,
    /// The box's first filter; `None` if the event does not use it.
    pub filter0: Option<u64>,
    /// The box's second filter.
    pub filter1: Option<u64>,
}

impl Pmu {
    /// The register values of an event; `None` if this PMU has no such term or the value does not fit.
    pub fn program(&self, event: &Terms) -> Option<Programmed> {
        let mut words = Programmed::default();
        for (name, value) in event.iter() {
            let field = self.fields.get(name)?;
            let word = field.place(value)?;
            match field.register {
                FieldRegister::Control => words.control |= word,
                FieldRegister::Filter0 => *words.filter0.get_or_insert(0) |= word,
                FieldRegister::Filter1 => *words.filter1.get_or_insert(0) |= word,
            }
        }
        if let Some(bit) = self.registers.as_ref().and_then(|registers| registers.enable_bit) {
            words.control |= 1 << bit;
        }
        Some(words)
    }

    /// The largest value of a counter; the next count makes it 0.
    pub fn most(&self) -> u64 {
        if self.width >= 64 { u64::MAX } else { (1 << self.width) - 1 }
    }
}
