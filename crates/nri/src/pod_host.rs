//! What the plugin needs of its machine and of the daemon: facts that annotations refer to, and the way in which tenants are
//! declared.
//!
//! A trait, so that the plugin reads no files and tests can do without a machine. Must not know the runtime.

use std::time::Duration;
use waykeeper_tenants::{DeviceName, TenantSpec};

/// The tenants of all pods, and what is wrong with pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PodTenants {
    /// The tenants, in the order in which their pods came.
    pub specs: Vec<TenantSpec>,
    /// What is wrong, a line each: which pod or container, why, and how it runs.
    pub problems: Vec<String>,
}

/// The machine and the daemon, as the plugin sees them.
pub trait PodHost: Send {
    /// Checks a mask as it is written in a declaration.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check_mask(&self, text: &str) -> Result<(), String>;

    /// Number of ways of the LLC; `None` where it is not known.
    fn ways(&self) -> Option<u32>;

    /// Whether resctrl has a group of this name that is not ours.
    fn has_class(&self, class: &str) -> bool;

    /// Whether there is a control group at this path from the root of the tree.
    fn has_cgroup(&self, path: &str) -> bool;

    /// The names of the devices behind a device file of a container, such as `/dev/nvme0n1`; empty if there is none that
    /// matters for caches.
    fn devices_of_file(&self, path: &str) -> Vec<DeviceName>;

    /// The addresses of the PCI functions that a name means, at least one.
    ///
    /// # Errors
    /// Why it means none.
    fn functions(&self, name: &DeviceName) -> Result<Vec<String>, String>;

    /// Declares the tenants of all pods, and waits at most `at_most` until their groups are there and hold their processes.
    /// False if that takes longer: it is done later.
    fn declare(&mut self, pods: PodTenants, at_most: Duration) -> bool;
}
