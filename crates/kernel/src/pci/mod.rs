//! PCI devices: addresses, the tree from root ports to endpoints, and configuration space.
//!
//! Knows the format of configuration space and of sysfs. Must not know what a chip's registers mean: the generation's
//! table does.

mod address;
mod config;
mod tree;

pub use address::{AddressError, PciAddress, functions_on};
pub use config::{Capability, PciConfigSpace, Writable};
pub use tree::{PciDevice, PciTree};

use crate::root::FileError;

/// Why a PCI device could not be read or switched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PciError {
    /// No device has this address.
    #[error("there is no PCI device {0}")]
    NoDevice(PciAddress),
    /// The device has no root port above it: it is part of the root complex, or no bridge leads to its bus.
    #[error("{device} has no root port above it: {why}")]
    NoRootPort {
        /// The device.
        device: PciAddress,
        /// What was found instead.
        why: String,
    },
    /// The configuration space of a bridge above a device could not be read.
    #[error("the bridges above {device} cannot be determined: {cause}")]
    Blind {
        /// The device.
        device: PciAddress,
        /// The error.
        cause: Box<PciError>,
    },
    /// The kernel returned fewer bytes: only root can read beyond the first 64.
    #[error(
        "the kernel shows only {shown} bytes of the configuration space of {device}; offset {offset:#x} needs root"
    )]
    Cut {
        /// The device.
        device: PciAddress,
        /// Requested offset.
        offset: u16,
        /// Bytes readable.
        shown: u64,
    },
    /// The device, or the path to it, has no extended configuration space.
    #[error("{device} has {size} bytes of configuration space; there is no offset {offset:#x}")]
    NotExtended {
        /// The device.
        device: PciAddress,
        /// Requested offset.
        offset: u16,
        /// Size of its configuration space.
        size: u64,
    },
    /// A capability header is at the offset of an expected register: the chip is not the assumed one.
    #[error(
        "offset {offset:#x} of {device} holds the header of capability {id:#06x}, not a register; nothing is written there"
    )]
    CapabilityThere {
        /// The device.
        device: PciAddress,
        /// The offset.
        offset: u16,
        /// Id of the capability.
        id: u16,
    },
    /// A chain of capabilities has a loop or leaves its space.
    #[error("the chain of capabilities of {device} is broken at {offset:#x}")]
    BrokenChain {
        /// The device.
        device: PciAddress,
        /// The offset of the error.
        offset: u16,
    },
    /// Two reads of a register differ, so nothing is written.
    #[error("offset {offset:#x} of {device} reads {found:#x} and then {again:#x}; nothing is written there")]
    Unsteady {
        /// The device.
        device: PciAddress,
        /// The offset.
        offset: u16,
        /// The first value.
        found: u8,
        /// The second value.
        again: u8,
    },
    /// The device has the class of a bridge, but not a bridge's configuration space.
    #[error("{device} has the class of a bridge, but its configuration space is not that of a bridge")]
    NoBridge {
        /// The device.
        device: PciAddress,
    },
    /// The kernel forbids writing (lockdown).
    #[error(
        "the kernel forbids writing the configuration space of {device}; boot without lockdown (usually: Secure Boot off)"
    )]
    Forbidden {
        /// The device.
        device: PciAddress,
    },
    /// Any other error.
    #[error(transparent)]
    File(#[from] FileError),
}
