//! The tests of `waykeeper-policy`, one program: linking is most of what a test program costs to build.

mod a4_properties;
mod a4_search;
mod a4_states;
mod a4_watch;
mod baselines;
mod common;
mod ddio_baselines;
mod iat_properties;
mod iat_skips;
mod iat_transitions;
mod iat_ways;
mod waykeeper;
