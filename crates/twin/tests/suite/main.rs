//! The twin's answers: hand-worked cases, properties, and a virtual server that differs from the twin.

mod described;
mod described_server;
mod goal;
mod server;
