//! From the counters of an interval to what each tenant does, or why it is not known.
//!
//! Knows counters and knobs; must not know what is done with the rates. Devices are in `port_flows.rs`.

use crate::port_flows::{fill_ports, known_ports};
use crate::rates::{Flows, PortFlow, TenantFlow};
use waykeeper_host::{DeviceKind, Interval, Inventory, LlcGeometry, Workload, WorkloadCounter};
use waykeeper_units::{LINE_BYTES, WayMask};

/// Lines of a core's MLC, 1 MiB (microarchitecture.md 2); no counter shows its size.
const MLC_LINES: f64 = 16_384.0;
/// Where a network program makes fewer references than its devices write lines, this part of them is to these lines.
/// Assumption: the rest are descriptors and tables.
const HEADER_PART: f64 = 0.7;
/// With this many references per line that its devices write, a network program begins to read more than headers.
/// Assumption: a forwarder makes about five references for a packet of 16 to 24 lines.
const MORE_THAN_HEADERS: f64 = 0.5;
/// An LLC with more ways than this and without inclusive ways is inclusive: Intel's have 20, non-inclusive ones at most 16.
const NON_INCLUSIVE_WAYS: u32 = 16;

/// The rates, and what is not known.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct KnownFlows {
    pub flows: Flows,
    /// Per tenant, why its rates are not known.
    pub untold: Vec<Option<String>>,
    /// Why the rates of the devices are not known.
    pub untold_devices: Option<String>,
    /// MLC misses and lines of its devices, per tenant and second.
    pub fills: Vec<f64>,
    /// The most lines that each tenant can lose per second: each is missed later, by its cores or by its devices' writes.
    pub most_lost: Vec<f64>,
}

/// How much of the chip is sampled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SamplePart {
    pub sets: u32,
    /// Sampled sets of all sets.
    pub part: f64,
}

impl SamplePart {
    pub fn of(llc: &LlcGeometry, most: u32) -> SamplePart {
        let all = (llc.bytes as f64 / LINE_BYTES as f64 / f64::from(llc.ways.max(1))).max(1.0);
        let sets = (all as u32).clamp(1, most);
        SamplePart { sets, part: f64::from(sets) / all }
    }

    /// Lines that a tenant's MLCs can hold, of the sampled sets.
    fn mlc_lines(self, workload: &Workload) -> usize {
        (MLC_LINES * workload.cores.len().max(1) as f64 * self.part).ceil() as usize
    }
}

impl KnownFlows {
    pub fn of(
        inventory: &Inventory,
        workloads: &[Workload],
        seen: &Interval,
        sample: SamplePart,
    ) -> KnownFlows {
        let llc = inventory.known_llc();
        let is_inclusive = llc.inclusive_ways.is_none() && llc.ways > NON_INCLUSIVE_WAYS;
        let inclusive_ways = llc.inclusive_ways.unwrap_or(WayMask::EMPTY);
        let dca_ways = seen.knobs.dca_ways().or(inventory.dca_ways_default).unwrap_or(WayMask::EMPTY);
        let (ports, untold_ports) = known_ports(inventory, workloads, seen);
        let mut known = KnownFlows {
            flows: Flows {
                tenants: Vec::new(),
                ports,
                dca_ways: dca_ways.and(WayMask::full(llc.ways)),
                inclusive_ways: if is_inclusive { None } else { Some(inclusive_ways) },
            },
            ..KnownFlows::default()
        };
        for workload in workloads {
            let (flow, untold) = match tenant(workload, inventory, seen, &known.flows.ports, sample) {
                Ok(flow) => (flow, None),
                Err((flow, why)) => (flow, Some(why)),
            };
            known.fills.push(flow.references() + flow.written());
            known.untold.push(untold);
            known.flows.tenants.push(flow);
        }
        let untold_hits = fill_ports(&mut known.flows, seen, sample.part);
        known.untold_devices = untold_ports.or(untold_hits);
        let flows = &known.flows;
        let most = flows.tenants.iter().map(|tenant| {
            let missed = |(port, lines): &(usize, f64)| match &flows.ports[*port] {
                port if port.dca => lines * (1.0 - port.hit_ratio),
                _ => 0.0,
            };
            let of_devices = tenant.ports_with_lines.iter().map(missed).sum::<f64>();
            tenant.own_misses + tenant.device_misses + of_devices
        });
        known.most_lost = most.collect();
        known
    }
}

/// The rates of a tenant; if they are not known, what is known of it and why.
fn tenant(
    workload: &Workload,
    inventory: &Inventory,
    seen: &Interval,
    ports: &[PortFlow],
    sample: SamplePart,
) -> Result<TenantFlow, (TenantFlow, String)> {
    let mut flow = TenantFlow { mlc_lines: sample.mlc_lines(workload), ..TenantFlow::default() };
    let Some(mask) = seen.knobs.mask(workload.id) else {
        return Err((flow, "its mask cannot be read".to_owned()));
    };
    flow.mask = mask.and(WayMask::full(inventory.known_llc().ways));
    let of = |counter| seen.groups.get(&workload.id).and_then(|of| of[counter].value());
    let Some((hits, misses)) = of(WorkloadCounter::LlcHits).zip(of(WorkloadCounter::LlcMisses)) else {
        return Err((flow, "its LLC hits and misses cannot be read".to_owned()));
    };
    flow.held_lines =
        of(WorkloadCounter::OccupancyBytes).map(|bytes| bytes / LINE_BYTES as f64 * sample.part);
    let devices = workload.devices.iter().filter_map(|id| inventory.devices.get(id.index()));
    let is_network = devices.clone().any(|device| device.kind == DeviceKind::Network);
    let places = devices
        .flat_map(|device| &device.ports)
        .filter_map(|id| inventory.ports.iter().position(|port| port.id == *id));
    flow.ports_with_lines =
        places.map(|port| (port, ports[port].writes / ports[port].users.len().max(1) as f64)).collect();
    let lines = |dca: bool| -> f64 {
        flow.ports_with_lines.iter().filter(|(port, _)| ports[*port].dca == dca).map(|(_, lines)| lines).sum()
    };
    let (cached, past) = (lines(true), lines(false));
    let read_ratio = read_ratio(hits + misses, cached + past, is_network);
    // What a device writes past the LLC is read from memory. Of the other lines as many hit as of all others.
    let past_read = (past * read_ratio).min(misses);
    let left = misses - past_read;
    let cached_read = (cached * read_ratio).min(hits + left);
    let hit_part = if hits + left > 0.0 { hits / (hits + left) } else { 0.0 };
    flow.device_hits = cached_read * hit_part;
    flow.device_misses = past_read + cached_read * (1.0 - hit_part);
    flow.own_hits = (hits - flow.device_hits).max(0.0);
    flow.own_misses = (misses - flow.device_misses).max(0.0);
    Ok(flow)
}

/// The part of its devices' lines that a tenant reads. A storage program reads each line. A network program with fewer
/// references than lines reads headers; the nearer the two are, the more it reads.
fn read_ratio(references: f64, written: f64, is_network: bool) -> f64 {
    if written <= 0.0 {
        return 0.0;
    }
    let ratio = references / written;
    if !is_network || ratio >= 1.0 {
        return ratio.min(1.0);
    }
    let headers = HEADER_PART * ratio;
    let beyond = ((ratio - MORE_THAN_HEADERS) / (1.0 - MORE_THAN_HEADERS)).max(0.0);
    headers + beyond * (ratio - headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_headers_or_all_of_what_its_devices_write() {
        // 20 references for 100 lines: 14 of them are headers. As many as lines: each line. In the middle between half and
        // all, 75: 0.7 x 75 = 52.5, and half of the other 22.5.
        assert_eq!(read_ratio(20.0, 100.0, true), 0.7 * 0.2);
        assert_eq!(read_ratio(100.0, 100.0, true), 1.0);
        assert_eq!(read_ratio(300.0, 100.0, true), 1.0);
        assert!((read_ratio(75.0, 100.0, true) - (0.525 + 0.5 * 0.225)).abs() < 1e-12);
        assert_eq!(read_ratio(20.0, 100.0, false), 0.2);
        assert_eq!(read_ratio(20.0, 0.0, false), 0.0);
    }
}
