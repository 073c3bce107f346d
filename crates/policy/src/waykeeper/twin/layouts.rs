//! Layouts that no model makes: the one as found and one without a forecast; and the layouts that a model may propose. It
//! must not know how a layout is judged.

use super::config::TwinConfig;
use std::collections::BTreeMap;
use waykeeper_calibration::{
    Candidate, Estimate, Goal, GoalScore, LayoutLimits, ServerDescription, TenantProgress,
};
use waykeeper_host::{Interval, Inventory, Knob, Plan, Workload, WorkloadKind};
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// The knobs as found: masks, and the DCA knobs that can be turned.
pub(super) fn found(
    groups: &[Workload],
    seen: &Interval,
    inventory: &Inventory,
    limits: &LayoutLimits,
) -> Plan {
    let full = WayMask::full(inventory.known_llc().ways);
    let masks = groups.iter().map(|group| (group.id, seen.knobs.mask(group.id).unwrap_or(full)));
    let mut plan = Plan::of_masks(masks);
    let ways = seen.knobs.dca_ways().or(inventory.dca_ways_default);
    if let Some(ways) = ways.filter(|_| !limits.dca_ways.is_empty()) {
        plan.insert(Knob::DcaWays, ways);
    }
    for port in &limits.switches {
        plan.insert(Knob::Dca(*port), seen.knobs.dca(*port).unwrap_or(true));
    }
    plan
}

/// A layout of which nothing is foreseen.
pub(super) fn unforeseen(plan: Plan) -> Candidate {
    let unknown = Estimate { value: 1.0, error: f64::INFINITY };
    Candidate { plan, tenants: BTreeMap::new(), hpw: unknown, lpw: unknown }
}

/// How well progress serves the goal; `ratio` is a tenant's progress, if it is known.
pub(super) fn score(
    goal: &Goal,
    groups: &[Workload],
    ratio: impl Fn(WorkloadId) -> Option<f64> + Copy,
) -> GoalScore {
    goal.score(groups.iter().filter_map(move |Workload { id, priority, kind, cores, .. }| {
        let ratio = ratio(*id)?;
        Some(TenantProgress { priority: *priority, kind: *kind, cores: cores.len(), ratio })
    }))
}

/// How well the foreseen progress of a layout serves the goal, relative to the layout in force.
pub(super) fn foreseen(candidate: &Candidate, groups: &[Workload], goal: &Goal) -> GoalScore {
    score(goal, groups, |id| Some(candidate.tenants.get(&id)?.value))
}

/// The limits without the switches of ports whose storage programs hit their lines: with DCA off they would lose them, and
/// they may not find them in the LLC again when it is on.
pub(super) fn allowed(
    limits: &LayoutLimits,
    server: &ServerDescription,
    config: &TwinConfig,
) -> LayoutLimits {
    let most = 1.0 - config.measured.leak_llc_miss;
    let hits = |port: &PortId| {
        let device = server.devices.iter().find(|device| device.ports.iter().any(|p| p.id == *port));
        let users = device.iter().flat_map(|device| &device.tenants);
        users
            .filter_map(|id| server.tenant(*id))
            .any(|user| user.workload.kind == WorkloadKind::StorageIo && user.hits.value > most)
    };
    let mut limits = limits.clone();
    limits.switches.retain(|port| server.knobs.dca(*port) == Some(false) || !hits(port));
    limits
}
