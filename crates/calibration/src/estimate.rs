//! A number that was estimated, with its error. It must not know of what.

use serde::{Deserialize, Serialize};

/// A value with its standard error, both in the same unit.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    /// Its standard error, 0 or more.
    pub error: f64,
}

impl Estimate {
    /// A value without an error.
    pub const fn exact(value: f64) -> Estimate {
        Estimate { value, error: 0.0 }
    }

    /// Whether another value is within `errors` standard errors.
    pub fn is_within(self, other: f64, errors: f64) -> bool {
        (self.value - other).abs() <= errors * self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_within_as_many_errors_as_it_is_away() {
        // 1.25 is a quarter above 1, and that is two errors of an eighth.
        let it = Estimate { value: 1.0, error: 0.125 };
        assert!(it.is_within(1.25, 2.0) && !it.is_within(1.25, 1.9));
        assert!(Estimate::exact(2.0).is_within(2.0, 0.0));
    }
}
