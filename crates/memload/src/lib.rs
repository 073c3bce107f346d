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
mod newborn;
pub mod nvme;
mod openers;
mod plan;
mod ready;
mod run;
mod safety;
mod system;
mod target;
mod verify;
mod worker;

pub use buffer::{Buffer, BufferError, word};
pub use check::{PlanError, check};
pub use engine::{Deed, Fault, Io};
pub use error::PrepareError;
pub use newborn::{Made, abandon, give_name};
pub use plan::{EngineKind, Pages, Plan, Touch};
pub use ready::{Ready, look};
pub use run::{End, Failure, Outcome, Progress, Running, Stopper};
pub use safety::{Consent, Refusal};
pub use system::System;
pub use target::{Kind, Nvme, Target, TargetError};
pub use verify::{Unverified, Verified};
pub use worker::Logged;
