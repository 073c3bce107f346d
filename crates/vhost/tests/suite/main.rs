//! The tests of `waykeeper-vhost`, one program: linking is most of what a test program costs to build.

mod classes;
mod common;
mod enter;
mod faults;
mod hosts;
mod hotplug;
mod inheritance;
mod mounted;
mod programs;
mod resctrl;
mod resctrl_properties;
mod transcript;
mod virtual_host;
