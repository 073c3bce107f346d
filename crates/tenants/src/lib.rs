//! The tenants of this machine: what the operator declares, and which of them are present.
//!
//! A4 s5.1 asks for a record per workload (cores, priority, what it does, which devices). [`declared`] and [`parse`]
//! read such records, which may name processes, cgroups and devices that start, end, appear and disappear. A [`Census`]
//! repeatedly finds the tenants that are present, and [`find_devices`] the devices that a name means. Where nothing is
//! declared, [`discovery`] finds what could be. Must not know how tenants are measured or controlled.

mod census;
mod cgroups;
mod cores;
mod declaration;
mod device;
mod devices;
pub mod discovery;
mod glob;
mod naming;
mod processes;
mod reader;
mod roster;
mod search;

pub use census::{Census, MOST_MEMBERS, MOST_READS, MOST_TENANTS};
pub use cgroups::{has_cgroup, slice_path};
pub use declaration::{
    Clash, DeclarationError, DeclaredSize, KEYS, NO_TENANT, OWN_NAME, TenantEntry, TenantSpec, clash,
    declared, explain_key, parse,
};
pub use device::{DeviceName, DeviceNameError};
pub use devices::{FoundDevice, NoDevice, find_devices};
pub use glob::{CgroupSelector, Glob};
pub use naming::plain_name;
pub use roster::{About, Absent, Note, Roster};

use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_units::CoreList;

/// One tenant as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its name; part of the name of its resctrl group.
    pub name: String,
    /// Whether it is to be protected.
    pub priority: Priority,
    /// What it does.
    pub kind: WorkloadKind,
    /// Logical CPUs it is pinned to; empty if it shares its CPUs with other processes: then only its processes belong
    /// to it.
    pub cores: CoreList,
    /// Its processes, also when they run on other CPUs. All their threads belong to it, also later ones.
    pub pids: Vec<u32>,
    /// Its devices.
    pub devices: Vec<PciAddress>,
    /// It is the virtual switch of the aggregation model (IAT s2.C).
    pub stack: bool,
    /// Its initial ways, as written: `0x600`, `9-10` or `20%`.
    pub mask: Option<String>,
}
