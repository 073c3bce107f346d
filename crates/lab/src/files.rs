//! `--out DIR`: writes a result as files.
//!
//! A run becomes `summary.json`, `timeseries.csv`, `decisions.jsonl`, `report.html` and `headline.svg`; a sweep
//! `summary.json`, `curve.csv` and `report.html`. Each file is written under a temporary name and then renamed, so a
//! reader never sees an incomplete one, and an interrupted run leaves the previous files complete. Must not know how
//! results are made or what they mean.

use crate::report::{self, ReportError};
use crate::results::{DecisionRecord, RunSummary, SweepSummary, SystemMetrics, TimeSample, WorkloadMetrics};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The files of a run.
pub const RUN_FILES: [&str; 5] =
    ["summary.json", "timeseries.csv", "decisions.jsonl", "report.html", "headline.svg"];
/// The files of a sweep.
pub const SWEEP_FILES: [&str; 3] = ["summary.json", "curve.csv", "report.html"];
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
    // All files are rendered before the first is written: a result that cannot be rendered leaves no file.
    let texts = [
        summary.to_json()? + "\n",
        timeseries_csv(summary)?,
        decisions_jsonl(summary)?,
        report::run_html(summary)?,
        report::headline_svg(summary)?,
    ];
    write_all(directory, RUN_FILES.into_iter().zip(texts))
}

/// Writes a sweep into `directory`, which it makes if needed; returns the files' paths.
///
/// # Errors
/// As [`write_run`].
pub fn write_sweep(directory: &Path, sweep: &SweepSummary) -> Result<Vec<PathBuf>, OutError> {
    let texts = [sweep.to_json()? + "\n", curve_csv(sweep)?, report::sweep_html(sweep)?];
    write_all(directory, SWEEP_FILES.into_iter().zip(texts))
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
    files.map(|(name, text)| write_whole(&directory.join(name), text.as_bytes())).collect()
}

/// Writes a file atomically: complete or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<PathBuf, OutError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&draft)?;
        file.write_all(bytes)?;
        // Without this the rename may reach the disk before the content does.
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(|source| {
        // A failure to remove the draft would only hide the first error.
        let _ = fs::remove_file(&draft);
        OutError::Write { path: path.into(), source }
    })?;
    Ok(path.into())
}

/// One line per decision: its policy, then the decision's own keys.
///
/// # Errors
/// When serde_json refuses, which the types rule out.
pub fn decisions_jsonl(summary: &RunSummary) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Line<'a> {
        policy: &'a str,
        #[serde(flatten)]
        decision: &'a DecisionRecord,
    }
    let mut out = String::new();
    for (policy, result) in &summary.policies {
        for decision in &result.decisions {
            out.push_str(&serde_json::to_string(&Line { policy, decision })?);
            out.push('\n');
        }
    }
    Ok(out)
}

/// The time series: a row per policy, interval and workload, and one for the whole socket. An empty cell is "not
/// available".
///
/// # Errors
/// When the CSV writer refuses, which writing to memory rules out.
pub fn timeseries_csv(summary: &RunSummary) -> Result<String, csv::Error> {
    let columns = TimeSample::KEYS;
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["policy", "at_s", "state", "scope", "name"].iter().chain(columns))?;
    for (policy, result) in &summary.policies {
        for sample in &result.samples {
            let at_s = sample.at_s.to_string();
            let mut row = |scope: &str, name: &str, value: &dyn Fn(&str) -> Option<f64>| {
                let state = sample.state.as_deref().unwrap_or_default();
                let head = [policy.as_str(), &at_s, state, scope, name].map(str::to_owned);
                writer.write_record(head.into_iter().chain(columns.iter().map(|key| cell(value(key)))))
            };
            for (name, metrics) in &sample.workloads {
                row("workload", name, &|key| metrics.get(key))?;
            }
            row("system", "", &|key| sample.system.get(key))?;
        }
    }
    finish(writer)
}

/// A sweep's numbers: a row per point, policy and workload, group or whole socket; first the swept keys.
///
/// # Errors
/// As [`timeseries_csv`].
pub fn curve_csv(sweep: &SweepSummary) -> Result<String, csv::Error> {
    let columns = metric_columns();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let keys = sweep.keys.iter().map(|key| key.key.as_str());
    writer.write_record(keys.chain(["policy", "scope", "name"]).chain(columns.iter().copied()))?;
    for point in &sweep.points {
        for (policy, result) in &point.run.policies {
            let mut row = |scope: &str, name: &str, value: &dyn Fn(&str) -> Option<f64>| {
                let at = sweep.keys.iter().map(|key| point.at.get(&key.key).map(ToString::to_string));
                let head = at.map(Option::unwrap_or_default).chain([policy, scope, name].map(str::to_owned));
                writer.write_record(head.chain(columns.iter().map(|key| cell(value(key)))))
            };
            for (name, workload) in &result.workloads {
                row("workload", name, &|key| workload.metrics.get(key))?;
            }
            for (name, group) in &result.groups {
                row("group", name, &|key| group.performance_ratio.filter(|_| key == "performance_ratio"))?;
            }
            row("system", "", &|key| result.system.metrics.get(key))?;
        }
    }
    finish(writer)
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
