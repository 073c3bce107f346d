//! What policies would be worth on a server of which only counters are known.
//!
//! [`CounterLog`] takes the intervals that a daemon recorded and finds the longest phase: the same tenants under the same
//! load. [`PredictedServer`] is that server as the twin predicts it (`waykeeper_twin::DescribedServer`); a policy manages
//! it through the control loop of a daemon. It must not know files, nor how results are shown.

use crate::runner::InlineTwin;
use std::collections::BTreeMap;
use std::time::SystemTime;
use toml::Table;
use waykeeper_calibration::{Calibrator, Estimate, IntervalUse, ServerDescription};
use waykeeper_control::{ControlConfig, ControlError, Loop};
use waykeeper_host::{
    Host, HostCounter, Interval, Inventory, KnobValues, PortCounter, PortRates, Priority, Readings, Workload,
};
use waykeeper_policy::{PolicyError, build};
use waykeeper_twin::{Budget, DescribedServer};
use waykeeper_units::WorkloadId;

/// Intervals of a policy's run, and how many of the last ones count. Assumption: A4 and `waykeeper` have settled after 90 on
/// the mixes of the papers.
const STEPS: u64 = 120;
const COUNTED: u64 = 30;
/// Length of an interval, ns: that of A4 and IAT.
const PERIOD_NS: u64 = 1_000_000_000;
/// Line events for the description: a whole answer has as many (`Budget::default`), and nothing waits for this one.
const BUDGET: Budget = Budget { events: 12_000_000 };

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

/// What a policy would be worth: progress relative to the layout in force at the end of the phase; 1.1 is 10 % better.
#[derive(Clone, PartialEq, Debug)]
pub struct ForeseenWorth {
    /// HPWs together (geometric mean, weighted by cores); `None` if there are none.
    pub hpw: Option<Estimate>,
    /// LPWs together.
    pub lpw: Option<Estimate>,
    /// Each tenant, in the order of the description.
    pub tenants: Vec<Estimate>,
    /// The knobs at the end.
    pub knobs: KnobValues,
    /// Different layouts in the intervals that count: 1 for a policy that has settled.
    pub layouts: usize,
}

/// Why a policy's worth could not be predicted.
#[derive(Debug, thiserror::Error)]
pub enum ForeseeError {
    /// The policy does not exist, or does not fit the server.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The bytes of a device that a tenant uses were not counted.
    #[error("the bytes of {0} were not counted; `waykeeper doctor` on the node says what would help")]
    BytesNotCounted(String),
    /// The loop ended.
    #[error(transparent)]
    Control(#[from] ControlError),
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

/// A server as the twin predicts it, which policies can manage one after the other.
#[derive(Debug)]
pub struct PredictedServer<'a> {
    phase: &'a SeenPhase,
    host: DescribedServer<'a>,
}

impl<'a> PredictedServer<'a> {
    /// The server of a phase.
    ///
    /// # Errors
    /// The name of a device that a tenant uses, and whose bytes were not counted: its traffic is not known.
    pub fn new(phase: &'a SeenPhase) -> Result<PredictedServer<'a>, ForeseeError> {
        let SeenPhase { inventory, description, rates, .. } = phase;
        let counted = |port| {
            let inbound = |rates: &PortRates| rates[PortCounter::InboundBytes].value();
            rates.ports.get(port).and_then(inbound).is_some()
        };
        let devices = description.tenants.iter().flat_map(|tenant| &tenant.workload.devices);
        let mut devices = devices.filter_map(|id| inventory.devices.get(id.index()));
        if let Some(device) = devices.find(|device| !device.ports.iter().all(counted)) {
            return Err(ForeseeError::BytesNotCounted(device.name.clone()));
        }
        Ok(PredictedServer { phase, host: DescribedServer::new(description, inventory, rates, BUDGET) })
    }

    /// What a policy with these settings would be worth on it.
    ///
    /// # Errors
    /// A policy or a setting that does not exist, or does not fit the server.
    pub fn worth(&self, policy: &str, settings: &Table) -> Result<ForeseenWorth, ForeseeError> {
        let SeenPhase { inventory, description, .. } = self.phase;
        let policy = build(policy, settings)?;
        let names: Vec<&str> =
            description.tenants.iter().map(|tenant| tenant.workload.name.as_str()).collect();
        policy.check(inventory, &names)?;
        let mut host = self.host.clone();
        let mut looping = Loop::start(&mut host, policy, ControlConfig::every(PERIOD_NS))?;
        looping.set_predictor(Box::new(InlineTwin::default()));
        let (mut hpw, mut lpw) = (Average::default(), Average::default());
        let mut tenants: BTreeMap<WorkloadId, Average> = BTreeMap::new();
        let mut layouts = Vec::new();
        for step in 1..=STEPS {
            looping.step()?;
            if step > STEPS - COUNTED {
                let foreseen = looping.host().foreseen();
                hpw.note(foreseen.hpw);
                lpw.note(foreseen.lpw);
                for (id, progress) in &foreseen.tenants {
                    tenants.entry(*id).or_default().note(*progress);
                }
                if !layouts.contains(&foreseen.plan) {
                    layouts.push(foreseen.plan.clone());
                }
            }
        }
        let knobs = looping.host().sample().map_err(ControlError::Host)?.knobs;
        let has = |priority| description.tenants.iter().any(|tenant| tenant.workload.priority == priority);
        let ids = description.tenants.iter().map(|tenant| tenant.workload.id);
        Ok(ForeseenWorth {
            hpw: has(Priority::High).then(|| hpw.mean()),
            lpw: has(Priority::Low).then(|| lpw.mean()),
            tenants: ids.map(|id| tenants.get(&id).copied().unwrap_or_default().mean()).collect(),
            knobs,
            layouts: layouts.len(),
        })
    }
}

/// Progress over some intervals: the geometric mean. Errors are those of the model, the same in every interval, so that
/// their mean is no smaller.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Average {
    logs: f64,
    errors: f64,
    count: f64,
}

impl Average {
    fn note(&mut self, progress: Estimate) {
        self.logs += progress.value.max(f64::MIN_POSITIVE).ln();
        self.errors += progress.error;
        self.count += 1.0;
    }

    /// 1 without intervals.
    fn mean(self) -> Estimate {
        let count = self.count.max(1.0);
        Estimate { value: (self.logs / count).exp(), error: self.errors / count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use waykeeper_host::{Knob, Plan, Reading, SocketCounter, WorkloadCounter};
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
    fn recorded() -> (Inventory, Vec<Workload>, Vec<Interval>) {
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
    fn cycles_of_zero_end_a_prediction_all_the_same() {
        let (inventory, groups, seen) = recorded();
        let mut log = CounterLog::new(&inventory);
        for seen in &seen {
            let mut seen = seen.clone();
            let rates = seen.groups.get_mut(&groups[0].id).unwrap();
            for counter in [WorkloadCounter::Cycles, WorkloadCounter::Instructions] {
                rates[counter] = Reading::Value(0.0);
            }
            log.observe(None, &groups, &seen);
        }
        let phase = log.longest().unwrap();
        assert!(PredictedServer::new(&phase).unwrap().worth("isolate", &Table::new()).is_ok());
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

    #[test]
    fn a_policy_that_confines_a_stream_is_worth_something_and_one_that_does_nothing_is_not() {
        let (inventory, groups, seen) = recorded();
        let mut log = CounterLog::new(&inventory);
        seen.iter().for_each(|seen| log.observe(None, &groups, seen));
        let phase = log.longest().unwrap();
        let settings: Table = toml::from_str("masks = { program = \"0x7fc\", stream = \"0x3\" }").unwrap();
        let server = PredictedServer::new(&phase).unwrap();
        let confined = server.worth("fixed", &settings).unwrap();
        let hpw = confined.hpw.unwrap();
        assert!(hpw.value > 1.02 && hpw.error > 0.0, "{confined:?}");
        assert_eq!((confined.layouts, confined.tenants.len()), (1, 2));
        assert_eq!(confined.knobs.mask(groups[1].id), Some(WayMask::from_bits(3)));
        let nothing = server.worth("none", &Table::new()).unwrap();
        assert_eq!(nothing.hpw.unwrap().value, 1.0);
        assert_eq!(
            server.worth("fixed", &settings).unwrap(),
            confined,
            "the same question has the same answer"
        );
        let wrong = server.worth("fixed", &toml::from_str("masks = { absent = \"0x3\" }").unwrap());
        assert!(wrong.unwrap_err().to_string().contains("absent"));
    }

    #[test]
    fn the_mean_of_progress_is_geometric_and_keeps_the_models_error() {
        let mut average = Average::default();
        assert_eq!(average.mean(), Estimate::exact(1.0));
        for value in [1.21, 1.0] {
            average.note(Estimate { value, error: 0.02 });
        }
        assert!((average.mean().value - 1.1).abs() < 1e-12 && (average.mean().error - 0.02).abs() < 1e-12);
    }
}
