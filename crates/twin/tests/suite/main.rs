//! The twin's answers: hand-worked cases, properties, and a virtual server that differs from the twin.

mod described;
mod goal;
mod server;
