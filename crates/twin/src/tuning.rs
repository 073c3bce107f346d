//! What counters do not show, chosen so that the small chip shows what was observed: how many buffers a device has
//! and how far it is ahead of the program; whether a program references its lines in turn or at random. It must not know
//! candidates.

use crate::layout::Layout;
use crate::plant::{Plant, TenantPlant};
use crate::run::{Counts, Hits, TenantCounts, run};
use crate::{Budget, TUNING};
use std::collections::BTreeMap;
use waykeeper_calibration::{DeviceDescription, Observed, SeenTenant, ServerDescription};
use waykeeper_host::DeviceKind;
use waykeeper_units::{DeviceId, LINE_BYTES, WorkloadId};

/// What was chosen.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tuning {
    /// Lines that a device writes before it writes the first one again.
    devices: BTreeMap<DeviceId, f64>,
    /// Lines that a device is ahead of each tenant that uses it, as if that one had the whole device.
    lags: BTreeMap<(DeviceId, WorkloadId), f64>,
    tenants: BTreeMap<WorkloadId, Shape>,
}

/// How a tenant's sets of lines differ from its description.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    /// Their lines are referenced in turn, not at random.
    pub scan: bool,
    /// Their sizes, as a multiple.
    pub size: f64,
    /// Their shares of the references, as a multiple.
    pub share: f64,
}

/// Layouts that are compared, the last ones.
const LAYOUTS: usize = 3;
/// Changes that are tried, one in each turn by all tenants at once; each tenant keeps those that come nearer to what was
/// observed of it. Assumption: tenants act on each other less than a change acts on its own tenant.
const CHANGES: [fn(Shape) -> Shape; 13] = [
    |shape| shape,
    |_| Shape { scan: true, ..Shape::DESCRIBED },
    |_| Shape { scan: true, size: 0.85, ..Shape::DESCRIBED },
    |_| Shape { scan: true, size: 0.7, ..Shape::DESCRIBED },
    |shape| Shape { size: shape.size * 1.3, ..shape },
    |shape| Shape { size: shape.size / 1.3, ..shape },
    |shape| Shape { share: shape.share * 0.8, ..shape },
    |shape| Shape { share: shape.share * 1.2, ..shape },
    |shape| Shape { size: shape.size * 1.5, share: shape.share * 1.3, ..shape },
    |shape| Shape { scan: !shape.scan, ..shape },
    |shape| Shape { size: shape.size * 1.15, ..shape },
    |shape| Shape { size: shape.size / 1.15, ..shape },
    |shape| Shape { share: shape.share * 0.9, ..shape },
];
/// Change of the logarithm of a device's number per difference of a ratio. Assumption: found to settle in a few turns.
const STEP: f64 = 4.0;
/// Largest change of a logarithm in a turn.
const MOST: f64 = 0.7;
/// Lag of a NIC at first, as a part of its buffers; of storage, as a part of the LLC. Assumptions.
const NIC_LAG: f64 = 0.1;
const STORAGE_LAG: f64 = 0.1;
/// Buffers are at most so many times as many, or as few, as described. Assumption.
const BUFFERS: f64 = 2.0;
/// Differences that count as one: of hit ratios, and of the logarithm of the lines held, which other tenants decide too.
const HITS: f64 = 0.02;
const HELD: f64 = 0.3;
/// A change must come nearer by this much: runs are noisy.
const NEARER: f64 = 0.9;
/// Fewest references per second of a tenant that is tuned. Assumption: fewer change nothing.
const BUSY: f64 = 1e6;

impl Shape {
    /// As described.
    pub const DESCRIBED: Shape = Shape { scan: false, size: 1.0, share: 1.0 };
}

impl Tuning {
    /// Lines that a device writes before it writes the first one again.
    pub fn buffers(&self, device: &DeviceDescription) -> f64 {
        self.devices.get(&device.id).copied().unwrap_or(device.buffer_lines.value)
    }

    /// Lines that a device is ahead of a tenant.
    pub fn lag(&self, device: &DeviceDescription, tenant: Option<WorkloadId>) -> f64 {
        let known = tenant.and_then(|tenant| self.lags.get(&(device.id, tenant)).copied());
        known.unwrap_or(NIC_LAG * device.buffer_lines.value)
    }

    /// A tenant's shape.
    pub fn shape(&self, id: WorkloadId) -> Shape {
        self.tenants.get(&id).copied().unwrap_or(Shape::DESCRIBED)
    }

    fn guess(server: &ServerDescription) -> Tuning {
        let llc = server.llc.bytes as f64 / LINE_BYTES as f64;
        let lag = |device: &DeviceDescription| match device.kind {
            DeviceKind::Network => NIC_LAG * device.buffer_lines.value,
            DeviceKind::Storage => STORAGE_LAG * llc,
        };
        let devices = server.devices.iter().map(|device| (device.id, device.buffer_lines.value));
        let lags = server
            .devices
            .iter()
            .flat_map(|device| device.tenants.iter().map(move |tenant| ((device.id, *tenant), lag(device))));
        Tuning { devices: devices.collect(), lags: lags.collect(), tenants: BTreeMap::new() }
    }

    /// The choice that comes closest to what was observed, for its part of a budget, and the line events spent.
    pub fn within(server: &ServerDescription, budget: Budget) -> (Tuning, u64) {
        let runs = CHANGES.len() * server.observed.len().min(LAYOUTS);
        Tuning::found(server, budget.share(TUNING, runs))
    }

    /// The same, with `events` line events per run.
    fn found(server: &ServerDescription, events: u64) -> (Tuning, u64) {
        let observed = &server.observed[server.observed.len().saturating_sub(LAYOUTS)..];
        let mut now = Tuning::guess(server);
        let mut best_devices: Option<(f64, Tuning)> = None;
        let mut best: BTreeMap<WorkloadId, (f64, Shape)> = BTreeMap::new();
        let mut spent = 0;
        for change in CHANGES {
            let shape = |id| best.get(&id).map_or(Shape::DESCRIBED, |(_, shape)| *shape);
            now.tenants =
                server.tenants.iter().map(|t| (t.workload.id, change(shape(t.workload.id)))).collect();
            let plant = Plant::new(server, &now);
            let mut off = Off::default();
            for seen in observed {
                let layout = Layout::of(&seen.knobs, server);
                let counts = run(&plant, &layout, events);
                spent += counts.events;
                off.note(&plant, &counts, seen, &layout);
            }
            let all = off.devices();
            if best_devices.as_ref().is_none_or(|(least, _)| all < *least) {
                best_devices = Some((all, now.clone()));
            }
            for (id, off) in &off.tenants {
                if best.get(id).is_none_or(|(least, _)| *off < NEARER * *least) {
                    best.insert(*id, (*off, now.tenants[id]));
                }
            }
            now.follow(&off, server);
        }
        let found = best_devices.map_or(now, |(_, tuning)| tuning);
        let tenants = best.into_iter().map(|(id, (_, shape))| (id, shape)).collect();
        (Tuning { tenants, ..found }, spent)
    }

    fn follow(&mut self, off: &Off, server: &ServerDescription) {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let llc = server.llc.bytes as f64 / LINE_BYTES as f64;
        for device in &server.devices {
            let Some(buffers) = self.devices.get_mut(&device.id) else { continue };
            let nic = device.kind == DeviceKind::Network;
            if !off.writes.is_empty() {
                // Too many write hits: there are more buffers. The misses are those of all devices, so that one
                // alone may not explain them: its buffers stay near the description.
                let described = device.buffer_lines.value;
                *buffers *= (STEP * mean(&off.writes)).clamp(-MOST, MOST).exp();
                *buffers = buffers.clamp(described / BUFFERS, described * BUFFERS);
            }
            let most = if nic { *buffers } else { 2.0 * llc };
            for tenant in &device.tenants {
                let Some(lag) = self.lags.get_mut(&(device.id, *tenant)) else { continue };
                if let Some(values) = off.hits.get(tenant) {
                    // Too many hits in the twin: the program reads later.
                    *lag *= (STEP * mean(values)).clamp(-MOST, MOST).exp();
                }
                *lag = lag.clamp(1.0, most);
            }
        }
    }
}

/// Differences between the small chip and the observations.
#[derive(Default)]
struct Off {
    /// By tenant, hit ratios of device lines: positive where the chip hits too often.
    hits: BTreeMap<WorkloadId, Vec<f64>>,
    /// Miss ratios of device writes: positive where it hits too often.
    writes: Vec<f64>,
    /// Of tenants that compute: the sum of squares.
    tenants: BTreeMap<WorkloadId, f64>,
}

impl Off {
    fn note(&mut self, plant: &Plant, counts: &Counts, seen: &Observed, layout: &Layout) {
        for (tenant, counted) in plant.tenants.iter().zip(&counts.tenants) {
            let Some(there) = seen.tenants.get(&tenant.id) else { continue };
            if let Some(off) = own_off(tenant, counted, there, plant.chip.scale) {
                *self.tenants.entry(tenant.id).or_default() += off;
            }
            let Some(found) = counted.data.iter().copied().sum::<Hits>().ratio() else { continue };
            // Of the references, those to the devices' lines: the others hit.
            let others = (there.references - tenant.data_rate).max(0.0);
            let data = there.references - others;
            if data <= 0.0 {
                continue;
            }
            let wanted = ((there.references * there.hits.value - others) / data).clamp(0.0, 1.0);
            self.hits.entry(tenant.id).or_default().push(found - wanted);
        }
        if let Some(wanted) = seen.write_misses {
            let on = |at: usize| layout.dca.get(&plant.ports[at]).copied().unwrap_or(true);
            let (hits, misses) = counts
                .writes
                .iter()
                .enumerate()
                .filter(|(at, _)| on(*at))
                .fold((0, 0), |sum, (_, writes)| (sum.0 + writes.0, sum.1 + writes.1));
            if hits + misses > 0 {
                self.writes.push(wanted.value - misses as f64 / (hits + misses) as f64);
            }
        }
    }

    fn devices(&self) -> f64 {
        self.hits.values().flatten().chain(&self.writes).map(|off| off * off).sum()
    }
}

/// How far a tenant that computes is from what was observed, squared; `None` for one that does not, or hardly refers to the
/// LLC.
fn own_off(tenant: &TenantPlant, counted: &TenantCounts, there: &SeenTenant, scale: f64) -> Option<f64> {
    let found = counted.own.iter().copied().sum::<Hits>().ratio().filter(|_| tenant.own_rate >= BUSY)?;
    let hits = ((found - there.hits.value) / HITS).powi(2);
    let held = there.lines.map_or(0.0, |lines| {
        let lines = lines.max(1.0) + scale;
        (((counted.held * scale + scale) / lines).ln() / HELD).powi(2)
    });
    Some(hits + held)
}
