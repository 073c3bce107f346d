//! Direct cache access by hand: how many ways devices may fill, and whether a root port's devices fill any
//! (hardware.md 1 and 2; the successor of FastClick's DDIOTune).
//!
//! Looks, plans, turns and judges; what a knob held before is in the journal before it is turned. Must not know who
//! asks, nor how long a change is to stand.

mod effect;
mod names;
mod ways;

pub use effect::{LOAD_PER_S, Verdict, of_ports, of_ways};
pub use names::{address_of, names_of};
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
        socket: u32,
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
}
