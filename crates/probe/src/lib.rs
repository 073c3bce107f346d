//! Characterisation of a server: which ways are DCA ways, which are inclusive, whether a knob acts, what an application
//! feels of it (algorithms.md 5; the successor of ddio-bench).
//!
//! Every procedure turns knobs and looks at counters through [`waykeeper_host::Host`] alone, gives its answer with the
//! numbers behind it, or says that it cannot tell and what would help. Nothing is taken from what a host says about
//! itself: what a register or a table says is reported beside the answer. Must not know which host it has, nor files or
//! the terminal.

pub mod findings;
pub mod interfere;
pub mod ports;
pub mod procedures;
pub mod register;
pub mod roles;
pub mod sensitivity;
pub mod slide;
pub mod stand;
pub mod stats;
pub mod sweep;
pub mod verdict;
pub mod ways;
