//! What DMA load is: which command comes next, when it may go, what it must cause, what a run came to, and job files that
//! describe it.
//!
//! The load generator on real devices and the virtual server's programs speak by these same rules, so neither drifts from
//! the other. Pure: no I/O, no clock, no random numbers of its own. Must not know devices, nor how anything is counted.

mod bounds;
mod formula;
pub mod jobs;
mod limit;
mod pattern;
mod summary;

pub use bounds::{MOST_COMMAND_BYTES, MOST_DEPTH, MOST_WORKERS};
pub use formula::{COMMAND_BYTES, COMPLETION_BYTES, Events, Moved, bandwidth, expected, expected_both_ways};
pub use limit::{Limiter, Limits, Rule};
pub use pattern::{Command, Pattern, Shape, ShapeError, Toward};
pub use summary::{Counter, Counters, Latency, Op, Package, Summary, Totals};
