//! The longest phase of a recording: the same tenants under the same load, and what its counters say about them. Must not
//! know files, nor what a policy would be worth.

use std::time::SystemTime;
use waykeeper_calibration::{Calibrator, IntervalUse, ServerDescription};
use waykeeper_host::{HostCounter, Interval, Inventory, KnobValues, Readings, Workload};

/// The intervals of a recording, in turn.
#[derive(Clone, Debug)]
pub struct CounterLog {
    inventory: Inventory,
    groups: Vec<Workload>,
    calibrator: Calibrator,
    means: Means,
    /// What described the present phase last: its last layouts may have been in force for too short a time.
    described: Option<(ServerDescription, Interval)>,
    intervals: u64,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
    longest: Option<SeenPhase>,
}

/// A phase: the same tenants under the same load.
#[derive(Clone, Debug)]
pub struct SeenPhase {
    /// What there is.
    pub inventory: Inventory,
    /// What counters say about it.
    pub description: ServerDescription,
    /// Mean rates under the layout in force at its end.
    pub rates: Interval,
    /// Intervals in it.
    pub intervals: u64,
    /// Its first and its last interval, where their times are known.
    pub from: Option<SystemTime>,
    /// The last one.
    pub to: Option<SystemTime>,
}

impl CounterLog {
    /// Nothing is recorded yet.
    pub fn new(inventory: &Inventory) -> CounterLog {
        CounterLog {
            inventory: inventory.clone(),
            groups: Vec::new(),
            calibrator: Calibrator::new(inventory),
            means: Means::default(),
            described: None,
            intervals: 0,
            from: None,
            to: None,
            longest: None,
        }
    }

    /// A daemon with this inventory writes from here on.
    pub fn begin(&mut self, inventory: &Inventory) {
        if self.inventory != *inventory {
            self.describe();
            self.end_phase();
            self.inventory = inventory.clone();
            self.calibrator = Calibrator::new(inventory);
        }
    }

    /// An interval that ended at `at`, and the workloads alive in it. One with numbers that no counter has is left out.
    pub fn observe(&mut self, at: Option<SystemTime>, groups: &[Workload], seen: &Interval) {
        if !is_sound(seen) {
            return;
        }
        // A daemon that starts anew gives its tenants numbers from 0: the same number may be another tenant.
        if self.groups != groups {
            self.describe();
            self.end_phase();
            self.groups = groups.to_vec();
            self.calibrator = Calibrator::new(&self.inventory);
        }
        if self.means.under.as_ref().is_some_and(|under| *under != seen.knobs) {
            self.describe();
        }
        match self.calibrator.observe(groups, seen) {
            IntervalUse::LeftOut => {
                // The next interval may begin another phase.
                self.describe();
                return;
            }
            IntervalUse::NewPhase if self.intervals > 0 => self.end_phase(),
            IntervalUse::NewPhase | IntervalUse::Settling | IntervalUse::Counted => {}
        }
        self.intervals += 1;
        self.from = self.from.or(at);
        self.to = at.or(self.to);
        self.means.note(seen);
    }

    /// The longest phase; `None` if no layout was in force for three intervals of a phase, with the counters that a
    /// description needs.
    pub fn longest(mut self) -> Option<SeenPhase> {
        self.describe();
        self.end_phase();
        self.longest
    }

    /// Describes the present phase, if its layout was in force for long enough.
    fn describe(&mut self) {
        let described = self.calibrator.describe().filter(|description| !description.tenants.is_empty());
        if let Some((description, rates)) = described.zip(self.means.rates.clone()) {
            self.described = Some((description, rates));
        }
    }

    fn end_phase(&mut self) {
        self.means = Means::default();
        let (intervals, from, to) = (std::mem::take(&mut self.intervals), self.from.take(), self.to.take());
        let Some((description, rates)) = self.described.take() else { return };
        if self.longest.as_ref().is_none_or(|longest| longest.intervals < intervals) {
            let inventory = self.inventory.clone();
            self.longest = Some(SeenPhase { inventory, description, rates, intervals, from, to });
        }
    }
}

/// Whether all rates are numbers that a counter can have.
fn is_sound(seen: &Interval) -> bool {
    fn all<K: HostCounter<N>, const N: usize>(rates: &Readings<K, f64, N>) -> bool {
        rates.iter().all(|(_, rate)| rate.value().is_none_or(|rate| rate.is_finite() && rate >= 0.0))
    }
    all(&seen.socket) && seen.groups.values().all(all) && seen.ports.values().all(all)
}

/// Mean rates under one layout.
#[derive(Clone, Debug, Default)]
struct Means {
    /// Under the layout in force; `None` before its second interval: lines of the layout before are still in the LLC.
    rates: Option<Interval>,
    count: f64,
    under: Option<KnobValues>,
}

/// Intervals that a mean remembers at most, as in a description.
const REMEMBERED: f64 = 32.0;

impl Means {
    /// Notes an interval; one that lacks a counter that others had is left out.
    fn note(&mut self, seen: &Interval) {
        if self.under.as_ref() != Some(&seen.knobs) {
            *self = Means { under: Some(seen.knobs.clone()), ..Means::default() };
            return;
        }
        let Some(rates) = &mut self.rates else {
            (self.rates, self.count) = (Some(seen.clone()), 1.0);
            return;
        };
        if lacks(&rates.socket, &seen.socket)
            || rates.groups.iter().any(|(id, then)| seen.groups.get(id).is_none_or(|now| lacks(then, now)))
            || rates.ports.iter().any(|(id, then)| seen.ports.get(id).is_none_or(|now| lacks(then, now)))
        {
            return;
        }
        self.count = (self.count + 1.0).min(REMEMBERED);
        let part = 1.0 / self.count;
        rates.groups.iter_mut().for_each(|(id, mean)| *mean = nearer(mean, &seen.groups[id], part));
        rates.ports.iter_mut().for_each(|(id, mean)| *mean = nearer(mean, &seen.ports[id], part));
        rates.socket = nearer(&rates.socket, &seen.socket, part);
        rates.to_ns = seen.to_ns;
    }
}

/// Whether a counter that had a value has none now.
fn lacks<K: HostCounter<N>, const N: usize>(then: &Readings<K, f64, N>, now: &Readings<K, f64, N>) -> bool {
    then.iter().any(|(counter, rate)| rate.value().is_some() && now[counter].value().is_none())
}

/// A mean moved by a part of its distance to a value; a counter that had none before has none.
fn nearer<K: HostCounter<N>, const N: usize>(
    mean: &Readings<K, f64, N>,
    now: &Readings<K, f64, N>,
    part: f64,
) -> Readings<K, f64, N> {
    mean.zip_with(now, |_, mean, now| mean.zip_with(now, |mean, now| mean + part * (now - mean)))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::foreseen::PERIOD_NS;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;
    use waykeeper_host::{Host, Knob, Plan, PortCounter, Reading, SocketCounter, WorkloadCounter};
    use waykeeper_machine::{RunOptions, ScenarioSource, VirtualServer};
    use waykeeper_silicon::Sampling;
    use waykeeper_units::{PortId, WayMask};

    /// Two programs, one of high priority, without devices.
    const SERVER: &str = r#"
name = "two"
duration_s = 60
time_factor = 50

[[workload]]
name = "program"
program = "x-mem"
cores = "0"
working_set = "8 MiB"
pattern = "random"
priority = "high"

[[workload]]
name = "stream"
program = "x-mem"
cores = "1"
working_set = "64 MiB"
"#;

    fn server() -> VirtualServer {
        let source = ScenarioSource::parse("two.toml", SERVER, None).unwrap();
        let options = RunOptions { seed: 3, sample_seed: 4, sampling: Sampling::DEFAULT };
        VirtualServer::new(Arc::new(source.read().unwrap()), options).unwrap()
    }

    /// Six of its intervals.
    pub fn recorded() -> (Inventory, Vec<Workload>, Vec<Interval>) {
        let mut server = server();
        let mut before = server.sample().unwrap();
        let mut seen = Vec::new();
        for _ in 0..6 {
            server.wait_until(server.now_ns() + PERIOD_NS).unwrap();
            let after = server.sample().unwrap();
            seen.push(Interval::between(&before, &after).unwrap());
            before = after;
        }
        (server.inventory().clone(), server.workloads(), seen)
    }

    /// The time of an interval.
    fn at(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(number)
    }

    /// The interval with four times the references per instruction: another program.
    fn busier(seen: &Interval) -> Interval {
        let mut busier = seen.clone();
        for rates in busier.groups.values_mut() {
            for counter in [WorkloadCounter::LlcHits, WorkloadCounter::LlcMisses] {
                rates[counter] = rates[counter].map(|rate| 4.0 * rate);
            }
        }
        busier
    }

    #[test]
    fn the_longest_phase_counts_and_ends_where_the_load_changes() {
        let (inventory, groups, seen) = recorded();
        let mut log = CounterLog::new(&inventory);
        let mut number = 0;
        let mut observe = |log: &mut CounterLog, seen: &Interval| {
            number += 1;
            log.observe(Some(at(number)), &groups, seen);
        };
        seen[1..].iter().for_each(|seen| observe(&mut log, seen));
        assert!(CounterLog::new(&inventory).longest().is_none());
        let first = log.clone().longest().unwrap();
        assert_eq!((first.intervals, first.from, first.to), (5, Some(at(1)), Some(at(5))));
        let references = |phase: &SeenPhase| phase.rates.groups[&groups[0].id].llc_references().unwrap();
        // One interval of another load is in no mean; a second one begins a phase.
        observe(&mut log, &busier(&seen[4]));
        let still = log.clone().longest().unwrap();
        assert_eq!((still.intervals, still.to), (5, Some(at(5))));
        assert_eq!(references(&still), references(&first));
        (0..7).for_each(|_| observe(&mut log, &busier(&seen[4])));
        let second = log.clone().longest().unwrap();
        assert_eq!((second.intervals, second.from, second.to), (7, Some(at(7)), Some(at(13))));
        assert!((references(&second) / references(&first) - 4.0).abs() < 0.4, "{}", references(&second));
        // A layout for the last moment does not hide the phase.
        let mut other = busier(&seen[4]);
        other.knobs.insert(Knob::Mask(groups[1].id), WayMask::from_bits(3));
        observe(&mut log, &other);
        let third = log.clone().longest().unwrap();
        assert_eq!((third.intervals, third.to), (8, Some(at(14))));
        assert_eq!(third.description.knobs, second.description.knobs);
        // The same numbers under other names are other tenants, here in a shorter phase.
        let mut renamed = groups.clone();
        renamed.iter_mut().for_each(|group| group.name.push('2'));
        (0..4).for_each(|_| log.observe(None, &renamed, &seen[4]));
        let last = log.longest().unwrap();
        assert_eq!((last.intervals, &last.description.tenants[0].workload.name), (8, &groups[0].name));
    }

    #[test]
    fn what_no_counter_can_say_is_left_out() {
        let (inventory, groups, seen) = recorded();
        let mut log = CounterLog::new(&inventory);
        seen.iter().for_each(|seen| log.observe(None, &groups, seen));
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            let mut seen = seen[5].clone();
            seen.socket[SocketCounter::MemoryReadBytes] = Reading::Value(wrong);
            log.observe(None, &groups, &seen);
        }
        assert_eq!(log.longest().unwrap().intervals, 6);
    }

    #[test]
    fn a_recording_without_a_tenants_counters_or_of_two_intervals_has_no_phase() {
        let (inventory, groups, seen) = recorded();
        let mut short = CounterLog::new(&inventory);
        seen[..2].iter().for_each(|seen| short.observe(None, &groups, seen));
        assert!(short.longest().is_none());
        let mut blind = CounterLog::new(&inventory);
        for seen in &seen {
            let mut seen = seen.clone();
            seen.groups.values_mut().for_each(|rates| *rates = Readings::all(Reading::Unsupported));
            blind.observe(None, &groups, &seen);
        }
        assert!(blind.longest().is_none());
    }

    #[test]
    fn rates_are_the_mean_under_the_last_layout_without_its_first_interval() {
        let with = |rate: Reading<f64>, mask: u32| {
            let ports = Readings::of([(PortCounter::InboundBytes, rate)]);
            Interval {
                from_ns: 0,
                to_ns: PERIOD_NS,
                groups: BTreeMap::new(),
                socket: Readings::of([(SocketCounter::DcaWriteHits, rate)]),
                ports: [(PortId(0), ports)].into(),
                knobs: Plan::default().with(Knob::DcaWays, WayMask::from_bits(mask)),
            }
        };
        let mut means = Means::default();
        for rate in [9.0, 9.0, 9.0] {
            means.note(&with(Reading::Value(rate), 0x600));
        }
        // The 50 of the second layout is left out: lines of the first one are still in the LLC. So is the interval that
        // lacks a counter. The mean of 1, 2 and 6 is 3.
        for rate in [Reading::Value(50.0), Reading::Value(1.0), Reading::Value(2.0), Reading::Unavailable] {
            means.note(&with(rate, 0x700));
        }
        means.note(&with(Reading::Value(6.0), 0x700));
        let rates = means.rates.clone().unwrap();
        assert_eq!(rates.socket[SocketCounter::DcaWriteHits], Reading::Value(3.0));
        assert_eq!(rates.ports[&PortId(0)][PortCounter::InboundBytes], Reading::Value(3.0));
        assert_eq!(means.rates.unwrap().socket[SocketCounter::DcaReadHits], Reading::Unsupported);
    }
}
