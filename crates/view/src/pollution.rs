//! Polluters and victims of the present step, by name: what `attribution` claims, and of which tenants it cannot tell.
//!
//! Must not know how lines are attributed, nor what is drawn.

use crate::picture::HurtPicture;
use std::sync::Arc;
use std::time::SystemTime;
use waykeeper_attribution::{Attribution, Attributor, PollutionSource};
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_service::naming::HostNames;
use waykeeper_service::protocol::PolluterKind;
use waykeeper_service::recorder::{Header, RecordedStep};

/// The name of a polluter that is not known.
const OTHERS: &str = "others";

/// Attributes the lines that tenants lose, from one step after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pollution {
    /// The host that is attributed; another one begins anew.
    host: Option<(Arc<Inventory>, Attributor)>,
    /// The step that was played last, by its time, and what was said of it.
    said: Option<(SystemTime, Vec<HurtPicture>)>,
}

impl Pollution {
    /// The pairs of a step, the one with most lost lines first; those of the step before if this one has no counters.
    pub fn of(&mut self, header: &Header, step: &RecordedStep<'_>) -> Vec<HurtPicture> {
        let before = self.said.take().filter(|(at, _)| *at == step.at || step.seen.is_none());
        let hurts = match (before, step.seen.as_deref()) {
            (Some((_, hurts)), _) => hurts,
            (None, Some(seen)) => self.play(header, step.groups.as_deref().unwrap_or_default(), seen),
            (None, None) => Vec::new(),
        };
        self.said = Some((step.at, hurts.clone()));
        hurts
    }

    fn play(&mut self, header: &Header, tenants: &[Workload], seen: &Interval) -> Vec<HurtPicture> {
        let kept = self.host.take().filter(|(inventory, _)| *inventory == header.inventory);
        let begun = || (header.inventory.clone(), Attributor::new(&header.inventory));
        let (_, attributor) = self.host.insert(kept.unwrap_or_else(begun));
        let said = attributor.observe(tenants, seen);
        named(&said, HostNames::new(tenants, &header.inventory))
    }
}

fn named(said: &Attribution, names: HostNames<'_>) -> Vec<HurtPicture> {
    let mut claims: Vec<_> = said.claims().collect();
    claims.sort_by(|a, b| b.lines_per_s.total_cmp(&a.lines_per_s));
    let claims = claims.into_iter().map(|pair| {
        let (kind, polluter) = match pair.polluter {
            PollutionSource::Tenant(id) => (PolluterKind::Tenant, names.workload(id)),
            PollutionSource::Port(id) => (PolluterKind::Device, names.port(id)),
        };
        HurtPicture {
            kind,
            polluter,
            victim: names.workload(pair.victim),
            share: Some(pair.share),
            confidence: Some(pair.confidence),
            why: pair.evidence.clone(),
        }
    });
    let untold = said.cannot_tell.iter().map(|untold| HurtPicture {
        kind: PolluterKind::Tenant,
        polluter: OTHERS.to_owned(),
        victim: names.workload(untold.victim),
        share: None,
        confidence: None,
        why: untold.reason.clone(),
    });
    claims.chain(untold).collect()
}
