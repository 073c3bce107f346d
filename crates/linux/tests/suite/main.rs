//! The tests of `waykeeper-linux`, one program: linking is most of what a test program costs to build.

mod census;
mod charge;
mod control_loop;
mod doctor;
mod doctor_hosts;
mod faults;
mod hardware;
mod hardware_on_vhost;
mod host;
mod journal;
mod members;
mod perf;
mod plain_tree;
#[path = "resctrl_suite/mod.rs"]
mod suite;
mod suite_on_vhost;
mod told;
