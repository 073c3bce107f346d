//! Examines a host: its hardware, the counters and knobs that can be used, other tools at work, and for everything
//! missing its remedy.
//!
//! One family of checks per file. Nothing is changed or opened for writing. A file that cannot be parsed affects only
//! its own check. Must not know how the report is shown.

mod access;
mod allocation;
mod facts;
mod file;
mod host;
mod knobs;
mod others;
mod profile;
mod report;
mod watch;

pub use report::{Check, Family, Report, State};

use crate::root::Root;

/// Examines the host under a root prefix.
pub fn examine(root: &Root) -> Report {
    let facts = facts::Facts::read(root);
    let families = [
        host::checks(&facts),
        access::checks(&facts),
        watch::checks(&facts),
        knobs::checks(&facts),
        profile::checks(&facts),
        others::checks(&facts),
    ];
    Report { checks: families.into_iter().flatten().collect() }
}
