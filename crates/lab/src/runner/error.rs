//! Why a scenario could not be run. Each message names what stands there and what would do.

use crate::results::CombineError;
use waykeeper_control::ControlError;
use waykeeper_host::HostError;
use waykeeper_machine::ScenarioError;
use waykeeper_policy::PolicyError;

/// Why a scenario could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario cannot be read, or does not fit the machine.
    #[error(transparent)]
    Scenario(Box<ScenarioError>),
    /// A policy or its settings.
    #[error("{file}: {why}")]
    Policy {
        /// Where it was named: a scenario's file, line and key, or `the policies asked for`.
        file: String,
        /// What is wrong with it.
        why: Box<PolicyError>,
    },
    /// A value of the plan that will not do.
    #[error("{what} is {value}; it must be {wanted}")]
    Plan {
        /// Which value.
        what: &'static str,
        /// What it is.
        value: String,
        /// What would do.
        wanted: String,
    },
    /// A simulation stopped.
    #[error("policy {policy}, seed {seed}: {}", chain(why))]
    Stopped {
        /// The policy that was running.
        policy: String,
        /// Its seed.
        seed: u64,
        /// Why it could not go on.
        why: ControlError,
    },
    /// Somebody set the stop flag.
    #[error("interrupted")]
    Interrupted,
    /// Results that do not go together; a mistake of ours.
    #[error(transparent)]
    Combine(#[from] CombineError),
    /// The threads could not be made.
    #[error("cannot start {threads} threads: {why}; ask for fewer")]
    Threads {
        /// How many were asked for; 0 is one for each core.
        threads: usize,
        /// The system's words.
        why: String,
    },
}

impl From<ScenarioError> for RunError {
    fn from(error: ScenarioError) -> RunError {
        RunError::Scenario(Box::new(error))
    }
}

impl RunError {
    /// A policy that cannot be built, and where it was named.
    pub(super) fn policy(file: &str, why: Box<PolicyError>) -> RunError {
        RunError::Policy { file: file.to_owned(), why }
    }

    /// True if what was asked for is at fault, not the run.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, RunError::Scenario(_) | RunError::Policy { .. } | RunError::Plan { .. })
    }

    /// True if the platform lacks something that was asked for.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, RunError::Stopped { why: ControlError::Host(HostError::Unsupported { .. }), .. })
    }
}

/// An error and all that caused it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
