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
    /// When the counters were read, on the clock on which they count, where that may be another one: the host may run
    /// slower than the clock that it is waited for on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters_read: Option<CountersRead>,
    /// Per group alive now.
    pub groups: BTreeMap<WorkloadId, WorkloadCounters>,
    /// The managed socket.
    pub socket: SocketCounters,
    /// Per root port.
    pub ports: BTreeMap<PortId, PortCounters>,
    /// The value that every knob reads back.
    pub knobs: KnobValues,
}

/// The time in which counters were read one after another, on the clock on which they count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CountersRead {
    /// Before the first of them, ns.
    pub from_ns: u64,
    /// After the last.
    pub to_ns: u64,
}

impl CountersRead {
    /// The middle of that time: all counters count as read then.
    fn middle_ns(self) -> u64 {
        self.from_ns + self.length_ns() / 2
    }

    fn length_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
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
    /// this interval instead of a huge number. So are all counts if the counters' clock lags too far behind, or
    /// if reading them took much longer at one end than at the other. `None` if no time passed.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Interval> {
        let span_ns = after.at_ns.checked_sub(before.at_ns).filter(|&ns| ns > 0)?;
        let seconds = counted_seconds(before, after, span_ns);
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

/// Clocks that differ by less than this share are the same clock, read a moment apart or rated a little wrong. Assumption:
/// ten times what the frequency of a time stamp counter is wrong by.
const SAME_CLOCK: f64 = 0.01;

/// The least share of an interval that the counters' clock must have moved. Assumption: with less, an interval of a second
/// is too short for caches to settle.
const COUNTED_LEAST: f64 = 0.1;

/// The most by which a rate may be wrong because the counters were not read at one time, as a share of it. Assumption:
/// policies look for changes that are larger (`phase_change` of the policy `waykeeper` is 0.25).
const UNEVEN_MOST: f64 = 0.1;

/// The seconds in which the counts between two snapshots were counted; `None` if that is too little of `span_ns`.
fn counted_seconds(before: &Snapshot, after: &Snapshot, span_ns: u64) -> Option<f64> {
    let span = span_ns as f64;
    // A clock that is lower than before belongs to a host that started anew, as its counters did.
    let read = before.counters_read.zip(after.counters_read);
    let known = read.filter(|(before, after)| before.middle_ns() <= after.middle_ns());
    let Some((before, after)) = known else { return Some(span * 1e-9) };
    let counted = (after.middle_ns() - before.middle_ns()) as f64;
    // A counter that is read at the begin or the end of such a time is half of it away from its middle. If both times are
    // equally long, that is the same at both ends of the interval.
    let uneven = after.length_ns().abs_diff(before.length_ns()) as f64 / 2.0;
    match counted / span {
        share if share < COUNTED_LEAST || uneven > UNEVEN_MOST * counted => None,
        share if (share - 1.0).abs() <= SAME_CLOCK => Some(span * 1e-9),
        _ => Some(counted * 1e-9),
    }
}

/// Counts per second between two times, and levels at the later one. Without `seconds` no count is available.
fn rates<K: HostCounter<N>, const N: usize>(
    before: &Readings<K, u64, N>,
    after: &Readings<K, u64, N>,
    seconds: Option<f64>,
) -> Readings<K, f64, N> {
    before.zip_with(after, |counter, a, b| {
        if counter.is_level() {
            return b.map(f64::from_level);
        }
        match a.zip_with(b, |a, b| Some(b.checked_sub(a)? as f64 / seconds?)) {
            Reading::Value(Some(rate)) => Reading::Value(rate),
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
            counters_read: None,
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
    fn rates_are_per_second_of_the_counters_clock_and_missing_where_it_lags_or_reading_was_uneven() {
        let at = |at_ns, counters_read, hits| Snapshot {
            counters_read,
            ..snapshot(at_ns, Reading::Value(hits), Reading::Value(0))
        };
        let rate = |read: [Option<CountersRead>; 2]| {
            let (a, b) = (at(1_000_000_000, read[0], 100), at(3_000_000_000, read[1], 160));
            Interval::between(&a, &b).unwrap().socket[SocketCounter::DcaWriteHits]
        };
        const MS: u64 = 1_000_000;
        let read = |from_ms: u64, to_ms: u64| Some(CountersRead { from_ns: from_ms * MS, to_ns: to_ms * MS });
        // 60 hits in 2 s of the one clock and in 0.5 s of the other: 30 and 120 per second.
        assert_eq!(rate([None, None]), Reading::Value(30.0));
        assert_eq!(rate([read(7, 7), None]), Reading::Value(30.0));
        assert_eq!(rate([read(7, 7), read(507, 507)]), Reading::Value(120.0));
        // 1.99 s are the same clock.
        assert_eq!(rate([read(7, 7), read(1997, 1997)]), Reading::Value(30.0));
        // A host that is ahead: 60 hits in 4 s.
        assert_eq!(rate([read(7, 7), read(4007, 4007)]), Reading::Value(15.0));
        // 0.19 s of 2 s are too little, and a clock that did not move even more so.
        assert_eq!(rate([read(7, 7), read(197, 197)]), Reading::Unavailable);
        assert_eq!(rate([read(7, 7), read(7, 7)]), Reading::Unavailable);
        assert_eq!(rate([read(7, 7), read(6, 6)]), Reading::Value(30.0), "it started anew");
        // Reading takes 0.3 s at both ends: from middle to middle it is 0.5 s.
        assert_eq!(rate([read(0, 300), read(500, 800)]), Reading::Value(120.0));
        // From 0.01 s to 0.51 s in the middle, with 0.02 s and 0.12 s for reading: a counter may be off by 0.05 s of 0.5 s.
        // With 0.14 s it may be off by more than a tenth.
        assert_eq!(rate([read(0, 20), read(450, 570)]), Reading::Value(120.0));
        assert_eq!(rate([read(0, 20), read(440, 580)]), Reading::Unavailable);
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
