//! The layout with HPWs apart from LPWs, which is tried where nothing is foreseen: a program that scans more lines than it
//! holds never hits, and from that alone no model can tell what it would do with more ways. It must not know how a layout is
//! judged.

use super::super::server::Server;
use waykeeper_calibration::{ServerDescription, TenantDescription};
use waykeeper_host::{Knob, Plan, Priority, WorkloadKind};
use waykeeper_units::WayMask;

/// Part of the ways that LPWs have in it. Assumption: as many as A4's LP zone has at first on eleven ways.
const LOW_PART: u32 = 4;
/// Part of its time that an HPW must lose to LLC misses, for more ways to be worth a try. Assumption.
const LOSS: f64 = 0.05;
/// Ratio of LLC misses of an HPW on a NIC, likewise.
const NIC_MISSES: f64 = 0.05;

/// The layout `best` with the DCA ways as found, LPWs in the lowest ways and HPWs in the others; those without I/O outside
/// of the DCA ways. `None` without HPWs or LPWs, or where the ways are too few.
pub(super) fn apart(best: &Plan, found: &Plan, server: &Server) -> Option<Plan> {
    let Server { inventory, groups, .. } = server;
    let ways = inventory.known_llc().ways;
    let has = |priority| groups.iter().any(|group| group.priority == priority);
    let low = (ways / LOW_PART).max(inventory.known_llc().min_ways);
    let dca_ways = found.dca_ways().or(inventory.dca_ways_default);
    let dca = dca_ways.map_or(0, |dca| {
        // Ways that only devices and HPWs on them use, if they are the highest.
        if dca.highest() == Some(ways - 1) { dca.count() } else { 0 }
    });
    if !has(Priority::High) || !has(Priority::Low) || low + dca + inventory.known_llc().min_ways > ways {
        return None;
    }
    let mut plan = best.clone();
    if let Some(ways) = dca_ways.filter(|_| plan.names(Knob::DcaWays)) {
        plan.insert(Knob::DcaWays, ways);
    }
    for group in groups {
        let mask = match (group.priority, group.kind) {
            (Priority::Low, _) => WayMask::span(0, low),
            (Priority::High, WorkloadKind::NonIo) => WayMask::span(low, ways - low - dca),
            (Priority::High, _) => WayMask::span(low, ways - low),
        };
        plan.insert(Knob::Mask(group.id), mask);
    }
    Some(plan)
}

/// Whether an HPW loses enough to LLC misses that more ways may help it.
pub(super) fn may_help(server: &ServerDescription) -> bool {
    let loses = |tenant: &TenantDescription| {
        let misses = 1.0 - tenant.hits.value;
        match tenant.workload.kind {
            WorkloadKind::NonIo => {
                let cycles = tenant.references.value * misses * tenant.miss_cycles.value;
                cycles > LOSS * tenant.cycles
            }
            WorkloadKind::NetworkIo => misses > NIC_MISSES,
            WorkloadKind::StorageIo => false,
        }
    };
    server.tenants.iter().any(|tenant| tenant.workload.priority == Priority::High && loses(tenant))
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::server;
    use super::*;
    use waykeeper_units::WorkloadId;

    #[test]
    fn lpws_have_a_quarter_of_the_ways_and_hpws_the_rest_without_those_of_devices() {
        let mut server = server(2);
        let plan = apart(&Plan::default(), &Plan::default(), &server).unwrap();
        // Eleven ways: two for LPWs, the two highest for devices.
        assert_eq!(plan.mask(WorkloadId(1)), Some(WayMask::from_bits(0x003)));
        assert_eq!(plan.mask(WorkloadId(0)), Some(WayMask::from_bits(0x1fc)));
        server.groups.truncate(1);
        assert_eq!(apart(&Plan::default(), &Plan::default(), &server), None, "no LPW");
    }
}
