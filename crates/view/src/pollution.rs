//! Polluters and victims of the present step, by name: what `attribution` claims, and of which tenants it cannot tell.
//!
//! Must not know how lines are attributed, nor what is drawn.

use crate::picture::HurtPicture;
use std::sync::Arc;
use waykeeper_attribution::{Attribution, Attributor, PollutionSource};
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_service::naming::HostNames;
use waykeeper_service::protocol::PolluterKind;
use waykeeper_service::recorder::Header;

/// The name of a polluter that is not known.
const OTHERS: &str = "others";

/// Attributes the lines that tenants lose, from one step after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pollution {
    /// The host that is attributed; another one begins anew.
    of: Option<(Arc<Inventory>, Attributor)>,
}

impl Pollution {
    /// Takes a step with counters. The pair with most lost lines is first.
    pub fn take(&mut self, header: &Header, tenants: &[Workload], seen: &Interval) -> Vec<HurtPicture> {
        let kept = self.of.take().filter(|(inventory, _)| *inventory == header.inventory);
        let begun = || (header.inventory.clone(), Attributor::new(&header.inventory));
        let (_, attributor) = self.of.insert(kept.unwrap_or_else(begun));
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
