//! The files that Python writes: as those of the program, by `waykeeper-output-file`.

use pyo3::prelude::*;
use std::path::PathBuf;
use waykeeper_output_file::Existing;

/// Writes a file, whole or not at all; an existing one is replaced.
#[pyfunction]
pub fn write_output(python: Python<'_>, path: PathBuf, content: &[u8]) -> PyResult<()> {
    // The reader of a pipe may be another thread of this interpreter.
    Ok(python.detach(|| waykeeper_output_file::write(&path, content, Existing::Replace))?)
}

/// Checks that a file can be written.
#[pyfunction]
pub fn check_output(path: PathBuf, replace: bool) -> PyResult<()> {
    let existing = if replace { Existing::Replace } else { Existing::Keep };
    Ok(waykeeper_output_file::check(&path, existing)?)
}
