//! Direct cache access by hand: how many ways devices may fill, and whether a root port's devices fill any
//! (hardware.md 1 and 2; the successor of FastClick's DDIOTune).
//!
//! Looks, plans, turns and judges; what a knob held before is in the journal before it is turned. Must not know who
//! asks, nor how long a change is to stand.

mod change;
mod effect;
mod experiment;
mod names;
mod ports;
mod survey;
mod ways;

pub use change::{Step, plan_ports, plan_ways, ports_of, turn};
pub use effect::{LOAD_PER_S, Verdict, of_ports, of_ways};
pub use experiment::Experiment;
pub use names::{address_of, names_of};
pub use survey::{Behind, PortDca, SocketWays, Survey, survey};
pub use ways::{Wanted, plan, words};

/// Why a knob is not turned, or how turning it failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum DdioError {
    /// No such device, or not one that has a root port.
    #[error("no device `{name}`: {why}")]
    NoSuchDevice {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        why: String,
    },
    /// No such socket.
    #[error("no socket {socket}; there are {known}")]
    NoSuchSocket {
        /// What was asked for.
        socket: u16,
        /// Those that exist.
        known: String,
    },
    /// A value that the register must not get.
    #[error("DDIO ways cannot be {wanted}: {why}; accepted: {accepted}")]
    BadMask {
        /// What was asked for.
        wanted: String,
        /// The rule it breaks.
        why: String,
        /// What would do.
        accepted: String,
    },
    /// The platform does not have it, or it is not known well enough to be written.
    #[error("{what} is not supported here: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why it cannot be.
        why: String,
    },
    /// This user may not.
    #[error("{0}")]
    Denied(String),
    /// The kernel refused a read or a write.
    #[error("{what}: {why}")]
    Failed {
        /// The step.
        what: String,
        /// The kernel's words.
        why: String,
    },
    /// The write went through and something else reads back.
    #[error("{what}: written, but the register reads back {now}; the hardware does not take the value")]
    ReadsBack {
        /// The step.
        what: String,
        /// What reads back.
        now: String,
    },
    /// The journal does not take the originals; nothing has been turned.
    #[error("{0}")]
    Journal(String),
}

impl DdioError {
    /// The platform does not have it.
    fn unsupported(what: &str, why: impl Into<String>) -> DdioError {
        DdioError::Unsupported { what: what.to_owned(), why: why.into() }
    }
}
