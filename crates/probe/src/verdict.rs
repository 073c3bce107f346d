//! What a procedure comes to: an answer with the numbers behind it, or the reason why there is none.
//!
//! Must not know any procedure.

use serde::{Deserialize, Serialize};

/// The answer to a question about a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// It was found out.
    Found(T),
    /// Nothing can be said.
    CannotTell {
        /// Why.
        why: String,
        /// What would bring an answer; empty if nothing is known to.
        help: String,
    },
}

/// How sure an answer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// Nothing was found out.
    None,
    /// The numbers say so, and something about them is odd; the evidence names it.
    Moderate,
    /// The numbers say so, far beyond what they do by themselves.
    High,
}

/// An answer and what it rests on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict<T> {
    /// The answer.
    pub answer: Answer<T>,
    /// How sure it is.
    pub confidence: Confidence,
    /// The numbers, a sentence each.
    pub evidence: Vec<String>,
    /// What a register, a table or sysfs says about the same question. No part of the answer.
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

    /// The same with numbers added.
    pub fn with(mut self, evidence: impl IntoIterator<Item = String>) -> Verdict<T> {
        self.evidence.extend(evidence);
        self
    }

    /// The same with what a register says.
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
