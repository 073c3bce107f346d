//! What the traffic of a server is like, apart from what a layout changes. It must not know layouts or phases.

use crate::progress::lines_moved;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_host::{
    DeviceKind, Interval, Inventory, PortCounter, PortRates, Workload, WorkloadCounter, WorkloadKind,
};
use waykeeper_units::{PortId, WorkloadId};

/// Fewest inbound bytes per second that count as traffic. Assumption: the I/O workloads of the papers cause a hundred
/// times as much.
const TRAFFIC_LEAST: f64 = 1e6;

/// Traffic that no layout changes, to recognise a phase: bytes per second of each NIC, stored under each of its ports,
/// and MLC accesses and misses per instruction of workloads without I/O.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TrafficSignature {
    ports: BTreeMap<PortId, f64>,
    programs: BTreeMap<WorkloadId, [f64; 2]>,
}

impl TrafficSignature {
    /// The signature of an interval.
    pub fn of(groups: &[Workload], seen: &Interval, inventory: &Inventory) -> TrafficSignature {
        // Storage is left out: its throughput depends on its program, which a layout may slow down.
        let network = inventory.devices.iter().filter(|device| device.kind == DeviceKind::Network);
        // A port whose bytes are not available says nothing about the phase.
        let known = |port: &PortId| {
            let bytes = |rates: &PortRates| rates.sum(PortCounter::InboundBytes, PortCounter::OutboundBytes);
            seen.ports.get(port).is_some_and(|rates| bytes(rates).value().is_some())
        };
        let network = network.filter(|device| device.ports.iter().all(known));
        let ports = network.flat_map(|device| {
            let sum = lines_moved(&[device.id], seen, inventory).unwrap_or(0.0) * 64.0;
            device.ports.iter().map(move |port| (*port, sum))
        });
        let computing = groups.iter().filter(|group| group.kind == WorkloadKind::NonIo);
        let programs = computing.filter_map(|group| {
            let rates = seen.groups.get(&group.id)?;
            let instructions = rates[WorkloadCounter::Instructions].value().filter(|count| *count > 0.0)?;
            let (hits, misses) =
                (rates[WorkloadCounter::MlcHits].value()?, rates[WorkloadCounter::MlcMisses].value()?);
            Some((group.id, [(hits + misses) / instructions, misses / instructions]))
        });
        TrafficSignature { ports: ports.collect(), programs: programs.collect() }
    }

    /// The largest relative change among entries that both have, and a name for it.
    pub fn distance(&self, other: &TrafficSignature, groups: &[Workload]) -> (f64, String) {
        let change = |a: f64, b: f64, least: f64| {
            let larger = a.max(b);
            if larger < least { 0.0 } else { (a - b).abs() / a.min(b).max(larger * 1e-3) }
        };
        let mut worst = (0.0, String::new());
        for (port, a) in &self.ports {
            let by = other.ports.get(port).map_or(0.0, |b| change(*a, *b, TRAFFIC_LEAST));
            if by > worst.0 {
                worst = (by, format!("bytes of {port}"));
            }
        }
        for (id, a) in &self.programs {
            let Some(b) = other.programs.get(id) else { continue };
            // Below one access per thousand instructions the LLC has no influence.
            let by = change(a[0], b[0], 1e-3).max(change(a[1], b[1], 1e-3));
            if by > worst.0 {
                let name =
                    groups.iter().find(|group| group.id == *id).map_or("?", |group| group.name.as_str());
                worst = (by, format!("memory accesses per instruction of {name}"));
            }
        }
        worst
    }
}
