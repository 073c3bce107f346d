//! A bounded queue of steps from the control thread to a writer. The control thread never waits for a disk: without
//! room, a step is dropped and counted.
//!
//! Must not know what the writer does.

use crate::Published;
use crossbeam_channel::{Receiver, TrySendError, bounded};
use std::sync::Arc;

/// One published step.
pub type PublishedStep = Arc<Published>;

/// The control thread's end.
#[derive(Clone, Debug)]
pub struct StepQueue(crossbeam_channel::Sender<PublishedStep>);

impl StepQueue {
    /// Sends a step; false if there is no room, or the receiver is gone.
    pub fn offer(&self, step: PublishedStep) -> bool {
        !matches!(self.0.try_send(step), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }
}

/// Creates a queue with room for `room` steps.
pub fn step_queue(room: usize) -> (StepQueue, Receiver<PublishedStep>) {
    let (sender, receiver) = bounded(room);
    (StepQueue(sender), receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published_state::tests::published;

    #[test]
    fn a_feed_without_a_reader_drops_steps_and_counts_them() {
        let (step_queue, steps) = step_queue(2);
        let step = Arc::new(published());
        assert_eq!([(); 3].map(|()| step_queue.offer(step.clone())), [true, true, false]);
        assert!(steps.try_recv().is_ok());
        assert!(step_queue.offer(step.clone()));
        drop(steps);
        assert!(!step_queue.offer(step));
    }
}
