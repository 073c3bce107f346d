//! The native module of Waykeeper for Python: it runs scenarios in process, returns results as text and calls policies.
//!
//! A thin layer: each function takes plain values, calls the lab, and returns JSON or a table. `python/waykeeper`
//! builds objects from it. Must not know figures, papers or plots.

// PyO3's macros make items that carry no documentation of their own.
#![allow(missing_docs)]

mod catalog;
mod errors;
mod experiment;
mod output;
mod policy;
mod show;
mod source;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::catalog::{
        chip_names, chip_spec, metric_names, model_rules, policy_description, policy_names, scenario_names,
        scenario_text,
    };
    #[pymodule_export]
    use crate::errors::{BadInput, RunFailed};
    #[pymodule_export]
    use crate::experiment::{find_load, run};
    #[pymodule_export]
    use crate::output::{check_output, write_output};
    #[pymodule_export]
    use crate::show::{report_html, way_map_svg};
    #[pymodule_export]
    use crate::source::Source;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
