//! The tests of `waykeeper-linux-host` as one program, since most of the build time of a test program is linking.

mod access;
mod control_loop;
mod device_watch;
mod faults;
mod host;
mod members;
mod outsiders;
