//! The tests of `waykeeper-silicon`, one program: linking is most of what a test program costs to build.

mod closed_forms;
mod common;
mod devices;
mod evictions;
mod golden;
mod inclusive_llc;
mod page_kinds;
mod prefetch;
mod properties;
mod rules;
mod sampling;
mod steering;
mod variants;
