//! A layout: a mask for each tenant, the DCA ways, DCA per port. It must not know how good it is.

use std::collections::{BTreeMap, BTreeSet};
use waykeeper_calibration::{LayoutLimits, ServerDescription};
use waykeeper_host::{Knob, KnobValues, Plan};
use waykeeper_units::{PortId, WayMask};

/// Every knob that the twin knows, at a setting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Layout {
    /// Ways of the LLC.
    pub ways: u32,
    /// By tenant, in the order of the description.
    pub masks: Vec<WayMask>,
    /// `None` without DCA.
    pub dca_ways: Option<WayMask>,
    /// Ports whose DCA is known; the others have it on.
    pub dca: BTreeMap<PortId, bool>,
}

impl Layout {
    /// The layout of these knobs; a tenant without a mask has all ways.
    pub fn of(knobs: &KnobValues, server: &ServerDescription) -> Layout {
        let full = WayMask::full(server.llc.ways);
        Layout {
            ways: server.llc.ways,
            masks: server.tenants.iter().map(|t| knobs.mask(t.workload.id).unwrap_or(full)).collect(),
            dca_ways: knobs.dca_ways().or(server.dca_ways),
            dca: knobs.dca_by_port().collect(),
        }
    }

    /// The layout that a plan leads to from the one in force, as far as the knobs can be turned.
    pub fn after(plan: &Plan, server: &ServerDescription, limits: &LayoutLimits) -> Layout {
        let mut knobs = server.knobs.clone();
        for (knob, setting) in plan.iter() {
            let can = match knob {
                Knob::DcaWays => !limits.dca_ways.is_empty(),
                Knob::Dca(port) => limits.switches.contains(&port),
                Knob::Mask(_) | Knob::RxRing(_) | Knob::RxBurst(_) => true,
            };
            if can {
                knobs.insert(knob, *setting);
            }
        }
        Layout::of(&knobs, server)
    }

    /// All of it as a plan, as far as the knobs can be turned.
    pub fn plan(&self, server: &ServerDescription, limits: &LayoutLimits) -> Plan {
        let masks = server.tenants.iter().zip(&self.masks).map(|(tenant, mask)| (tenant.workload.id, *mask));
        let mut plan = Plan::of_masks(masks);
        if let Some(ways) = self.dca_ways.filter(|_| !limits.dca_ways.is_empty()) {
            plan.insert(Knob::DcaWays, ways);
        }
        for port in &limits.switches {
            plan.insert(Knob::Dca(*port), self.dca.get(port).copied().unwrap_or(true));
        }
        plan
    }

    /// Whether a server with these limits can have it.
    pub fn is_possible(&self, limits: &LayoutLimits) -> bool {
        let root = WayMask::full(self.ways);
        let different: BTreeSet<WayMask> = self.masks.iter().copied().chain([root]).collect();
        different.len() <= limits.most_classes as usize
            && self.masks.iter().all(|mask| mask.check(self.ways, limits.min_ways).is_ok())
    }
}
