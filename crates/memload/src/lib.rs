//! DMA load on real devices and files: what a path is, whether it may be written, what carries commands to it, and the
//! workers that send them.
//!
//! Which command comes next and when it may go are `load`'s rules. Must not know the virtual server, counters, or how a run is
//! shown.

pub mod nvme;
mod plan;

pub use plan::{EngineKind, Pages, Plan, Touch};
