//! Metrics for Prometheus: `collect` makes them, `format` writes them, `http` serves them, `listen` is the address.
//!
//! Reads the published state. Must not know policies or hosts.

mod collect;
mod format;
pub(crate) mod http;
mod listen;

pub use http::ScrapeLimits;
pub use listen::{Listen, ListenError};
