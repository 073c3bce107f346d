//! What policies would be worth on a server of which only counters are known.
//!
//! [`CounterLog`] takes the intervals that a daemon recorded and finds the longest phase: the same tenants under the same
//! load. [`worth`] lets a policy manage that server as the twin predicts it (`waykeeper_twin::DescribedServer`), through
//! the control loop of a daemon. It must not know files, nor how results are shown.

use crate::runner::InlineTwin;
use std::collections::BTreeMap;
use std::time::SystemTime;
use toml::Table;
use waykeeper_calibration::{Calibrator, Estimate, ServerDescription};
use waykeeper_control::{ControlConfig, ControlError, Loop};
use waykeeper_host::{
    Host, HostCounter, Interval, Inventory, KnobValues, Priority, Reading, Readings, Workload,
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
    calibrator: Calibrator,
    means: Means,
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
    /// The loop ended.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl CounterLog {
    /// Nothing is recorded yet.
    pub fn new(inventory: &Inventory) -> CounterLog {
        CounterLog {
            inventory: inventory.clone(),
            calibrator: Calibrator::new(inventory),
            means: Means::default(),
            intervals: 0,
            from: None,
            to: None,
            longest: None,
        }
    }

    /// A daemon with another inventory writes from here on.
    pub fn begin(&mut self, inventory: &Inventory) {
        if self.inventory != *inventory {
            self.end_phase(self.calibrator.clone());
            self.inventory = inventory.clone();
            self.calibrator = Calibrator::new(inventory);
        }
    }

    /// An interval that ended at `at`, and the workloads alive in it.
    pub fn observe(&mut self, at: Option<SystemTime>, groups: &[Workload], seen: &Interval) {
        let before = self.calibrator.clone();
        self.calibrator.observe(groups, seen);
        if self.calibrator.phase() != before.phase() {
            self.end_phase(before);
        }
        self.intervals += 1;
        self.from = self.from.or(at);
        self.to = at.or(self.to);
        self.means.note(seen);
    }

    /// The longest phase; `None` if no layout was in force for three intervals of a phase, with the counters that a
    /// description needs.
    pub fn longest(mut self) -> Option<SeenPhase> {
        self.end_phase(self.calibrator.clone());
        self.longest
    }

    fn end_phase(&mut self, calibrator: Calibrator) {
        let means = std::mem::take(&mut self.means);
        let (intervals, from, to) = (std::mem::take(&mut self.intervals), self.from.take(), self.to.take());
        if self.longest.as_ref().is_some_and(|longest| longest.intervals >= intervals) {
            return;
        }
        let described = calibrator.describe().filter(|description| !description.tenants.is_empty());
        if let Some((description, rates)) = described.zip(means.rates) {
            let inventory = self.inventory.clone();
            self.longest = Some(SeenPhase { inventory, description, rates, intervals, from, to });
        }
    }
}

/// Mean rates under one layout.
#[derive(Clone, Debug, Default)]
struct Means {
    /// Under the layout in force; `None` before its second interval: lines of the layout before are still in the LLC.
    rates: Option<Interval>,
    count: f64,
    under: Option<KnobValues>,
}

impl Means {
    fn note(&mut self, seen: &Interval) {
        if self.under.as_ref() != Some(&seen.knobs) {
            *self = Means { under: Some(seen.knobs.clone()), ..Means::default() };
            return;
        }
        self.count += 1.0;
        let part = 1.0 / self.count;
        let Some(rates) = &mut self.rates else {
            self.rates = Some(seen.clone());
            return;
        };
        for (id, now) in &seen.groups {
            rates.groups.entry(*id).and_modify(|mean| *mean = nearer(mean, now, part)).or_insert(*now);
        }
        for (id, now) in &seen.ports {
            rates.ports.entry(*id).and_modify(|mean| *mean = nearer(mean, now, part)).or_insert(*now);
        }
        rates.socket = nearer(&rates.socket, &seen.socket, part);
        rates.to_ns = seen.to_ns;
    }
}

/// A mean moved by a part of its distance to a value; a missing value changes nothing.
fn nearer<K: HostCounter<N>, const N: usize>(
    mean: &Readings<K, f64, N>,
    now: &Readings<K, f64, N>,
    part: f64,
) -> Readings<K, f64, N> {
    mean.zip_with(now, |_, mean, now| match (mean, now) {
        (Reading::Value(mean), Reading::Value(now)) => Reading::Value(mean + part * (now - mean)),
        (Reading::Value(_), _) => mean,
        _ => now,
    })
}

/// What a policy with these settings would be worth on a server.
///
/// # Errors
/// A policy or a setting that does not exist, or does not fit the server.
pub fn worth(phase: &SeenPhase, policy: &str, settings: &Table) -> Result<ForeseenWorth, ForeseeError> {
    let SeenPhase { inventory, description, rates, .. } = phase;
    let policy = build(policy, settings)?;
    let names: Vec<&str> = description.tenants.iter().map(|tenant| tenant.workload.name.as_str()).collect();
    policy.check(inventory, &names)?;
    let mut host = DescribedServer::new(description, inventory, rates, BUDGET);
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
    use waykeeper_host::{Knob, Plan, PortCounter, SocketCounter, WorkloadCounter};
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

    fn intervals(server: &mut VirtualServer, count: usize) -> Vec<Interval> {
        let mut before = server.sample().unwrap();
        let mut all = Vec::new();
        for _ in 0..count {
            server.wait_until(server.now_ns() + PERIOD_NS).unwrap();
            let after = server.sample().unwrap();
            all.push(Interval::between(&before, &after).unwrap());
            before = after;
        }
        all
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
        let mut server = server();
        let (inventory, groups) = (server.inventory().clone(), server.workloads());
        let seen = intervals(&mut server, 6);
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
        // Eight intervals of another load. The first of them was still one exception.
        (0..8).for_each(|_| observe(&mut log, &busier(&seen[4])));
        let second = log.clone().longest().unwrap();
        assert_eq!((second.intervals, second.from, second.to), (7, Some(at(7)), Some(at(13))));
        let references = |phase: &SeenPhase| phase.rates.groups[&groups[0].id].llc_references().unwrap();
        assert!((references(&second) / references(&first) - 4.0).abs() < 0.4, "{}", references(&second));
        // A short third phase, of other workloads, changes nothing.
        (0..3).for_each(|_| log.observe(None, &groups[..1], &seen[4]));
        assert_eq!(log.longest().unwrap().to, Some(at(13)));
    }

    #[test]
    fn a_recording_without_a_tenants_counters_or_of_two_intervals_has_no_phase() {
        let mut server = server();
        let (inventory, groups) = (server.inventory().clone(), server.workloads());
        let seen = intervals(&mut server, 6);
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
        // The 50 of the second layout is left out: lines of the first one are still in the LLC. The mean of 1 and 2 is 1.5.
        for rate in [Reading::Value(50.0), Reading::Value(1.0), Reading::Value(2.0), Reading::Unavailable] {
            means.note(&with(rate, 0x700));
        }
        let rates = |means: &Means| {
            let rates = means.rates.clone().unwrap();
            (rates.socket[SocketCounter::DcaWriteHits], rates.ports[&PortId(0)][PortCounter::InboundBytes])
        };
        assert_eq!(rates(&means), (Reading::Value(1.5), Reading::Value(1.5)));
        // The fourth interval counts a fourth: 1.5 + (5.5 - 1.5) / 4.
        means.note(&with(Reading::Value(5.5), 0x700));
        assert_eq!(rates(&means), (Reading::Value(2.5), Reading::Value(2.5)));
        assert_eq!(means.rates.unwrap().socket[SocketCounter::DcaReadHits], Reading::Unsupported);
    }

    #[test]
    fn a_policy_that_confines_a_stream_is_worth_something_and_one_that_does_nothing_is_not() {
        let mut server = server();
        let (inventory, groups) = (server.inventory().clone(), server.workloads());
        let mut log = CounterLog::new(&inventory);
        intervals(&mut server, 6).iter().for_each(|seen| log.observe(None, &groups, seen));
        let phase = log.longest().unwrap();
        let settings: Table = toml::from_str("masks = { program = \"0x7fc\", stream = \"0x3\" }").unwrap();
        let confined = worth(&phase, "fixed", &settings).unwrap();
        let hpw = confined.hpw.unwrap();
        assert!(hpw.value > 1.02 && hpw.error > 0.0, "{confined:?}");
        assert_eq!((confined.layouts, confined.tenants.len()), (1, 2));
        assert_eq!(confined.knobs.mask(groups[1].id), Some(WayMask::from_bits(3)));
        let nothing = worth(&phase, "none", &Table::new()).unwrap();
        assert_eq!(nothing.hpw.unwrap().value, 1.0);
        assert_eq!(
            worth(&phase, "fixed", &settings).unwrap(),
            confined,
            "the same question has the same answer"
        );
        let wrong = worth(&phase, "fixed", &toml::from_str("masks = { absent = \"0x3\" }").unwrap());
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
