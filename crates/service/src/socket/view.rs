//! The published state as the socket sends it, with the last decisions.
//!
//! The published state has only the latest step; this keeps the last few decisions. It reads the published state
//! several times per period, so it misses a step only if its thread does not run. Must not know clients.

use crate::protocol::{DaemonStatus, LoggedEvent};
use crate::{Published, PublishedState};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use waykeeper_kernel::system::SharedSystem;

/// Decisions and problems that are kept: a minute of a policy that decides at every step (1 s).
const KEPT: usize = 64;

/// The published state and the last decisions.
#[derive(Debug)]
pub struct View {
    system: SharedSystem,
    published_state: Arc<PublishedState>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    last: Arc<Published>,
    recent: VecDeque<LoggedEvent>,
}

impl View {
    /// Starts with the present content.
    pub fn new(system: SharedSystem, published_state: Arc<PublishedState>) -> View {
        let last = published_state.read();
        let mut seen = Seen { recent: VecDeque::new(), last: last.clone() };
        seen.keep(&last);
        View { system, published_state, seen: Mutex::new(seen) }
    }

    /// Reads the published state and keeps new decisions.
    pub fn read(&self) -> Arc<Published> {
        let now = self.published_state.read();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&seen.last, &now) {
            // A step may be published again with other changes; its decisions are kept once.
            if (seen.last.step, seen.last.record.at_ns) != (now.step, now.record.at_ns) {
                seen.keep(&now);
            }
            seen.last = now.clone();
        }
        now
    }

    /// The status of a step that was read.
    pub fn status(&self, looked_at: &Published) -> DaemonStatus {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        DaemonStatus::of(looked_at, seen.recent.iter().cloned(), self.system.now())
    }

    /// Time until the next look.
    pub fn pause(&self) -> Duration {
        let period = Duration::from_nanos(self.published_state.read().period_ns);
        (period / 4).clamp(Duration::from_millis(10), Duration::from_millis(250))
    }
}

impl Seen {
    fn keep(&mut self, published: &Published) {
        self.recent.extend(LoggedEvent::all(published));
        let surplus = self.recent.len().saturating_sub(KEPT);
        self.recent.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published_state::tests::published;
    use waykeeper_control::{Problem, StepRecord};
    use waykeeper_policy::Event;

    fn step(step: u64) -> Published {
        let event = |n: u64| Event {
            action: "grow".to_owned(),
            group: Some("fio".to_owned()),
            text: format!("step {step}, {n}"),
            causes: Vec::new(),
        };
        let record = StepRecord {
            at_ns: step,
            events: vec![event(0)],
            problems: vec![Problem::NoTime],
            ..StepRecord::default()
        };
        Published { step, record, ..published() }
    }

    #[test]
    fn decisions_are_reported_once_and_the_oldest_are_forgotten() {
        let published_state = Arc::new(PublishedState::new(step(0)));
        let view = View::new(waykeeper_kernel::system::real(), published_state.clone());
        published_state.replace(step(1));
        view.read();
        view.read();
        // The same step again, with another active problem.
        published_state.replace(Published { paused: Some(crate::Pause::Hold), ..step(1) });
        let status = view.status(&view.read());
        let reported: Vec<(u64, &str)> =
            status.recent.iter().map(|reported| (reported.step, reported.action.as_str())).collect();
        assert_eq!(reported, [(0, "grow"), (0, "problem"), (1, "grow"), (1, "problem")]);
        assert_eq!(status.paused, Some(crate::Pause::Hold));
        for n in 2..1000 {
            published_state.replace(step(n));
            view.read();
        }
        let recent = view.status(&view.read()).recent;
        assert_eq!((recent.len(), recent[0].step, recent[KEPT - 1].step), (KEPT, 968, 999));
    }
}
