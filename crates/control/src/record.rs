//! What the loop reports: one record per step, in a form that can be written and read again.
//!
//! Wanted values (`wanted`), outcomes (`applied`) and values in force (`knobs`) are separate. Must not know a host.

use crate::worth::Worth;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use waykeeper_calibration::LayoutAnswer;
use waykeeper_host::{Applied, Interval, KnobSetting, KnobValues, Plan};
use waykeeper_policy::{Cause, Event};
use waykeeper_units::four_digits;

/// Something that went wrong in a step; the run continues.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    /// No counter could be read; nothing was decided in this step.
    #[error("counters could not be read: {0}")]
    Sample(String),
    /// No time passed since the last sample; nothing was decided in this step.
    #[error("the host's clock did not move since the last sample")]
    NoTime,
    /// The host could not apply the plan.
    #[error("knobs could not be turned: {0}")]
    Apply(String),
    /// The machine refused a knob. The setting is not tried again, and not reported again, until another is wanted.
    #[error("{knob} was refused: {why}")]
    Refused {
        /// The knob and the value wanted.
        knob: KnobSetting,
        /// The host's message.
        why: String,
        /// The value in force instead, if it can be read.
        #[serde(rename = "standing")]
        in_force: Option<KnobSetting>,
    },
    /// The write succeeded but another value reads back. Reported once per value, like a refusal.
    #[error("{knob} did not take effect: {found} reads back")]
    ReadsBack {
        /// The knob and the value wanted.
        knob: KnobSetting,
        /// What reads back.
        found: String,
        /// The same as a value, if it can be read.
        #[serde(rename = "standing")]
        in_force: Option<KnobSetting>,
    },
    /// The host could not take any value now. Reported once; the loop retries with backoff, without a limit.
    #[error("{knob} is retried later: {why}")]
    Busy {
        /// The knob and the value wanted.
        knob: KnobSetting,
        /// The host's message.
        why: String,
    },
    /// External change: a knob that had the wanted value was changed by another program.
    #[error("{knob} was changed to {} by another program; {}", found.setting, if *other_stays { "the other value stays" } else { "the policy's value is restored" })]
    #[serde(rename = "outsider")]
    ExternalChange {
        /// The knob and the value wanted.
        knob: KnobSetting,
        /// What reads back now.
        found: KnobSetting,
        /// It happened too often: the other program's value stays until the policy wants another value.
        #[serde(rename = "left")]
        other_stays: bool,
    },
    /// A knob reads back the wanted value but has no effect, as counters show. Reported once.
    #[error(
        "{knob} reads back but has no effect: {what} is {}; with an effect it would be at most {}",
        four_digits(*measured as f64),
        four_digits(*expected as f64)
    )]
    NoEffect {
        /// The knob and its value.
        knob: KnobSetting,
        /// The counter that shows it, with its unit.
        what: String,
        /// The highest value that the counter could have if the knob had an effect.
        expected: u64,
        /// The counter's value.
        measured: u64,
    },
    /// The host's clock went backwards; the deadlines are counted from its present time.
    #[error("the host's clock went back by {} ns", four_digits(*by_ns as f64))]
    ClockBack {
        /// How far.
        by_ns: u64,
    },
    /// The masks need more classes of service than there are, so no mask was set. Reported once per distinct text.
    #[error("{0}")]
    Classes(String),
    /// The step was so late that deadlines were skipped.
    #[error("{missed} deadlines were missed")]
    Late {
        /// How many.
        missed: u64,
    },
}

impl Problem {
    /// The numbers behind it: the wanted value of a knob and the value in force instead.
    pub fn causes(&self) -> Vec<Cause> {
        let (knob, in_force) = match self {
            Problem::Refused { knob, in_force, .. } | Problem::ReadsBack { knob, in_force, .. } => {
                (knob, *in_force)
            }
            Problem::ExternalChange { knob, found, .. } => (knob, Some(*found)),
            Problem::NoEffect { what, expected, measured, .. } => {
                let limit = ("at most, with an effect".to_owned(), *expected as f64);
                return vec![Cause { what: what.clone(), value: *measured as f64, limit: Some(limit) }];
            }
            _ => return Vec::new(),
        };
        let cause = |knob: KnobSetting, which: &str| {
            let (what, value) = knob.number();
            Cause { what: format!("{what}, {which}"), value, limit: None }
        };
        let in_force = in_force.map(|knob| cause(knob, "in force"));
        std::iter::once(cause(*knob, "wanted")).chain(in_force).collect()
    }
}

/// Everything about one step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StepRecord {
    /// When, in nanoseconds on the host's clock.
    pub at_ns: u64,
    /// State of the policy afterwards.
    pub state: String,
    /// What the policy did and why.
    pub events: Vec<Event>,
    /// What the policy wants: every knob that it named, also those that have the wanted value already.
    #[serde(rename = "desired")]
    pub wanted: Plan,
    /// The knobs that were set, with their outcomes. Knobs that already had the wanted value are not in it.
    pub applied: Applied,
    /// All knobs as they read back at the end of the step; empty if they could not be read.
    pub knobs: KnobValues,
    /// What went wrong.
    pub problems: Vec<Problem>,
    /// The answer that the policy heard before it decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<LayoutAnswer>,
    /// The loop looked back at the layout as found, or had just ended that: the policy did not see this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub look_back: bool,
    /// What the policy is worth.
    #[serde(default, skip_serializing_if = "Worth::is_default")]
    pub worth: Worth,
}

/// Totals of a whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LoopSummary {
    /// Steps taken, without the start.
    pub steps: u64,
    /// Steps in which no counter could be read.
    pub blind_steps: u64,
    /// Deadlines that were missed.
    pub missed_deadlines: u64,
}

/// Receives the loop's records.
pub trait Observer {
    /// Called after the start and after every step. `seen` is what the policy saw; `None` at the start and when nothing
    /// could be read. `Break` ends the run.
    fn observe(&mut self, record: &StepRecord, seen: Option<&Interval>) -> ControlFlow<()>;

    /// Called once after the last step, when the knobs are restored.
    fn ended(&mut self, _record: &StepRecord) {}
}

impl<F: FnMut(&StepRecord, Option<&Interval>) -> ControlFlow<()>> Observer for F {
    fn observe(&mut self, record: &StepRecord, seen: Option<&Interval>) -> ControlFlow<()> {
        self(record, seen)
    }
}
