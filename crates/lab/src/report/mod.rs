//! One self-contained HTML page per result, and the picture for a README.
//!
//! The page contains everything: style, bars and way maps over time as SVG, the values of its charts, the script that draws
//! them (the code of the web page), and the result as JSON for tools. It loads nothing, so it opens from a disk or a mail.
//! Where scripts are not run, it has all but the charts of lines. Must not know how a result was made or where the page is
//! saved. Everything from a scenario (names, texts) is escaped by the template engine; text marked `safe` in the templates
//! was made by it. The wall-clock time is left out, so equal results give equal pages.

mod bars;
mod chart;
#[cfg(feature = "probe")]
mod probe;
mod run;
mod sweep;
mod waymap;

use crate::results::{RunSummary, SweepSummary};
use crate::show;
use serde::Serialize;
use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hasher};

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The template engine failed.
    #[error("cannot render the report: {0}")]
    Template(#[from] askama::Error),
    /// The charts could not be written as JSON.
    #[error("cannot write the charts of the report: {0}")]
    Charts(#[from] serde_json::Error),
    /// The scripts of the page could not be joined.
    #[error("cannot make the script of the report: {0}")]
    Script(#[from] waykeeper_drawing::JoinError),
}

/// The report of a run.
///
/// # Errors
/// If the template engine fails or the script cannot be made, which no input should cause.
pub fn run_html(summary: &RunSummary) -> Result<String, ReportError> {
    run::page(summary)
}

/// The report of a sweep.
///
/// # Errors
/// As [`run_html`].
pub fn sweep_html(sweep: &SweepSummary) -> Result<String, ReportError> {
    sweep::page(sweep)
}

/// The report of a probe.
///
/// # Errors
/// As [`run_html`].
#[cfg(feature = "probe")]
pub fn probe_html(findings: &waykeeper_probe::findings::Findings) -> Result<String, ReportError> {
    probe::page(findings)
}

/// The group means per policy as a picture of its own (SVG, for light and dark screens), for a README. Empty without
/// means.
///
/// # Errors
/// As [`run_html`].
pub fn headline_svg(summary: &RunSummary) -> Result<String, ReportError> {
    Ok(run::means_chart(summary, true)?)
}

/// The group means at each point of a sweep as a picture of its own. Empty without means.
///
/// # Errors
/// As [`run_html`].
pub fn sweep_headline_svg(sweep: &SweepSummary) -> Result<String, ReportError> {
    Ok(sweep::means_chart(sweep)?)
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

/// What the page's script needs.
struct Drawing {
    /// The styles of what it draws, with the colours of both themes.
    style: String,
    /// The script: the drawing code, and `report.js`.
    script: String,
    /// Allows the script in the page's policy. It is a hash of the script and of all that the page shows, so no name in
    /// a result can contain it.
    nonce: String,
}

impl Drawing {
    /// Of a page that shows `data`.
    fn new(data: &impl Serialize) -> Result<Drawing, ReportError> {
        let script = waykeeper_drawing::joined("report.js", include_str!("report.js"))?;
        let data = serde_json::to_string(data)?;
        let half = |half: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(half);
            hasher.write(script.as_bytes());
            hasher.write(data.as_bytes());
            format!("{:016x}", hasher.finish())
        };
        let nonce = half(0) + &half(1);
        Ok(Drawing { style: waykeeper_drawing::style(), script, nonce })
    }
}

/// Round numbers between two, about `most`: multiples of 1, 2 or 5 times a power of ten.
fn round_steps(start: f64, end: f64, most: u32) -> impl Iterator<Item = f64> {
    let rough = ((end - start) / f64::from(most)).max(1e-9);
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|nice| nice * decade).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (start / step).ceil();
    // Multiples of the step rather than a running sum, which would print as 0.30000000000000004.
    (0..=most)
        .map(move |i| ((first + f64::from(i)) * step * 1e9).round() / 1e9)
        .take_while(move |at| *at <= end)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_numbers() {
        assert_eq!(round_steps(0.0, 30.0, 12).collect::<Vec<_>>(), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(
            round_steps(0.0, 1.0, 12).collect::<Vec<_>>(),
            [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
        );
        assert_eq!(round_steps(3.0, 5.0, 12).count(), 11);
        assert_eq!(round_steps(0.0, 1.8, 6).collect::<Vec<_>>(), [0.0, 0.5, 1.0, 1.5]);
    }
}
