//! The original values of knobs in a journal: one variant per kind of knob.
//!
//! Addresses are typed so that a journal can be read without the code that wrote it. Must not know how a value is
//! read, written or restored.

use crate::content;
use crate::pci::PciAddress;
use crate::registers::RegisterAddress;
use crate::resctrl::{Group, Resource, ResourceSettings, Schemata};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::Path;
use waykeeper_units::{CoreId, CoreList};

/// A knob with its original value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "knob", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Original {
    /// The group did not exist: Waykeeper made it, and it is removed on restore.
    NoGroup {
        /// The group.
        group: Group,
    },
    /// The group is about to be made. Until a [`Original::NoGroup`] replaces this, it is unknown whether Waykeeper or
    /// another program made it.
    Planned {
        /// The group.
        group: Group,
    },
    /// A group's masks or limits of one resource.
    Schemata {
        /// The group.
        group: Group,
        /// Its line of `schemata`.
        line: SchemataLine,
    },
    /// A group's CPUs.
    Cpus {
        /// The group.
        group: Group,
        /// Its `cpus_list`; it may be empty.
        #[serde(deserialize_with = "cpus")]
        cpus: CoreList,
    },
    /// The group that a task was in. The start time (field 22 of /proc/PID/stat) distinguishes it from a later task
    /// with the same pid.
    Task {
        /// The group.
        group: Group,
        /// The task's pid.
        pid: u32,
        /// Its start time, in clock ticks after boot.
        started: u64,
    },
    /// Whether devices had their own class.
    IoAlloc {
        /// The cache.
        resource: Resource,
        /// `io_alloc`.
        enabled: bool,
    },
    /// The devices' masks.
    IoAllocCbm {
        /// `io_alloc_cbm`, with the cache's name as in a line of schemata.
        line: SchemataLine,
    },
    /// Bits of a model-specific register, read on one CPU: 0xC8B of a package, or a PMU's.
    Msr {
        /// The CPU.
        cpu: u16,
        /// The package, if the register is shared by all of its CPUs; any of them accesses it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        package: Option<u16>,
        /// The register's number.
        register: u32,
        /// The bits that Waykeeper may change; a journal of version 1 has no mask and means all.
        #[serde(default = "every_bit", skip_serializing_if = "is_every_bit")]
        mask: u64,
        /// Their original value.
        value: u64,
        /// How a later change by another program is recognised.
        #[serde(rename = "hold", default, skip_serializing_if = "OwnershipCheck::is_any")]
        ownership: OwnershipCheck,
    },
    /// A field in PCI config space, for example `perfctrlsts_0` of a root port.
    Pci {
        /// The device, as `0000:3a:00.0`.
        #[serde(deserialize_with = "address")]
        address: String,
        /// Offset in config space.
        offset: u16,
        /// Width in bytes: 1, 2 or 4.
        width: u8,
        /// The bits that Waykeeper may change.
        mask: u32,
        /// Their original value.
        value: u32,
        /// How a later change by another program is recognised.
        #[serde(rename = "hold", default, skip_serializing_if = "OwnershipCheck::is_any")]
        ownership: OwnershipCheck,
    },
}

/// Distinguishes bits that Waykeeper set from bits that another program has set since, which are not restored.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnershipCheck {
    /// The values that Waykeeper writes to the bits; empty if the value does not identify the writer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ours: Vec<u64>,
    /// Bits elsewhere that must all have the values found or written by Waykeeper: the user of a counter also owns
    /// its bit of the global control and the filter of its box, whatever their values are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

impl OwnershipCheck {
    /// True if any value counts as written by Waykeeper.
    pub fn is_any(&self) -> bool {
        self.ours.is_empty() && self.claims.is_empty()
    }
}

/// Bits of another register of the same CPU or device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The register's number, or its offset in config space.
    pub at: u32,
    /// The bits.
    pub mask: u64,
    /// Accepted values: the one found, and those written by Waykeeper.
    pub values: Vec<u64>,
}

fn every_bit() -> u64 {
    u64::MAX
}

fn is_every_bit(mask: &u64) -> bool {
    *mask == u64::MAX
}

/// Bits of a register with their original value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginalBits<'a> {
    /// The register.
    pub address: RegisterAddress,
    /// The package, if the register is shared by all of its CPUs.
    pub package: Option<u16>,
    /// The bits that Waykeeper may change.
    pub mask: u64,
    /// Their original value.
    pub value: u64,
    /// How a later change by another program is recognised.
    pub ownership: &'a OwnershipCheck,
}

impl Original {
    /// Bits of a register. In configuration space a register has 32 bits at most.
    pub fn of_register(
        address: &RegisterAddress,
        package: Option<u16>,
        mask: u64,
        value: u64,
        ownership: OwnershipCheck,
    ) -> Original {
        match address {
            RegisterAddress::Msr { cpu, address } => {
                Original::Msr { cpu: cpu.0, package, register: *address, mask, value, ownership }
            }
            RegisterAddress::Pci { device, offset, bytes } => Original::Pci {
                address: device.clone(),
                offset: *offset,
                width: *bytes,
                mask: mask as u32,
                value: value as u32,
                ownership,
            },
        }
    }

    /// The bits, if the knob is a register; `None` for a knob of resctrl.
    pub fn register(&self) -> Option<OriginalBits<'_>> {
        match self {
            Original::Msr { cpu, package, register, mask, value, ownership } => Some(OriginalBits {
                address: RegisterAddress::Msr { cpu: CoreId(*cpu), address: *register },
                package: *package,
                mask: *mask,
                value: *value,
                ownership,
            }),
            Original::Pci { address, offset, width, mask, value, ownership } => Some(OriginalBits {
                address: RegisterAddress::Pci { device: address.clone(), offset: *offset, bytes: *width },
                package: None,
                mask: u64::from(*mask),
                value: u64::from(*value),
                ownership,
            }),
            _ => None,
        }
    }

    /// A whole MSR that no other program uses; it is restored whatever its value is.
    pub fn whole_msr(cpu: u16, package: Option<u16>, register: u32, value: u64) -> Original {
        Original::Msr { cpu, package, register, mask: u64::MAX, value, ownership: OwnershipCheck::default() }
    }

    /// True if both are about the same knob, whatever the values.
    pub fn is_same_knob(&self, other: &Original) -> bool {
        use Original::{Cpus, IoAlloc, IoAllocCbm, Msr, NoGroup, Pci, Planned, Schemata, Task};
        match (self, other) {
            (NoGroup { group: a } | Planned { group: a }, NoGroup { group: b } | Planned { group: b }) => {
                a == b
            }
            (Schemata { group: a, line: m }, Schemata { group: b, line: n }) => {
                a == b && m.0.resource == n.0.resource
            }
            (Cpus { group: a, .. }, Cpus { group: b, .. }) => a == b,
            (Task { pid: a, started: m, .. }, Task { pid: b, started: n, .. }) => (a, m) == (b, n),
            (IoAlloc { resource: a, .. }, IoAlloc { resource: b, .. }) => a == b,
            (IoAllocCbm { line: a }, IoAllocCbm { line: b }) => a.0.resource == b.0.resource,
            (
                Msr { cpu: a, package: p, register: m, mask: x, .. },
                Msr { cpu: b, package: q, register: n, mask: y, .. },
            ) => (m, x) == (n, y) && (a == b || p.is_some() && p == q),
            (
                Pci { address: a, offset: m, width: v, mask: x, .. },
                Pci { address: b, offset: n, width: w, mask: y, .. },
            ) => (a, m, v, x) == (b, n, w, y),
            _ => false,
        }
    }
}

impl fmt::Display for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Original::NoGroup { group } | Original::Planned { group } => {
                write!(f, "group {group}: did not exist")
            }
            Original::Schemata { group, line } => write!(f, "group {group}: {}", line.0),
            Original::Cpus { group, cpus } => write!(f, "group {group}: CPUs {cpus}"),
            Original::Task { group, pid, .. } => write!(f, "task {pid}: in group {group}"),
            Original::IoAlloc { resource, enabled } => {
                write!(f, "io_alloc of {resource}: {}", if *enabled { "enabled" } else { "disabled" })
            }
            Original::IoAllocCbm { line } => write!(f, "io_alloc_cbm of {}", line.0),
            Original::Msr { cpu, register, mask: u64::MAX, value, .. } => {
                write!(f, "MSR {register:#x} of CPU {cpu}: {value:#x}")
            }
            Original::Msr { cpu, register, mask, value, .. } => {
                write!(f, "MSR {register:#x} of CPU {cpu}, bits {mask:#x}: {value:#x}")
            }
            Original::Pci { address, offset, mask, value, .. } => {
                write!(f, "PCI {address} at {offset:#x}, bits {mask:#x}: {value:#x}")
            }
        }
    }
}

/// A list of CPUs; unlike in a configuration it may be empty.
fn cpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CoreList, D::Error> {
    let text = String::deserialize(deserializer)?;
    content::cpu_list(Path::new("cpus"), &text).map_err(serde::de::Error::custom)
}

/// The address of a PCI function and nothing else, because it becomes part of a path.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse::<PciAddress>().map(|address| address.to_string()).map_err(serde::de::Error::custom)
}

/// A line of `schemata`, stored as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchemataLine(pub ResourceSettings);

impl TryFrom<String> for SchemataLine {
    type Error = String;

    fn try_from(text: String) -> Result<SchemataLine, String> {
        let Schemata { lines, strange } = Schemata::parse(&text)?;
        match <[ResourceSettings; 1]>::try_from(lines) {
            Ok([line]) if !line.domains.is_empty() && strange.is_empty() => Ok(SchemataLine(line)),
            _ => Err(format!("expected one line like L3:0=7ff;1=7ff, not `{text}`")),
        }
    }
}

impl From<SchemataLine> for String {
    fn from(line: SchemataLine) -> String {
        line.0.to_string()
    }
}
