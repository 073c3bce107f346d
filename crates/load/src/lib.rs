//! DMA load as pure rules: which command comes next, when it may be sent, which cache events it must cause, the summary
//! of a run, and fio job files.
//!
//! `memload` on real devices and the virtual server's programs share this code, so both follow the same rules. No I/O,
//! no clock, no random numbers of its own. Must not know devices, nor how events are counted.

mod bounds;
mod formula;
pub mod jobs;
mod limit;
mod pattern;
mod summary;

pub use bounds::{MOST_COMMAND_BYTES, MOST_DEPTH, MOST_WORKERS};
pub use formula::{
    COMMAND_BYTES, COMPLETION_BYTES, CompletedWork, DmaEvents, bandwidth, expected, expected_both_ways,
};
pub use limit::{BudgetRule, Limiter, LoadLimits};
pub use pattern::{Command, MemoryDirection, Pattern, Shape, ShapeError};
pub use summary::{Counters, EventCount, LatencySummary, LoadSummary, LoadTotals, Op, Package};
