//! Metrics for Prometheus: `collect` says what, `format` how it is written, `http` serves it, `listen` says where.
//!
//! Reads the board like everybody else. Must not know policies or hosts.

mod collect;
mod format;
pub(crate) mod http;
mod listen;

pub use http::ScrapeLimits;
pub use listen::{Listen, ListenError};
