//! Messages to the daemon: at most one waits at a time, so that their order is the history's.
//!
//! Must not know what a message causes.

use crate::history::What;
use crossbeam_channel::Sender;
use std::collections::VecDeque;
use std::time::Duration;
use toml::Table;
use waykeeper_service::engine::SignalRequest;
use waykeeper_service::{Order, OrderError, Pause, Sender as Orders};

/// Steps between two messages: a reload is answered in the step after the one that begins it.
const QUIET_STEPS: u64 = 3;

/// The mailbox of a process.
#[derive(Default)]
pub struct Mailbox {
    waiting: VecDeque<What>,
    to: Option<(Orders, Sender<SignalRequest>)>,
    quiet: u64,
    stopping: bool,
    /// The step after the last wait was published: what is written now is written by an order or at the end.
    published: bool,
}

impl Mailbox {
    /// The mailbox of a running engine.
    pub fn open(&mut self, orders: Orders, signals: Sender<SignalRequest>) {
        self.to = Some((orders, signals));
        self.quiet = 0;
    }

    /// Adds a message.
    pub fn put(&mut self, message: What) {
        self.waiting.push_back(message);
    }

    /// Whether an engine runs that has not begun to end.
    pub fn is_running(&self) -> bool {
        self.to.is_some() && !(self.stopping && self.published)
    }

    /// A step is published.
    pub fn note_published(&mut self) {
        self.published = true;
    }

    /// Whether a stop waits or was sent.
    pub fn is_stopping(&self) -> bool {
        self.stopping || self.waiting.contains(&What::Stop)
    }

    /// After a step: the message that is due.
    pub fn next(&mut self) -> Option<What> {
        self.quiet += 1;
        self.published = false;
        if self.quiet < QUIET_STEPS || self.to.is_none() {
            return None;
        }
        let message = self.waiting.pop_front()?;
        self.quiet = 0;
        self.stopping |= message == What::Stop;
        Some(message)
    }

    /// Sends a message.
    pub fn send(&self, message: &What, settings: Table) {
        let Some((orders, signals)) = &self.to else { return };
        let order = match message {
            What::Stop => return signal(signals, SignalRequest::Stop),
            What::Declare { by_signal: true, .. } => return signal(signals, SignalRequest::Reload),
            What::Declare { .. } => Order::Reload,
            What::SetPolicy { name } => Order::SetPolicy { name: name.clone(), settings },
            What::HandOver { ms } => Order::HandOver(Duration::from_millis(*ms)),
            What::Pause { release } => Order::Pause(if *release { Pause::Release } else { Pause::Hold }),
            _ => Order::Resume,
        };
        // The answer comes after this thread has gone on: it is not waited for.
        let sent = orders.ask(order, Duration::ZERO);
        debug_assert!(matches!(sent, Err(OrderError::Late(_) | OrderError::Ending)), "{sent:?}");
    }
}

fn signal(signals: &Sender<SignalRequest>, request: SignalRequest) {
    // There is room: at most one message waits.
    let sent = signals.try_send(request);
    debug_assert!(sent.is_ok(), "{sent:?}");
}
