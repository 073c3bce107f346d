//! Files of experiments, their runs, and what each rule of the Emerald Rapids brings.

mod files;
mod rules;
mod runs;
