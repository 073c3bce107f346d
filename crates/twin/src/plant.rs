//! What runs on the small chip: the tenants' lines and the devices' buffers, placed once for all layouts. It must not know
//! layouts.

use crate::run::FULL;
use crate::small_chip::SmallChip;
use crate::tuning::{Shape, Tuning};
use std::ops::Range;
use waykeeper_calibration::{DeviceDescription, ServerDescription, TenantDescription};
use waykeeper_host::{DeviceKind, WorkloadKind};
use waykeeper_silicon::{AddressMap, Line, MAX_DEVICES};
use waykeeper_units::{PortId, WorkloadId};

/// Everything that is the same under all layouts.
#[derive(Clone, Debug)]
pub(crate) struct Plant {
    pub chip: SmallChip,
    pub tenants: Vec<TenantPlant>,
    pub queues: Vec<QueuePlant>,
    /// The ports, by the number of their device on the small chip.
    pub ports: Vec<PortId>,
}

/// A tenant's cores and lines.
#[derive(Clone, Debug)]
pub(crate) struct TenantPlant {
    pub id: WorkloadId,
    pub cores: Range<usize>,
    /// Its own sets of lines; references that always hit have none.
    pub sets: Vec<LineSet>,
    /// Lines that are referenced once, in turn.
    pub once: Vec<Line>,
    /// Share of its own references that hit in any layout.
    pub always: f64,
    /// References per second to its own lines; 0 if it only serves devices.
    pub own_rate: f64,
    /// References per second to lines that devices wrote.
    pub data_rate: f64,
    /// Share of these that hit under the layout in force.
    pub data_hits: f64,
    /// Own references per second that are not simulated, since they hit in any layout.
    pub silent_rate: f64,
    /// Time of a simulated reference without its cost, and the cost of a hit and a miss, seconds.
    pub base_s: f64,
    pub hit_s: f64,
    pub miss_s: f64,
}

/// Lines that are referenced with equal probability.
#[derive(Clone, Debug)]
pub(crate) struct LineSet {
    /// Sum of the shares up to and with this set.
    pub until: f64,
    pub lines: Vec<Line>,
    /// Whether the lines are referenced in turn.
    pub scan: bool,
}

/// Buffers that a device writes in turn and a core then reads.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlant {
    /// Number of the port's device on the small chip.
    pub device: usize,
    /// Index of the tenant that serves it; `None` if no tenant does.
    pub tenant: Option<usize>,
    pub core: usize,
    pub lines: Vec<Line>,
    /// Lines per second of the small chip that the device writes, and reads after the tenant.
    pub inbound: f64,
    pub outbound: f64,
    /// Lines that the device is ahead of the tenant while it hits as often as usual.
    pub lag: f64,
    /// Share of its reads that usually hit.
    pub usual: f64,
    /// Share of the lines that the tenant reads.
    pub read: f64,
    pub storage: bool,
    /// Whether the tenant also writes the lines that it reads: the device sends them on.
    pub rewrites: bool,
}

/// Cores of one tenant at most. Assumption: more cores are alike.
const MOST_CORES: usize = 8;
/// Queues of one tenant on one port.
const QUEUES: usize = 4;
/// How far the queues of a NIC lag behind, relative to their mean. Assumption: flows are spread unevenly, so that one
/// queue is longer than the others.
const UNEVEN: [f64; QUEUES] = [0.2, 0.5, 1.0, 2.3];
/// Lines below which a set always hits. Assumption: it is in the MLC, or in another core's.
const ALWAYS: f64 = 6.0;
/// Lines for references to lines used once, as a multiple of the LLC: each is evicted before its next turn.
const ONCE: f64 = 3.0;
/// Largest set, as a multiple of the LLC of the small chip: memory of the small chip is bounded.
const LARGEST: f64 = 12.0;

impl Plant {
    /// Places a described server, with what was tuned for its devices.
    pub fn new(server: &ServerDescription, tuning: &Tuning) -> Plant {
        let wanted = |tenant: &TenantDescription| tenant.workload.cores.len().clamp(1, MOST_CORES);
        let all: usize = server.tenants.iter().map(wanted).sum();
        let fit = |cores: usize| if all > 64 { 1 } else { cores };
        let count: usize = server.tenants.iter().map(|tenant| fit(wanted(tenant))).sum();
        let chip = SmallChip::new(server, count as u32);
        let mut memory = chip.memory(MEMORY_SEED);
        let mut next = 0;
        let mut tenants = Vec::new();
        for tenant in &server.tenants {
            let cores = next..(next + fit(wanted(tenant))).min(64);
            next = cores.end.min(63);
            tenants.push(TenantPlant::new(
                tenant,
                server,
                cores,
                tuning.shape(tenant.workload.id),
                &chip,
                &mut memory,
            ));
        }
        let mut queues = Vec::new();
        let mut ports = Vec::new();
        for device in &server.devices {
            for (number, port) in device.ports.iter().enumerate() {
                if ports.len() == MAX_DEVICES || port.inbound_lines + port.outbound_lines <= 0.0 {
                    continue;
                }
                let sums = device.ports.iter().map(|port| port.inbound_lines).sum::<f64>().max(1.0);
                let share = if port.inbound_lines > 0.0 { port.inbound_lines / sums } else { 0.0 };
                place_queues(
                    &mut queues,
                    (device, number, share),
                    ports.len(),
                    &tenants,
                    tuning,
                    &chip,
                    &mut memory,
                );
                ports.push(port.id);
            }
        }
        Plant { chip, tenants, queues, ports }
    }

    /// Line events per second of the small chip.
    pub fn events_per_s(&self) -> f64 {
        let queues = self.queues.iter().map(|queue| queue.inbound * (1.0 + queue.read) + queue.outbound);
        let tenants = self.tenants.iter().map(|tenant| tenant.own_rate / self.chip.scale);
        queues.sum::<f64>() + tenants.sum::<f64>()
    }
}

/// Seed of where lines are placed: the same for all layouts.
const MEMORY_SEED: u64 = 0x7719;

/// References per second of a tenant to lines that its devices write: at most one per line.
fn data_rate(tenant: &TenantDescription, server: &ServerDescription) -> f64 {
    if tenant.workload.kind == WorkloadKind::NonIo {
        return 0.0;
    }
    let inbound: f64 = inbound_of(tenant.workload.id, server);
    tenant.references.value.min(inbound)
}

/// Lines per second that devices write for a tenant: users of a device share its lines by cores.
fn inbound_of(id: WorkloadId, server: &ServerDescription) -> f64 {
    let devices = server.devices.iter().filter(|device| device.tenants.contains(&id));
    devices
        .map(|device| {
            device.ports.iter().map(|port| port.inbound_lines).sum::<f64>() * share_of(id, device, server)
        })
        .sum()
}

/// A user's share of a device.
fn share_of(id: WorkloadId, device: &DeviceDescription, server: &ServerDescription) -> f64 {
    let cores = |id| server.tenant(id).map_or(1.0, |tenant| tenant.workload.cores.len().max(1) as f64);
    let all: f64 = device.tenants.iter().map(|id| cores(*id)).sum();
    cores(id) / all.max(1.0)
}

impl TenantPlant {
    fn new(
        tenant: &TenantDescription,
        server: &ServerDescription,
        cores: Range<usize>,
        shape: Shape,
        chip: &SmallChip,
        memory: &mut AddressMap,
    ) -> TenantPlant {
        let data_rate = data_rate(tenant, server);
        let others = (tenant.references.value - data_rate).max(0.0);
        // What a program does beside the lines of its devices is small: its stack, its rings.
        let computes = tenant.workload.kind == WorkloadKind::NonIo;
        let own_rate = if computes { others } else { 0.0 };
        let mlc = chip.mlc_lines * cores.len() as f64;
        let (mut sets, mut until, mut always) = (Vec::new(), 0.0, 0.0);
        let known: f64 =
            tenant.reuse.iter().filter(|set| set.lines.is_some()).map(|set| set.share.value).sum();
        let more = if known > 0.0 { (shape.share * known).min(1.0) / known } else { 1.0 };
        for set in tenant.reuse.iter().filter(|_| own_rate > 0.0) {
            let Some(size) = set.lines else { continue };
            let lines = (shape.size * size.value / chip.scale).min(LARGEST * chip.llc_lines);
            let share = more * set.share.value;
            if lines < ALWAYS {
                always += share;
                continue;
            }
            // References to lines in an MLC are none to the LLC, so the set is larger by these lines; lines in turn are not
            // in an MLC any more when their turn comes.
            let in_mlc = if shape.scan { 0.0 } else { mlc * share };
            let Ok(region) = memory.ordinary((lines + in_mlc).round() as u64 * 64) else { continue };
            until += share;
            sets.push(LineSet { until, lines: region.lines().to_vec(), scan: shape.scan });
        }
        let once = if own_rate > 0.0 && until + always < 0.999 {
            memory
                .ordinary((ONCE * chip.llc_lines) as u64 * 64)
                .map_or_else(|_| Vec::new(), |r| r.lines().to_vec())
        } else {
            Vec::new()
        };
        let per_reference = tenant.instructions / tenant.references.value.max(1.0);
        let second = chip.scale / tenant.cycles.max(1.0);
        TenantPlant {
            id: tenant.workload.id,
            cores,
            sets,
            once,
            always,
            own_rate,
            data_rate,
            data_hits: if data_rate > 0.0 {
                let silent = others - own_rate;
                let hits = tenant.references.value * tenant.hits.value - silent;
                (hits / data_rate).clamp(0.0, 1.0)
            } else {
                1.0
            },
            silent_rate: others - own_rate,
            base_s: tenant.base_cycles.value * per_reference * second,
            hit_s: tenant.hit_cycles.value * second,
            miss_s: tenant.miss_cycles.value * second,
        }
    }

    /// References per second that the description has.
    pub fn references(&self) -> f64 {
        self.own_rate + self.data_rate + self.silent_rate
    }
}

fn place_queues(
    queues: &mut Vec<QueuePlant>,
    (device, number, share): (&DeviceDescription, usize, f64),
    on_chip: usize,
    tenants: &[TenantPlant],
    tuning: &Tuning,
    chip: &SmallChip,
    memory: &mut AddressMap,
) {
    let port = &device.ports[number];
    let storage = device.kind == DeviceKind::Storage;
    let all_buffers = tuning.buffers(device);
    let users: Vec<usize> = tenants
        .iter()
        .enumerate()
        .filter(|(_, t)| device.tenants.contains(&t.id))
        .map(|(at, _)| at)
        .collect();
    let cores: usize = users.iter().map(|at| tenants[*at].cores.len()).sum();
    let parts: Vec<(Option<usize>, f64)> = if users.is_empty() {
        vec![(None, 1.0)]
    } else {
        users.iter().map(|at| (Some(*at), tenants[*at].cores.len() as f64 / cores as f64)).collect()
    };
    for (tenant, part) in parts {
        let inbound = port.inbound_lines * part / chip.scale;
        // Lines that a drive reads were not touched by a core lately, and such a read changes no cache.
        let outbound =
            if storage { 0.0 } else { port.outbound_lines.min(port.inbound_lines) * part / chip.scale };
        let read = tenant.map_or(0.0, |at| {
            let all: f64 = port.inbound_lines * part / share.max(1e-9);
            if all > 0.0 { (tenants[at].data_rate / all).min(1.0) } else { 0.0 }
        });
        let buffers = (all_buffers * share * part / chip.scale).min(LARGEST * chip.llc_lines);
        for (index, uneven) in UNEVEN.into_iter().enumerate() {
            let size = (buffers / QUEUES as f64).round().max(4.0);
            let Ok(region) = memory.ordinary(size as u64 * 64) else { continue };
            let ahead = tuning.lag(device, tenant.map(|at| tenants[at].id));
            let lag = ahead * share * part / chip.scale / QUEUES as f64;
            let lag = lag * if storage { 1.0 } else { uneven };
            queues.push(QueuePlant {
                device: on_chip,
                tenant,
                core: tenant.map_or(0, |at| tenants[at].cores.start + index % tenants[at].cores.len()),
                lag: lag.min(region.lines().len() as f64 * FULL),
                usual: tenant.map_or(1.0, |at| tenants[at].data_hits),
                lines: region.lines().to_vec(),
                inbound: inbound / QUEUES as f64,
                outbound: outbound / QUEUES as f64,
                read,
                storage,
                rewrites: !storage && outbound > 0.0 && read < 0.5,
            });
        }
    }
}
