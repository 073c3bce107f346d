//! What counters showed under one layout: running means per tenant and port. It must not know what they mean for a
//! program.

use crate::running::Running;
use crate::{Estimate, Observed, SeenTenant};
use std::collections::BTreeMap;
use waykeeper_host::{Interval, KnobValues, PortCounter, Workload, WorkloadCounter};
use waykeeper_units::{LINE_BYTES, PortId, WorkloadId};

/// Relative error of a mean of one interval. Assumption.
const SINGLE: f64 = 0.03;

/// A tenant's counters in one interval, as far as they are there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct TenantRates {
    pub cycles: f64,
    pub instructions: f64,
    pub references: f64,
    /// `None` without references.
    pub hits: Option<f64>,
    pub lines: Option<f64>,
}

/// Running means of a tenant.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct TenantMeans {
    pub cycles: Running,
    pub instructions: Running,
    pub references: Running,
    pub hits: Running,
    pub cycles_per_instruction: Running,
    /// LLC references per instruction.
    pub intensity: Running,
    pub lines: Running,
}

/// What was seen under one layout.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LayoutRecord {
    pub knobs: KnobValues,
    pub tenants: BTreeMap<WorkloadId, TenantMeans>,
    /// Lines per second that devices write and read.
    pub ports: BTreeMap<PortId, (Running, Running)>,
    pub write_misses: Running,
    pub memory_bytes: Running,
}

/// A tenant's counters in an interval; `None` where one is missing that is always needed.
pub(crate) fn rates_of(seen: &Interval, id: WorkloadId) -> Option<TenantRates> {
    let rates = seen.groups.get(&id)?;
    let value = |counter: WorkloadCounter| rates[counter].value();
    let references = rates.llc_references()?;
    Some(TenantRates {
        cycles: value(WorkloadCounter::Cycles)?,
        instructions: value(WorkloadCounter::Instructions)?,
        references,
        hits: if references > 0.0 { rates.llc_hit_ratio() } else { None },
        lines: value(WorkloadCounter::OccupancyBytes).map(|bytes| bytes / LINE_BYTES as f64),
    })
}

impl LayoutRecord {
    /// Nothing seen yet.
    pub fn new(knobs: KnobValues) -> LayoutRecord {
        LayoutRecord {
            knobs,
            tenants: BTreeMap::new(),
            ports: BTreeMap::new(),
            write_misses: Running::default(),
            memory_bytes: Running::default(),
        }
    }

    /// Notes an interval under this layout.
    pub fn note(&mut self, groups: &[Workload], seen: &Interval) {
        for group in groups {
            let Some(rates) = rates_of(seen, group.id) else { continue };
            let means = self.tenants.entry(group.id).or_default();
            means.cycles.note(rates.cycles);
            means.instructions.note(rates.instructions);
            means.references.note(rates.references);
            if rates.instructions > 0.0 {
                means.cycles_per_instruction.note(rates.cycles / rates.instructions);
                means.intensity.note(rates.references / rates.instructions);
            }
            if let Some(hits) = rates.hits {
                means.hits.note(hits);
            }
            if let Some(lines) = rates.lines {
                means.lines.note(lines);
            }
        }
        for (port, rates) in &seen.ports {
            let lines = |counter| rates[counter].value().map_or(0.0, |bytes: f64| bytes / LINE_BYTES as f64);
            let (inbound, outbound) = self.ports.entry(*port).or_default();
            inbound.note(lines(PortCounter::InboundBytes));
            outbound.note(lines(PortCounter::OutboundBytes));
        }
        if let Some(misses) = seen.socket.dca_write_miss_ratio() {
            self.write_misses.note(misses);
        }
        if let Some(bytes) = seen.socket.memory_bytes() {
            self.memory_bytes.note(bytes);
        }
    }

    /// Intervals noted.
    pub fn intervals(&self) -> f64 {
        self.tenants.values().map(|means| means.cycles.count()).fold(0.0, f64::max)
    }

    /// As a part of a description.
    pub fn observed(&self) -> Observed {
        let seen = |means: &TenantMeans| SeenTenant {
            references: means.references.mean(),
            hits: hits_of(means),
            cycles_per_instruction: means.cycles_per_instruction.estimate(SINGLE),
            lines: (means.lines.count() > 0.0).then(|| means.lines.mean()),
        };
        let there = |running: &Running| running.count() > 0.0;
        Observed {
            knobs: self.knobs.clone(),
            tenants: self
                .tenants
                .iter()
                .filter(|(_, means)| there(&means.hits))
                .map(|(id, means)| (*id, seen(means)))
                .collect(),
            write_misses: there(&self.write_misses).then(|| self.write_misses.estimate(SINGLE)),
            ports: self
                .ports
                .iter()
                .map(|(port, (inbound, outbound))| (*port, inbound.mean() + outbound.mean()))
                .collect(),
            memory_bytes: there(&self.memory_bytes).then(|| self.memory_bytes.mean()),
            intervals: self.intervals(),
        }
    }
}

/// A tenant's hit ratio with its error.
pub(crate) fn hits_of(means: &TenantMeans) -> Estimate {
    let hits = means.hits.estimate(SINGLE);
    Estimate { error: hits.error.max(0.002), ..hits }
}
