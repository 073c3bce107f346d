//! From counts on the small chip to progress, relative to the layout in force. It must not know how layouts are found.
//!
//! The twin's own error is the same under layouts that are alike. So its hit ratios are moved by what it was off under the
//! layouts that were observed, those with the nearest hit ratio most.

use crate::layout::Layout;
use crate::plant::{Plant, TenantPlant};
use crate::run::{Counts, Hits, PARTS, TenantCounts, run};
use std::collections::BTreeMap;
use waykeeper_calibration::{
    Candidate, Estimate, FetchCosts, LayoutLimits, Observed, ServerDescription, TenantDescription,
};
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_units::{PortId, WorkloadId};

/// What the small chip showed under the layouts that were observed, and what was observed.
#[derive(Clone, Debug)]
pub(crate) struct Foresight<'a> {
    server: &'a ServerDescription,
    costs: FetchCosts,
    plant: Plant,
    /// By tenant, the hit ratios of the small chip and of the server under each observed layout.
    known: Vec<Vec<(f64, f64)>>,
    /// By tenant on a NIC, hit ratio and lines per second under each observed layout; the last is the one in force.
    carried: Vec<Vec<(f64, f64)>>,
    /// The counts of the layout in force.
    now: Counts,
}

/// What counters would show under a layout, relative to the layout in force.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ForeseenCounters {
    /// By tenant, in the order of the description.
    pub tenants: Vec<ForeseenTenant>,
    /// Share of device writes that miss the LLC, of devices with DCA, before and then; `None` without such writes.
    pub write_misses: [Option<f64>; 2],
}

/// A tenant's part of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ForeseenTenant {
    /// Change of its hit ratio.
    pub more_hits: f64,
    /// Lines per second of its NIC.
    pub carried: f64,
    /// Lines of its own in the LLC; `None` if the small chip held none before.
    pub held: Option<f64>,
}

/// Hit ratios this near count as equal. Assumption: about the sampling error of a run.
const NEAR: f64 = 0.01;
/// Hit ratios are kept this far from 0 and 1, where their odds have no logarithm.
const EDGE: f64 = 0.002;
/// Error of a hit ratio per distance to the nearest observed one. Chosen such that about nine of ten predictions of the
/// evaluation are within two errors.
const PER_DISTANCE: f64 = 0.4;
/// Error of a tenant on a NIC: its queues grow where it is slower, and counters do not show how far. Chosen likewise.
const NIC_ERROR: f64 = 0.06;
/// Error of the progress of storage, which its drives and requests decide.
const STORAGE_ERROR: f64 = 0.01;
/// Power by which the time of a storage program on its lines acts on its progress, and the error of that power: none where
/// the drives are busy, all of it where the program is. Assumption: nearer to the former.
const STORAGE_POWER: f64 = 0.25;
const STORAGE_POWER_ERROR: f64 = 0.25;
/// What a layout usually changes of a tenant's progress, as a logarithm: a prediction whose error is larger says little.
/// Assumption.
const USUAL: f64 = 0.3;
/// Hit ratios must be so far apart to say how many lines more a tenant carries; it carries at most so much more than was
/// seen. Assumptions.
const APART: f64 = 0.04;
const MOST_CARRIED: f64 = 1.03;
/// Least error of a prediction. Assumption: what rules of the real chip add that the twin does not know.
const LEAST_ERROR: f64 = 0.006;

impl<'a> Foresight<'a> {
    /// Simulates the layouts that were observed, with so many line events each. Returns the line events spent, too.
    pub fn new(
        server: &'a ServerDescription,
        costs: FetchCosts,
        plant: Plant,
        events: u64,
    ) -> (Foresight<'a>, u64) {
        let mut spent = 0;
        let mut known = vec![Vec::new(); plant.tenants.len()];
        for seen in &server.observed {
            let counts = run(&plant, &Layout::of(&seen.knobs, server), events);
            spent += counts.events;
            for ((tenant, counted), known) in plant.tenants.iter().zip(&counts.tenants).zip(&mut known) {
                if let Some((found, seen)) = tenant.all_hits(counted).zip(seen.tenants.get(&tenant.id)) {
                    known.push((found, seen.hits.value));
                }
            }
        }
        let now = run(&plant, &Layout::of(&server.knobs, server), events);
        spent += now.events;
        (Foresight { server, costs, carried: carried(server), plant, known, now }, spent)
    }

    /// What a layout would bring, from a run of about so many line events. Returns the line events spent, too.
    pub fn of(&self, layout: &Layout, limits: &LayoutLimits, events: u64) -> (Candidate, u64) {
        let counts = run(&self.plant, layout, events);
        (self.candidate(layout, limits, &counts), counts.events)
    }

    /// The same, and what the counters of the server would then show.
    pub fn with_counters(
        &self,
        layout: &Layout,
        limits: &LayoutLimits,
        events: u64,
    ) -> (Candidate, ForeseenCounters) {
        let counts = run(&self.plant, layout, events);
        let tenant = |index: usize| {
            let plant = &self.plant.tenants[index];
            let (before, after) = (&self.now.tenants[index], &counts.tenants[index]);
            let hits = plant.all_hits(before).zip(plant.all_hits(after));
            let hits =
                hits.map(|(before, after)| (self.corrected(index, before), self.corrected(index, after)));
            ForeseenTenant {
                more_hits: hits.map_or(0.0, |(before, after)| after - before),
                carried: hits
                    .map_or(1.0, |(before, after)| self.carried(index, after) / self.carried(index, before)),
                held: (before.held > 0.0).then(|| after.held / before.held),
            }
        };
        let before = Layout::of(&self.server.knobs, self.server);
        let write_misses = [self.write_misses(&before, &self.now), self.write_misses(layout, &counts)];
        let tenants = (0..self.plant.tenants.len()).map(tenant).collect();
        (self.candidate(layout, limits, &counts), ForeseenCounters { tenants, write_misses })
    }

    /// Share of the writes of devices with DCA that miss; `None` without such writes.
    fn write_misses(&self, layout: &Layout, counts: &Counts) -> Option<f64> {
        let with_dca = self.plant.ports.iter().zip(&counts.writes);
        let with_dca = with_dca.filter(|(port, _)| layout.dca.get(port).copied().unwrap_or(true));
        let (hits, misses) = with_dca.fold((0, 0), |sum, (_, writes)| (sum.0 + writes.0, sum.1 + writes.1));
        (hits + misses > 0).then(|| misses as f64 / (hits + misses) as f64)
    }

    fn candidate(&self, layout: &Layout, limits: &LayoutLimits, counts: &Counts) -> Candidate {
        let mut tenants = BTreeMap::new();
        for (index, tenant) in self.server.tenants.iter().enumerate() {
            let progress = self.progress(index, tenant, layout, &counts.tenants[index]);
            tenants.insert(tenant.workload.id, progress);
        }
        let hpw = together(self.server, &tenants, Priority::High);
        let lpw = together(self.server, &tenants, Priority::Low);
        Candidate { plan: layout.plan(self.server, limits), tenants, hpw, lpw }
    }

    fn progress(
        &self,
        index: usize,
        tenant: &TenantDescription,
        layout: &Layout,
        counts: &TenantCounts,
    ) -> Estimate {
        let plant = &self.plant.tenants[index];
        let before = &self.now.tenants[index];
        let Some((then, now)) = plant.all_hits(before).zip(plant.all_hits(counts)) else {
            return Estimate { value: 1.0, error: LEAST_ERROR };
        };
        let time = |hits: f64| self.time(tenant, plant, hits);
        let (before_hits, hits) = (self.corrected(index, then), self.corrected(index, now));
        let ratio = time(before_hits) / time(hits);
        if tenant.workload.kind == WorkloadKind::StorageIo {
            return self.stored(tenant, layout).unwrap_or_else(|| Estimate {
                value: ratio.powf(STORAGE_POWER),
                error: STORAGE_ERROR.hypot(STORAGE_POWER_ERROR * ratio.ln()),
            });
        }
        let ratio = ratio * self.carried(index, hits) / self.carried(index, before_hits);
        // Sampling: how much the parts of both runs differ, pair by pair.
        let parts = (0..PARTS).filter_map(|part| {
            let of = |counts: &TenantCounts| plant.hits(counts.own[part], counts.data[part]);
            let (then, now) = of(before).zip(of(counts))?;
            Some((time(then) / time(now)).ln())
        });
        let sampling = standard_error(&parts.collect::<Vec<f64>>());
        // Description: how far the hit ratio is from those seen, and what a miss costs.
        let distance =
            self.known[index].iter().map(|(found, _)| (found - now).abs()).fold(f64::INFINITY, f64::min);
        let distance = if distance.is_finite() { distance } else { 1.0 };
        let slope = (time(0.0) - time(1.0)).abs() / time(hits);
        let shape = PER_DISTANCE * distance * slope;
        let miss = tenant.miss_cycles;
        let cost = if miss.value > 0.0 { (miss.error / miss.value).min(1.0) * ratio.ln().abs() } else { 0.0 };
        let least = if tenant.workload.kind == WorkloadKind::NetworkIo { NIC_ERROR } else { LEAST_ERROR };
        let error = [sampling, shape, cost, least].iter().map(|e| e * e).sum::<f64>().sqrt();
        likely(ratio.ln(), error)
    }

    /// Progress of a tenant on storage by what its ports carried under layouts with the same DCA switches; `None` if these
    /// are those in force, or were not observed.
    fn stored(&self, tenant: &TenantDescription, layout: &Layout) -> Option<Estimate> {
        let devices = self.server.devices.iter().filter(|d| d.tenants.contains(&tenant.workload.id));
        let ports: Vec<PortId> = devices.flat_map(|d| &d.ports).map(|port| port.id).collect();
        let switches = |layout: &Layout| {
            ports.iter().map(|port| layout.dca.get(port).copied().unwrap_or(true)).collect::<Vec<bool>>()
        };
        let now = Layout::of(&self.server.knobs, self.server);
        let wanted = switches(layout);
        if wanted == switches(&now) {
            return None;
        }
        let lines = |seen: &Observed| ports.iter().filter_map(|port| seen.ports.get(port)).sum::<f64>();
        let of = |switches_are: &dyn Fn(&Layout) -> bool| {
            let all = self.server.observed.iter();
            let some: Vec<f64> = all
                .filter(|seen| switches_are(&Layout::of(&seen.knobs, self.server)))
                .map(lines)
                .filter(|lines| *lines > 0.0)
                .collect();
            (!some.is_empty()).then(|| some.iter().sum::<f64>() / some.len() as f64)
        };
        let then = of(&|seen| switches(seen) == wanted)?;
        let before = of(&|seen| *seen == now)?;
        Some(Estimate { value: then / before, error: STORAGE_ERROR })
    }

    /// The time that a tenant needs for the same work with this hit ratio, in a unit of its own.
    fn time(&self, tenant: &TenantDescription, plant: &TenantPlant, hits: f64) -> f64 {
        if tenant.workload.kind == WorkloadKind::NetworkIo {
            let devices = self.server.devices.iter().filter(|d| d.tenants.contains(&tenant.workload.id));
            let lines: f64 =
                devices.flat_map(|d| &d.ports).map(|port| port.inbound_lines + port.outbound_lines).sum();
            let cost = self.costs.llc * hits + self.costs.memory * (1.0 - hits);
            return 1.0 + if lines > 0.0 { tenant.references.value * cost / lines } else { 0.0 };
        }
        (plant.base_s + plant.hit_s * hits + plant.miss_s * (1.0 - hits)).max(f64::MIN_POSITIVE)
    }

    /// Lines per second that a tenant on a NIC carries at this hit ratio, relative to the layout in force: a line through
    /// what was observed. With fewer hits it takes longer for each packet, and some are dropped.
    fn carried(&self, index: usize, hits: f64) -> f64 {
        let points = &self.carried[index];
        let Some((last, rest)) = points.split_last() else { return 1.0 };
        let far = rest.iter().max_by(|a, b| (a.0 - last.0).abs().total_cmp(&(b.0 - last.0).abs()));
        let Some(far) = far.filter(|far| (far.0 - last.0).abs() >= APART) else { return 1.0 };
        let slope = ((far.1 - last.1) / (far.0 - last.0)).max(0.0);
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max) * MOST_CARRIED;
        ((last.1 + slope * (hits - last.0)).min(most) / last.1).max(0.1)
    }

    /// A hit ratio of the small chip, moved by what the chip was off where it was observed.
    fn corrected(&self, index: usize, hits: f64) -> f64 {
        let odds = |ratio: f64| {
            let ratio = ratio.clamp(EDGE, 1.0 - EDGE);
            (ratio / (1.0 - ratio)).ln()
        };
        let (mut sum, mut weights) = (0.0, 0.0);
        for (found, seen) in &self.known[index] {
            let weight = 1.0 / ((found - hits).powi(2) + NEAR * NEAR);
            sum += weight * (odds(*seen) - odds(*found));
            weights += weight;
        }
        let moved = odds(hits) + if weights > 0.0 { sum / weights } else { 0.0 };
        1.0 / (1.0 + (-moved).exp())
    }
}

impl TenantPlant {
    /// The hit ratio of a whole run; `None` without references.
    pub fn all_hits(&self, counts: &TenantCounts) -> Option<f64> {
        self.hits(counts.own.iter().copied().sum(), counts.data.iter().copied().sum())
    }

    /// The hit ratio of all its references; `None` without any.
    pub fn hits(&self, own: Hits, data: Hits) -> Option<f64> {
        let all = self.references();
        let part = |rate: f64, hits: Hits| {
            if rate > 0.0 { hits.ratio().map(|ratio| rate * ratio) } else { Some(0.0) }
        };
        let hits = part(self.own_rate, own)? + part(self.data_rate, data)? + self.silent_rate;
        (all > 0.0).then(|| hits / all)
    }
}

/// By tenant on a NIC, hit ratio and lines per second under each observed layout.
fn carried(server: &ServerDescription) -> Vec<Vec<(f64, f64)>> {
    let of = |tenant: &TenantDescription| {
        let devices = server.devices.iter().filter(|device| device.tenants.contains(&tenant.workload.id));
        let ports: Vec<_> = devices.flat_map(|device| &device.ports).map(|port| port.id).collect();
        let point = |seen: &Observed| {
            let hits = seen.tenants.get(&tenant.workload.id)?.hits.value;
            let lines: f64 = ports.iter().filter_map(|port| seen.ports.get(port)).sum();
            (lines > 0.0).then_some((hits, lines))
        };
        let network = tenant.workload.kind == WorkloadKind::NetworkIo;
        server.observed.iter().filter(|_| network).filter_map(point).collect()
    };
    server.tenants.iter().map(of).collect()
}

/// The ratio that is most likely by a prediction's logarithm with its error, and by what changes of layouts usually bring.
fn likely(logarithm: f64, error: f64) -> Estimate {
    let part = USUAL * USUAL / (USUAL * USUAL + error * error);
    let value = (part * logarithm).exp();
    Estimate { value, error: value * error * part.sqrt() }
}

/// The geometric mean of tenants of a priority, weighted by cores; 1 without any.
fn together(server: &ServerDescription, of: &BTreeMap<WorkloadId, Estimate>, priority: Priority) -> Estimate {
    let (mut sum, mut squares, mut weights) = (0.0, 0.0, 0.0);
    for tenant in server.tenants.iter().filter(|tenant| tenant.workload.priority == priority) {
        let Some(progress) = of.get(&tenant.workload.id).filter(|progress| progress.value > 0.0) else {
            continue;
        };
        let weight = tenant.workload.cores.len().max(1) as f64;
        sum += weight * progress.value.ln();
        squares += (weight * progress.error / progress.value).powi(2);
        weights += weight;
    }
    if weights == 0.0 {
        return Estimate::exact(1.0);
    }
    let value = (sum / weights).exp();
    Estimate { value, error: value * squares.sqrt() / weights }
}

/// Standard error of the mean of some values; 0 with fewer than two.
fn standard_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}
