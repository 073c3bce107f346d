//! The interface between what decides (policy, control) and what is managed (a server, real or virtual).
//!
//! This crate defines which counters can be *read*, which values knobs read back, and which knobs can be *set* (way
//! masks, DCA ways, DCA per port). It must not depend on how either is done. The virtual server and the real Linux host
//! implement the same trait, so the crates above cannot distinguish them.
//!
//! A policy sees only what real counters show. Values that only a model has (leaked lines, true p99, the content of a
//! way) have no field here on purpose.

mod classes;
mod counter;
mod dma;
mod inventory;
mod knob;
mod knobs;
mod reading;
mod readings;
mod sample;

pub use classes::own_class_masks;
pub use counter::{CounterKind, CounterSpec, HostCounter, PortCounter, SocketCounter, WorkloadCounter};
pub use dma::{DmaCounters, Lines};
pub use inventory::{Device, DeviceKind, Dial, Inventory, LlcGeometry, Platform, RootPort, Support};
pub use knob::{Knob, KnobKind, KnobSetting, Setting};
pub use knobs::{Applied, KnobOutcome, KnobValues, Knobs, Plan};
pub use reading::Reading;
pub use readings::{
    CounterValue, PortCounters, PortRates, Readings, SocketCounters, SocketRates, WorkloadCounters,
    WorkloadRates,
};
pub use sample::{CountersRead, Interval, Snapshot};

use serde::{Deserialize, Serialize};
use waykeeper_units::{CoreList, DeviceId, WayMask, WorkloadId};

/// A priority an operator gives to a workload (A4 s5.1: HPW and LPW; IAT's PC and BE map onto it).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// High-priority workload.
    High,
    /// Low-priority workload.
    Low,
}

/// What kind of work a workload does, as its owner declares it (A4 s5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Computes; owns no device.
    NonIo,
    /// Polls or serves a NIC.
    NetworkIo,
    /// Reads or writes a storage device.
    StorageIo,
}

/// One monitored workload: the record A4 s5.1 asks an operator or cluster manager for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Its id, never reused while the host lives.
    pub id: WorkloadId,
    /// The name people use.
    pub name: String,
    /// Declared priority.
    pub priority: Priority,
    /// Declared kind.
    pub kind: WorkloadKind,
    /// Cores it is pinned to; none for one that has processes only.
    #[serde(default, skip_serializing_if = "CoreList::is_empty")]
    pub cores: CoreList,
    /// Devices it uses.
    pub devices: Vec<DeviceId>,
    /// It is the software stack of the aggregation model, for example a virtual switch: it owns the buffers of all
    /// tenants behind it (IAT s2.C, s4.A).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stack: bool,
    /// Ways that its owner was granted at first (IAT s4.A keeps them in the tenant's record); with `None` the policy
    /// chooses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<WayMask>,
}

/// Why a host could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    /// The platform does not have it (exit code 3).
    #[error("{what} is not supported here: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why it cannot be, and what would help.
        why: String,
    },
    /// A knob or counter failed in use.
    #[error("{what}: {why}")]
    Failed {
        /// What was asked for.
        what: String,
        /// The cause in the platform's own words.
        why: String,
    },
}

/// A server whose counters can be read and whose knobs can be set.
///
/// Times are on the host's clock: on the virtual server, waiting advances the simulation.
pub trait Host {
    /// What there is: cores, LLC geometry, devices and their root ports, and what is supported.
    fn inventory(&self) -> &Inventory;

    /// The workloads alive now. A [`WorkloadId`] is never reused while the host lives.
    fn workloads(&self) -> Vec<Workload>;

    /// All counters, cumulative since the host started, and every knob's value read back.
    ///
    /// # Errors
    /// Only when nothing at all could be read; a single unreadable counter is a [`Reading`] in the snapshot.
    fn sample(&mut self) -> Result<Snapshot, HostError>;

    /// Lines that devices wrote in part, cumulative (completions, for example). Not part of the snapshot: no policy
    /// uses them, and on a CPU with few hardware counters they would take counters from other events. `Unsupported`
    /// where a host does not count them.
    fn partial_writes(&mut self) -> Lines;

    /// Mask of the root class of service: of cores and tasks in no group. Waykeeper never sets it.
    fn root_mask(&mut self) -> WayMask;

    /// Sets knobs and reports per knob what it then reads back. Knobs not in the plan stay as they are.
    ///
    /// # Errors
    /// Only when the host is gone; a refused knob is a [`KnobOutcome`] in the report.
    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError>;

    /// Monotonic time in nanoseconds since the host started.
    fn now_ns(&self) -> u64;

    /// Waits until [`Host::now_ns`] reaches `deadline_ns` (absolute, so that a loop does not drift).
    ///
    /// # Errors
    /// If the host can no longer make progress.
    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError>;
}
