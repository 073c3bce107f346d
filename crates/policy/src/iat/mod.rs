//! IAT: I/O-aware LLC allocation (ISCA 2021; algorithms.md 2).
//!
//! The idea: watch DDIO's hits and misses beside those of the cores, find out who presses whom, and give ways
//! to devices or to tenants accordingly; and let the best-effort tenants with the fewest LLC references be
//! those that share ways with devices. Pure: it sees intervals and answers plans.
//!
//! * `config`: thresholds. `tenants`: who owns ways. `poll`: counters and what changed in them.
//! * `fsm`: states and transitions. `machine`: the loop. `realloc`: what is done in the states.
//! * `sizing`, `layout`, `guard`: who gains or loses a way, where ways lie, what is not tried again.
//! * `core_side`: the allocator that knows no I/O, which the baselines are made of too.

pub(crate) mod config;
pub(crate) mod core_side;
mod describe;
mod fsm;
mod guard;
pub(crate) mod layout;
mod machine;
pub(crate) mod poll;
mod realloc;
pub(crate) mod sizing;
pub(crate) mod tenants;

use crate::{Decision, Description, Policy, PolicyError};
use config::Config;
use machine::Machine;
use toml::Table;
use waykeeper_host::{Group, Interval, Inventory};

/// One line for the list of policies.
pub(crate) const IDEA: &str =
    "IAT: DDIO and tenant ways follow DDIO misses and demand; best-effort tenants share with devices";

/// Builds it.
///
/// # Errors
/// Settings that IAT does not have or that are out of range.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(Box::new(Iat { config: Config::read("iat", settings)?, machine: None }))
}

/// The policy: its settings, and from the start on a machine for the server it runs on.
struct Iat {
    config: Config,
    machine: Option<Machine>,
}

impl Policy for Iat {
    fn name(&self) -> &str {
        "iat"
    }

    fn describe(&self) -> Description {
        describe::describe(&self.config)
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Group]) -> Decision {
        let mut machine = Machine::new(inventory, self.config.clone());
        let decision = machine.start(groups);
        self.machine = Some(machine);
        decision
    }

    fn step(&mut self, groups: &[Group], seen: &Interval) -> Decision {
        // Before it was started it knows no chip and touches nothing.
        self.machine.as_mut().map_or_else(Decision::default, |machine| machine.step(groups, seen))
    }
}
