//! The counters and event encodings of a core (hardware.md 6). Must not know how they are read.

use crate::{Field, Terms};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// The counters of a core and the events that this program counts on them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreCounterTable {
    /// Name under `/sys/bus/event_source/devices`.
    pub perf: String,
    /// Programmable counters of a thread while its sibling runs as well.
    pub counters: u8,
    /// Programmable counters of a thread whose sibling is idle.
    pub counters_alone: u8,
    /// Bits of a programmable counter.
    pub width: u8,
    /// Fixed-function counters, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<FixedCounters>,
    /// Register addresses.
    pub registers: CoreRegisters,
    /// Position of each term in the event select register.
    pub fields: BTreeMap<String, Field>,
    /// The events, by the vendor's name.
    pub events: BTreeMap<String, CoreEvent>,
    /// How quantities are computed from the events.
    pub quantities: Quantities,
    /// Source of the values.
    pub source: String,
}

/// Fixed-function counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedCounters {
    /// Number of counters.
    pub counters: u8,
    /// Bits of each.
    pub width: u8,
    /// MSR of fixed counter 0.
    pub counter: u32,
    /// MSR that starts them: four bits a counter, bit 0 kernel, bit 1 user (SDM vol. 4, IA32_FIXED_CTR_CTRL).
    pub control: u32,
}

/// MSR addresses of a core's counters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreRegisters {
    /// MSR that selects the event of counter 0.
    pub select: u32,
    /// MSR of counter 0.
    pub counter: u32,
    /// Step from one counter's registers to the next, for both.
    pub step: u32,
    /// MSR with one enable bit a counter; fixed counters from bit 32.
    pub global_control: u32,
    /// Bits of the select register to set besides the event: user, kernel, enable.
    pub select_flags: u64,
    /// Source of the addresses.
    pub source: String,
}

/// One event of a core.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreEvent {
    /// In perf's notation.
    pub terms: Terms,
    /// The fixed counter that counts it, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u8>,
    /// What it counts, where the name is misleading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Source of the encoding.
    pub source: String,
}

/// A number computed from events: the sum of `plus` less the sum of `minus`, never below 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Events that are added.
    pub plus: Vec<String>,
    /// Events that are subtracted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minus: Vec<String>,
    /// What it leaves out, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Quantity {
    /// The value, given each event's count; `None` if one is missing.
    pub fn value(&self, count: impl Fn(&str) -> Option<u64>) -> Option<u64> {
        let sum = |names: &[String]| {
            names.iter().try_fold(0u64, |sum, name| Some(sum.saturating_add(count(name)?)))
        };
        Some(sum(&self.plus)?.saturating_sub(sum(&self.minus)?))
    }
}

/// The quantities that a core can have, in the order in which their events get counters. A host's counters have the same
/// names.
const QUANTITIES: [&str; 6] = ["instructions", "cycles", "llc_hits", "llc_misses", "mlc_hits", "mlc_misses"];
/// The quantities that every core has: instructions retired and cycles while not halted.
const REQUIRED: [&str; 2] = ["instructions", "cycles"];

/// The quantities of a core in a snapshot, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quantities(BTreeMap<String, Quantity>);

impl Quantities {
    /// A quantity; `None` if the core does not have it.
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.get(name)
    }

    /// The available quantities, with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Quantity)> {
        QUANTITIES.into_iter().filter_map(|name| Some((name, self.get(name)?)))
    }
}

impl Serialize for Quantities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantities, D::Error> {
        let quantities = BTreeMap::<String, Quantity>::deserialize(deserializer)?;
        if let Some(unknown) = quantities.keys().find(|name| !QUANTITIES.contains(&name.as_str())) {
            return Err(D::Error::unknown_field(unknown, &QUANTITIES));
        }
        match REQUIRED.into_iter().find(|name| !quantities.contains_key(*name)) {
            Some(missing) => Err(D::Error::missing_field(missing)),
            None => Ok(Quantities(quantities)),
        }
    }
}

impl CoreCounterTable {
    /// The event select register for an event, flags included; `None` if a term has no field or does not fit.
    pub fn select(&self, event: &Terms) -> Option<u64> {
        event.iter().try_fold(self.registers.select_flags, |word, (name, value)| {
            Some(word | self.fields.get(name)?.place(value)?)
        })
    }

    /// Every MSR that must be written to count events.
    pub fn written(&self) -> Vec<u32> {
        let registers = &self.registers;
        let mut addresses = vec![registers.global_control];
        for index in 0..u32::from(self.counters_alone) {
            addresses.push(registers.select + index * registers.step);
            addresses.push(registers.counter + index * registers.step);
        }
        if let Some(fixed) = self.fixed {
            addresses.push(fixed.control);
            addresses.extend((0..u32::from(fixed.counters)).map(|index| fixed.counter + index));
        }
        addresses
    }
}
