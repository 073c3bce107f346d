//! The tests of `waykeeper-control`, one program: linking is most of what a test program costs to build.

mod common;
mod look_back;
mod r#loop;
mod originals;
mod trouble;
