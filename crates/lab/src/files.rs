//! `--out DIR`: writes a result as files.
//!
//! A sweep becomes the files of a run, in which the swept keys come first, without the time series: it would have to hold
//! the samples of all its points. Each file has its name when it is complete, so a reader never sees an incomplete one, and
//! an interrupted run leaves the previous files complete. Must not know how results are made or what they mean.

use crate::report::{self, ReportError};
use crate::results::{
    DecisionRecord, RunSummary, SweepSummary, SweepValue, SystemMetrics, TimeSample, WorkloadMetrics,
};
use indexmap::IndexMap;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use waykeeper_output_file::Existing;

/// The files of a run.
pub const RUN_FILES: [&str; 6] =
    ["summary.json", "results.csv", "timeseries.csv", "decisions.jsonl", "report.html", "headline.svg"];
/// The files of a sweep.
pub const SWEEP_FILES: [&str; 5] =
    ["summary.json", "results.csv", "decisions.jsonl", "report.html", "headline.svg"];
/// The files of a probe.
pub const PROBE_FILES: [&str; 3] = ["report.html", "profile.toml", "findings.json"];

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutError {
    /// The directory does not exist and cannot be made.
    #[error("cannot make the directory {path}: {source}; name one in a place you may write to")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file in it cannot be written.
    #[error("cannot write {path}: {source}; check that the directory is writable and the disk not full")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The result cannot be converted to JSON.
    #[error("cannot write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The result cannot be converted to CSV.
    #[error("cannot write the result as CSV: {0}")]
    Csv(#[from] csv::Error),
    /// The report cannot be rendered.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Writes a run into `directory`, which it makes if needed; returns the files' paths.
///
/// # Errors
/// [`OutError`]; files already renamed into place stay.
pub fn write_run(directory: &Path, summary: &RunSummary) -> Result<Vec<PathBuf>, OutError> {
    let rows = ResultRows::of_run(summary, Cells::Spreadsheet);
    // All files are rendered before the first is written: a result that cannot be rendered leaves no file.
    let texts = [
        summary.to_json()? + "\n",
        rows.results_csv()?,
        rows.timeseries_csv()?,
        rows.decisions_jsonl()?,
        report::run_html(summary)?,
        report::headline_svg(summary)?,
    ];
    write_all(directory, RUN_FILES.into_iter().zip(texts))
}

/// Writes a sweep into `directory`, which it makes if needed; returns the files' paths. Files that only a run has are
/// removed.
///
/// # Errors
/// As [`write_run`].
pub fn write_sweep(directory: &Path, sweep: &SweepSummary) -> Result<Vec<PathBuf>, OutError> {
    let rows = ResultRows::of_sweep(sweep, Cells::Spreadsheet);
    let texts = [
        sweep.to_json()? + "\n",
        rows.results_csv()?,
        rows.decisions_jsonl()?,
        report::sweep_html(sweep)?,
        report::sweep_headline_svg(sweep)?,
    ];
    let written = write_all(directory, SWEEP_FILES.into_iter().zip(texts))?;
    // Of an earlier run: beside these files it would be taken for a part of them.
    for name in RUN_FILES.into_iter().filter(|name| !SWEEP_FILES.contains(name)) {
        let path = directory.join(name);
        let removed = fs::remove_file(&path);
        if let Err(source) = removed
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(OutError::Write { path, source });
        }
    }
    Ok(written)
}

/// Writes the findings of a probe: `report.html`, `findings.json`, and the given machine profile.
///
/// # Errors
/// As [`write_run`].
#[cfg(feature = "probe")]
pub fn write_probe(
    directory: &Path,
    findings: &waykeeper_probe::findings::Findings,
    profile: &str,
) -> Result<Vec<PathBuf>, OutError> {
    let texts =
        [report::probe_html(findings)?, profile.to_owned(), serde_json::to_string_pretty(findings)? + "\n"];
    write_all(directory, PROBE_FILES.into_iter().zip(texts))
}

fn write_all(
    directory: &Path,
    files: impl Iterator<Item = (&'static str, String)>,
) -> Result<Vec<PathBuf>, OutError> {
    fs::create_dir_all(directory).map_err(|source| OutError::Directory { path: directory.into(), source })?;
    let write = |(name, text): (&str, String)| {
        let path = directory.join(name);
        match waykeeper_output_file::write(&path, text.as_bytes(), Existing::Replace) {
            Ok(()) => Ok(path),
            Err(source) => Err(OutError::Write { path, source }),
        }
    };
    files.map(write).collect()
}

/// Who reads a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cells {
    /// A program: names are as they are.
    Program,
    /// A person, perhaps with a spreadsheet, which would evaluate a name that begins like a formula.
    Spreadsheet,
}

/// The results of a run, or of the points of a sweep, as rows.
#[derive(Debug)]
pub struct ResultRows<'a> {
    /// The swept keys.
    keys: Vec<&'a str>,
    points: Vec<ResultPoint<'a>>,
    cells: Cells,
}

#[derive(Clone, Copy, Debug)]
struct ResultPoint<'a> {
    /// The values of the swept keys; none in a run.
    at: Option<&'a IndexMap<String, SweepValue>>,
    run: &'a RunSummary,
}

impl<'a> ResultRows<'a> {
    /// Of a run.
    pub fn of_run(summary: &'a RunSummary, cells: Cells) -> ResultRows<'a> {
        ResultRows { keys: Vec::new(), points: vec![ResultPoint { at: None, run: summary }], cells }
    }

    /// Of a sweep.
    pub fn of_sweep(sweep: &'a SweepSummary, cells: Cells) -> ResultRows<'a> {
        let points = sweep.points.iter().map(|point| ResultPoint { at: Some(&point.at), run: &point.run });
        let keys = sweep.keys.iter().map(|key| key.key.as_str());
        ResultRows { keys: keys.collect(), points: points.collect(), cells }
    }

    /// One line per decision: the values of the swept keys, its policy, then the decision's own keys.
    ///
    /// # Errors
    /// When serde_json refuses, which the types rule out.
    pub fn decisions_jsonl(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            at: Option<&'a IndexMap<String, SweepValue>>,
            policy: &'a str,
            #[serde(flatten)]
            decision: &'a DecisionRecord,
        }
        let mut out = String::new();
        for ResultPoint { at, run } in &self.points {
            for (policy, result) in &run.policies {
                for decision in &result.decisions {
                    out.push_str(&serde_json::to_string(&Line { at: *at, policy, decision })?);
                    out.push('\n');
                }
            }
        }
        Ok(out)
    }

    /// The time series: a row per policy, interval and workload, and one for the whole socket. An empty cell is "not
    /// available".
    ///
    /// # Errors
    /// When the CSV writer refuses, which writing to memory rules out.
    pub fn timeseries_csv(&self) -> Result<String, csv::Error> {
        let columns = TimeSample::KEYS;
        let mut writer = self.table(&["policy", "at_s", "state", "scope", "name"], columns)?;
        for point in &self.points {
            for (policy, result) in &point.run.policies {
                for sample in &result.samples {
                    let at_s = sample.at_s.to_string();
                    let mut row = |scope: &str, name: &str, value: &dyn Fn(&str) -> Option<f64>| {
                        let state = sample.state.as_deref().unwrap_or_default();
                        let head = self.head(point, &[policy, &at_s, state, scope, name]);
                        writer
                            .write_record(head.into_iter().chain(columns.iter().map(|key| cell(value(key)))))
                    };
                    for (name, metrics) in &sample.workloads {
                        row("workload", name, &|key| metrics.get(key))?;
                    }
                    row("system", "", &|key| sample.system.get(key))?;
                }
            }
        }
        finish(writer)
    }

    /// The numbers: a row per policy and workload, group or whole socket.
    ///
    /// # Errors
    /// As [`ResultRows::timeseries_csv`].
    pub fn results_csv(&self) -> Result<String, csv::Error> {
        let columns = metric_columns();
        let mut writer = self.table(&["policy", "scope", "name"], &columns)?;
        for point in &self.points {
            for (policy, result) in &point.run.policies {
                let mut row = |scope: &str, name: &str, value: &dyn Fn(&str) -> Option<f64>| {
                    let head = self.head(point, &[policy, scope, name]);
                    writer.write_record(head.into_iter().chain(columns.iter().map(|key| cell(value(key)))))
                };
                for (name, workload) in &result.workloads {
                    row("workload", name, &|key| workload.metrics.get(key))?;
                }
                for (name, group) in &result.groups {
                    row("group", name, &|key| {
                        group.performance_ratio.filter(|_| key == "performance_ratio")
                    })?;
                }
                row("system", "", &|key| result.system.metrics.get(key))?;
            }
        }
        finish(writer)
    }

    /// A table with its heading.
    fn table(&self, head: &[&str], columns: &[&str]) -> Result<csv::Writer<Vec<u8>>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.keys.iter().chain(head).chain(columns))?;
        Ok(writer)
    }

    /// The first cells of a row: the values of the swept keys, then these.
    fn head(&self, point: &ResultPoint<'_>, words: &[&str]) -> Vec<String> {
        let value = |key: &&str| point.at.and_then(|at| at.get(*key)).map(ToString::to_string);
        let values = self.keys.iter().map(|key| value(key).unwrap_or_default());
        let all = values.chain(words.iter().map(|word| (*word).to_owned()));
        match self.cells {
            Cells::Program => all.collect(),
            Cells::Spreadsheet => all.map(|text| no_formula(&text)).collect(),
        }
    }
}

/// A text for a spreadsheet. One that it would evaluate, as `=HYPERLINK(...)`, begins with an apostrophe, which says that
/// a text follows; a number stays as it is.
fn no_formula(text: &str) -> String {
    let begins_like_one = text.len() > 1 && text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let is_like_one = begins_like_one && text.parse::<f64>().is_err();
    if is_like_one { format!("'{text}") } else { text.to_owned() }
}

/// Every metric of a workload or the system, each once; a name in both has one column.
fn metric_columns() -> Vec<&'static str> {
    let more = SystemMetrics::KEYS.iter().filter(|key| !WorkloadMetrics::KEYS.contains(key));
    WorkloadMetrics::KEYS.iter().chain(more).copied().collect()
}

fn cell(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn finish(writer: csv::Writer<Vec<u8>>) -> Result<String, csv::Error> {
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    String::from_utf8(bytes)
        .map_err(|error| csv::Error::from(io::Error::new(io::ErrorKind::InvalidData, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_begins_like_a_formula_is_a_text_and_a_number_a_number() {
        let formulas = ["=1+1", "+SUM(A1)", "-x", "@cmd", "\tx", "-1 of 2"];
        assert!(formulas.iter().all(|text| no_formula(text) == format!("'{text}")));
        let others = ["-1.5", "+3e9", "redis", "a=b", "'x", "", "-", "0x7ff"];
        assert!(others.iter().all(|text| no_formula(text) == *text));
    }
}
