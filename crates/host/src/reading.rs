//! A counter value or the reason for its absence: unavailable, absent, unsupported and zero differ. Must not know
//! counters.

use serde::{Deserialize, Serialize};

/// A counter value, or the reason there is none.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading<T> {
    /// The value; zero is a value.
    Value(T),
    /// The counter exists and could not be read this time (resctrl's `Unavailable`).
    Unavailable,
    /// This platform has no such counter.
    Unsupported,
    /// The thing that is counted does not exist (any more).
    Absent,
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Reading::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Applies `f` to a value and keeps the reason for a missing one.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Value(value) => Reading::Value(f(value)),
            Reading::Unavailable => Reading::Unavailable,
            Reading::Unsupported => Reading::Unsupported,
            Reading::Absent => Reading::Absent,
        }
    }

    /// Both values combined; otherwise the first reason for a missing one.
    pub fn zip_with<U, V>(self, other: Reading<U>, f: impl FnOnce(T, U) -> V) -> Reading<V> {
        match (self, other) {
            (Reading::Value(a), Reading::Value(b)) => Reading::Value(f(a, b)),
            (Reading::Value(_), missing) => missing.map(|_| unreachable!("both are values above")),
            (missing, _) => missing.map(|_| unreachable!("both are values above")),
        }
    }
}
