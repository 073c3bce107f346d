//! A bounded mailbox between a source's thread and its reader. The thread never waits: in a full mailbox the oldest step
//! makes room, and no other event does.
//!
//! Must not know where events come from.

use crate::source::SourceEvent;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events that may wait. Assumption: a reader that is a minute behind wants the present, not the minute.
const ROOM: usize = 64;

/// One mailbox, shared by both ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mailbox(Arc<(Mutex<VecDeque<SourceEvent>>, Condvar)>);

impl Mailbox {
    /// Adds an event.
    pub fn put(&self, event: SourceEvent) {
        let (events, bell) = &*self.0;
        let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= ROOM {
            let step = events.iter().position(|event| matches!(event, SourceEvent::Step(_)));
            // Without a step among so many events, the oldest says least about the present.
            events.remove(step.unwrap_or(0));
        }
        events.push_back(event);
        bell.notify_one();
    }

    /// Takes the oldest event; waits at most `wait` for one.
    pub fn take(&self, wait: Duration) -> Option<SourceEvent> {
        let (events, bell) = &*self.0;
        let deadline = Instant::now() + wait;
        let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(event) = events.pop_front() {
                return Some(event);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            events = bell.wait_timeout(events, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_has_the_latest_events_in_order() {
        let mailbox = Mailbox::default();
        let lost = |why: usize| SourceEvent::Lost { why: why.to_string() };
        assert_eq!(mailbox.take(Duration::ZERO), None);
        for number in 0..ROOM + 3 {
            mailbox.put(lost(number));
        }
        mailbox.put(SourceEvent::End);
        assert_eq!(mailbox.take(Duration::ZERO), Some(lost(4)));
        let rest = std::iter::from_fn(|| mailbox.take(Duration::ZERO));
        assert_eq!(rest.last(), Some(SourceEvent::End));
    }

    #[test]
    fn a_reader_wakes_when_an_event_comes() {
        let mailbox = Mailbox::default();
        let sender = mailbox.clone();
        let thread = std::thread::spawn(move || sender.put(SourceEvent::End));
        assert_eq!(mailbox.take(Duration::from_secs(60)), Some(SourceEvent::End));
        thread.join().unwrap();
    }
}
