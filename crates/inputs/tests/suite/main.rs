//! The tests of `waykeeper-inputs`, one program: linking is most of what a test program costs to build.

mod bounds;
mod captures;
mod common;
mod hostile;
mod odd_captures;
mod recording;
mod shipped;
mod traces;
