//! Reasons for trying a layout that the counters of an interval show. It must not know layouts.

use super::config::Config;
use crate::Cause;
use waykeeper_host::{DeviceKind, Interval, Inventory, PortCounter, Workload, WorkloadKind};
use waykeeper_units::{PortId, WorkloadId};

/// Fewest LLC references per second at which a workload's ratios are used. algorithms.md 3.6.
const REFERENCES_LEAST: f64 = 1e5;

/// A reason to try something: the port or workload, and the numbers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Reason<T> {
    pub of: T,
    pub causes: Vec<Cause>,
}

fn cause(what: String, value: f64, limit: Option<(&str, f64)>) -> Cause {
    Cause { what, value, limit: limit.map(|(name, value)| (name.to_owned(), value)) }
}

/// DCA write miss ratio; `None` without device writes.
pub(super) fn dca_miss(seen: &Interval) -> Option<f64> {
    seen.socket.dca_write_miss_ratio()
}

/// Limits above which storage counts as leaking, with the names of their settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leak {
    dca_miss: (&'static str, f64),
    llc_miss: (&'static str, f64),
    io_share: (&'static str, f64),
}

impl Leak {
    /// A4's limits: enough to act at once.
    pub fn sure(config: &Config) -> Leak {
        Leak {
            dca_miss: ("leak_dca_miss", config.leak_dca_miss),
            llc_miss: ("leak_llc_miss", config.leak_llc_miss),
            io_share: ("leak_io_share", config.leak_io_share),
        }
    }

    /// Lower limits: enough to try DCA off and measure.
    pub fn suspected(config: &Config) -> Leak {
        Leak {
            dca_miss: ("ddio_miss", config.ddio_miss),
            llc_miss: ("leak_llc_miss", config.leak_llc_miss),
            io_share: ("suspect_io_share", config.suspect_io_share),
        }
    }
}

/// Storage ports whose blocks leak: A4's three conditions (s5.4), each with its causes.
pub(super) fn leaking_ports(
    groups: &[Workload],
    seen: &Interval,
    inventory: &Inventory,
    limits: Leak,
) -> Vec<Reason<PortId>> {
    let Some(dca_miss) = dca_miss(seen).filter(|ratio| *ratio > limits.dca_miss.1) else {
        return Vec::new();
    };
    let inbound = |port: &PortId| {
        seen.ports.get(port).and_then(|rates| rates[PortCounter::InboundBytes].value()).unwrap_or(0.0)
    };
    let total: f64 = seen.ports.keys().map(inbound).sum();
    let mut found = Vec::new();
    for device in inventory.devices.iter().filter(|device| device.kind == DeviceKind::Storage) {
        let share = device.ports.iter().map(inbound).sum::<f64>() / total.max(1.0);
        let users =
            groups.iter().filter(|g| g.kind == WorkloadKind::StorageIo && g.devices.contains(&device.id));
        let misses: Vec<f64> = users.filter_map(|g| seen.groups.get(&g.id)?.llc_miss_ratio()).collect();
        let miss = misses.iter().sum::<f64>() / misses.len().max(1) as f64;
        if share > limits.io_share.1 && miss > limits.llc_miss.1 {
            let causes = vec![
                cause("DCA write miss ratio".to_owned(), dca_miss, Some(limits.dca_miss)),
                cause(format!("{}'s share of inbound bytes", device.name), share, Some(limits.io_share)),
                cause(
                    format!("LLC miss ratio of the workloads on {}", device.name),
                    miss,
                    Some(limits.llc_miss),
                ),
            ];
            found.extend(device.ports.iter().map(|port| Reason { of: *port, causes: causes.clone() }));
        }
    }
    found
}

/// Workloads without I/O that gain nothing from MLC or LLC (A4 s5.5), of any priority.
pub(super) fn antagonists(groups: &[Workload], seen: &Interval, config: &Config) -> Vec<Reason<WorkloadId>> {
    let of =
        groups.iter().filter(|group| group.kind == WorkloadKind::NonIo && !group.stack).filter_map(|group| {
            let rates = seen.groups.get(&group.id)?;
            let busy = rates.llc_references()? >= REFERENCES_LEAST;
            let (mlc, llc) = (rates.mlc_miss_ratio()?, rates.llc_miss_ratio()?);
            let limit = config.antagonist_miss;
            let causes = vec![
                cause(format!("MLC miss ratio of {}", group.name), mlc, Some(("antagonist_miss", limit))),
                cause(format!("LLC miss ratio of {}", group.name), llc, Some(("antagonist_miss", limit))),
            ];
            (busy && mlc > limit && llc > limit).then_some(Reason { of: group.id, causes })
        });
    of.collect()
}

/// LLC miss ratio of a workload with enough LLC references.
pub(super) fn llc_miss(group: WorkloadId, seen: &Interval) -> Option<f64> {
    let rates = seen.groups.get(&group)?;
    (rates.llc_references()? >= REFERENCES_LEAST).then(|| rates.llc_miss_ratio()).flatten()
}
