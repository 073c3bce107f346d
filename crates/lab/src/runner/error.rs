//! Why a scenario could not be run. Each message names the value and what is accepted. Must not know exit codes.

use crate::best::BestError;
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
    /// A policy or its settings are wrong.
    #[error("{file}: {why}")]
    Policy {
        /// Where it was named: a scenario's file, line and key, or `the policies asked for`.
        file: String,
        /// The error.
        why: Box<PolicyError>,
    },
    /// No best layout to apply.
    #[error(transparent)]
    Best(Box<BestError>),
    /// An invalid value of the plan.
    #[error("{what} is {value}; it must be {wanted}")]
    Plan {
        /// Which value.
        what: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        wanted: String,
    },
    /// A simulation stopped.
    #[error("policy {policy}, seed {seed}: {}", chain(why))]
    Stopped {
        /// The policy that was running.
        policy: String,
        /// Its seed.
        seed: u64,
        /// Why it could not continue.
        why: ControlError,
    },
    /// The stop flag was set.
    #[error("interrupted")]
    Interrupted,
    /// Results that cannot be combined; a bug of ours.
    #[error(transparent)]
    Combine(#[from] CombineError),
    /// The threads could not be started.
    #[error("cannot start {threads} threads: {why}; ask for fewer")]
    Threads {
        /// The requested number; 0 is one for each core.
        threads: usize,
        /// The system's error.
        why: String,
    },
}

impl From<ScenarioError> for RunError {
    fn from(error: ScenarioError) -> RunError {
        RunError::Scenario(Box::new(error))
    }
}

impl From<BestError> for RunError {
    fn from(error: BestError) -> RunError {
        RunError::Best(Box::new(error))
    }
}

impl RunError {
    /// A policy that cannot be built, and where it was named.
    pub(super) fn policy(file: &str, why: Box<PolicyError>) -> RunError {
        RunError::Policy { file: file.to_owned(), why }
    }

    /// True if the input is wrong, not the run.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            RunError::Scenario(_) | RunError::Policy { .. } | RunError::Plan { .. } | RunError::Best(_)
        )
    }

    /// True if the platform lacks something that is needed.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, RunError::Stopped { why: ControlError::Host(HostError::Unsupported { .. }), .. })
    }
}

/// An error and its chain of causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
