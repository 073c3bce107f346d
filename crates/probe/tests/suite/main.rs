//! The tests of `waykeeper-probe`, one program: linking is most of what a test program costs to build.

mod chips;
mod knobs;
mod on_vhost;
mod runs;
mod ways;
