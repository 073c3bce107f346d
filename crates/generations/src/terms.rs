//! An event in perf's notation: `event=0x35,umask=0x14,filter_opc0=0x248`. Must not know registers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use waykeeper_units::shown;

/// Named numbers in the order they were written; names are those of `format/` in sysfs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Terms(Vec<(String, u64)>);

/// Why a text is not an event.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TermsError {
    /// A part that is not `name=number` or a bare `name`.
    #[error("`{}` in the event `{}` is not of the form name=number, like umask=0x14", shown(.part), shown(.text))]
    Syntax {
        /// The part.
        part: String,
        /// The whole event.
        text: String,
    },
    /// A name twice.
    #[error("`{}` is given twice in the event `{}`", shown(.name), shown(.text))]
    Twice {
        /// The name.
        name: String,
        /// The whole event.
        text: String,
    },
}

impl Terms {
    /// The terms, as written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The value of one term.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// The same event with one term set: replaced if present, else appended.
    pub fn with(&self, name: &str, value: u64) -> Terms {
        let mut terms = self.clone();
        match terms.0.iter_mut().find(|(known, _)| known == name) {
            Some(term) => term.1 = value,
            None => terms.0.push((name.to_owned(), value)),
        }
        terms
    }
}

impl FromStr for Terms {
    type Err = TermsError;

    /// Reads perf's form; a name without a number means 1, as perf reads it.
    fn from_str(text: &str) -> Result<Terms, TermsError> {
        let mut terms = Terms::default();
        for part in text.trim().split(',') {
            let bad = || TermsError::Syntax { part: part.to_owned(), text: text.to_owned() };
            let (name, number) = part.split_once('=').unwrap_or((part, "1"));
            let name = name.trim();
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(bad());
            }
            let number = number.trim();
            let value = match number.strip_prefix("0x").or_else(|| number.strip_prefix("0X")) {
                Some(digits) if digits.starts_with('+') => Err(bad()),
                Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| bad()),
                None if number.starts_with('+') => Err(bad()),
                None => number.parse().map_err(|_| bad()),
            }?;
            if terms.get(name).is_some() {
                return Err(TermsError::Twice { name: name.to_owned(), text: text.to_owned() });
            }
            terms.0.push((name.to_owned(), value));
        }
        Ok(terms)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value:#x}")?;
        }
        Ok(())
    }
}

impl Serialize for Terms {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Terms {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Terms, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
