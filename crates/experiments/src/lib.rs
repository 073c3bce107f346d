//! Experiments that were measured on real chips, and their runs on the model of a chip.
//!
//! An experiment is data (`experiments/*.toml`): what a device and cores do, what is then looked at, and what a real chip
//! showed. Knows files, the chip and a clock for the neighbours' traffic; must not know how results are printed.

mod compare;
mod file;
mod trial;

pub use compare::{ChipComparison, ComparedRow, Effort, FAR, compare, mean_distance};
pub use file::{ExperimentError, ExperimentFile};
