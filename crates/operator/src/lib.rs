//! What an operator does by hand: examine a host (`doctor`) and change its DCA knobs (`ddio`).
//!
//! It must not know policies, the control loop or the command line.

pub mod ddio;
pub mod doctor;
