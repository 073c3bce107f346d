//! An experiment on a host: counters before a change, counters after it, and the verdict.
//!
//! Must not know how events are counted or how the change is made.

use super::effect::{self, EffectVerdict};
use super::{RegisterChange, Survey};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use waykeeper_host::Interval;
use waykeeper_kernel::journal::{Journal, Original};
use waykeeper_kernel::pci::PciAddress;
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::restore::Restorer;
use waykeeper_kernel::root::Root;
use waykeeper_linux_host::ObservedPackage;

/// Number of slices of the time before and of the time after, enough to see how much a load varies by itself.
/// Assumption: a standard error from eight samples is known within about a quarter.
const SLICES: u32 = 8;

/// The counters before the change.
#[derive(Debug)]
pub struct DdioExperiment {
    sockets: Vec<Socket>,
    span: Duration,
    /// The journal's entries for the programmed counters, which are restored when the watch ends.
    programmed: Vec<Original>,
}

/// A socket on which a step changes something.
#[derive(Debug)]
struct Socket {
    number: u16,
    subject: Subject,
    watch: Result<ObservedPackage, String>,
    before: Vec<Interval>,
}

/// What changes on a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Subject {
    Ways,
    Ports { ports: Vec<PciAddress>, on: bool },
}

/// The sockets on which steps change something, and what. A port of unknown socket counts as on socket 0.
fn subjects(survey: &Survey, steps: &[RegisterChange]) -> BTreeMap<u16, Subject> {
    let mut subjects = BTreeMap::new();
    for step in steps.iter().filter(|step| step.is_needed()) {
        match step {
            RegisterChange::Ways { socket, .. } => drop(subjects.insert(*socket, Subject::Ways)),
            RegisterChange::Port { address, to, .. } => {
                let port = survey.ports.iter().find(|port| port.address == *address);
                let socket = port.and_then(|port| port.socket).unwrap_or(0);
                let new = Subject::Ports { ports: Vec::new(), on: *to };
                if let Subject::Ports { ports, .. } = subjects.entry(socket).or_insert(new) {
                    ports.push(*address);
                }
            }
        }
    }
    subjects
}

impl DdioExperiment {
    /// Counts on every socket on which a step changes something, for `span` or until `stop`. Call it before the steps
    /// are applied.
    pub fn begin(
        root: &Root,
        survey: &Survey,
        steps: &[RegisterChange],
        span: Duration,
        journal: &mut Journal,
        stop: &AtomicBool,
    ) -> DdioExperiment {
        let known = journal.originals().to_vec();
        let mut sockets: Vec<Socket> = Vec::new();
        for (number, subject) in subjects(survey, steps) {
            let watch = ObservedPackage::open(root, number, journal).map_err(|error| error.to_string());
            sockets.push(Socket { number, subject, watch, before: Vec::new() });
        }
        let programmed = journal.originals().iter().filter(|own| !known.contains(own)).cloned().collect();
        let mut before = look(&mut sockets, span, stop).into_iter();
        for socket in sockets.iter_mut().filter(|socket| socket.watch.is_ok()) {
            socket.before = before.next().unwrap_or_default();
        }
        DdioExperiment { sockets, span, programmed }
    }

    /// Counts for the same time after the steps were applied, and judges. The second result names counters that
    /// another program has taken over meanwhile, one line each.
    pub fn end(
        mut self,
        root: &Root,
        journal: &mut Journal,
        stop: &AtomicBool,
    ) -> (EffectVerdict, Vec<String>) {
        let mut after = look(&mut self.sockets, self.span, stop).into_iter();
        let mut verdicts = Vec::new();
        for socket in self.sockets {
            let verdict = match socket.watch {
                Err(why) => EffectVerdict::NotJudged(why),
                Ok(watch) => {
                    judge(&watch, &socket.subject, &socket.before, &after.next().unwrap_or_default())
                }
            };
            verdicts.push((socket.number, verdict));
        }
        // Counters are restored immediately: if the change is kept, a later restore could disturb a program that
        // counts there by then. What cannot be restored stays in the journal.
        let registers = RegisterFiles::of(root);
        let mut restorer = Restorer { root, resctrl: None, registers: &registers };
        let report = restorer.restore_some(journal, &self.programmed).unwrap_or_default();
        let left = report.left().collect();
        if stop.load(Ordering::Relaxed) {
            return (
                EffectVerdict::NotJudged("the experiment was stopped before enough was measured".to_owned()),
                left,
            );
        }
        (effect::together(verdicts), left)
    }
}

/// The intervals of the sockets that can be watched, in order.
fn look(sockets: &mut [Socket], span: Duration, stop: &AtomicBool) -> Vec<Vec<Interval>> {
    let mut watches: Vec<&mut ObservedPackage> =
        sockets.iter_mut().filter_map(|socket| socket.watch.as_mut().ok()).collect();
    ObservedPackage::slices(&mut watches, span, SLICES, stop)
}

fn judge(
    watch: &ObservedPackage,
    subject: &Subject,
    before: &[Interval],
    after: &[Interval],
) -> EffectVerdict {
    match subject {
        Subject::Ways => effect::of_ways(before, after),
        Subject::Ports { ports, on } => {
            let ports: Vec<_> = ports.iter().filter_map(|address| watch.port(*address)).collect();
            effect::of_ports(before, after, &ports, *on)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::WayMask;

    #[test]
    fn only_what_changes_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let survey = super::super::survey(&Root::at(folder.path()));
        let ways = |socket: u16, from: u32| RegisterChange::Ways {
            socket,
            cpu: socket,
            register: 0xc8b,
            from: WayMask::from_bits(from),
            to: WayMask::from_bits(0x780),
        };
        let found = subjects(&survey, &[ways(0, 0x780), ways(1, 0x600), ways(2, 0x700)]);
        assert_eq!(found, BTreeMap::from([(1, Subject::Ways), (2, Subject::Ways)]));
        let [own, off]: [PciAddress; 2] = ["0000:16:00.0", "0000:3a:00.0"].map(|text| text.parse().unwrap());
        let port = |address: PciAddress, from: bool| RegisterChange::Port {
            address,
            offset: 0x180,
            bit: 7,
            from,
            to: false,
        };
        let found = subjects(&survey, &[port(off, false), port(own, true)]);
        assert_eq!(found, BTreeMap::from([(0, Subject::Ports { ports: vec![own], on: false })]));
    }
}
