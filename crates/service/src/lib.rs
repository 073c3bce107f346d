//! The daemon: charge of a host for as long as it runs, and what others may see and ask of it.
//!
//! One thread has the host and the loop, and never waits for anybody: it puts what it sees on the [`Board`], hands each
//! step to the [`Feed`] (which drops rather than blocks) and looks for [`Order`]s between two steps. Everything else
//! (socket, metrics, recorder) reads the board, takes from the feed or sends orders, on threads of its own. Must not know
//! who serves the host's files, nor the command line.

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
