//! From the counters of an interval to what the devices behind each root port do.
//!
//! Hits and misses of device writes are counted for the socket; here they are split between the ports. Must not know what is
//! done with the rates.

use crate::rates::{Flows, PortFlow};
use waykeeper_host::{DeviceKind, Interval, Inventory, PortCounter, RootPort, SocketCounter, Workload};
use waykeeper_units::LINE_BYTES;

/// Weight of data that a core reads against that of data that none reads, at the same misses: what a core read from memory
/// is in its MLC when the device writes it again. Assumption.
const READ_WEIGHT: f64 = 0.5;
/// The least weight of data that is read. Assumption: some lines of a ring that fits are evicted too.
const LEAST_WEIGHT: f64 = 0.002;
/// The shortest time that a line stays in the LLC on its way out. Assumption.
const SHORTEST_STAY_S: f64 = 20e-6;
/// A port whose devices read back this part of what they write belongs to a program that forwards. Assumption.
const FORWARDS: f64 = 0.5;
/// Such a program writes the lines that it reads if they are below this part: they are headers. Assumption.
const HEADERS: f64 = 0.5;

/// What is known of ports before the tenants are, and why something is not.
pub(crate) fn known_ports(
    inventory: &Inventory,
    workloads: &[Workload],
    seen: &Interval,
) -> (Vec<PortFlow>, Option<String>) {
    let mut untold = None;
    let flows = inventory.ports.iter().map(|port| {
        let of = seen.ports.get(&port.id);
        let lines = |counter| Some(of?[counter].value()? / LINE_BYTES as f64);
        let writes = lines(PortCounter::InboundBytes);
        if writes.is_none() {
            untold.get_or_insert_with(|| format!("writes behind root port {} cannot be read", port.address));
        }
        let devices = inventory.devices.iter().filter(|device| device.ports.contains(&port.id));
        PortFlow {
            writes: writes.unwrap_or(0.0),
            reads: lines(PortCounter::OutboundBytes).unwrap_or(0.0),
            dca: inventory.dca_ways_default.is_some() && seen.knobs.dca(port.id) != Some(false),
            is_network: devices.map(|device| device.kind).any(|kind| kind == DeviceKind::Network),
            users: users(inventory, workloads, port),
            ..PortFlow::default()
        }
    });
    (flows.collect(), untold)
}

/// The tenants that use a device behind a port.
fn users(inventory: &Inventory, workloads: &[Workload], port: &RootPort) -> Vec<usize> {
    let uses = |workload: &Workload| {
        let mut devices = workload.devices.iter().filter_map(|id| inventory.devices.get(id.index()));
        devices.any(|device| device.ports.contains(&port.id))
    };
    (0..workloads.len()).filter(|at| uses(&workloads[*at])).collect()
}

/// What is known of ports only once the tenants are: how much of their data is read, and how many writes hit. `part` is the
/// sampled part of the sets. Returns why it is not known.
pub(crate) fn fill_ports(flows: &mut Flows, seen: &Interval, part: f64) -> Option<String> {
    let Flows { tenants, ports, .. } = flows;
    share_read_hits(ports, seen.socket[SocketCounter::DcaReadHits].value());
    let (mut weights, mut most) = (Vec::new(), Vec::new());
    for port in ports.iter_mut() {
        let (mut read, mut missed, mut all) = (0.0, 0.0, 0.0);
        for user in port.users.iter().map(|user| &tenants[*user]) {
            read += user.device_hits + user.device_misses;
            missed += user.own_misses + user.device_misses;
            all += user.references();
        }
        port.read_ratio = (read / port.writes.max(1.0)).min(1.0);
        port.is_written = port.is_network && port.reads > FORWARDS * port.writes && port.read_ratio < HEADERS;
        port.sent_ratio = if read > 0.0 { (port.reads / read).min(1.0) } else { 0.0 };
        let miss_ratio: f64 = if all > 0.0 { missed / all } else { 1.0 };
        let of_read = READ_WEIGHT * miss_ratio.powi(2).max(LEAST_WEIGHT);
        let unread_ratio = 1.0 - port.read_ratio;
        weights.push(port.writes * (unread_ratio + port.read_ratio * of_read));
        // A line that was read leaves the caches through the ways of its reader. A storage program's lines from memory are
        // clean, and its MLC may drop them.
        let held: Option<f64> = port.users.iter().map(|user| tenants[*user].held_lines).sum();
        let evicted = held.map_or(port.writes, |held| held / part / SHORTEST_STAY_S);
        let dropped = if port.is_network { 0.0 } else { missed };
        most.push(port.writes.min(evicted + dropped + port.writes * unread_ratio));
        port.hit_ratio = 1.0;
    }
    let cached: Vec<usize> =
        (0..ports.len()).filter(|at| ports[*at].dca && ports[*at].writes > 0.0).collect();
    if cached.is_empty() {
        return None;
    }
    if seen.socket[SocketCounter::DcaWriteMisses].value().is_none() {
        return Some("DCA write misses cannot be read".to_owned());
    }
    let miss_ratio = seen.socket.dca_write_miss_ratio().unwrap_or(0.0);
    let missed = miss_ratio * cached.iter().map(|at| ports[*at].writes).sum::<f64>();
    for (at, missed) in split(missed, &cached, &weights, &most) {
        ports[at].hit_ratio = (1.0 - missed / ports[at].writes).clamp(0.0, 1.0);
    }
    None
}

/// Device reads that hit are those of network devices first: a program that forwards has just used these lines.
fn share_read_hits(ports: &mut [PortFlow], hits: Option<f64>) {
    let Some(mut left) = hits else { return };
    for is_network in [true, false] {
        for port in ports.iter_mut().filter(|port| port.is_network == is_network) {
            port.reads = port.reads.min(left);
            left -= port.reads;
        }
    }
}

/// Splits an amount by weights, no part above its most. What is beyond all of these is left out.
fn split(amount: f64, at: &[usize], weights: &[f64], most: &[f64]) -> Vec<(usize, f64)> {
    let mut parts = Vec::new();
    let (mut left, mut open) = (amount, at.to_vec());
    loop {
        let sum: f64 = open.iter().map(|at| weights[*at]).sum();
        let part = |at: usize| if sum > 0.0 { left * weights[at] / sum } else { 0.0 };
        let (full, rest): (Vec<usize>, Vec<usize>) = open.iter().partition(|at| part(**at) >= most[**at]);
        if full.is_empty() {
            parts.extend(rest.iter().map(|at| (*at, part(*at))));
            return parts;
        }
        parts.extend(full.iter().map(|at| (*at, most[*at])));
        left = (left - full.iter().map(|at| most[*at]).sum::<f64>()).max(0.0);
        open = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_split_by_weight_up_to_what_a_port_can_miss() {
        // 90 by weights 2 and 1: 60 and 30.
        assert_eq!(split(90.0, &[0, 1], &[2.0, 1.0], &[100.0, 100.0]), [(0, 60.0), (1, 30.0)]);
        // At most 50 of the first: the second gets the other 40.
        assert_eq!(split(90.0, &[0, 1], &[2.0, 1.0], &[50.0, 100.0]), [(0, 50.0), (1, 40.0)]);
        // More than both can have.
        assert_eq!(split(90.0, &[0, 1], &[2.0, 1.0], &[50.0, 30.0]), [(0, 50.0), (1, 30.0)]);
        assert_eq!(split(90.0, &[], &[], &[]), []);
    }

    #[test]
    fn reads_of_network_devices_hit_first() {
        let port = |is_network, reads| PortFlow { is_network, reads, ..PortFlow::default() };
        let mut ports = [port(false, 100.0), port(true, 80.0)];
        share_read_hits(&mut ports, Some(110.0));
        // 80 of 110 hits are the NIC's, 30 of 100 reads of the drive hit.
        assert_eq!(ports.map(|port| port.reads), [30.0, 80.0]);
    }
}
