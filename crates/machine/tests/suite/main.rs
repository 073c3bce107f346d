//! The tests of `waykeeper-machine`, one program: linking is most of what a test program costs to build.

mod ablation;
mod bare;
mod chips;
mod churn;
mod common;
mod evictions;
mod faults;
mod fork;
mod golden;
mod idio;
mod knobs;
mod memory;
mod modules;
mod nic;
mod odd_captures;
mod programs;
mod published;
mod robust;
mod sampling;
mod socket;
mod spec_curves;
mod steady;
mod trace_curves;
