//! Progress of a workload in an interval, from counters alone. It must not know layouts.
//!
//! No counter shows latency or the work of a polling loop. The measure is what the LLC can change: instructions per
//! cycle of a workload without I/O, packet lines per second weighted by the cost of fetching them, bytes per second of
//! storage. Only ratios of one workload's progress under two layouts say something, never those of two workloads.

use waykeeper_host::{Interval, Inventory, PortCounter, Workload, WorkloadCounter, WorkloadKind};
use waykeeper_units::{DeviceId, LINE_BYTES};

/// What fetching a packet line costs, relative to its processing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FetchCosts {
    /// An LLC hit.
    pub llc: f64,
    /// An LLC miss.
    pub memory: f64,
}

impl Default for FetchCosts {
    /// The defaults of the policy `waykeeper` (`llc_cost`, `memory_cost`), with its reasons.
    fn default() -> FetchCosts {
        FetchCosts { llc: 0.5, memory: 2.0 }
    }
}

/// Progress of a workload in an interval, above 0. `None` if a counter is missing, or if it does nothing.
pub fn progress(group: &Workload, seen: &Interval, inventory: &Inventory, costs: FetchCosts) -> Option<f64> {
    let rates = seen.groups.get(&group.id)?;
    let value = match group.kind {
        WorkloadKind::NonIo => rates.ipc()?,
        WorkloadKind::StorageIo => lines_moved(&group.devices, seen, inventory)?,
        WorkloadKind::NetworkIo => {
            // Behind a virtual switch a workload has no port of its own, and the IPC of a polling loop says nothing.
            let lines = lines_moved(&group.devices, seen, inventory)?;
            let (hits, misses) =
                (rates[WorkloadCounter::LlcHits].value()?, rates[WorkloadCounter::LlcMisses].value()?);
            lines / (1.0 + (costs.llc * hits + costs.memory * misses) / lines)
        }
    };
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// Lines per second that devices move, both ways. `None` if nothing moves or a port cannot be read.
pub fn lines_moved(devices: &[DeviceId], seen: &Interval, inventory: &Inventory) -> Option<f64> {
    let ports =
        devices.iter().filter_map(|id| inventory.devices.get(id.index())).flat_map(|device| &device.ports);
    let mut sum = 0.0;
    for port in ports {
        let rates = seen.ports.get(port)?;
        sum += rates.sum(PortCounter::InboundBytes, PortCounter::OutboundBytes).value()?;
    }
    (sum > 0.0).then_some(sum / LINE_BYTES as f64)
}
