//! Detects that the load changed: compares the traffic of each interval with that at the start of the phase.
//!
//! It must not know layouts or what the policy does after a change.

use super::server::Server;
use super::{event, running_mean};
use crate::{Cause, Event};
use waykeeper_calibration::TrafficSignature;
use waykeeper_host::Interval;

/// A signature change above this multiple of its running mean counts as unusual. Assumption: chance alone seldom
/// reaches it.
const JITTER_MARGIN: f64 = 4.0;
/// Intervals in a row that must show another phase. Each phase change soon after the last one doubles the number, up to
/// the maximum, so that restless traffic does not cause a search without end. One interval suffices if the change is
/// twice the limit and the last phase change is at least twice this number ago. Assumption: two rule out a single jump;
/// 64 are about a minute.
const PHASE_CONFIRM_LEAST: u32 = 2;
const PHASE_CONFIRM_MOST: u32 = 64;
/// A phase change within this multiple of the confirming intervals counts as soon. Assumption: a phase that lasts
/// longer repays a search.
const EARLY_PHASE_FACTOR: u32 = 4;

/// A change of the load, and the limit above which it counts.
pub(super) struct Change {
    /// The change, relative.
    by: f64,
    /// What changed, in words.
    what: String,
    /// The limit and the setting that it comes from.
    limit: (&'static str, f64),
    /// Above this value one interval suffices.
    sudden: f64,
}

impl Change {
    /// The loss of an HPW instead, if the traffic is the same: then another workload causes the loss.
    pub fn or_hpw_loss(self, loss: f64, server: &Server) -> Change {
        let most = server.config.hpw_loss_max;
        if self.by > server.config.phase_change || loss <= most {
            return self;
        }
        let what = "progress of an HPW".to_owned();
        Change { by: loss, what, limit: ("hpw_loss_max", most), sudden: f64::INFINITY }
    }
}

/// Decides when a change has lasted long enough to be a new phase.
pub(super) struct PhaseDetector {
    /// The traffic at the start of the phase.
    start: TrafficSignature,
    /// The traffic of the last interval; empty before the first.
    last: TrafficSignature,
    /// Running mean of the traffic's change from one interval to the next.
    jitter: f64,
    /// Intervals in a row with a change above its limit.
    phase_streak: u32,
    /// Intervals in a row that must show a change.
    phase_confirm_intervals: u32,
    /// Intervals since the last phase change.
    since_phase: u32,
}

impl PhaseDetector {
    pub fn new() -> PhaseDetector {
        PhaseDetector {
            start: TrafficSignature::default(),
            last: TrafficSignature::default(),
            jitter: 0.0,
            phase_streak: 0,
            phase_confirm_intervals: PHASE_CONFIRM_LEAST,
            since_phase: u32::MAX,
        }
    }

    /// The traffic at the start of the phase.
    pub fn start(&self) -> &TrafficSignature {
        &self.start
    }

    /// Makes the last interval the start of the phase.
    pub fn begin_phase(&mut self) {
        self.start = self.last.clone();
    }

    /// Earlier intervals with a change do not count any more.
    pub fn reset_streak(&mut self) {
        self.phase_streak = 0;
    }

    /// The change of the traffic since the start of the phase.
    pub fn observe(&mut self, seen: &Interval, server: &Server) -> Change {
        let now = TrafficSignature::of(&server.groups, seen, &server.inventory);
        // A change as large as the usual one between intervals is no new phase.
        let limit = server.config.phase_change.max(JITTER_MARGIN * self.jitter);
        let (jump, _) = now.distance(&self.last, &server.groups);
        self.jitter = running_mean(self.jitter, jump.min(1.0));
        let (by, what) = now.distance(&self.start, &server.groups);
        self.last = now;
        Change { by, what, limit: ("phase_change", limit), sudden: 2.0 * limit }
    }

    /// The event of a new phase, if the change has lasted long enough or is sudden.
    pub fn confirm(&mut self, change: Change) -> Option<Event> {
        let Change { by, what, limit: (name, limit), sudden } = change;
        self.phase_streak = if by > limit { self.phase_streak + 1 } else { 0 };
        self.since_phase = self.since_phase.saturating_add(1);
        let at_once = by > sudden && self.since_phase >= 2 * self.phase_confirm_intervals;
        if self.phase_streak < self.phase_confirm_intervals && !at_once {
            return None;
        }
        let early = self.since_phase < EARLY_PHASE_FACTOR * self.phase_confirm_intervals;
        self.phase_confirm_intervals = if early {
            (2 * self.phase_confirm_intervals).min(PHASE_CONFIRM_MOST)
        } else {
            PHASE_CONFIRM_LEAST
        };
        self.since_phase = 0;
        let limit = Some((name.to_owned(), limit));
        let cause = Cause { what: format!("relative change of {what}"), value: by, limit };
        Some(event("phase", format!("new phase: {what} changed"), vec![cause]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{interval, server};
    use super::*;
    use waykeeper_host::PortRates;
    use waykeeper_units::PortId;

    /// The detector in a phase of 1 GB/s without jitter.
    fn at_one_gigabyte(server: &Server) -> PhaseDetector {
        let mut detector = PhaseDetector::new();
        detector.observe(&interval(&[1.0], 1e9), server);
        detector.begin_phase();
        detector
    }

    fn phase(detector: &mut PhaseDetector, server: &Server, bytes: f64) -> bool {
        let change = detector.observe(&interval(&[1.0], bytes), server);
        detector.confirm(change).is_some()
    }

    #[test]
    fn a_change_above_the_limit_counts_in_the_second_interval_and_a_sudden_one_at_once() {
        let server = server(1);
        let mut detector = at_one_gigabyte(&server);
        // phase_change is 0.25: 20 % more traffic is no change, 30 % more in two intervals is a phase.
        assert!(!phase(&mut detector, &server, 1.2e9));
        assert!(!phase(&mut detector, &server, 1e9));
        let mut detector = at_one_gigabyte(&server);
        assert!(!phase(&mut detector, &server, 1.3e9));
        assert!(phase(&mut detector, &server, 1.3e9));
        // Twice the traffic is a change of 1.0, more than twice the limit.
        let mut detector = at_one_gigabyte(&server);
        assert!(phase(&mut detector, &server, 2e9));
        assert_eq!(detector.phase_confirm_intervals, PHASE_CONFIRM_LEAST, "the first phase is never early");
        // The next phase two intervals later is early: a sudden change does not count at once, and the number doubles.
        // The jitter is 0.2 after a change of 1.0, so the limit is 0.8; a fall to a twentieth is a change of 19.
        detector.begin_phase();
        detector.reset_streak();
        assert!(!phase(&mut detector, &server, 1e8));
        assert!(phase(&mut detector, &server, 1e8));
        assert_eq!(detector.phase_confirm_intervals, 2 * PHASE_CONFIRM_LEAST);
    }

    #[test]
    fn bytes_that_are_not_available_are_no_change_of_the_traffic() {
        let server = server(1);
        let mut detector = at_one_gigabyte(&server);
        let mut unknown = interval(&[1.0], 1e9);
        unknown.ports.insert(PortId(0), PortRates::all(waykeeper_host::Reading::Unavailable));
        for _ in 0..4 {
            let change = detector.observe(&unknown, &server);
            assert_eq!(change.by, 0.0);
            assert!(detector.confirm(change).is_none());
        }
        assert!(!phase(&mut detector, &server, 1e9));
        // No traffic is a change.
        assert!(phase(&mut detector, &server, 0.0));
    }

    #[test]
    fn the_loss_of_an_hpw_counts_only_if_the_traffic_is_the_same() {
        let server = server(1);
        let mut detector = at_one_gigabyte(&server);
        let same = detector.observe(&interval(&[1.0], 1e9), &server).or_hpw_loss(0.2, &server);
        assert_eq!((same.by, same.limit), (0.2, ("hpw_loss_max", 0.1)));
        let other = detector.observe(&interval(&[1.0], 2e9), &server).or_hpw_loss(0.2, &server);
        assert_eq!((other.by, other.limit.0), (1.0, "phase_change"));
    }
}
