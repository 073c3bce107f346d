//! The tests of `waykeeper-web`, one program: the server as its clients see it, over real sockets.

mod common;
mod limits;
mod playgrounds;
mod requests;
mod senders;
