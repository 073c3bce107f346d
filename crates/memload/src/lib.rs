//! DMA load on real devices and files: the kind of a path, permission to write it, engines that send commands, and the
//! workers that drive them.
//!
//! `load` decides which command comes next and when. Must not know the virtual server, counters, or how a run is shown.

mod admission;
mod buffer;
mod check;
mod choice;
mod engine;
mod error;
mod fit;
pub mod nvme;
mod pending_file;
mod plan;
mod ready;
mod run;
mod safety;
mod system;
mod target;
mod verify;
mod worker;
mod writers;

pub use buffer::{Buffer, BufferError, word};
pub use check::{PlanError, check};
pub use engine::{Fault, Io, IoOperation};
pub use error::PrepareError;
pub use pending_file::{CreatedFile, abandon, give_name};
pub use plan::{EngineKind, Pages, Plan, Touch};
pub use ready::{Ready, look};
pub use run::{End, Failure, Outcome, Progress, Running, Stopper};
pub use safety::{Consent, Refusal};
pub use system::System;
pub use target::{Kind, Nvme, Target, TargetError};
pub use verify::{Unverified, Verified};
pub use worker::Logged;
