//! Examination of a host: what it is, what can be watched and steered on it, who else is at work, and for everything
//! that is missing what would bring it.
//!
//! One family of subjects a file. Nothing is changed and nothing is opened for writing. A file that makes no sense
//! spoils its own subject and no other. Must not know how the report is shown.

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
