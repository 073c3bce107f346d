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
mod monitoring;
mod others;
mod profile;
mod report;
mod watch;

pub use report::{Check, CheckState, DoctorReport, Family, HostUse};

use waykeeper_kernel::root::Root;

/// Examines the host under a root prefix.
pub fn examine(root: &Root) -> DoctorReport {
    let facts = facts::Facts::read(root);
    let watched = watch::checks(&facts);
    let daemon = knobs::daemon(&facts, &watched);
    let families = [
        (Family::Host, host::checks(&facts)),
        (Family::Access, access::checks(&facts)),
        (Family::Watch, watched),
        (Family::Steer, knobs::checks(&facts)),
        (Family::Steer, profile::checks(&facts)),
        (Family::Steer, daemon),
        (Family::Others, others::checks(&facts)),
    ];
    let of = |(family, checks): (Family, Vec<Check>)| {
        checks.into_iter().map(move |check| Check { family, ..check })
    };
    DoctorReport { checks: families.into_iter().flat_map(of).collect() }
}
