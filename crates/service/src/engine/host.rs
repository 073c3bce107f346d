//! What the engine needs of a host beyond the trait `Host`: changing tenants, lasting problems, and restoring or handing
//! over at the end.
//!
//! A trait, so that tests can use other hosts and a dry run can wrap one. Must not know policies or clients.

use crate::{ActiveProblem, PublishedClass};
use std::time::Duration;
use waykeeper_host::{Host, Plan};
use waykeeper_linux_host::Grouping;
use waykeeper_tenants::TenantSpec;

/// A host that the engine manages.
pub trait ManagedHost: Host {
    /// Takes the census of tenants and assigns classes of service. Problems are listed by
    /// [`ManagedHost::active_problems`].
    fn refresh(&mut self);

    /// The part of [`ManagedHost::refresh`] for which a container that starts waits: when it returns, the tenants'
    /// processes are in their groups, unless [`ManagedHost::has_postponed`].
    fn place(&mut self) {
        self.refresh();
    }

    /// The rest of it: counts what the tenants do.
    fn count(&mut self) {}

    /// Replaces the declared tenants from the next census on.
    fn declare(&mut self, tenants: Vec<TenantSpec>);

    /// Problems, as long as they last.
    fn active_problems(&self) -> Vec<ActiveProblem>;

    /// Tenants without a class of service of their own, and with which ones they share.
    fn groupings(&self) -> Vec<Grouping>;

    /// The classes of service with tenants in them, by the names of their groups.
    fn classes(&self) -> Vec<PublishedClass>;

    /// Events since the last call, one line each.
    fn take_events(&mut self) -> Vec<String>;

    /// How long the thread may wait for orders before it must wait for this deadline. Zero on a host whose clock
    /// advances only in `wait_until`.
    fn time_left(&self, deadline_ns: u64) -> Duration {
        Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()))
    }

    /// Whether the last census waits for another tool's lock, so that groups are not as they should be.
    fn has_postponed(&self) -> bool {
        false
    }

    /// The values that knobs had before the daemon before, as far as that one left them in force for this one.
    fn originals_taken_over(&mut self) -> Plan {
        Plan::default()
    }

    /// Whether groups of the daemon before wait for the first census, which removes those without a tenant.
    fn awaits_tenants(&self) -> bool {
        false
    }

    /// What the daemon before has learnt, and how long ago it ended. The next call has nothing.
    fn memory_taken_over(&mut self) -> Option<(serde_json::Value, Duration)> {
        None
    }

    /// Leaves every knob in force for the next daemon, which may come until this time of the monotonic clock, with `memory`
    /// for it. Afterwards [`ManagedHost::restore`] does nothing.
    ///
    /// # Errors
    /// Why they cannot be left, a line each; they are then to be restored.
    fn hand_over(&mut self, _until: Duration, _memory: Option<serde_json::Value>) -> Result<(), Vec<String>> {
        Err(vec!["this host has no journal for the original values".to_owned()])
    }

    /// Restores everything on the host to its original state.
    ///
    /// # Errors
    /// What could not be restored, a line each; it stays in the journal.
    fn restore(&mut self) -> Result<(), Vec<String>>;
}
