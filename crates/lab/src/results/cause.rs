//! Why a workload's performance changed against the baseline: way room, DMA leak, memory bandwidth, or DCA off.
//!
//! A unit of work (packet, byte, request, instruction) misses the LLC m times, and each miss takes memory's loaded
//! latency L. The change of m x L has two exact parts: fewer misses at the mean latency, and a shorter latency at the
//! mean misses, which is bandwidth. Of the misses, those of device data that was evicted unread are the leak; the rest
//! did not fit into its ways. Model only: no server counts unread lines. Must not know how policies work.

use super::{PolicyResult, RunSummary, WorkloadResult};
use serde::{Deserialize, Serialize};

/// A performance ratio this near to 1 needs no cause. Assumption: users would call this unchanged.
const UNCHANGED: f64 = 0.02;

/// The main cause of a performance change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MainCause {
    /// Its ways contain more or fewer of its lines.
    WayRoom,
    /// More or fewer lines of its devices are evicted before a core reads them.
    Leak,
    /// Memory has less or more load.
    Bandwidth,
    /// DCA is off for its device, and was on under the baseline: its device writes bypass the LLC.
    DcaOff,
}

impl MainCause {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            MainCause::WayRoom => "way room",
            MainCause::Leak => "leak",
            MainCause::Bandwidth => "bandwidth",
            MainCause::DcaOff => "DCA off",
        }
    }
}

/// Change of a workload's memory time by cause, as parts of its memory time per unit of work under the baseline; above
/// zero is time saved.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemoryTimeCauses {
    /// The largest part that explains the direction of the change; absent if performance is within 2 % of the baseline's,
    /// or no part explains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<MainCause>,
    /// Part by misses of its own lines. With DCA off for its device, by misses of the device's data.
    pub way_room: f64,
    /// Part by misses of device data that was evicted unread.
    pub leak: f64,
    /// Part by the load on memory.
    pub bandwidth: f64,
}

/// Memory accesses of a workload per unit of work.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Use {
    /// LLC misses.
    misses: f64,
    /// ... of these, of device data that was evicted unread.
    leaked: f64,
    /// Time of one, ns.
    latency_ns: f64,
}

/// Fills the causes of all workloads under all policies but the baseline.
pub(super) fn fill(summary: &mut RunSummary) {
    let Some(base) = summary.baseline.as_ref().and_then(|name| summary.policies.get(name)).cloned() else {
        return;
    };
    let baseline = summary.baseline.clone();
    for (policy, result) in &mut summary.policies {
        let causes: Vec<Option<MemoryTimeCauses>> = result
            .workloads
            .iter()
            .map(|(name, workload)| {
                let before = base.workloads.get(name).filter(|_| baseline.as_ref() != Some(policy))?;
                let ratio = workload.metrics.performance_ratio?;
                let written_past = |one: &PolicyResult| is_written_past(one, workload);
                let off = written_past(result) && !written_past(&base);
                Some(cause(used(&base, before)?, used(result, workload)?, ratio, off))
            })
            .collect();
        for (workload, cause) in result.workloads.values_mut().zip(causes) {
            workload.cause = cause;
        }
    }
}

/// Whether a device of the workload has its DCA off at the end.
fn is_written_past(result: &PolicyResult, workload: &WorkloadResult) -> bool {
    let off = result.way_map.last().map(|slice| &slice.dca_off_ports);
    off.is_some_and(|off| workload.devices.iter().any(|device| off.contains(device)))
}

fn used(result: &PolicyResult, workload: &WorkloadResult) -> Option<Use> {
    let work = workload.metrics.throughput.filter(|work| *work > 0.0)?;
    let misses = workload.metrics.llc_misses_per_s? / work;
    let unread = |device: &String| {
        let lines = result.evictions.iter().filter(|one| one.of == *device).map(|one| one.unread_lines_per_s);
        let users = result.workloads.values().filter(|other| other.devices.contains(device)).count();
        lines.sum::<f64>() / users as f64
    };
    let leaked: f64 = workload.devices.iter().map(unread).sum();
    let latency_ns = result.system.metrics.memory_latency_ns?;
    Some(Use { misses, leaked: (leaked / work).min(misses), latency_ns })
}

fn cause(base: Use, now: Use, ratio: f64, off: bool) -> MemoryTimeCauses {
    let whole = (base.misses * base.latency_ns).max(f64::MIN_POSITIVE);
    let latency_ns = 0.5 * (base.latency_ns + now.latency_ns);
    let leak = (base.leaked - now.leaked) * latency_ns / whole;
    let way_room = ((base.misses - base.leaked) - (now.misses - now.leaked)) * latency_ns / whole;
    let bandwidth = 0.5 * (base.misses + now.misses) * (base.latency_ns - now.latency_ns) / whole;
    let room = if off { MainCause::DcaOff } else { MainCause::WayRoom };
    let parts = [(room, way_room), (MainCause::Leak, leak), (MainCause::Bandwidth, bandwidth)];
    let change = ratio - 1.0;
    let largest = parts.into_iter().max_by(|a, b| (a.1 * change).total_cmp(&(b.1 * change)));
    let explains = |(_, part): &(MainCause, f64)| change.abs() > UNCHANGED && part * change > 0.0;
    MemoryTimeCauses { main: largest.filter(explains).map(|(main, _)| main), way_room, leak, bandwidth }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(misses: f64, leaked: f64, latency_ns: f64) -> Use {
        Use { misses, leaked, latency_ns }
    }

    #[test]
    fn the_parts_are_the_change_of_memory_time_exactly() {
        // 10 misses of 100 ns before, 4 of 80 now: 1000 and 320 ns. At 90 ns: 5 fewer leaked are 450, one miss less 90;
        // 7 misses in the mean, 20 ns each, are 140. 450 + 90 + 140 = 680.
        let found = cause(used(10.0, 6.0, 100.0), used(4.0, 1.0, 80.0), 1.5, false);
        let wanted = [(found.leak, 0.45), (found.way_room, 0.09), (found.bandwidth, 0.14)];
        assert!(wanted.iter().all(|(is, wanted)| (is - wanted).abs() < 1e-12), "{found:?}");
        assert_eq!(found.main, Some(MainCause::Leak));
    }

    #[test]
    fn the_main_cause_has_the_direction_of_the_change() {
        // Less leak but slower: it lost ways.
        let lost = cause(used(10.0, 6.0, 100.0), used(14.0, 1.0, 100.0), 0.8, false);
        assert_eq!(lost.main, Some(MainCause::WayRoom));
        let off = cause(used(1.0, 0.5, 100.0), used(10.0, 0.0, 100.0), 0.5, true);
        assert_eq!(off.main, Some(MainCause::DcaOff));
        let busy = cause(used(10.0, 0.0, 100.0), used(10.0, 0.0, 150.0), 0.8, false);
        assert_eq!(busy.main, Some(MainCause::Bandwidth));
        assert_eq!(
            cause(used(10.0, 0.0, 100.0), used(5.0, 0.0, 100.0), 1.019, false).main,
            None,
            "unchanged"
        );
        assert_eq!(cause(used(10.0, 0.0, 100.0), used(5.0, 0.0, 100.0), 0.9, false).main, None, "not memory");
        assert_eq!(cause(used(0.0, 0.0, 100.0), used(0.0, 0.0, 100.0), 1.5, false).main, None, "no misses");
    }
}
