//! Result of a procedure: an answer with the measured numbers, or the reason why there is none.
//!
//! Must not know any procedure.

use serde::{Deserialize, Serialize};

/// The answer to a question about a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
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
pub struct Verdict<T> {
    /// The answer.
    pub answer: Answer<T>,
    /// Confidence in the answer.
    pub confidence: Confidence,
    /// The numbers, a sentence each.
    pub evidence: Vec<String>,
    /// What a register, a table or sysfs reports on the same question. It is not part of the answer.
    pub register: Option<String>,
}

impl<T> Verdict<T> {
    /// An answer.
    pub fn found(answer: T, confidence: Confidence, evidence: Vec<String>) -> Verdict<T> {
        Verdict { answer: Answer::Found(answer), confidence, evidence, register: None }
    }

    /// No answer.
    pub fn cannot_tell(why: impl Into<String>, help: impl Into<String>) -> Verdict<T> {
        let answer = Answer::CannotTell { why: why.into(), help: help.into() };
        Verdict { answer, confidence: Confidence::None, evidence: Vec::new(), register: None }
    }

    /// Adds evidence.
    pub fn with(mut self, evidence: impl IntoIterator<Item = String>) -> Verdict<T> {
        self.evidence.extend(evidence);
        self
    }

    /// Adds what a register reports.
    pub fn beside(mut self, register: Option<String>) -> Verdict<T> {
        self.register = register;
        self
    }

    /// The answer, if there is one.
    pub fn value(&self) -> Option<&T> {
        match &self.answer {
            Answer::Found(value) => Some(value),
            Answer::CannotTell { .. } => None,
        }
    }

    /// Why there is no answer.
    pub fn reason(&self) -> Option<&str> {
        match &self.answer {
            Answer::Found(_) => None,
            Answer::CannotTell { why, .. } => Some(why),
        }
    }
}
