//! One self-contained HTML page per result, and the picture for a README.
//!
//! The page contains everything: style, charts as SVG, way maps, and the result as JSON for tools. It loads nothing and
//! needs no script, so it opens from a disk, a mail or a restricted browser. Must not know how a result was made or
//! where the page is saved. Everything from a scenario (names, texts) is escaped by the template engine or the chart
//! library; text marked `safe` in the templates was made by them. The wall-clock time is left out, so equal results
//! give equal pages.

mod charts;
#[cfg(feature = "probe")]
mod probe;
mod run;
mod sweep;
mod waymap;

use crate::results::{RunSummary, SweepSummary};
use crate::show;
use askama::filters::{Html, escape as askama_escape};
use std::cmp::Ordering;

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The template engine failed.
    #[error("cannot render the report: {0}")]
    Template(#[from] askama::Error),
}

/// The report of a run.
///
/// # Errors
/// If the template engine fails, which no input should cause.
pub fn run_html(summary: &RunSummary) -> Result<String, ReportError> {
    Ok(run::page(summary)?)
}

/// The report of a sweep.
///
/// # Errors
/// As [`run_html`].
pub fn sweep_html(sweep: &SweepSummary) -> Result<String, ReportError> {
    Ok(sweep::page(sweep)?)
}

/// The report of a probe.
///
/// # Errors
/// As [`run_html`].
#[cfg(feature = "probe")]
pub fn probe_html(findings: &waykeeper_probe::findings::Findings) -> Result<String, ReportError> {
    Ok(probe::page(findings)?)
}

/// The group means per policy as a picture of its own (SVG, for light and dark screens), for a README. Empty without
/// means.
pub fn headline_svg(summary: &RunSummary) -> String {
    run::means_chart(summary, charts::Surface::Paper)
}

/// The way map of a policy over time as a picture of its own (SVG, on white), for a notebook. Empty if the result has
/// no such policy or no way map.
///
/// # Errors
/// As [`run_html`].
pub fn way_map_svg(summary: &RunSummary, policy: &str) -> Result<String, ReportError> {
    let Some(result) = summary.policies.get(policy) else { return Ok(String::new()) };
    let alt = format!("Way map over time under {policy}");
    Ok(waymap::alone(result, summary.llc_ways, alt)?)
}

/// Text escaped for an attribute or an element.
fn escape(text: &str) -> String {
    askama_escape(text, Html).map(|escaped| escaped.to_string()).unwrap_or_default()
}

/// A cell of a table: its text and its CSS class.
struct Cell {
    text: String,
    class: &'static str,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), class: "" }
    }

    fn number(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), class: "num" }
    }

    fn nothing() -> Cell {
        Cell { text: "–".into(), class: "num none" }
    }

    /// A performance ratio; the arrow from the style sheet shows the direction without colour.
    fn ratio(ratio: Option<f64>, deviation: Option<f64>) -> Cell {
        let Some(ratio) = ratio else { return Cell::nothing() };
        let class = match show::verdict(ratio) {
            Ordering::Greater => "num better",
            Ordering::Less => "num worse",
            Ordering::Equal => "num",
        };
        let spread = deviation.map(|deviation| format!(" ±{deviation:.2}")).unwrap_or_default();
        Cell { text: format!("{ratio:.2}{spread}"), class }
    }
}

/// A table: headings and rows; `class` of a heading is that of its column.
struct Grid {
    head: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

/// A chart with its heading.
struct Figure {
    title: String,
    svg: String,
}
