//! Progress of workloads (`waykeeper_calibration::progress`), and its change between two measurements. It must not know
//! layouts.

use super::config::Config;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_calibration::{FetchCosts, progress};
use waykeeper_host::{Interval, Inventory, Priority, Workload};
use waykeeper_units::WorkloadId;

/// One number per workload, and memory traffic.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
        let costs = FetchCosts { llc: config.llc_cost, memory: config.memory_cost };
        let of = groups
            .iter()
            .filter_map(|group| progress(group, seen, inventory, costs).map(|value| (group.id, value)));
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
