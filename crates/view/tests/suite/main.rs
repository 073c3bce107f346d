//! The tests of `waykeeper-view`, one program: linking is most of what a test program costs to build.

mod common;
mod model;
mod mounted;
mod recording;
mod scenario;
