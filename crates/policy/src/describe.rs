//! What a policy says about itself: the content of `waykeeper policy describe` and of its page in the docs.
//!
//! Data only. How it is laid out on a terminal or a page is for those who print it.

use serde::{Deserialize, Serialize};

/// One policy, in words and numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Description {
    /// The name people select it by.
    pub name: String,
    /// Its idea, one or two sentences.
    pub idea: String,
    /// Where it comes from.
    pub source: String,
    /// What it looks at.
    pub inputs: Vec<String>,
    /// What it turns.
    pub knobs: Vec<String>,
    /// Its settings, with the values it was built with.
    pub settings: Vec<SettingDescription>,
    /// The states it can be in, in the order a run usually meets them.
    pub states: Vec<StateDescription>,
    /// Where it differs from its source, and why.
    pub deviations: Vec<String>,
}

/// One setting of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SettingDescription {
    /// Its key.
    pub name: String,
    /// The value in force, as TOML would write it.
    pub value: String,
    /// The value it has when nothing is set.
    pub default: String,
    /// Unit of both.
    pub unit: String,
    /// What it does.
    pub meaning: String,
    /// Where the default comes from: paper section, artifact or ours.
    pub source: String,
}

/// One state of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StateDescription {
    /// Its name, as in [`Decision::state`](crate::Decision::state).
    pub name: String,
    /// What goes on in it and how it is left.
    pub meaning: String,
}

impl SettingDescription {
    /// A setting whose value and default are written alike.
    pub(crate) fn new(
        name: &str,
        value: impl ToString,
        default: impl ToString,
        (unit, meaning, source): (&str, &str, &str),
    ) -> SettingDescription {
        SettingDescription {
            name: name.to_owned(),
            value: value.to_string(),
            default: default.to_string(),
            unit: unit.to_owned(),
            meaning: meaning.to_owned(),
            source: source.to_owned(),
        }
    }
}

impl StateDescription {
    /// A state and what goes on in it.
    pub(crate) fn new(name: &str, meaning: &str) -> StateDescription {
        StateDescription { name: name.to_owned(), meaning: meaning.to_owned() }
    }
}

/// Owned strings of a list of literals.
pub(crate) fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
