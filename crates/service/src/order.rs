//! Orders to the control thread, which carries them out between two steps and answers each once.
//!
//! The queue is short, and sending never waits for room; an answer takes about one period. Must not check permissions:
//! any owner of a [`Sender`] may send.

use crate::Pause;
use crossbeam_channel::{Receiver, RecvTimeoutError, TrySendError, bounded};
use std::time::Duration;

/// Orders that may wait. Assumption: people give one at a time; more than this is a flood.
const ROOM: usize = 16;

/// An order.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// Replace the policy.
    SetPolicy {
        /// Its name.
        name: String,
        /// Its settings; an empty table means all defaults.
        settings: toml::Table,
    },
    /// Pause the policy.
    Pause(Pause),
    /// Resume the policy.
    Resume,
    /// Read the configuration again.
    Reload,
    /// If the daemon is stopped within this time, it leaves its knobs in force for the next one.
    HandOver(Duration),
}

impl Order {
    /// Its name in a log.
    pub fn word(&self) -> &'static str {
        match self {
            Order::SetPolicy { .. } => "set-policy",
            Order::Pause(Pause::Hold) => "pause",
            Order::Pause(Pause::Release) => "pause-release",
            Order::Resume => "resume",
            Order::Reload => "reload",
            Order::HandOver(_) => "hand-over",
        }
    }
}

/// The outcome of an order, as a readable line.
pub type Reply = Result<String, OrderError>;

/// Why an order was not carried out, or only in part. Unless the variant says otherwise, nothing changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The order is invalid.
    #[error("{0}")]
    Refused(String),
    /// It was carried out in part.
    #[error("{0}")]
    Incomplete(String),
    /// Too many orders are waiting.
    #[error("{ROOM} orders are waiting already; ask again later")]
    Full,
    /// The daemon is ending.
    #[error("the daemon is ending")]
    Ending,
    /// No answer came in time; the order may still be carried out.
    #[error("no answer within {0:?}; the order may still be carried out")]
    Late(Duration),
}

/// An order with the channel for its answer.
#[derive(Debug)]
pub struct PendingOrder {
    /// The order.
    pub order: Order,
    answer: crossbeam_channel::Sender<Reply>,
}

impl PendingOrder {
    /// Sends the answer; ignores that the sender of the order may no longer wait.
    pub fn answer(self, reply: Reply) {
        let _ = self.answer.try_send(reply);
    }
}

/// The sending end of the queue of orders; may be cloned.
#[derive(Clone, Debug)]
pub struct Sender(crossbeam_channel::Sender<PendingOrder>);

impl Sender {
    /// Sends an order and waits at most `timeout` for the answer. Blocks: not for the control thread.
    ///
    /// # Errors
    /// Why it was not carried out.
    pub fn ask(&self, order: Order, timeout: Duration) -> Reply {
        let (answer, reply) = bounded(1);
        match self.0.try_send(PendingOrder { order, answer }) {
            Err(TrySendError::Full(_)) => return Err(OrderError::Full),
            Err(TrySendError::Disconnected(_)) => return Err(OrderError::Ending),
            Ok(()) => {}
        }
        match reply.recv_timeout(timeout) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Disconnected) => Err(OrderError::Ending),
            Err(RecvTimeoutError::Timeout) => Err(OrderError::Late(timeout)),
        }
    }
}

/// The control thread's end of the queue.
pub type Orders = Receiver<PendingOrder>;

/// Creates a queue for orders.
pub fn orders() -> (Sender, Orders) {
    let (sender, receiver) = bounded(ROOM);
    (Sender(sender), receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_answered_and_a_flood_is_turned_away() {
        let (sender, orders) = orders();
        let asker = sender.clone();
        let thread = std::thread::spawn(move || asker.ask(Order::Resume, Duration::from_secs(60)));
        let pending_order = orders.recv().unwrap();
        assert_eq!(pending_order.order, Order::Resume);
        pending_order.answer(Ok("goes on".to_owned()));
        assert_eq!(thread.join().unwrap(), Ok("goes on".to_owned()));
        for _ in 0..ROOM {
            let late = sender.ask(Order::Reload, Duration::ZERO);
            assert_eq!(late, Err(OrderError::Late(Duration::ZERO)));
        }
        assert_eq!(sender.ask(Order::Resume, Duration::from_secs(60)), Err(OrderError::Full));
        drop(orders);
        assert_eq!(sender.ask(Order::Resume, Duration::from_secs(60)), Err(OrderError::Ending));
    }
}
