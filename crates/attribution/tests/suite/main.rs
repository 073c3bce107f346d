//! Tests of the attribution: hand-calculated cases, properties, and the virtual server's truth.

mod cases;
mod properties;
mod recorded;
mod server;
mod truth;
mod virtual_server;
