//! Counters as a host reports them (cumulative) and as a policy reads them (per second, over an interval). It must not
//! know how they are read.

use crate::counter::{HostCounter, SocketCounter, WorkloadCounter};
use crate::readings::{
    CounterValue, PortCounters, PortRates, Readings, SocketCounters, SocketRates, WorkloadCounters,
    WorkloadRates,
};
use crate::{KnobValues, Reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_units::{PortId, WorkloadId};

/// All counters and knob values at one time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, on the host's clock.
    pub at_ns: u64,
    /// Per group alive now.
    pub groups: BTreeMap<WorkloadId, WorkloadCounters>,
    /// The managed socket.
    pub socket: SocketCounters,
    /// Per root port.
    pub ports: BTreeMap<PortId, PortCounters>,
    /// The value that every knob reads back.
    pub knobs: KnobValues,
}

impl WorkloadRates {
    /// Instructions per cycle.
    pub fn ipc(&self) -> Option<f64> {
        let cycles = self[WorkloadCounter::Cycles].value()?;
        (cycles > 0.0).then(|| self[WorkloadCounter::Instructions].value().map(|i| i / cycles)).flatten()
    }

    /// LLC hit ratio of the group: hits / (hits + misses) (algorithms.md 1.4). `None` without references.
    pub fn llc_hit_ratio(&self) -> Option<f64> {
        share(self[WorkloadCounter::LlcHits].value()?, self[WorkloadCounter::LlcMisses].value()?)
    }

    /// LLC miss ratio.
    pub fn llc_miss_ratio(&self) -> Option<f64> {
        share(self[WorkloadCounter::LlcMisses].value()?, self[WorkloadCounter::LlcHits].value()?)
    }

    /// MLC miss ratio.
    pub fn mlc_miss_ratio(&self) -> Option<f64> {
        share(self[WorkloadCounter::MlcMisses].value()?, self[WorkloadCounter::MlcHits].value()?)
    }

    /// LLC references (hits + misses) per second.
    pub fn llc_references(&self) -> Option<f64> {
        self.sum(WorkloadCounter::LlcHits, WorkloadCounter::LlcMisses).value()
    }
}

impl SocketRates {
    /// Chip-wide share of device writes that missed (algorithms.md 1.4). `None` without device writes.
    pub fn dca_write_miss_ratio(&self) -> Option<f64> {
        share(self[SocketCounter::DcaWriteMisses].value()?, self[SocketCounter::DcaWriteHits].value()?)
    }

    /// Chip-wide share of device reads that missed.
    pub fn dca_read_miss_ratio(&self) -> Option<f64> {
        share(self[SocketCounter::DcaReadMisses].value()?, self[SocketCounter::DcaReadHits].value()?)
    }

    /// Memory traffic, reads and writes, bytes per second.
    pub fn memory_bytes(&self) -> Option<f64> {
        self.sum(SocketCounter::MemoryReadBytes, SocketCounter::MemoryWriteBytes).value()
    }
}

/// The difference of two snapshots, as rates: what a policy sees.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// Start, on the host's clock.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Per group alive at both ends.
    pub groups: BTreeMap<WorkloadId, WorkloadRates>,
    /// The managed socket.
    pub socket: SocketRates,
    /// Per root port.
    pub ports: BTreeMap<PortId, PortRates>,
    /// Knob values read back at the end.
    pub knobs: KnobValues,
}

impl Interval {
    /// Rates between two snapshots of the same host.
    ///
    /// A counter that runs backwards (reset, wrap of a short counter that the host did not extend) is `Unavailable` for
    /// this interval instead of a huge number. `None` if no time passed.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Interval> {
        let span_ns = after.at_ns.checked_sub(before.at_ns).filter(|&ns| ns > 0)?;
        let seconds = span_ns as f64 * 1e-9;
        let groups = after.groups.iter().filter_map(|(id, now)| {
            let then = before.groups.get(id)?;
            Some((*id, rates(then, now, seconds)))
        });
        let ports = after.ports.iter().filter_map(|(id, now)| {
            let then = before.ports.get(id)?;
            Some((*id, rates(then, now, seconds)))
        });
        Some(Interval {
            from_ns: before.at_ns,
            to_ns: after.at_ns,
            groups: groups.collect(),
            socket: rates(&before.socket, &after.socket, seconds),
            ports: ports.collect(),
            knobs: after.knobs.clone(),
        })
    }
}

/// Counts per second between two times, and levels at the later one.
fn rates<K: HostCounter<N>, const N: usize>(
    before: &Readings<K, u64, N>,
    after: &Readings<K, u64, N>,
    seconds: f64,
) -> Readings<K, f64, N> {
    before.zip_with(after, |counter, a, b| {
        if counter.is_level() {
            return b.map(f64::from_level);
        }
        match a.zip_with(b, |a, b| b.checked_sub(a)) {
            Reading::Value(Some(delta)) => Reading::Value(delta as f64 / seconds),
            Reading::Value(None) => Reading::Unavailable,
            missing => missing.map(|_| 0.0),
        }
    })
}

/// `part / (part + rest)`, `None` when both are zero.
fn share(part: f64, rest: f64) -> Option<f64> {
    let sum = part + rest;
    (sum > 0.0).then(|| part / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at_ns: u64, hits: Reading<u64>, misses: Reading<u64>) -> Snapshot {
        Snapshot {
            at_ns,
            groups: BTreeMap::new(),
            socket: SocketCounters::of([
                (SocketCounter::DcaWriteHits, hits),
                (SocketCounter::DcaWriteMisses, misses),
            ]),
            ports: BTreeMap::new(),
            knobs: KnobValues::default(),
        }
    }

    #[test]
    fn rates_are_per_second() {
        let a = snapshot(1_000_000_000, Reading::Value(100), Reading::Value(10));
        let b = snapshot(3_000_000_000, Reading::Value(160), Reading::Value(30));
        let interval = Interval::between(&a, &b).unwrap();
        // 60 hits and 20 misses in 2 s.
        assert_eq!(interval.socket[SocketCounter::DcaWriteHits], Reading::Value(30.0));
        assert_eq!(interval.socket.dca_write_miss_ratio(), Some(0.25));
        assert_eq!(interval.socket.dca_read_miss_ratio(), None);
    }

    #[test]
    fn a_counter_that_runs_backwards_is_unavailable_and_not_huge() {
        let a = snapshot(0, Reading::Value(100), Reading::Value(10));
        let b = snapshot(1, Reading::Value(99), Reading::Unavailable);
        let interval = Interval::between(&a, &b).unwrap();
        assert_eq!(interval.socket[SocketCounter::DcaWriteHits], Reading::Unavailable);
        assert_eq!(interval.socket[SocketCounter::DcaWriteMisses], Reading::Unavailable);
        assert_eq!(interval.socket[SocketCounter::DcaReadHits], Reading::Unsupported);
        assert!(Interval::between(&a, &a).is_none());
    }

    /// Two snapshots and the interval between them, as written before counters had a table: every key, in its order.
    const BEFORE: &str = concat!(
        r#"{"at_ns":1000000000,"groups":{"0":{"instructions":{"value":1000},"cycles":{"value":500},"#,
        r#""mlc_hits":{"value":70},"mlc_misses":{"value":30},"llc_hits":{"value":20},"llc_misses":"unavailable","#,
        r#""occupancy_bytes":{"value":4096}},"7":{"instructions":{"value":1},"cycles":"absent","#,
        r#""mlc_hits":"unsupported","mlc_misses":"unsupported","llc_hits":"unsupported","#,
        r#""llc_misses":"unsupported","occupancy_bytes":"unavailable"}},"socket":{"dca_write_hits":{"value":100},"#,
        r#""dca_write_misses":{"value":10},"dca_read_hits":{"value":9},"dca_read_misses":"unsupported","#,
        r#""memory_read_bytes":{"value":6400},"memory_write_bytes":{"value":18446744073709551615}},"#,
        r#""ports":{"1":{"inbound_bytes":{"value":64},"outbound_bytes":"absent"}},"#,
        r#""knobs":{"masks":{"0":"0x00c"},"dca_ways":"0x600","dca":{"1":true},"rx_ring":{},"rx_burst":{}}}"#,
    );
    const AFTER: &str = concat!(
        r#"{"at_ns":3000000000,"groups":{"0":{"instructions":{"value":4000},"cycles":{"value":2500},"#,
        r#""mlc_hits":{"value":71},"mlc_misses":{"value":29},"llc_hits":{"value":20},"llc_misses":{"value":5},"#,
        r#""occupancy_bytes":{"value":9007199254740991}}},"socket":{"dca_write_hits":{"value":160},"#,
        r#""dca_write_misses":{"value":30},"dca_read_hits":{"value":10},"dca_read_misses":"unsupported","#,
        r#""memory_read_bytes":{"value":6402},"memory_write_bytes":{"value":0}},"#,
        r#""ports":{"1":{"inbound_bytes":{"value":128},"outbound_bytes":"absent"},"#,
        r#""2":{"inbound_bytes":{"value":0},"outbound_bytes":{"value":0}}},"#,
        r#""knobs":{"masks":{"0":"0x00f"},"dca_ways":null,"dca":{},"rx_ring":{},"rx_burst":{}}}"#,
    );
    const BETWEEN: &str = concat!(
        r#"{"from_ns":1000000000,"to_ns":3000000000,"groups":{"0":{"instructions":{"value":1500.0},"#,
        r#""cycles":{"value":1000.0},"mlc_hits":{"value":0.5},"mlc_misses":"unavailable","#,
        r#""llc_hits":{"value":0.0},"llc_misses":"unavailable","occupancy_bytes":{"value":9007199254740991}}},"#,
        r#""socket":{"dca_write_hits":{"value":30.0},"dca_write_misses":{"value":10.0},"#,
        r#""dca_read_hits":{"value":0.5},"dca_read_misses":"unsupported","memory_read_bytes":{"value":1.0},"#,
        r#""memory_write_bytes":"unavailable"},"#,
        r#""ports":{"1":{"inbound_bytes":{"value":32.0},"outbound_bytes":"absent"}},"#,
        r#""knobs":{"masks":{"0":"0x00f"},"dca_ways":null,"dca":{},"rx_ring":{},"rx_burst":{}}}"#,
    );

    #[test]
    fn snapshots_and_intervals_are_written_as_before_counters_had_a_table() {
        let [before, after]: [Snapshot; 2] = [BEFORE, AFTER].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(
            [&before, &after].map(|snapshot| serde_json::to_string(snapshot).unwrap()),
            [BEFORE, AFTER]
        );
        let between = Interval::between(&before, &after).unwrap();
        assert_eq!(serde_json::to_string(&between).unwrap(), BETWEEN);
        assert_eq!(serde_json::from_str::<Interval>(BETWEEN).unwrap(), between);
    }

    #[test]
    fn a_counter_that_is_missing_twice_there_or_of_the_wrong_type_is_refused() {
        let error = |from: &str, to: &str| {
            let text = BETWEEN.replacen(from, to, 1);
            assert_ne!(text, BETWEEN);
            serde_json::from_str::<Interval>(&text).map_or_else(|error| error.to_string(), |_| String::new())
        };
        let port = r#""outbound_bytes":"absent""#;
        assert_eq!(error(&format!(",{port}"), ""), "missing field `outbound_bytes` at line 1 column 518");
        assert_eq!(
            error(port, &format!("{port},{port}")),
            "duplicate field `outbound_bytes` at line 1 column 560"
        );
        assert_eq!(error(port, &format!("{port},\"other\":3")), "", "unknown keys are skipped");
        assert_eq!(
            error(r#"{"value":9007199254740991}"#, r#"{"value":1.5}"#),
            "invalid type: floating point `1.5`, expected u64 at line 1 column 248"
        );
        assert_eq!(
            error(r#"{"value":9007199254740991}"#, r#"{"value":-1}"#),
            "invalid value: integer `-1`, expected u64 at line 1 column 247"
        );
        assert_eq!(
            error(r#"{"inbound_bytes":{"value":32.0},"outbound_bytes":"absent"}"#, "7"),
            "invalid type: integer `7`, expected struct PortRates at line 1 column 487"
        );
    }
}
