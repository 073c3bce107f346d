//! A run on the virtual server with the true evictions of each interval. Shared by tests and examples; must not know the
//! attribution.

use std::sync::Arc;
use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_control::{ControlConfig, Loop, Predictor};
use waykeeper_host::{Applied, Host, HostError, Interval, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_machine::{Agent, EvictionRate, RunOptions, Scenario, VirtualServer};
use waykeeper_silicon::{EvictionReason, Sampling};
use waykeeper_twin::{Budget, answer};
use waykeeper_units::WayMask;

/// Lines of one owner that an agent evicted for one reason, per second.
#[derive(Clone, PartialEq, Debug)]
pub struct TrueEviction {
    /// Name of the evictor: a workload or a device.
    pub by: String,
    /// Name of the owner.
    pub of: String,
    pub reason: EvictionReason,
    pub lines_per_s: f64,
}

/// Runs a scenario under a policy and passes each interval on. Returns why the policy does not fit, if it does not.
pub fn run(
    scenario: &Arc<Scenario>,
    policy: &str,
    seed: u64,
    mut each: impl FnMut(&Inventory, &[Workload], &Interval, &[TrueEviction]),
) -> Result<(), String> {
    let settings = scenario.policy_settings.get(policy).and_then(toml::Value::as_table).cloned();
    let policy = waykeeper_policy::build(policy, &settings.unwrap_or_default()).expect("a policy");
    let options = RunOptions { seed, sample_seed: seed, sampling: Sampling::DEFAULT };
    let server = VirtualServer::new(scenario.clone(), options).expect("it fits");
    let inventory = server.inventory().clone();
    let names: Vec<&str> = scenario.workloads.iter().map(|workload| workload.name.as_str()).collect();
    policy.check(&inventory, &names).map_err(|why| why.to_string())?;
    let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
    let config =
        ControlConfig::every(nanoseconds(scenario.interval_s)).lasting(nanoseconds(scenario.duration_s));
    let mut host = Recorded { server, truth: Vec::new(), read_ns: None };
    let mut looping: Loop<'_, Recorded> = Loop::start(&mut host, policy, config).expect("a period above 0");
    looping.set_predictor(Box::new(Twin(None)));
    while looping.step().expect("the virtual server runs") {
        let Some(seen) = looping.seen().cloned() else { continue };
        let host = looping.host();
        let name = |agent| match agent {
            Agent::Workload(index) => names[index].to_owned(),
            Agent::Device(index) => inventory.devices[index].name.clone(),
        };
        let evictions = host.truth.iter().map(|rate| TrueEviction {
            by: name(rate.by),
            of: name(rate.of),
            reason: rate.reason,
            lines_per_s: rate.lines_per_s,
        });
        each(&inventory, &host.server.workloads(), &seen, &evictions.collect::<Vec<_>>());
    }
    Ok(())
}

/// The virtual server; at each reading, the true evictions since the last one.
struct Recorded {
    server: VirtualServer,
    truth: Vec<EvictionRate>,
    read_ns: Option<u64>,
}

impl Host for Recorded {
    fn inventory(&self) -> &Inventory {
        self.server.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.server.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        // The loop may read twice at a time: the second reading must not clear what belongs to the first.
        if self.read_ns != Some(self.server.now_ns()) {
            self.truth = self.server.evictions();
            self.server.begin_stretch();
            self.read_ns = Some(self.server.now_ns());
        }
        self.server.sample()
    }

    fn partial_writes(&mut self) -> Lines {
        self.server.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.server.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.server.apply(plan)
    }

    fn now_ns(&self) -> u64 {
        self.server.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.server.wait_until(deadline_ns)
    }
}

/// Answers a policy's question one interval later.
struct Twin(Option<(LayoutQuestion, bool)>);

impl Predictor for Twin {
    fn ask(&mut self, question: LayoutQuestion) {
        self.0 = Some((question, false));
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        let (_, waited) = self.0.as_mut()?;
        if !std::mem::replace(waited, true) {
            return None;
        }
        self.0.take().map(|(question, _)| answer(&question, Budget::default()))
    }
}
