//! Built-in scenarios, chips and policies, and the names of the numbers of results. Must not know how they are run.

use crate::errors::OrRaise;
use pyo3::prelude::*;
use pythonize::pythonize;
use waykeeper_lab::registry;
use waykeeper_lab::results::{SystemMetrics, WorkloadMetrics};
use waykeeper_silicon::{ChipSpec, Rules};

/// Names of the built-in scenarios, the flagship first.
#[pyfunction]
pub fn scenario_names() -> Vec<&'static str> {
    registry::BUILT_IN.iter().map(|scenario| scenario.name).collect()
}

/// TOML of a scenario, built in or at a path; paths in it are absolute.
#[pyfunction]
pub fn scenario_text(name: &str) -> PyResult<String> {
    registry::text(name).or_raise()
}

/// Names of the built-in chips.
#[pyfunction]
pub fn chip_names() -> Vec<&'static str> {
    ChipSpec::built_in_names().collect()
}

/// A built-in chip as a dictionary.
#[pyfunction]
pub fn chip_spec<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize(py, &ChipSpec::built_in(name).or_raise()?)?)
}

/// Names of the policies, and each one's idea in a line.
#[pyfunction]
pub fn policy_names() -> Vec<(&'static str, &'static str)> {
    waykeeper_policy::registry().iter().map(|entry| (entry.name, entry.idea)).collect()
}

/// What a policy looks at, turns, its states and settings, as a dictionary.
#[pyfunction]
pub fn policy_description<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let policy = waykeeper_policy::build(name, &toml::Table::new()).or_raise()?;
    Ok(pythonize(py, &policy.describe())?)
}

/// The model's rules where a scenario's `[model]` says nothing, as a dictionary.
#[pyfunction]
pub fn model_rules(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(pythonize(py, &Rules::default())?)
}

/// Names of the numbers that results have of workloads and of the socket; some names are of both.
#[pyfunction]
pub fn metric_names() -> Vec<&'static str> {
    [WorkloadMetrics::KEYS, SystemMetrics::KEYS].concat()
}
