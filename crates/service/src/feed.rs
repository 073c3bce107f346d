//! Steps on their way to whoever writes them down. The control thread never waits for a disk: when there is no room, a
//! step is dropped and counted.
//!
//! Must not know what becomes of them.

use crate::Published;
use crossbeam_channel::{Receiver, TrySendError, bounded};
use std::sync::Arc;

/// One step, as it was put on the board.
pub type Step = Arc<Published>;

/// The control thread's end.
#[derive(Clone, Debug)]
pub struct Feed(crossbeam_channel::Sender<Step>);

impl Feed {
    /// Hands a step on; false if there is no room for it, or nobody takes any more.
    pub fn offer(&self, step: Step) -> bool {
        !matches!(self.0.try_send(step), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }
}

/// A feed with room for so many steps, and the end where they come out.
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
