//! Everything the control thread listens to between two steps: orders, signals, and a configuration that was loaded.
//!
//! Files are read on a thread of their own, as a disk may take its time. Must not know what becomes of what is heard.

use crate::config::{Config, ConfigError, Inputs};
use crate::order::{Asked, Orders};
use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use std::time::Duration;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nudge {
    /// Read the configuration again.
    Reload,
    /// End.
    Stop,
}

/// Something heard.
#[derive(Debug)]
pub(super) enum Heard {
    Order(Asked),
    Nudge(Nudge),
    /// A configuration was read, for whoever asked for it.
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

    /// Listens for so long at most.
    pub fn listen(&mut self, at_most: Duration) -> Option<Heard> {
        let loading = self.loading.clone().unwrap_or_else(never);
        // Nobody left to say anything: one ear less.
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

    /// Begins to read the configuration again; gives the order back if that is under way already or cannot be.
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
                // There is room for one, and this is it.
                let _ = give.try_send(asked);
                self.loading = Some(receiver);
                Ok(())
            }
        }
    }
}
