//! Direct cache access by hand: in which ways devices may allocate, and whether the devices of a root port may at all
//! (hardware.md 1 and 2; the successor of FastClick's DDIOTune).
//!
//! Reads the state, plans and applies changes, and judges their effect; originals are journaled first. Must not know
//! which command asked, nor how long a change lasts.

mod change;
mod effect;
mod experiment;
mod ports;
mod survey;

pub use change::{NO_WIDTH, RegisterChange, plan_ports, plan_ways, ports_of, turn};
pub use effect::{EffectVerdict, LOAD_PER_S, of_ports, of_ways};
pub use experiment::DdioExperiment;
pub use survey::{NO_GUEST_REGISTER, PortDca, PortDevice, SocketWays, Survey, survey};

use waykeeper_kernel::dca_ways::WaysError;
use waykeeper_kernel::pci::PciAddress;

/// Why a knob was not set, or how setting it failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum DdioError {
    /// The device has no root port.
    #[error("device {address} has no switch for DCA: {why}")]
    NoRootPort {
        /// Its address.
        address: PciAddress,
        /// Why.
        why: String,
    },
    /// No such socket.
    #[error("no socket {socket}; there are {known}")]
    NoSuchSocket {
        /// The socket given.
        socket: u16,
        /// The existing sockets.
        known: String,
    },
    /// The register does not get this value.
    #[error(transparent)]
    Ways(#[from] WaysError),
    /// The platform does not have the knob, or too little is known about it to write it.
    #[error("{what} is not supported here: {why}")]
    Unsupported {
        /// The operation.
        what: String,
        /// Why it is not supported.
        why: String,
    },
    /// This user lacks the permission.
    #[error("{0}")]
    Denied(String),
    /// The kernel refused a read or a write.
    #[error("{what}: {why}")]
    Failed {
        /// The step.
        what: String,
        /// The kernel's error.
        why: String,
    },
    /// After a successful write another value reads back.
    #[error("{what}: written, but the register reads back {now}; the hardware does not take the value")]
    ReadsBack {
        /// The step.
        what: String,
        /// The value read back.
        now: String,
    },
    /// The originals cannot be journaled; nothing has been set.
    #[error("{0}")]
    Journal(String),
}

impl DdioError {
    /// [`DdioError::Unsupported`] for an operation.
    fn unsupported(what: &str, why: impl Into<String>) -> DdioError {
        DdioError::Unsupported { what: what.to_owned(), why: why.into() }
    }
}
