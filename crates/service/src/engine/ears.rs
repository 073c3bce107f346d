//! The channels that the control thread waits on between two steps: orders, signals, and loaded configurations.
//!
//! Files are read on a separate thread, as a disk may be slow. Must not know what the messages cause.

use crate::config::{Config, ConfigError, Inputs};
use crate::order::{Asked, Orders};
use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use std::time::Duration;

/// A request from a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nudge {
    /// Read the configuration again.
    Reload,
    /// End.
    Stop,
}

/// A received message.
#[derive(Debug)]
pub(super) enum Heard {
    Order(Asked),
    Nudge(Nudge),
    /// A configuration was read, with the order that requested it.
    Loaded(Box<Result<Config, ConfigError>>, Option<Asked>),
}

type Loaded = (Box<Result<Config, ConfigError>>, Option<Asked>);

/// The channels.
#[derive(Debug)]
pub(super) struct Ears {
    orders: Orders,
    nudges: Receiver<Nudge>,
    inputs: Inputs,
    loading: Option<Receiver<Loaded>>,
}

impl Ears {
    pub fn new(orders: Orders, nudges: Receiver<Nudge>, inputs: Inputs) -> Ears {
        Ears { orders, nudges, inputs, loading: None }
    }

    /// Waits for a message, at most `at_most`.
    pub fn listen(&mut self, at_most: Duration) -> Option<Heard> {
        let loading = self.loading.clone().unwrap_or_else(never);
        // Channel closed: stop selecting on it.
        select! {
            recv(self.nudges) -> nudge => match nudge {
                Ok(nudge) => return Some(Heard::Nudge(nudge)),
                Err(_) => self.nudges = never(),
            },
            recv(self.orders) -> asked => match asked {
                Ok(asked) => return Some(Heard::Order(asked)),
                Err(_) => self.orders = never(),
            },
            recv(loading) -> loaded => {
                self.loading = None;
                return loaded.ok().map(|(config, asked)| Heard::Loaded(config, asked));
            },
            default(at_most) => {}
        }
        None
    }

    /// Starts to read the configuration; returns the order if a reload is running or no thread can start.
    pub fn load(&mut self, asked: Option<Asked>) -> Result<(), (Option<Asked>, String)> {
        if self.loading.is_some() {
            return Err((asked, "a reload is running already; try again when it is done".to_owned()));
        }
        let (sender, receiver): (Sender<Loaded>, _) = bounded(1);
        let (give, take) = bounded(1);
        let inputs = self.inputs.clone();
        let thread = std::thread::Builder::new().name("waykeeper-load".to_owned());
        let spawned = thread.spawn(move || {
            let config = Box::new(Config::load(&inputs));
            let _ = sender.send((config, take.recv().unwrap_or_default()));
        });
        match spawned {
            Err(why) => Err((asked, format!("cannot start a thread to read the configuration: {why}"))),
            Ok(_) => {
                // The channel has room for one message.
                let _ = give.try_send(asked);
                self.loading = Some(receiver);
                Ok(())
            }
        }
    }
}
