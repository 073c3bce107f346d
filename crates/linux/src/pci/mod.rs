//! PCI devices: addresses, the tree from root ports to endpoints, and configuration space.
//!
//! Knows the form of configuration space and of sysfs, not which of its registers means what on a chip: that is the
//! generation's table.

mod address;
mod config;
mod tree;

pub use address::{AddressError, PciAddress};
pub use config::{Capability, Config, Writable};
pub use tree::{PciDevice, PciTree};

use crate::root::FileError;

/// Why a PCI device could not be looked at or switched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PciError {
    /// There is no device of this address.
    #[error("there is no PCI device {0}")]
    NoDevice(PciAddress),
    /// No root port above it: it sits in the root complex itself, or its bus is nobody's.
    #[error("{device} has no root port above it: {why}")]
    NoRootPort {
        /// The device.
        device: PciAddress,
        /// What was found instead.
        why: String,
    },
    /// The configuration space of a bridge that had to be read could not be.
    #[error("the bridges above {device} cannot be determined: {cause}")]
    Blind {
        /// The device.
        device: PciAddress,
        /// What went wrong.
        cause: Box<PciError>,
    },
    /// A read that the kernel cut short: only root reads beyond the first 64 bytes.
    #[error(
        "the kernel shows only {shown} bytes of the configuration space of {device}; offset {offset:#x} needs root"
    )]
    Cut {
        /// The device.
        device: PciAddress,
        /// Offset that was asked for.
        offset: u16,
        /// Bytes that it shows.
        shown: u64,
    },
    /// The device or the way to it has no extended configuration space.
    #[error("{device} has {size} bytes of configuration space; there is no offset {offset:#x}")]
    NotExtended {
        /// The device.
        device: PciAddress,
        /// Offset that was asked for.
        offset: u16,
        /// Size of the space.
        size: u64,
    },
    /// A capability header lies where a register was expected: the chip is not the one it was taken for.
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
    /// A chain of capabilities that runs in circles or out of its space.
    #[error("the chain of capabilities of {device} is broken at {offset:#x}")]
    BrokenChain {
        /// The device.
        device: PciAddress,
        /// Where.
        offset: u16,
    },
    /// One and the same register gave two answers: nothing is written on the strength of either.
    #[error("offset {offset:#x} of {device} reads {found:#x} and then {again:#x}; nothing is written there")]
    Unsteady {
        /// The device.
        device: PciAddress,
        /// The offset.
        offset: u16,
        /// The first answer.
        found: u8,
        /// The second.
        again: u8,
    },
    /// A bridge by its class, and none by its configuration space.
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
    /// Anything else.
    #[error(transparent)]
    File(#[from] FileError),
}
