//! An experiment on a host: counters before a change, counters after it, and what that says.
//!
//! Works on any [`Host`]; must not know how it counts, nor which register is turned in between.

use super::Step;
use super::effect::{self, Verdict};
use std::time::Duration;
use waykeeper_host::{Host, HostError, Interval};
use waykeeper_units::PortId;

/// Slices that the time before and the time after are cut into: enough to see how much a load flickers by itself.
const SLICES: u32 = 5;

/// What was seen before the change.
#[derive(Debug)]
pub struct Experiment {
    before: Result<Vec<Interval>, String>,
    span: Duration,
    subject: Subject,
}

#[derive(Debug)]
enum Subject {
    Ways,
    Ports { ports: Vec<PortId>, on: bool },
}

impl Experiment {
    /// Watches for `span` before the steps are taken.
    pub fn begin(host: &mut dyn Host, steps: &[Step], span: Duration) -> Experiment {
        let on = steps.iter().find_map(|step| match step {
            Step::Port { to, .. } => Some(*to),
            Step::Ways { .. } => None,
        });
        let address_is = |wanted: &str| {
            steps
                .iter()
                .any(|step| matches!(step, Step::Port { address, .. } if address.to_string() == wanted))
        };
        let own = host.inventory().ports.iter().filter(|port| address_is(&port.address));
        let ports = own.map(|port| port.id).collect();
        let subject = on.map_or(Subject::Ways, |on| Subject::Ports { ports, on });
        Experiment { before: watch(host, span).map_err(|error| error.to_string()), span, subject }
    }

    /// Watches as long after they were taken, and judges.
    pub fn end(self, host: &mut dyn Host) -> Verdict {
        let after = watch(host, self.span).map_err(|error| error.to_string());
        let (before, after) = match (self.before, after) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(why), _) | (_, Err(why)) => return Verdict::NotJudged(why),
        };
        match self.subject {
            Subject::Ways => effect::of_ways(&before, &after),
            Subject::Ports { ports, on } => effect::of_ports(&before, &after, &ports, on),
        }
    }
}

fn watch(host: &mut dyn Host, span: Duration) -> Result<Vec<Interval>, HostError> {
    let slice_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX) / u64::from(SLICES);
    let mut last = host.sample()?;
    let mut slices = Vec::new();
    for _ in 0..SLICES {
        host.wait_until(last.at_ns.saturating_add(slice_ns))?;
        let now = host.sample()?;
        slices.extend(Interval::between(&last, &now));
        last = now;
    }
    Ok(slices)
}
