//! Result of a procedure: an answer with the measured numbers, or the reason why there is none.
//!
//! Must not know any procedure.

use serde::{Deserialize, Serialize};

/// The answer to a question about a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeAnswer<T> {
    /// The answer was found.
    Found(T),
    /// There is no answer.
    CannotTell {
        /// The reason.
        why: String,
        /// What would give an answer; empty if unknown.
        help: String,
    },
}

/// Confidence in an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// There is no answer.
    None,
    /// The numbers support it, with an irregularity that the evidence names.
    Moderate,
    /// The numbers support it, far beyond their noise.
    High,
}

/// An answer with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProbeVerdict<T> {
    /// The answer.
    pub answer: ProbeAnswer<T>,
    /// Confidence in the answer.
    pub confidence: Confidence,
    /// The numbers, a sentence each.
    pub evidence: Vec<String>,
    /// What a register, a table or sysfs reports on the same question. It is not part of the answer.
    pub register: Option<String>,
}

impl<T> ProbeVerdict<T> {
    /// An answer.
    pub fn found(answer: T, confidence: Confidence, evidence: Vec<String>) -> ProbeVerdict<T> {
        ProbeVerdict { answer: ProbeAnswer::Found(answer), confidence, evidence, register: None }
    }

    /// No answer.
    pub fn cannot_tell(why: impl Into<String>, help: impl Into<String>) -> ProbeVerdict<T> {
        let answer = ProbeAnswer::CannotTell { why: why.into(), help: help.into() };
        ProbeVerdict { answer, confidence: Confidence::None, evidence: Vec::new(), register: None }
    }

    /// Adds evidence.
    pub fn with(mut self, evidence: impl IntoIterator<Item = String>) -> ProbeVerdict<T> {
        self.evidence.extend(evidence);
        self
    }

    /// Adds what a register reports.
    pub fn beside(mut self, register: Option<String>) -> ProbeVerdict<T> {
        self.register = register;
        self
    }

    /// The answer, if there is one.
    pub fn value(&self) -> Option<&T> {
        match &self.answer {
            ProbeAnswer::Found(value) => Some(value),
            ProbeAnswer::CannotTell { .. } => None,
        }
    }

    /// Why there is no answer.
    pub fn reason(&self) -> Option<&str> {
        match &self.answer {
            ProbeAnswer::Found(_) => None,
            ProbeAnswer::CannotTell { why, .. } => Some(why),
        }
    }
}
