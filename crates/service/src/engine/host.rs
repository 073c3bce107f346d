//! What the engine needs of a host beyond the seam: tenants that come and go, what it has to say, and an end.
//!
//! A trait, so that the engine is tried on hosts of any kind and a dry run can lay itself over one. Must not know policies,
//! nor who asks.

use crate::{Class, Standing};
use std::time::Duration;
use waykeeper_host::Host;
use waykeeper_linux::host::Grouping;
use waykeeper_linux::tenants::TenantSpec;

/// A host that the engine has in its charge.
pub trait ManagedHost: Host {
    /// Looks who is there now and gives everybody a place. Trouble with a tenant is told by [`ManagedHost::standing`].
    fn refresh(&mut self);

    /// Other declarations from the next look on.
    fn declare(&mut self, tenants: Vec<TenantSpec>);

    /// What is not as it should be, as long as it lasts.
    fn standing(&self) -> Vec<Standing>;

    /// Who has no class of service of its own, and with whom it is.
    fn groupings(&self) -> Vec<Grouping>;

    /// The classes of service that tenants are in, by the names of their groups.
    fn classes(&self) -> Vec<Class>;

    /// What happened since this was last asked and is over; a line each.
    fn told(&mut self) -> Vec<String>;

    /// How long the thread may listen to others before it has to wait for this deadline. Nothing at all on a host whose
    /// time passes only while it is waited for.
    fn spare(&self, deadline_ns: u64) -> Duration {
        Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()))
    }

    /// Gives the host back: everything as it was found.
    ///
    /// # Errors
    /// What could not be brought back, a line each; it stays in the journal.
    fn give_back(&mut self) -> Result<(), Vec<String>>;
}
