//! The channels that the control thread waits on between two steps: orders, signals, and loaded configurations.
//!
//! Files are read on a separate thread, as a disk may be slow. Must not know what the messages cause.

use crate::config::{Config, ConfigError, Inputs};
use crate::order::{Orders, PendingOrder};
use crate::pods::PodReceiver;
use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use std::time::Duration;
use waykeeper_kernel::system::SharedSystem;

/// A request from a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalRequest {
    /// Read the configuration again.
    Reload,
    /// End.
    Stop,
}

/// A received message.
#[derive(Debug)]
pub(super) enum SourceEvent {
    Order(PendingOrder),
    SignalRequest(SignalRequest),
    /// The plugin sent the tenants of pods.
    Pods,
    /// A configuration was read, with the order that requested it.
    Loaded(Box<Result<Config, ConfigError>>, Option<PendingOrder>),
}

type Loaded = (Box<Result<Config, ConfigError>>, Option<PendingOrder>);

/// The channels.
#[derive(Debug)]
pub(super) struct EventSources {
    system: SharedSystem,
    orders: Orders,
    signal_requests: Receiver<SignalRequest>,
    inputs: Inputs,
    loading: Option<Receiver<Loaded>>,
    pods: Option<PodReceiver>,
}

impl EventSources {
    pub fn new(
        system: SharedSystem,
        orders: Orders,
        signal_requests: Receiver<SignalRequest>,
        inputs: Inputs,
        pods: Option<PodReceiver>,
    ) -> EventSources {
        EventSources { system, orders, signal_requests, inputs, loading: None, pods }
    }

    /// The mailbox of the tenants of pods, if there is one.
    pub fn pods(&self) -> Option<&PodReceiver> {
        self.pods.as_ref()
    }

    /// Waits for a message, at most `at_most`.
    pub fn wait(&mut self, at_most: Duration) -> Option<SourceEvent> {
        let loading = self.loading.clone().unwrap_or_else(never);
        let pods = self.pods.as_ref().map_or_else(never, |pods| pods.wake().clone());
        // Channel closed: stop selecting on it.
        select! {
            recv(self.signal_requests) -> signal_request => match signal_request {
                Ok(signal_request) => return Some(SourceEvent::SignalRequest(signal_request)),
                Err(_) => self.signal_requests = never(),
            },
            recv(self.orders) -> pending_order => match pending_order {
                Ok(pending_order) => return Some(SourceEvent::Order(pending_order)),
                Err(_) => self.orders = never(),
            },
            recv(pods) -> woken => match woken {
                Ok(()) => return Some(SourceEvent::Pods),
                // The plugin has ended; the last message has been taken.
                Err(_) => self.pods = None,
            },
            recv(loading) -> loaded => {
                self.loading = None;
                return loaded.ok().map(|(config, pending_order)| SourceEvent::Loaded(config, pending_order));
            },
            default(at_most) => {}
        }
        None
    }

    /// Starts to read the configuration; returns the order if a reload is running or no thread can start.
    pub fn load(
        &mut self,
        pending_order: Option<PendingOrder>,
    ) -> Result<(), (Option<PendingOrder>, String)> {
        if self.loading.is_some() {
            return Err((pending_order, "a reload is running already; try again when it is done".to_owned()));
        }
        let (sender, receiver): (Sender<Loaded>, _) = bounded(1);
        let (give, take) = bounded(1);
        let (system, inputs, back) = (self.system.clone(), self.inputs.clone(), take.clone());
        let work = move || {
            let config = Config::load_on(system.as_ref(), &inputs)
                .and_then(|config| config.with_file_policy(system.as_ref()));
            let config = Box::new(config);
            let _ = sender.send((config, take.recv().unwrap_or_default()));
        };
        // The channel has room for one message.
        let _ = give.try_send(pending_order);
        match self.system.run_beside("waykeeper-load", Box::new(work)) {
            Err(why) => {
                let pending_order = back.try_recv().unwrap_or_default();
                Err((pending_order, format!("cannot start a thread to read the configuration: {why}")))
            }
            Ok(()) => {
                self.loading = Some(receiver);
                Ok(())
            }
        }
    }
}
