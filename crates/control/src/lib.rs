//! The loop between a host and a policy: sample, decide, plan, apply, read back, record.
//!
//! It knows neither what the host is (a real server or a virtual one) nor what the policy thinks. It keeps
//! time by absolute deadlines on the host's clock, turns only knobs that do not stand as wanted already,
//! does not repeat what the machine refused, takes knobs back that somebody else turned (a few times), says which
//! do not act, and hands every step to an [`Observer`]. When it ends, the knobs go back to what was found.
//!
//! * [`run()`] and [`Loop`]: the loop itself. [`Record`]: what it reports. [`classes()`]: how many classes of
//!   service a set of masks needs.

mod apply;
mod classes;
mod effect;
mod handover;
mod orders;
mod record;
mod run;

pub use classes::{Class, ClassesError, classes};
pub use record::{Knob, Observer, Problem, Record, Summary};
pub use run::{ControlConfig, ControlError, Loop, run};
