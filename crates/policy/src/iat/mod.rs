//! IAT: I/O-aware LLC allocation (ISCA 2021; algorithms.md 2).
//!
//! It compares DDIO hits and misses with the LLC counters of the cores, finds out whether devices or tenants need ways,
//! and gives them one way at a time. The best-effort tenants with the fewest LLC references share ways with devices.
//! Pure: intervals in, plans out; it must not know the host or its clock.
//!
//! * `config`: thresholds. `tenants`: tenants and their ways. `poll`: counters and their changes.
//! * `fsm`: states and transitions. `machine`: the loop. `realloc`: the actions of the states.
//! * `sizing`, `layout`, `guard`: which tenant gains or loses a way, masks, reclaims that are not repeated.
//! * `core_side`: the allocator without I/O, which two baselines also use.

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
use waykeeper_host::{Interval, Inventory, Workload};

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

/// The policy: its settings, and after `start` the state machine for one server.
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

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut machine = Machine::new(inventory, self.config.clone());
        let decision = machine.start(groups);
        self.machine = Some(machine);
        decision
    }

    fn classes(&mut self, clos_count: u32) {
        if let Some(machine) = &mut self.machine {
            machine.llc.clos_count = clos_count;
        }
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        // Without `start` there is no chip to plan for: the plan is empty.
        self.machine.as_mut().map_or_else(Decision::default, |machine| machine.step(groups, seen))
    }
}
