//! Progress of workloads, from counters alone, and its change between two measurements.
//!
//! No counter shows latency or the work of a polling loop. The measure is what the LLC can change: instructions per
//! cycle of a workload without I/O, packet lines per second weighted by the cost of fetching them, bytes per second of
//! storage. Only ratios of one workload's progress under two layouts are formed, never of two workloads. It must not
//! know layouts.

use super::config::Config;
use std::collections::BTreeMap;
use waykeeper_host::{Interval, Inventory, PortCounter, Priority, Workload, WorkloadCounter, WorkloadKind};
use waykeeper_units::{DeviceId, LINE_BYTES, WorkloadId};

/// One number per workload, and memory traffic.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Progress {
    of: BTreeMap<WorkloadId, f64>,
    memory_bytes: Option<f64>,
}

/// The change between two measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Gain {
    /// Weighted sum of logarithms of the mean ratios: 0.01 is one per cent better.
    pub all: f64,
    /// Mean over HPWs, by cores, as a ratio.
    pub hpw: f64,
    /// Mean over LPWs, by cores, as a ratio.
    pub lpw: f64,
    /// The worst HPW, as a ratio.
    pub worst_hpw: f64,
}

impl Progress {
    /// Progress in an interval. Workloads whose counters are missing, or that do nothing, have no number.
    pub fn of(groups: &[Workload], seen: &Interval, inventory: &Inventory, config: &Config) -> Progress {
        let of = groups.iter().filter_map(|group| {
            let value = progress(group, seen, inventory, config)?;
            (value > 0.0 && value.is_finite()).then_some((group.id, value))
        });
        Progress { of: of.collect(), memory_bytes: seen.socket.memory_bytes() }
    }

    /// True if no workload has a number.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The mean of both; a workload that `other` lacks keeps its value.
    pub fn mixed(&self, other: &Progress) -> Progress {
        let mean =
            |(id, a): (&WorkloadId, &f64)| (*id, other.of.get(id).map_or(*a, |b| f64::midpoint(*a, *b)));
        let memory = match (self.memory_bytes, other.memory_bytes) {
            (Some(a), Some(b)) => Some(f64::midpoint(a, b)),
            (a, b) => a.or(b),
        };
        Progress { of: self.of.iter().map(mean).collect(), memory_bytes: memory }
    }

    /// The progress with each workload's multiplied by its ratio; one without a ratio keeps it.
    pub fn scaled(&self, ratios: &BTreeMap<WorkloadId, f64>) -> Progress {
        let scaled = |(id, value): (&WorkloadId, &f64)| (*id, value * ratios.get(id).copied().unwrap_or(1.0));
        Progress { of: self.of.iter().map(scaled).collect(), memory_bytes: None }
    }

    /// One workload's progress against `before`, as a ratio.
    pub fn ratio(&self, before: &Progress, group: WorkloadId) -> Option<f64> {
        Some(self.of.get(&group)? / before.of.get(&group)?)
    }

    /// How this compares with `before`, over workloads that have a number in both.
    pub fn gain(&self, before: &Progress, groups: &[Workload], config: &Config) -> Gain {
        let mean = |priority: Priority| {
            let (mut sum, mut weight) = (0.0, 0.0);
            for group in groups.iter().filter(|group| group.priority == priority) {
                if let Some(ratio) = self.ratio(before, group.id) {
                    let cores = group.cores.len() as f64;
                    sum += cores * ratio.ln();
                    weight += cores;
                }
            }
            if weight > 0.0 { sum / weight } else { 0.0 }
        };
        let (hpw, lpw) = (mean(Priority::High), mean(Priority::Low));
        let memory = match (self.memory_bytes, before.memory_bytes) {
            // 1 GB/s is added on both sides, so that changes of very small traffic do not count.
            (Some(now), Some(then)) => ((now + 1e9) / (then + 1e9)).ln(),
            _ => 0.0,
        };
        let high = groups.iter().filter(|group| group.priority == Priority::High);
        let worst = high.filter_map(|group| self.ratio(before, group.id)).fold(f64::INFINITY, f64::min);
        Gain {
            all: hpw + config.lpw_weight * lpw - config.memory_weight * memory,
            hpw: hpw.exp(),
            lpw: lpw.exp(),
            worst_hpw: if worst.is_finite() { worst } else { 1.0 },
        }
    }
}

fn progress(group: &Workload, seen: &Interval, inventory: &Inventory, config: &Config) -> Option<f64> {
    let rates = seen.groups.get(&group.id)?;
    match group.kind {
        WorkloadKind::NonIo => rates.ipc(),
        WorkloadKind::StorageIo => lines(&group.devices, seen, inventory),
        WorkloadKind::NetworkIo => {
            // Behind a virtual switch a workload has no port of its own, and the IPC of a polling loop says nothing.
            let lines = lines(&group.devices, seen, inventory)?;
            let (hits, misses) =
                (rates[WorkloadCounter::LlcHits].value()?, rates[WorkloadCounter::LlcMisses].value()?);
            let fetching = (config.llc_cost * hits + config.memory_cost * misses) / lines;
            Some(lines / (1.0 + fetching))
        }
    }
}

/// Lines per second that devices move, both ways. `None` if nothing moves or a port cannot be read.
pub(super) fn lines(devices: &[DeviceId], seen: &Interval, inventory: &Inventory) -> Option<f64> {
    let ports =
        devices.iter().filter_map(|id| inventory.devices.get(id.index())).flat_map(|device| &device.ports);
    let mut sum = 0.0;
    for port in ports {
        let rates = seen.ports.get(port)?;
        sum += rates.sum(PortCounter::InboundBytes, PortCounter::OutboundBytes).value()?;
    }
    (sum > 0.0).then_some(sum / LINE_BYTES as f64)
}
