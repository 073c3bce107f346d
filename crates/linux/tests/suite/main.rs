//! The tests of `waykeeper-linux` as one program, since most of the build time of a test program is linking.

mod access;
mod census;
mod control_loop;
mod device_watch;
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
mod reported;
#[path = "resctrl_suite/mod.rs"]
mod suite;
mod suite_on_vhost;
