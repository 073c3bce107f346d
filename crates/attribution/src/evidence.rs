//! The numbers behind a pair, in one line for people. Must not decide anything.

use crate::rates::Flows;
use waykeeper_host::Workload;
use waykeeper_units::WayMask;

/// What an agent does and what of it reaches the victim's ways. Agents are numbered as owners: tenants, then ports.
pub(crate) fn evidence(workloads: &[Workload], flows: &Flows, by: usize, victim: usize) -> String {
    let inclusive = flows.inclusive_ways.unwrap_or(WayMask::EMPTY);
    let (does, ways) = match by.checked_sub(workloads.len()) {
        None => {
            let tenant = &flows.tenants[by];
            let copies = if tenant.device_hits > 0.0 { inclusive } else { WayMask::EMPTY };
            let does = format!(
                "MLC misses {} M/s, of these {} M/s from memory",
                millions(tenant.references()),
                millions(tenant.own_misses + tenant.device_misses)
            );
            (does, tenant.mask.or(copies))
        }
        Some(port) => {
            let port = &flows.ports[port];
            let does = format!(
                "devices write {} M lines/s, {:.0} % hit a cache (estimate), and read {} M lines/s",
                millions(port.writes),
                100.0 * port.hit_ratio,
                millions(port.reads)
            );
            (does, flows.dca_ways.or(if port.reads > 0.0 { inclusive } else { WayMask::EMPTY }))
        }
    };
    let tenant = &flows.tenants[victim];
    let has_data = tenant.ports_with_lines.iter().any(|(port, _)| flows.ports[*port].dca);
    let reach = if has_data { tenant.mask.or(flows.dca_ways) } else { tenant.mask };
    let shared = ways.and(reach);
    format!("{does}; ways {ways}, of which {} have lines of {}", shared.count(), workloads[victim].name)
}

fn millions(rate: f64) -> String {
    format!("{:.1}", rate / 1e6)
}
