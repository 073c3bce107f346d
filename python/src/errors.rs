//! Errors as Python's exceptions: `BadInput` for wrong input, `RunFailed` for all others.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use waykeeper_lab::registry::RegistryError;
use waykeeper_lab::runner::RunError;
use waykeeper_machine::ScenarioError;
use waykeeper_policy::PolicyError;
use waykeeper_silicon::SpecError;
use waykeeper_units::message;

create_exception!(
    waykeeper,
    BadInput,
    PyValueError,
    "A scenario, key, policy or value that will not do; the message names it and what would."
);
create_exception!(waykeeper, RunFailed, PyException, "A simulation that stopped.");

/// A `Result` whose error becomes an exception.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, RunError> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|why| match why {
            RunError::Interrupted => PyKeyboardInterrupt::new_err(()),
            why if why.is_bad_input() => BadInput::new_err(message(&why.to_string())),
            why => RunFailed::new_err(message(&why.to_string())),
        })
    }
}

macro_rules! bad_input {
    ($($error:ty),*) => {
        $(impl<T> OrRaise<T> for Result<T, $error> {
            fn or_raise(self) -> PyResult<T> {
                self.map_err(|why| BadInput::new_err(message(&why.to_string())))
            }
        })*
    };
}

bad_input!(RegistryError, ScenarioError, PolicyError, SpecError, toml::de::Error);

impl<T> OrRaise<T> for Result<T, serde_json::Error> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|why| BadInput::new_err(format!("these are no results of a run: {why}")))
    }
}
