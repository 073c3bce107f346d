//! The description of a policy: the content of `waykeeper policy describe` and of its page in the docs.
//!
//! Data only; it must not know how a terminal or a page shows it.

use serde::{Deserialize, Serialize};

/// One policy, in words and numbers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Description {
    /// The name by which users select it.
    pub name: String,
    /// Its idea, one or two sentences.
    pub idea: String,
    /// The paper or text that it implements.
    pub source: String,
    /// The counters that it reads.
    pub inputs: Vec<String>,
    /// The knobs that it sets.
    pub knobs: Vec<String>,
    /// Its settings, with the values it was built with.
    pub settings: Vec<SettingDescription>,
    /// The states it can be in, in their usual order.
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
    /// The default.
    pub default: String,
    /// Unit of both.
    pub unit: String,
    /// What it does.
    pub meaning: String,
    /// Origin of the default: paper section, artifact or ours.
    pub source: String,
}

/// One state of a policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StateDescription {
    /// Its name, as in [`Decision::state`](crate::Decision::state).
    pub name: String,
    /// What happens in it and when it ends.
    pub meaning: String,
}

impl SettingDescription {
    /// A setting whose value and default have one type.
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
    /// A state, from its name and meaning.
    pub(crate) fn new(name: &str, meaning: &str) -> StateDescription {
        StateDescription { name: name.to_owned(), meaning: meaning.to_owned() }
    }
}

/// Owned strings of a list of literals.
pub(crate) fn lines(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
