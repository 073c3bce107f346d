//! An experiment on a host: counters before a change, counters after it, and what that says.
//!
//! Must not know how it is counted, nor how the change is made in between.

use super::effect::{self, Verdict};
use super::{Step, Survey};
use crate::host::Watch;
use crate::journal::{Journal, Original};
use crate::root::Root;
use std::time::Duration;
use waykeeper_host::Interval;
use waykeeper_units::PortId;

/// Slices that the time before and the time after are cut into: enough to see how much a load flickers by itself.
const SLICES: u32 = 8;

/// What was seen before the change.
#[derive(Debug)]
pub struct Experiment {
    seen: Result<(Watch, Vec<Interval>), String>,
    span: Duration,
    subject: Subject,
    /// What the journal holds of the counters, which go back when the watch ends.
    programmed: Vec<Original>,
}

#[derive(Debug)]
enum Subject {
    Ways,
    Ports { ports: Vec<PortId>, on: bool },
}

impl Experiment {
    /// Watches the socket of the first step for `span` before the steps are taken.
    pub fn begin(
        root: &Root,
        survey: &Survey,
        steps: &[Step],
        span: Duration,
        journal: &mut Journal,
    ) -> Experiment {
        let socket = steps.iter().find_map(|step| match step {
            Step::Ways { socket, .. } => Some(*socket),
            Step::Port { address, .. } => survey.ports.iter().find(|port| port.address == *address)?.socket,
        });
        let known = journal.originals().to_vec();
        let seen = Watch::open(root, socket.unwrap_or(0), journal).map_err(|error| error.to_string()).map(
            |mut watch| {
                let before = watch.slices(span, SLICES);
                (watch, before)
            },
        );
        let on = steps.iter().find_map(|step| match step {
            Step::Port { to, .. } => Some(*to),
            Step::Ways { .. } => None,
        });
        let own = |step: &Step| match (step, &seen) {
            (Step::Port { address, .. }, Ok((watch, _))) => watch.port(*address),
            _ => None,
        };
        let ports = steps.iter().filter_map(own).collect();
        let subject = on.map_or(Subject::Ways, |on| Subject::Ports { ports, on });
        let programmed = journal.originals().iter().filter(|own| !known.contains(own)).cloned().collect();
        Experiment { seen, span, subject, programmed }
    }

    /// Watches as long after they were taken, and judges.
    pub fn end(self, journal: &mut Journal) -> Verdict {
        let (mut watch, before) = match self.seen {
            Ok(seen) => seen,
            Err(why) => return Verdict::NotJudged(why),
        };
        let after = watch.slices(self.span, SLICES);
        // What cannot be put back stays in the journal, whose restore tells it. What went back is not ours any more: a
        // change that is kept must not bring these registers back under whoever counts there by then.
        if watch.close().is_ok() {
            let _ = journal.forget_all(&self.programmed);
        }
        match self.subject {
            Subject::Ways => effect::of_ways(&before, &after),
            Subject::Ports { ports, on } => effect::of_ports(&before, &after, &ports, on),
        }
    }
}
