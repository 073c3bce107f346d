//! Policies from files: a policy that a user wrote in Python runs in a process of its own, and is a
//! [`Policy`](waykeeper_policy::Policy) like any other.
//!
//! * [`PolicyFile`]: the file and its text. [`Interpreter`]: the program that runs it, and what it may do.
//! * [`PolicyProcess`]: a running policy. Calls and answers are lines of JSON; a caller waits with a deadline or not at all.
//! * [`WaitingPolicy`]: a policy that waits for every answer, for simulations.
//!
//! The process gets the text of the file and of `python/waykeeper/policy_process.py`, so it needs Python and no package.
//! Must not know scenarios, configurations or what happens after a failure.

mod error;
mod file;
mod process;
mod waiting;
mod wire;

pub use error::PolicyFileError;
pub use file::PolicyFile;
pub use process::{Described, Incoming, Interpreter, PolicyProcess, UserIds};
pub use waiting::{FirstFailure, WaitingPolicy};
pub use wire::{PolicyAnswer, PolicyCall};
