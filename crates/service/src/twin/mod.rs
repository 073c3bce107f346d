//! The twin's thread: answers a policy's questions beside the control thread, within a share of a core.
//!
//! The control thread never waits for it: a question is put into a slot, in place of one that is still there, and an answer
//! is taken from another. The thread has nice 19 and CPUs of its own, and rests after each answer. A panic is caught; the
//! thread then pauses and takes the next question. Must not know policies or the host.

mod pace;
mod place;
mod thread;

pub use thread::{TwinConfig, TwinPredictor};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use waykeeper_control::Predictor;

/// What the twin does at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TwinState {
    /// It waits for a question, or rests after an answer.
    #[default]
    Idle,
    /// It computes an answer.
    Computing,
    /// It failed at the last question.
    Failed,
}

impl TwinState {
    /// All of them.
    pub const ALL: [TwinState; 3] = [TwinState::Idle, TwinState::Computing, TwinState::Failed];

    /// Its name, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            TwinState::Idle => "idle",
            TwinState::Computing => "computing",
            TwinState::Failed => "failed",
        }
    }
}

impl fmt::Display for TwinState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The twin as a step shows it; counts since the daemon started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TwinStatus {
    /// What it does.
    pub state: TwinState,
    /// When the last question was asked, on the monotonic clock; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Duration>,
    /// CPU time of all answers.
    pub cpu: Duration,
    /// Answers that were found.
    pub answers: u64,
    /// Questions at which it panicked.
    pub panics: u64,
}

/// Shows a twin.
pub type ShowTwin = Arc<dyn Fn() -> TwinStatus + Send + Sync>;

/// A twin as the engine uses it.
pub struct Twin {
    /// Takes the policy's questions.
    pub predictor: Box<dyn Predictor>,
    /// Shows it at each step.
    pub show: ShowTwin,
}
