//! Characterisation of a server: which ways are DCA ways, which are inclusive, whether a knob has an effect, and how
//! sensitive an application is to it (algorithms.md 5; the successor of ddio-bench).
//!
//! Every procedure sets knobs and reads counters only through [`waykeeper_host::Host`]. It returns an answer with the
//! measured numbers, or the reason why there is none and what would help. What a host reports about itself (registers,
//! tables) is printed beside an answer and never used as the answer. Must not know which host it measures, nor files or
//! the terminal.

pub mod experiment;
pub mod findings;
pub mod interfere;
pub mod ports;
pub mod procedures;
pub mod register;
pub mod roles;
pub mod sensitivity;
pub mod slide;
pub mod stats;
pub mod sweep;
pub mod verdict;
pub mod ways;
