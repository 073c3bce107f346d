//! A bounded queue of steps from the control thread to a writer. The control thread never waits for a disk: without
//! room, a step is dropped and counted.
//!
//! Must not know what the writer does.

use crate::Published;
use crossbeam_channel::{Receiver, TrySendError, bounded};
use std::sync::Arc;

/// One published step.
pub type Step = Arc<Published>;

/// The control thread's end.
#[derive(Clone, Debug)]
pub struct Feed(crossbeam_channel::Sender<Step>);

impl Feed {
    /// Sends a step; false if there is no room, or the receiver is gone.
    pub fn offer(&self, step: Step) -> bool {
        !matches!(self.0.try_send(step), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }
}

/// Creates a queue with room for `room` steps.
pub fn feed(room: usize) -> (Feed, Receiver<Step>) {
    let (sender, receiver) = bounded(room);
    (Feed(sender), receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::tests::published;

    #[test]
    fn a_feed_that_nobody_empties_drops_and_says_so() {
        let (feed, steps) = feed(2);
        let step = Arc::new(published());
        assert_eq!([(); 3].map(|()| feed.offer(step.clone())), [true, true, false]);
        assert!(steps.try_recv().is_ok());
        assert!(feed.offer(step.clone()));
        drop(steps);
        assert!(!feed.offer(step));
    }
}
