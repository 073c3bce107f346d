//! A scenario: its text and the changed keys.

use crate::errors::{BadInput, OrRaise};
use pyo3::prelude::*;
use pythonize::{depythonize, pythonize};
use std::path::PathBuf;
use waykeeper_lab::{best, registry};
use waykeeper_machine::ScenarioSource;

/// A scenario's text with changes; running it reads it again.
#[pyclass(module = "waykeeper._native", frozen, skip_from_py_object)]
#[derive(Clone)]
pub struct Source(pub ScenarioSource);

#[pymethods]
impl Source {
    /// A scenario's text. `file` is for messages, `folder` for the paths in it.
    #[new]
    #[pyo3(signature = (text, file = "<text>", folder = None))]
    fn new(text: &str, file: &str, folder: Option<PathBuf>) -> PyResult<Source> {
        Ok(Source(ScenarioSource::parse(file, text, folder).or_raise()?))
    }

    /// A built-in scenario, or the file at a path.
    #[staticmethod]
    fn open(name: &str) -> PyResult<Source> {
        Ok(Source(registry::open(name).or_raise()?))
    }

    /// The scenario with a dotted key set.
    fn with_key(&self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Source> {
        let value: toml::Value = depythonize(value)
            .map_err(|why| BadInput::new_err(format!("`{key}`: {value} is no value of a scenario: {why}")))?;
        let mut source = self.0.clone();
        source.set(key, &value).or_raise()?;
        Ok(Source(source))
    }

    /// Reads and checks all of it, and says what it is: name, about, paper, policies, workloads, sweep.
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let scenario = self.0.read().or_raise()?;
        let workloads = scenario.workloads.iter().map(|workload| {
            let program = workload.program.name;
            serde_json::json!({
                "name": workload.name,
                "program": program,
                "cores": workload.cores,
                "priority": workload.priority,
            })
        });
        let sweep: Vec<&str> = scenario.sweeps.iter().map(|sweep| sweep.key.as_str()).collect();
        let about = serde_json::json!({
            "name": scenario.name,
            "about": scenario.about,
            "paper": scenario.paper,
            "chip": scenario.chip.name,
            "llc_ways": scenario.chip.llc.ways,
            "duration_s": scenario.duration_s,
            "warmup_s": scenario.warmup_s,
            "measure_s": scenario.measure_s,
            "time_factor": scenario.time_factor,
            "interval_s": scenario.interval_s,
            "policies": scenario.policies,
            "workloads": workloads.collect::<Vec<_>>(),
            "sweep": sweep,
        });
        Ok(pythonize(py, &about)?)
    }

    /// The hash of all that determines its best layout.
    fn best_fingerprint(&self) -> PyResult<String> {
        Ok(best::fingerprint(&self.0, &self.0.read().or_raise()?))
    }

    /// Where it came from.
    #[getter]
    fn file(&self) -> &str {
        self.0.file()
    }

    /// Its text, without the keys that were set.
    #[getter]
    fn text(&self) -> &str {
        self.0.text()
    }
}
