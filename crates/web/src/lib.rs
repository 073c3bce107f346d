//! The web page: shows a source in browsers, lets them turn it, and runs virtual servers for the page's playground.
//!
//! [`WebServer`] listens on loopback unless it is asked for more; whatever turns something needs its token. The page's
//! files are part of the program. Must not know the command line, nor how a picture is made (`view`).

mod assets;
mod client_stream;
mod events;
mod feed;
mod feeds;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guard;
mod places;
mod playground;
mod routes;
mod server;
mod token;

pub use feed::FeedPatience;
pub use playground::{PlaygroundError, PlaygroundWish, ScenarioEntry, Scenarios};
pub use server::{WebError, WebLimits, WebListen, WebServer};
pub use token::AccessToken;
