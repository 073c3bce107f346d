//! Baseline of the IAT paper: each tenant keeps its first mask, DDIO stays as found (IAT s6.B).
//!
//! "Basic static CAT": it reads no counter; masks change only when a tenant starts or ends.

use crate::describe::{StateDescription, lines};
use crate::iat::tenants::Tenants;
use crate::{Decision, Description, Event, Policy, PolicyError, settings};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Plan, Workload};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "IAT's baseline: each tenant keeps its first way mask, DDIO stays unchanged";

/// Builds it; it has no settings.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    settings::refuse_unknown("baseline", settings, &[])?;
    Ok(Box::<Baseline>::default())
}

/// State: the chip and the masks given to the tenants alive.
#[derive(Default)]
struct Baseline {
    inventory: Option<Inventory>,
    groups: Vec<Workload>,
    tenants: Tenants,
}

impl Baseline {
    fn lay_out(&mut self, groups: &[Workload]) -> Vec<Event> {
        let mut log = Vec::new();
        if let Some(inventory) = &self.inventory {
            let ddio = inventory.dca_ways_default.unwrap_or_default();
            self.tenants = Tenants::of(groups, &inventory.known_llc(), ddio, &mut log);
        }
        self.groups = groups.to_vec();
        log
    }

    fn decide(&self, events: Vec<Event>) -> Decision {
        let ways = self.inventory.as_ref().map_or(0, |inventory| inventory.known_llc().ways);
        let plan = Plan::of_masks(self.tenants.masks(ways));
        Decision { plan, state: "Baseline".to_owned(), events }
    }
}

impl Policy for Baseline {
    fn name(&self) -> &str {
        "baseline"
    }

    fn describe(&self) -> Description {
        Description {
            name: "baseline".to_owned(),
            idea: "Every tenant keeps its first ways, and devices keep the DDIO ways of the machine."
                .to_owned(),
            source: "IAT s6.B (baseline)".to_owned(),
            inputs: lines(&["first mask of each tenant"]),
            knobs: lines(&["way mask per tenant"]),
            states: vec![StateDescription::new("Baseline", "masks change only when a tenant starts or ends")],
            deviations: lines(&[
                "tenants declared without a mask share the ways outside DDIO's in proportion \
                 to their cores (ours)",
            ]),
            ..Description::default()
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.inventory = Some(inventory.clone());
        let events = self.lay_out(groups);
        self.decide(events)
    }

    fn step(&mut self, groups: &[Workload], _seen: &Interval) -> Decision {
        let events = if self.groups == groups { Vec::new() } else { self.lay_out(groups) };
        self.decide(events)
    }
}
