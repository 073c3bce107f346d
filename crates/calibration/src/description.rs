//! A server as its counters describe it. It must not know how it was estimated, nor a model.

use crate::Estimate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_host::{DeviceKind, KnobValues, LlcGeometry, Workload};
use waykeeper_units::{DeviceId, PortId, WayMask, WorkloadId};

/// The server: its LLC, what each tenant and device does, and the knobs under which that was seen.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerDescription {
    /// Name of the chip, from the inventory.
    pub chip: String,
    /// The LLC of the managed socket.
    pub llc: LlcGeometry,
    /// Ways in which devices may allocate; `None` without DCA.
    pub dca_ways: Option<WayMask>,
    /// The tenants, in the order of their ids.
    pub tenants: Vec<TenantDescription>,
    /// The devices, in the order of their ids.
    pub devices: Vec<DeviceDescription>,
    /// The knobs in force.
    pub knobs: KnobValues,
    /// What was seen under each of the last layouts; the one in force is the last.
    pub observed: Vec<Observed>,
}

/// What was seen under one layout.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The knobs.
    pub knobs: KnobValues,
    /// The tenants that had references.
    pub tenants: BTreeMap<WorkloadId, SeenTenant>,
    /// Share of full-line device writes that missed the LLC, 0..1; `None` where no device writes into the LLC or the
    /// host does not count that.
    pub write_misses: Option<Estimate>,
    /// Lines per second that devices wrote and read, by port.
    pub ports: BTreeMap<PortId, f64>,
    /// Bytes per second from and to memory; `None` where the host does not count that.
    pub memory_bytes: Option<f64>,
    /// Intervals that it was seen for, as far as they are remembered.
    pub intervals: f64,
}

/// A tenant under one layout.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeenTenant {
    /// LLC references per second.
    pub references: f64,
    /// Share of them that hit, 0..1.
    pub hits: Estimate,
    /// Cycles per instruction.
    pub cycles_per_instruction: Estimate,
    /// Lines of its own in the LLC, where the host counts that.
    pub lines: Option<f64>,
}

/// What a tenant does. Rates are per second under the knobs in force.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TenantDescription {
    /// Who it is: priority, kind, cores, devices.
    pub workload: Workload,
    /// LLC references (demand MLC misses) per second.
    pub references: Estimate,
    /// Share of the references that hit the LLC or another core's MLC, 0..1.
    pub hits: Estimate,
    /// Cycles per second of all its cores together.
    pub cycles: f64,
    /// Instructions per second.
    pub instructions: f64,
    /// Cycles per instruction without the time spent for LLC references.
    pub base_cycles: Estimate,
    /// Cycles that an LLC hit costs the program, after overlap with other work.
    pub hit_cycles: Estimate,
    /// Cycles that a memory access costs it, after overlap.
    pub miss_cycles: Estimate,
    /// Its references by reuse: the shares sum to 1.
    pub reuse: Vec<ReuseComponent>,
    /// Lines of its own that it holds in the LLC, where the host counts that.
    pub held_lines: Option<f64>,
}

/// References to one set of lines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReuseComponent {
    /// Share of the tenant's references, 0..1.
    pub share: Estimate,
    /// Lines that are referenced with equal probability; `None` for lines that are referenced once only.
    pub lines: Option<Estimate>,
}

/// What a device does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Its id.
    pub id: DeviceId,
    /// Kind of traffic.
    pub kind: DeviceKind,
    /// Its ports.
    pub ports: Vec<PortDescription>,
    /// The tenants that use it.
    pub tenants: Vec<WorkloadId>,
    /// Lines of its buffers that it writes in turn before it writes the first one again.
    pub buffer_lines: Estimate,
    /// Share of its full-line writes that miss the LLC, 0..1. Where only the socket's ratio is known, that one.
    pub write_misses: Estimate,
}

/// Traffic of a port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortDescription {
    /// Its id.
    pub id: PortId,
    /// Lines per second that devices write to the host.
    pub inbound_lines: f64,
    /// Lines per second that they read.
    pub outbound_lines: f64,
    /// Whether DCA can be switched.
    pub can_switch: bool,
}

impl ServerDescription {
    /// A tenant by its id.
    pub fn tenant(&self, id: WorkloadId) -> Option<&TenantDescription> {
        self.tenants.iter().find(|tenant| tenant.workload.id == id)
    }
}
