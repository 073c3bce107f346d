//! Summary of a load run, in the same form for devices, files and the virtual server.
//!
//! Knows counts and seconds; must not know how they were measured, nor how they are presented.

use crate::formula::{CompletedWork, DmaEvents, bandwidth, expected, expected_both_ways};
use crate::{MemoryDirection, Pattern};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Counts of a run until it ended, for whatever reason.
#[derive(Clone, Debug)]
pub struct LoadTotals {
    /// Commands that completed without an error.
    pub commands: u64,
    /// Blocks as the program counts them (the profile `thesis` counts one less per command than it moves).
    pub blocks: u64,
    /// Blocks that were transferred.
    pub moved: u64,
    /// Of `moved`, blocks that the device read from memory; only in runs with both directions.
    pub outward: u64,
    /// Commands that completed with an error.
    pub errors: u64,
    /// From the start to the last completion, or to the time limit if that is later.
    pub runtime: Duration,
    /// CPU time of the workers, user and system; `None` if it is not measured.
    pub cpu: Option<Duration>,
    /// Latency of each command, ns. Empty if latencies are not measured.
    pub latency_ns: Histogram<u64>,
}

/// Significant digits of a latency: 0.1 %. Two runs never agree more closely.
const DIGITS: u8 = 3;

impl Default for LoadTotals {
    fn default() -> LoadTotals {
        // A histogram without upper bound: it grows with the longest latency.
        let latency_ns =
            Histogram::new(DIGITS).expect("3 digits are within what the library allows (0 to 5)");
        let runtime = Duration::ZERO;
        LoadTotals { commands: 0, blocks: 0, moved: 0, outward: 0, errors: 0, runtime, cpu: None, latency_ns }
    }
}

impl LoadTotals {
    /// Adds the totals of a worker that ran at the same time: counts and CPU time add up, the runtime is the longer
    /// one.
    pub fn add(&mut self, other: &LoadTotals) {
        self.commands += other.commands;
        self.blocks += other.blocks;
        self.moved += other.moved;
        self.outward += other.outward;
        self.errors += other.errors;
        self.runtime = self.runtime.max(other.runtime);
        self.cpu = match (self.cpu, other.cpu) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
        // Only histograms of fixed length can fail here; these grow.
        let _ = self.latency_ns.add(&other.latency_ns);
    }

    /// Commands and transferred blocks, as the formulas need them.
    pub const fn moved(&self) -> CompletedWork {
        CompletedWork { commands: self.commands, blocks: self.moved }
    }
}

/// Latencies, µs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LatencySummary {
    /// Minimum.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// Maximum.
    pub max: f64,
}

impl LatencySummary {
    /// From a histogram in ns; `None` if it is empty.
    pub fn of(histogram_ns: &Histogram<u64>) -> Option<LatencySummary> {
        if histogram_ns.is_empty() {
            return None;
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile: f64| us(histogram_ns.value_at_quantile(quantile));
        Some(LatencySummary {
            min: us(histogram_ns.min()),
            mean: histogram_ns.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: us(histogram_ns.max()),
        })
    }
}

/// One kind of event, over the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EventCount {
    /// Expected by the formulas, hits and misses together.
    pub expected: u64,
    /// Counted, hits and misses together; absent if there is no counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
    /// Measured over expected; absent if there is no counter or nothing is expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Counted hits; absent if there is no counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Counted misses; absent if there is no counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<u64>,
    /// Measured lines of PRP lists, which the formulas leave out; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_lists: Option<u64>,
    /// Why there is no counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

impl EventCount {
    /// Expected events without a measurement.
    const fn expected(expected: u64) -> EventCount {
        let (hits, misses, page_lists) = (None, None, None);
        EventCount { expected, measured: None, ratio: None, hits, misses, page_lists, unavailable: None }
    }

    /// Adds a measurement.
    pub fn counted(self, hits: u64, misses: u64) -> EventCount {
        let measured = hits.saturating_add(misses);
        let ratio = (self.expected > 0).then(|| measured as f64 / self.expected as f64);
        let (hits, misses) = (Some(hits), Some(misses));
        EventCount { measured: Some(measured), ratio, hits, misses, unavailable: None, ..self }
    }

    /// Adds the reason why there is no measurement.
    pub fn uncounted(self, why: &str) -> EventCount {
        EventCount { unavailable: Some(why.to_owned()), ..self }
    }
}

/// The package whose LLC was counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Package {
    /// Its number.
    pub number: u16,
    /// Why this package: which part of the run is attached to it.
    pub because: String,
}

/// The events that DMA causes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Counters {
    /// Where events were counted; absent without counters and in simulated time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<Package>,
    /// Lines that the device read.
    #[serde(rename = "PCIeRdCur")]
    pub pcie_rdcur: EventCount,
    /// Whole lines that the device wrote.
    #[serde(rename = "ItoM")]
    pub itom: EventCount,
    /// Parts of lines that the device wrote.
    #[serde(rename = "RFO")]
    pub rfo: EventCount,
}

impl Counters {
    /// Expected events without a measurement.
    pub fn expected(events: DmaEvents) -> Counters {
        Counters {
            package: None,
            pcie_rdcur: EventCount::expected(events.pcie_rdcur),
            itom: EventCount::expected(events.itom),
            rfo: EventCount::expected(events.rfo),
        }
    }
}

/// Direction of a run's data, as memory sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// The device read memory.
    Read,
    /// The device wrote memory.
    Write,
    /// Both, command by command.
    Mixed,
}

impl Op {
    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Mixed => "mixed",
        }
    }
}

impl From<MemoryDirection> for Op {
    fn from(direction: MemoryDirection) -> Op {
        match direction {
            MemoryDirection::Read => Op::Read,
            MemoryDirection::Write => Op::Write,
        }
    }
}

/// Summary of a run, as serialised to JSON.
#[derive(Clone, Debug, Serialize)]
pub struct LoadSummary {
    /// Engine that sent the commands: `nvme-uring`, `nvme-ioctl`, `uring`, `virtual`.
    pub engine: String,
    /// The pattern.
    pub pattern: Pattern,
    /// Direction of the data, as memory sees it.
    pub op: Op,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Commands that completed without an error.
    pub commands: u64,
    /// Blocks as the program counts them.
    pub blocks: u64,
    /// Blocks that were transferred.
    pub blocks_moved: u64,
    /// Commands that completed with an error.
    pub errors: u64,
    /// Seconds from the start to the last completion, or to the time limit if that is later.
    pub runtime_s: f64,
    /// By the thesis's formula (s5.2): counted blocks and 80 bytes of queue entries per command.
    pub bandwidth_bytes_per_s: f64,
    /// Commands per second.
    pub iops: f64,
    /// Latencies; absent if no command completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencySummary>,
    /// CPU time of the workers per command; absent if not measured or without commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_io: Option<f64>,
    /// Events at the cache.
    pub counters: Counters,
}

impl LoadSummary {
    /// Summary of a run by `engine`; counters are expected only.
    pub fn new(
        engine: &str,
        pattern: Pattern,
        op: MemoryDirection,
        block_bytes: u64,
        totals: &LoadTotals,
    ) -> LoadSummary {
        let runtime_s = totals.runtime.as_secs_f64();
        let counted = CompletedWork { commands: totals.commands, blocks: totals.blocks };
        let per_command = |cpu: Duration| cpu.as_secs_f64() * 1e6 / totals.commands as f64;
        LoadSummary {
            engine: engine.to_owned(),
            pattern,
            op: op.into(),
            block_bytes,
            commands: totals.commands,
            blocks: totals.blocks,
            blocks_moved: totals.moved,
            errors: totals.errors,
            runtime_s,
            bandwidth_bytes_per_s: bandwidth(counted, block_bytes, runtime_s),
            iops: if runtime_s > 0.0 { totals.commands as f64 / runtime_s } else { 0.0 },
            latency_us: LatencySummary::of(&totals.latency_ns),
            cpu_us_per_io: totals.cpu.filter(|_| totals.commands > 0).map(per_command),
            counters: Counters::expected(expected(pattern, op, totals.moved(), block_bytes)),
        }
    }

    /// The same run with commands in both directions.
    pub fn both_ways(self, totals: &LoadTotals) -> LoadSummary {
        let events = expected_both_ways(self.pattern, totals.moved(), totals.outward, self.block_bytes);
        LoadSummary { op: Op::Mixed, counters: Counters::expected(events), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(latencies_us: std::ops::RangeInclusive<u64>, runtime_s: u64) -> LoadTotals {
        let mut totals = LoadTotals { runtime: Duration::from_secs(runtime_s), ..LoadTotals::default() };
        for us in latencies_us {
            totals.commands += 1;
            totals.blocks += 1;
            totals.moved += 2;
            totals.latency_ns.record(us * 1000).unwrap();
        }
        totals.cpu = Some(Duration::from_millis(1));
        totals
    }

    #[test]
    fn workers_add_up_and_the_longest_time_counts() {
        // 500 + 500 commands over 2 s: 500 a second; 2 ms of CPU time for 1000 commands: 2 us each.
        let mut totals = worker(1..=500, 1);
        totals.add(&worker(501..=1000, 2));
        let summary = LoadSummary::new("uring", Pattern::Single, MemoryDirection::Write, 4096, &totals);
        assert_eq!((summary.commands, summary.blocks, summary.blocks_moved), (1000, 1000, 2000));
        assert_eq!((summary.iops, summary.cpu_us_per_io), (500.0, Some(2.0)));
        // (1000 x 4096 + 1000 x 80) / 2 for counted blocks; 2000 x 64 lines for moved blocks.
        assert_eq!(summary.bandwidth_bytes_per_s, 2_088_000.0);
        assert_eq!(summary.counters.itom, EventCount::expected(128_000));
        let latency = summary.latency_us.unwrap();
        assert!((latency.p50 - 500.0).abs() < 1.0 && (latency.p99_9 - 999.0).abs() < 1.0, "{latency:?}");
        assert!((latency.min - 1.0).abs() < 0.1 && (latency.max - 1000.0).abs() < 1.0, "{latency:?}");
    }

    #[test]
    fn measured_is_beside_expected_or_a_reason_is() {
        let counter = EventCount::expected(200).counted(290, 10);
        assert_eq!((counter.measured, counter.ratio, counter.unavailable), (Some(300), Some(1.5), None));
        let none = EventCount::expected(0).counted(3, 0);
        assert_eq!((none.measured, none.ratio), (Some(3), None), "no part of nothing");
        let json = serde_json::to_value(EventCount::expected(7).uncounted("no table")).unwrap();
        assert_eq!(json, serde_json::json!({"expected": 7, "unavailable": "no table"}));
    }

    #[test]
    fn both_ways_are_expected_where_both_were_gone() {
        let mut totals = LoadTotals { outward: 2, ..worker(1..=3, 1) };
        totals.add(&LoadTotals { outward: 1, ..worker(1..=2, 1) });
        // 5 commands of 2 blocks moved, 3 blocks of 4096 B read from memory.
        let summary = LoadSummary::new("uring", Pattern::Single, MemoryDirection::Write, 4096, &totals)
            .both_ways(&totals);
        assert_eq!(serde_json::to_value(summary.op).unwrap(), "mixed");
        assert_eq!(summary.counters.pcie_rdcur, EventCount::expected(3 * 64 + 5));
        assert_eq!((summary.counters.itom.expected, summary.counters.rfo.expected), (7 * 64, 5));
    }

    #[test]
    fn nothing_done_is_no_division_by_nothing() {
        let summary =
            LoadSummary::new("uring", Pattern::Noop, MemoryDirection::Read, 512, &LoadTotals::default());
        assert_eq!((summary.iops, summary.bandwidth_bytes_per_s), (0.0, 0.0));
        assert_eq!((summary.latency_us, summary.cpu_us_per_io), (None, None));
    }
}
