//! The loop between a host and a policy: sample, decide, plan, apply, read back, record.
//!
//! It must not know what the host is (a real server or a virtual one) or how the policy decides. Its deadlines are
//! absolute times on the host's clock. It sets only knobs that do not have the wanted value yet, does not retry a
//! refused value, corrects external changes (a few times per knob), reports knobs without an effect, and passes every
//! step to an [`Observer`]. When it ends, it restores the original values.
//!
//! * [`run()`] and [`Loop`]: the loop itself. [`StepRecord`]: what it reports. [`classes()`]: how many classes of
//!   service a set of masks needs. [`Worth`]: what the policy is worth, relative to the layout as found.

mod classes;
mod effect;
mod knobs;
mod predictor;
mod record;
mod run;
mod worth;

pub use classes::{Class, ClassesError, classes};
pub use predictor::Predictor;
pub use record::{LoopSummary, Observer, Problem, StepRecord};
pub use run::{ControlConfig, ControlError, LookBack, Loop, LoopMemory, TakenOver, run};
pub use waykeeper_calibration::Estimate;
pub use worth::{Worth, WorthEstimate, WorthSource, WorthUnknown};
