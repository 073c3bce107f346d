//! The daemon: manages a host while it runs, and answers queries and orders.
//!
//! One thread has the host and the loop, and never waits for clients: it publishes on the [`Board`], sends each step to
//! the [`Feed`] (which drops instead of blocking) and takes [`Order`]s between two steps. Socket, metrics and recorder
//! run on other threads, read the board or the feed, and send orders. Must not know what serves the host's files, nor
//! the command line.

mod board;
mod client;
pub mod config;
pub mod daemon;
pub mod dry_run;
mod edge;
pub mod engine;
mod feed;
pub mod linux;
pub mod log;
mod metrics;
mod notify;
mod order;
pub mod protocol;
pub mod recorder;
pub mod replay;
mod socket;

pub use board::{Board, Class, Mode, Pause, Published, Standing, Totals};
pub use client::{Client, ClientError, printable};
pub use edge::{Edge, EdgeConfig, EdgeError};
pub use engine::Moment;
pub use feed::{Feed, Step, feed};
pub use metrics::{Listen, ListenError, ScrapeLimits};
pub use notify::Notifier;
pub use order::{Order, OrderError, Orders, Reply, Sender, orders};
pub use socket::{Limits, PlaceError};
