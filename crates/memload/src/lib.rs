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
pub use engine::{CommandError, IoCommand, IoOperation};
pub use error::PrepareError;
pub use pending_file::{CreatedFile, abandon};
pub use plan::{EngineKind, LoadPlan, PageSize, Touch};
pub use ready::{Ready, look};
pub use run::{End, LoadFailure, LoadOutcome, LoadProgress, Running, Stopper};
pub use safety::{Consent, TargetRefusal};
pub use system::KernelMounts;
pub use target::{Nvme, Target, TargetError, TargetKind};
pub use verify::{Unverified, Verified};
pub use worker::Logged;
