//! The tests of `waykeeper-generations`, one program: linking is most of what a test program costs to build.

mod golden;
mod tables;
mod terms;
