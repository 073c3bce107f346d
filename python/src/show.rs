//! Results as pictures and pages: the way map and the report.

use crate::errors::{BadInput, OrRaise, RunFailed};
use pyo3::prelude::*;
use waykeeper_lab::report;
use waykeeper_lab::results::RunSummary;

fn read(json: &str) -> PyResult<RunSummary> {
    serde_json::from_str(json).or_raise()
}

/// The way map of a policy as SVG.
#[pyfunction]
pub fn way_map_svg(json: &str, policy: &str) -> PyResult<String> {
    let summary = read(json)?;
    if !summary.policies.contains_key(policy) {
        let known: Vec<&str> = summary.policies.keys().map(String::as_str).collect();
        return Err(BadInput::new_err(format!(
            "no policy `{policy}` in these results; they have {}",
            known.join(", ")
        )));
    }
    report::way_map_svg(&summary, policy).map_err(|why| RunFailed::new_err(why.to_string()))
}

/// The whole page of a run, as HTML.
#[pyfunction]
pub fn report_html(json: &str) -> PyResult<String> {
    report::run_html(&read(json)?).map_err(|why| RunFailed::new_err(why.to_string()))
}
