//! How well workloads get on, from counters alone, and whether they get on better than before.
//!
//! No counter shows latency or the work of a polling loop. What is compared is what the LLC can change: instructions
//! per cycle of a workload that computes, packet lines per second weighed by what fetching them costs, bytes per
//! second of storage. Ratios of the same workload's progress under two layouts, never of two workloads. Knows
//! counters; must not know layouts.

use super::config::Config;
use std::collections::BTreeMap;
use waykeeper_host::{Group, Interval, Inventory, Priority, WorkloadKind};
use waykeeper_units::{DeviceId, GroupId, LINE_BYTES};

/// One number per workload, and memory traffic.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Progress {
    of: BTreeMap<GroupId, f64>,
    memory_bytes: Option<f64>,
}

/// What became better or worse between two measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Gain {
    /// Logarithm of the weighed mean ratio: 0.01 is one per cent better.
    pub all: f64,
    /// Mean over HPWs, by cores, as a ratio.
    pub hpw: f64,
    /// Mean over LPWs.
    pub lpw: f64,
    /// The worst HPW, as a ratio.
    pub worst_hpw: f64,
}

impl Progress {
    /// What an interval shows. Workloads whose counters are missing, or that do nothing, have no number.
    pub fn of(groups: &[Group], seen: &Interval, inventory: &Inventory, config: &Config) -> Progress {
        let of = groups.iter().filter_map(|group| {
            let value = progress(group, seen, inventory, config)?;
            (value > 0.0 && value.is_finite()).then_some((group.id, value))
        });
        Progress { of: of.collect(), memory_bytes: seen.socket.memory_bytes() }
    }

    /// True if nothing is known of anybody.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The mean of two, where both know something.
    pub fn mixed(&self, other: &Progress) -> Progress {
        let mean = |(id, a): (&GroupId, &f64)| (*id, other.of.get(id).map_or(*a, |b| f64::midpoint(*a, *b)));
        let memory = match (self.memory_bytes, other.memory_bytes) {
            (Some(a), Some(b)) => Some(f64::midpoint(a, b)),
            (a, b) => a.or(b),
        };
        Progress { of: self.of.iter().map(mean).collect(), memory_bytes: memory }
    }

    /// One workload's progress against `before`, as a ratio.
    pub fn ratio(&self, before: &Progress, group: GroupId) -> Option<f64> {
        Some(self.of.get(&group)? / before.of.get(&group)?)
    }

    /// How this compares with `before`, over workloads that have a number in both.
    pub fn gain(&self, before: &Progress, groups: &[Group], config: &Config) -> Gain {
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
            // 1 GB/s more on either side: hardly any traffic is no reason for anything.
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

fn progress(group: &Group, seen: &Interval, inventory: &Inventory, config: &Config) -> Option<f64> {
    let rates = seen.groups.get(&group.id)?;
    match group.kind {
        WorkloadKind::NonIo => rates.ipc(),
        WorkloadKind::StorageIo => lines(&group.devices, seen, inventory),
        WorkloadKind::NetworkIo => {
            // Behind a switch it has no port of its own, and a polling loop's IPC says nothing.
            let lines = lines(&group.devices, seen, inventory)?;
            let (hits, misses) = (rates.llc_hits.value()?, rates.llc_misses.value()?);
            let fetching = (config.llc_cost * hits + config.memory_cost * misses) / lines;
            Some(lines / (1.0 + fetching))
        }
    }
}

/// Lines per second that devices move, both ways. `None` if nothing moves.
pub(super) fn lines(devices: &[DeviceId], seen: &Interval, inventory: &Inventory) -> Option<f64> {
    let ports =
        devices.iter().filter_map(|id| inventory.devices.get(id.index())).flat_map(|device| &device.ports);
    let mut sum = 0.0;
    for port in ports {
        let rates = seen.ports.get(port)?;
        sum += rates.inbound_bytes.value()? + rates.outbound_bytes.value()?;
    }
    (sum > 0.0).then_some(sum / LINE_BYTES as f64)
}
