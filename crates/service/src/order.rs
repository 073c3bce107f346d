//! What others ask of the control thread: a few orders, each answered once, between two steps.
//!
//! The queue is short and sending never waits for room; the answer comes within about one period. Must not know who may
//! ask: whoever has a [`Sender`] may.

use crate::Pause;
use crossbeam_channel::{Receiver, RecvTimeoutError, TrySendError, bounded};
use std::time::Duration;

/// Orders that may wait. They come from people's hands; more than this is a flood. Assumption: people give one at a
/// time.
const ROOM: usize = 16;

/// Something to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// Another policy, with its settings.
    SetPolicy {
        /// Its name.
        name: String,
        /// Its settings; an empty table means all defaults.
        settings: toml::Table,
    },
    /// Hold the policy back.
    Pause(Pause),
    /// Go on.
    Resume,
    /// Read the configuration again.
    Reload,
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
        }
    }
}

/// What came of an order: a line for people.
pub type Reply = Result<String, OrderError>;

/// Why an order was not carried out, or not wholly. Unless it says otherwise nothing changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Refused(String),
    /// It was carried out, and not everything came about.
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

/// An order with the way back for its answer.
#[derive(Debug)]
pub struct Asked {
    /// What is asked for.
    pub order: Order,
    answer: crossbeam_channel::Sender<Reply>,
}

impl Asked {
    /// Answers. Whoever asked may have gone away; that is no trouble.
    pub fn answer(self, reply: Reply) {
        let _ = self.answer.try_send(reply);
    }
}

/// Where orders are given. Clones go to everybody who may.
#[derive(Clone, Debug)]
pub struct Sender(crossbeam_channel::Sender<Asked>);

impl Sender {
    /// Gives an order and waits for the answer at most so long. (Blocking: not for the control thread.)
    ///
    /// # Errors
    /// Why it was not carried out.
    pub fn ask(&self, order: Order, patience: Duration) -> Reply {
        let (answer, reply) = bounded(1);
        match self.0.try_send(Asked { order, answer }) {
            Err(TrySendError::Full(_)) => return Err(OrderError::Full),
            Err(TrySendError::Disconnected(_)) => return Err(OrderError::Ending),
            Ok(()) => {}
        }
        match reply.recv_timeout(patience) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Disconnected) => Err(OrderError::Ending),
            Err(RecvTimeoutError::Timeout) => Err(OrderError::Late(patience)),
        }
    }
}

/// Where orders arrive: the control thread's end.
pub type Orders = Receiver<Asked>;

/// A way for orders.
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
        let asked = orders.recv().unwrap();
        assert_eq!(asked.order, Order::Resume);
        asked.answer(Ok("goes on".to_owned()));
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
