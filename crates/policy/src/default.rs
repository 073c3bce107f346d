//! The default policy: a server without cache management.
//!
//! Every workload may allocate in all ways and DCA is on wherever it can be switched (A4 s7, "Default"). It reads no
//! counter.

use crate::describe::{StateDescription, lines};
use crate::{Decision, Description, Policy, PolicyError, settings};
use std::collections::BTreeMap;
use toml::Table;
use waykeeper_host::{Interval, Inventory, Plan, Support, Workload};
use waykeeper_units::{PortId, WayMask};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "all ways for all workloads, DCA on for all devices";

/// Builds it; it has no settings.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    settings::refuse_unknown("default", settings, &[])?;
    Ok(Box::<DefaultPolicy>::default())
}

/// DCA on at every port where it can be switched.
pub(crate) fn dca_on_everywhere(inventory: &Inventory) -> BTreeMap<PortId, bool> {
    let switchable = inventory.ports.iter().filter(|port| port.dca_switch == Support::Yes);
    switchable.map(|port| (port.id, true)).collect()
}

/// State: facts from the inventory.
#[derive(Default)]
struct DefaultPolicy {
    all_ways: WayMask,
    dca: BTreeMap<PortId, bool>,
}

impl DefaultPolicy {
    fn decide(&self, groups: &[Workload]) -> Decision {
        let masks = groups.iter().map(|group| (group.id, self.all_ways));
        let plan = Plan::of_dca(self.dca.clone()).with_masks(masks);
        Decision { plan, state: "Default".to_owned(), events: Vec::new() }
    }
}

impl Policy for DefaultPolicy {
    fn name(&self) -> &str {
        "default"
    }

    fn describe(&self) -> Description {
        Description {
            name: "default".to_owned(),
            idea: "All workloads share all LLC ways and devices write into the LLC: the server as it boots."
                .to_owned(),
            source: "A4 s7 (Default)".to_owned(),
            knobs: lines(&["way mask per workload (all ways)", "DCA per root port (on)"]),
            states: vec![StateDescription::new("Default", "this policy makes no decisions")],
            ..Description::default()
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.all_ways = WayMask::full(inventory.known_llc().ways);
        self.dca = dca_on_everywhere(inventory);
        self.decide(groups)
    }

    fn step(&mut self, groups: &[Workload], _seen: &Interval) -> Decision {
        self.decide(groups)
    }
}
