//! What policies would be worth on a server of which only counters are known.
//!
//! [`CounterLog`] takes the intervals that a daemon recorded and finds the longest phase: the same tenants under the same
//! load. [`PredictedServer`] is that server as the twin predicts it (`waykeeper_twin::DescribedServer`); a policy manages
//! it through the control loop of a daemon. It must not know files, nor how results are shown.

mod phase;

pub use phase::{CounterLog, SeenPhase};

use crate::runner::InlineTwin;
use std::collections::BTreeMap;
use toml::Table;
use waykeeper_calibration::Estimate;
use waykeeper_control::{ControlConfig, ControlError, Loop};
use waykeeper_host::{Host, KnobValues, PortCounter, PortRates, Priority};
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
    use super::phase::tests::recorded;
    use super::*;
    use waykeeper_host::{Device, DeviceKind, Reading, WorkloadCounter};
    use waykeeper_units::{DeviceId, PortId, WayMask};

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

    #[test]
    fn a_server_whose_devices_bytes_are_not_counted_is_not_predicted() {
        let (inventory, groups, seen) = recorded();
        let mut log = CounterLog::new(&inventory);
        seen.iter().for_each(|seen| log.observe(None, &groups, seen));
        let mut phase = log.longest().unwrap();
        phase.inventory.devices = vec![Device {
            id: DeviceId(0),
            name: "nic0".to_owned(),
            kind: DeviceKind::Network,
            ports: vec![PortId(0)],
        }];
        // No tenant uses it.
        assert!(PredictedServer::new(&phase).is_ok());
        phase.description.tenants[0].workload.devices = vec![DeviceId(0)];
        let refused = PredictedServer::new(&phase).unwrap_err();
        assert!(matches!(&refused, ForeseeError::BytesNotCounted(device) if device == "nic0"), "{refused}");
        let counted = PortRates::of([(PortCounter::InboundBytes, Reading::Value(1e9))]);
        phase.rates.ports.insert(PortId(0), counted);
        assert!(PredictedServer::new(&phase).is_ok());
    }
}
