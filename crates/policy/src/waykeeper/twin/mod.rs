//! The policy `waykeeper`: asks a model of this server what other layouts would bring before it turns a knob.
//!
//! It measures the layout as found, describes the server from its counters (`waykeeper_calibration`), asks, puts the best
//! answer in force, and keeps it only if the measurement agrees. It must not know who answers; without an answer, or after
//! wrong ones, it searches by measured steps as `waykeeper-search` does.

mod advisor;
mod apart;
mod config;
mod describe;
mod forecast;
mod layouts;
mod machine;
mod words;

use crate::{Decision, Description, Policy, PolicyError};
use config::TwinConfig;
use machine::{Learnt, TwinMachine};
use toml::Table;
use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_host::{Interval, Inventory, Workload};

/// One line for the list of policies.
pub(crate) const IDEA: &str =
    "ours: asks a model of this server what other layouts would bring, and keeps what measurably helps";

/// Builds it; settings as in [`TwinConfig`].
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(WaykeeperTwin { config: TwinConfig::read(settings)?, machine: None, recalled: None }))
}

struct WaykeeperTwin {
    config: TwinConfig,
    machine: Option<TwinMachine>,
    /// What a policy before has learnt, until the start.
    recalled: Option<Learnt>,
}

impl Policy for WaykeeperTwin {
    fn name(&self) -> &'static str {
        config::NAME
    }

    fn describe(&self) -> Description {
        describe::describe(&self.config)
    }

    fn memory(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.machine.as_ref()?.learnt()?).ok()
    }

    fn remember(&mut self, memory: serde_json::Value) {
        self.recalled = serde_json::from_value(memory).ok();
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut machine = TwinMachine::new(self.config, inventory, groups);
        let is_recalled = self.recalled.take().is_some_and(|learnt| machine.recall(learnt));
        let what = if is_recalled { "with the layout of the daemon before" } else { "as found" };
        let text = format!("measuring the server {what}");
        let decision = machine.decide(vec![super::event("look", text, Vec::new())]);
        self.machine = Some(machine);
        decision
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let Some(machine) = &mut self.machine else { return Decision::default() };
        let events = machine.step(groups, seen);
        machine.decide(events)
    }

    fn question(&mut self) -> Option<LayoutQuestion> {
        self.machine.as_mut()?.question()
    }

    fn hear(&mut self, answer: &LayoutAnswer) {
        if let Some(machine) = &mut self.machine {
            machine.hear(answer);
        }
    }

    fn advisor(&self) -> Option<Box<dyn Policy>> {
        Some(Box::new(advisor::TwinAdvisor::new(self.config)))
    }
}
