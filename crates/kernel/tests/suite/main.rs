//! The tests of `waykeeper-kernel` as one program, since most of the build time of a test program is linking.

mod hardware;
mod hardware_on_vhost;
mod journal;
mod perf;
#[path = "resctrl_suite/mod.rs"]
mod suite;
mod suite_on_vhost;
