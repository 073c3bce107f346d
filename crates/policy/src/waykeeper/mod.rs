//! The policy `waykeeper-search`: A4's and IAT's measures, each tried, measured and remembered.
//!
//! A4 moves to its zones in fixed steps of two seconds and reverts every ten; IAT changes one knob at a time by the
//! sign of a change. Both assume that a measure helps. This policy starts with the layout that the counters suggest,
//! keeps what measurably helps HPWs (and does not cost LPWs more), drops the rest, and remembers the result for each
//! phase. It reads counters and sets CAT masks, DDIO ways and DCA per port; it must not know the host.
//! `docs/policy-waykeeper.md` gives the reasons.

mod config;
mod describe;
mod evidence;
#[cfg(test)]
mod fixture;
mod layout;
mod machine;
mod memory;
mod moves;
mod phase;
mod progress;
mod recheck;
mod search;
mod server;
mod settling;
pub(crate) mod twin;

use crate::{Cause, Decision, Description, Event, Policy, PolicyError};
use config::Config;
use machine::{Learnt, Machine};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};

/// Weight of the newest interval in a running mean. Assumption: the mean of about the last five intervals.
const NEWEST_WEIGHT: f64 = 0.2;

/// One line for the list of policies.
pub(crate) const IDEA: &str =
    "ours: A4's and IAT's measures combined, each kept only if HPWs measurably gain, remembered per phase";

/// Builds it; settings as in [`Config`].
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(Waykeeper { config: Config::read(settings)?, machine: None, recalled: None }))
}

struct Waykeeper {
    config: Config,
    machine: Option<Machine>,
    /// What a policy before has learnt, until the start.
    recalled: Option<Learnt>,
}

impl Policy for Waykeeper {
    fn name(&self) -> &'static str {
        "waykeeper-search"
    }

    fn describe(&self) -> Description {
        describe::describe(&self.config)
    }

    fn memory(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.machine.as_ref()?.learnt()).ok()
    }

    fn remember(&mut self, memory: serde_json::Value) {
        self.recalled = serde_json::from_value(memory).ok();
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut machine = Machine::new(self.config, inventory, groups);
        if let Some(learnt) = self.recalled.take() {
            machine.recall(learnt);
        }
        let text = "measuring baseline performance".to_owned();
        let decision = machine.decide(vec![event("look", text, Vec::new())]);
        self.machine = Some(machine);
        decision
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let Some(machine) = &mut self.machine else { return Decision::default() };
        let events = machine.step(groups, seen);
        machine.decide(events)
    }
}

/// A running mean after one more value.
fn running_mean(mean: f64, newest: f64) -> f64 {
    mean + NEWEST_WEIGHT * (newest - mean)
}

fn event(action: &str, text: String, causes: Vec<Cause>) -> Event {
    Event { action: action.to_owned(), group: None, text, causes }
}
