//! The daemon: manages a host while it runs, and answers queries and orders.
//!
//! One thread has the host and the loop, and never waits for clients: it replaces the [`PublishedState`], sends each
//! step to the [`StepQueue`] (which drops instead of blocking) and takes [`Order`]s between two steps. It waits for a policy
//! from a file, up to a deadline ([`FilePolicy`]). Socket, metrics and recorder run on other threads, read the published
//! state or the step queue, and send orders. Must not know what serves the host's files, nor the command line.

mod backoff;
mod client;
pub mod config;
pub mod daemon;
pub mod dry_run;
pub mod engine;
mod file_policy;
mod first_config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod linux;
pub mod log;
mod metrics;
pub mod naming;
mod notify;
mod observation;
mod order;
pub mod pods;
pub mod protocol;
mod published_state;
pub mod recorder;
pub mod replay;
mod servers;
mod socket;
mod step_queue;
pub mod twin;
mod worst;

pub use client::{Client, ClientError, printable};
pub use engine::LifecycleEvent;
pub use file_policy::{FilePolicy, FilePolicyChoice, LoadedPolicy};
pub use first_config::first_config;
pub use metrics::{Listen, ListenError, ScrapeLimits};
pub use notify::{Notifier, notify_ready};
pub use observation::Observation;
pub use order::{Order, OrderError, Orders, Reply, Sender, orders};
pub use published_state::{
    ActiveProblem, DaemonMode, LastAction, Pause, Published, PublishedClass, PublishedState, PublishedTotals,
};
pub use servers::{Servers, ServersConfig, ServersError};
pub use socket::{SocketFileError, SocketLimits};
pub use step_queue::{PublishedStep, StepQueue, step_queue};
pub use worst::{Polluter, PolluterKind, Sufferer, Worst};
