//! What the model says of an interval, by the definitions of docs/attribution.md. Shared by tests and examples; must not
//! know how an attribution is found.

use crate::recorded::TrueEviction;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_attribution::{Attribution, LEAST_LOSS, LEAST_LOSS_PART, PollutionSource};
use waykeeper_host::{Interval, Inventory, PortCounter, Workload};
use waykeeper_silicon::EvictionReason;
use waykeeper_units::LINE_BYTES;

/// Polluter and victim, by name.
pub type NamedPair = (String, String);

/// The true shares and losses.
pub struct Truth {
    pub shares: BTreeMap<NamedPair, f64>,
    /// Victims whose loss matters.
    pub matters: BTreeSet<String>,
}

impl Truth {
    pub fn of(
        inventory: &Inventory,
        workloads: &[Workload],
        seen: &Interval,
        evictions: &[TrueEviction],
    ) -> Truth {
        let mut lines: BTreeMap<NamedPair, f64> = BTreeMap::new();
        let uses = |workload: &Workload, name: &str| {
            let device = inventory.devices.iter().find(|device| device.name == name);
            device.is_some_and(|device| workload.devices.contains(&device.id))
        };
        for eviction in evictions.iter().filter(|eviction| counts(eviction.reason)) {
            let users = workloads.iter().filter(|workload| uses(workload, &eviction.of)).count() as f64;
            for victim in workloads {
                let part = if victim.name == eviction.of {
                    1.0
                } else if uses(victim, &eviction.of) {
                    1.0 / users
                } else {
                    continue;
                };
                if eviction.by != victim.name && !uses(victim, &eviction.by) {
                    let pair = (eviction.by.clone(), victim.name.clone());
                    *lines.entry(pair).or_default() += part * eviction.lines_per_s;
                }
            }
        }
        let mut losses: BTreeMap<String, f64> = BTreeMap::new();
        for ((_, victim), rate) in &lines {
            *losses.entry(victim.clone()).or_default() += rate;
        }
        let fills = |workload: &Workload| {
            let references = seen.groups[&workload.id].llc_references().unwrap_or(0.0);
            let written = workload.devices.iter().map(|id| {
                let users = workloads.iter().filter(|other| other.devices.contains(id)).count() as f64;
                let bytes = inventory.devices[id.index()]
                    .ports
                    .iter()
                    .map(|port| seen.ports[port][PortCounter::InboundBytes].value().unwrap_or(0.0));
                bytes.sum::<f64>() / LINE_BYTES as f64 / users
            });
            references + written.sum::<f64>()
        };
        let seen_at_both_ends = workloads.iter().filter(|workload| seen.groups.contains_key(&workload.id));
        let matters = seen_at_both_ends.filter(|workload| {
            let loss = losses.get(&workload.name).copied().unwrap_or(0.0);
            loss >= (LEAST_LOSS_PART * fills(workload)).max(LEAST_LOSS)
        });
        let matters = matters.map(|workload| workload.name.clone()).collect();
        let share = |(pair, rate): (NamedPair, f64)| {
            let loss = losses[&pair.1];
            (pair, rate / loss)
        };
        Truth { matters, shares: lines.into_iter().map(share).collect() }
    }

    /// Pairs with at least this share of a loss that matters.
    pub fn pairs(&self, least: f64) -> BTreeSet<NamedPair> {
        let true_pairs =
            self.shares.iter().filter(|(pair, share)| **share >= least && self.matters.contains(&pair.1));
        true_pairs.map(|(pair, _)| pair.clone()).collect()
    }
}

/// Whether an eviction takes a line out of its owner's reach because another agent's line takes its way.
fn counts(reason: EvictionReason) -> bool {
    reason.from_llc() && reason != EvictionReason::DirectoryVictim
}

/// The name of a polluter; of the devices behind a port, that of the first.
pub fn name(source: PollutionSource, inventory: &Inventory, workloads: &[Workload]) -> String {
    match source {
        PollutionSource::Tenant(id) => {
            workloads.iter().find(|workload| workload.id == id).map(|workload| workload.name.clone())
        }
        PollutionSource::Port(id) => inventory
            .devices
            .iter()
            .find(|device| device.ports.contains(&id))
            .map(|device| device.name.clone()),
    }
    .expect("an agent of the interval")
}

/// Pairs that an attribution claims with at least this share.
pub fn claimed(
    said: &Attribution,
    least: f64,
    inventory: &Inventory,
    workloads: &[Workload],
) -> BTreeSet<NamedPair> {
    let of = |source| name(source, inventory, workloads);
    let claims = said.claims().filter(|pair| pair.share >= least);
    claims.map(|pair| (of(pair.polluter), of(PollutionSource::Tenant(pair.victim)))).collect()
}
