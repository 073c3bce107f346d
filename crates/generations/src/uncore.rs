//! Counters of the uncore: requests of devices at the LLC slices, bytes at the PCIe stacks, lines at the memory
//! controllers (hardware.md 3 to 5). Must not know how they are read.

use crate::{FreeRunning, Pmu, Terms};
use serde::{Deserialize, Serialize};

/// The access of a device that causes a kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Writes of whole lines.
    FullWrite,
    /// Writes of parts of lines.
    PartialWrite,
    /// Reads.
    Read,
}

/// One kind of I/O request at an LLC slice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoRequestEvent {
    /// Opcode, for example `ItoM`.
    pub opcode: String,
    /// The access of a device that causes it.
    pub role: Role,
    /// Hits and misses together, where there is such an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Terms>,
    /// Hits; where there is no such event they are `all` less `miss`, floored at 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit: Option<Terms>,
    /// Misses.
    pub miss: Terms,
    /// Source of the encodings.
    pub source: String,
}

/// The counters of the LLC's slices (CBo up to Broadwell, CHA from Skylake).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcCounterTable {
    /// The boxes.
    pub pmu: Pmu,
    /// Requests of devices.
    pub requests: Vec<IoRequestEvent>,
    /// Whether all events of a box that use a filter must use the same filter values.
    pub one_filter: bool,
}

impl LlcCounterTable {
    /// The requests of one role.
    pub fn role(&self, role: Role) -> impl Iterator<Item = &IoRequestEvent> {
        self.requests.iter().filter(move |request| request.role == role)
    }
}

/// The counters of the PCIe stacks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Iio {
    /// The boxes: one per stack.
    pub pmu: Pmu,
    /// Parts (groups of lanes with a root port of their own) of a stack.
    pub parts: u8,
    /// Term that selects the part: its value is 1 shifted by the part.
    pub part_term: String,
    /// Device to memory.
    pub inbound: Terms,
    /// Memory to device, requested by the device.
    pub outbound: Terms,
    /// Counters of a box that can count these two.
    pub counters: Vec<u8>,
    /// Bytes per count.
    pub unit_bytes: u32,
    /// Counters that need no programming.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_running: Option<FreeRunning>,
    /// Mapping from a root port's PCI device number to its part.
    pub part_map: PartMap,
    /// Whether the PMU has `dieN` files that name each stack's root bus.
    pub die_files: bool,
    /// The register that holds each stack's root bus, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_register: Option<BusRegister>,
    /// Source of the values.
    pub source: String,
}

impl Iio {
    /// The event for one part of a stack.
    pub fn of_part(&self, event: &Terms, part: u8) -> Terms {
        event.with(&self.part_term, 1 << part)
    }
}

/// A register of a package with the root bus of every stack, one byte per stack, the lowest byte first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusRegister {
    /// The MSR.
    pub msr: u32,
    /// The bit that is set if the register contains valid data.
    pub valid: u8,
}

/// Root-port device number to part: `first` is part 0, the next part 1, and so on (hardware.md 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartMap {
    /// Device number of part 0.
    pub first: u8,
    /// Device number of the last part.
    pub last: u8,
}

impl PartMap {
    /// Part of the root port with this device number.
    pub fn part(&self, device: u8) -> Option<u8> {
        (self.first..=self.last).contains(&device).then(|| device - self.first)
    }
}

/// One event of a memory controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEvent {
    /// Name under the PMU's `events/`, where the kernel publishes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// In perf's notation.
    pub terms: Terms,
}

/// The counters of the memory controllers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCounterTable {
    /// The boxes: one per channel.
    pub pmu: Pmu,
    /// Lines read; the sum of all of them.
    pub reads: Vec<MemoryEvent>,
    /// Lines written; the sum of all of them.
    pub writes: Vec<MemoryEvent>,
    /// Bytes per count.
    pub unit_bytes: u32,
    /// PCI devices that hold the boxes' registers, as vendor and device, where they are in configuration space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pci_devices: Vec<[u16; 2]>,
    /// Source of the values.
    pub source: String,
}

/// Counters of a shared LLC that cover requests of all cores (AMD's L3 PMU, hardware.md 8.1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedCache {
    /// The boxes: one per domain of CPUs that share the cache.
    pub pmu: Pmu,
    /// Requests that the LLC answered.
    pub hits: Terms,
    /// Requests that the LLC could not answer.
    pub misses: Terms,
    /// Source of the encodings.
    pub source: String,
}
