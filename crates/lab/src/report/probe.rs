//! The page of a probe: the answers with their evidence, and charts of slides and sweeps.
//!
//! Must not know HTML or how the findings were made.

use super::chart::{Axis, Chart, Look, Points, Unit};
use super::{Cell, Drawing, Grid, ReportError};
use askama::Template;
use waykeeper_probe::findings::{Curve, Findings, Row};
use waykeeper_probe::sweep::{LoadSweep, Point};

#[derive(Template)]
#[template(path = "probe.html")]
struct Page<'a> {
    findings: &'a Findings,
    facts: Vec<(&'static str, String)>,
    rows: Vec<Row>,
    answers: Grid,
    charts: Vec<Chart>,
    /// Numbers of the charts.
    numbers: Vec<usize>,
    notes: Vec<String>,
    version: &'static str,
    drawing: Drawing,
}

pub(super) fn page(findings: &Findings) -> Result<String, ReportError> {
    let facts = vec![
        ("Machine", findings.platform.chip.clone()),
        ("Host", findings.platform.host.clone()),
        ("LLC ways", findings.llc_ways.to_string()),
    ];
    let rows = findings.rows();
    let head = ["Question", "Answer", "Confidence", "Register or table says"].map(Cell::text).into();
    let cells = |row: &Row| {
        [&row.question, &row.answer, &row.confidence, &row.register]
            .map(|text| Cell::text(text.clone()))
            .into()
    };
    let answers = Grid { head, rows: rows.iter().map(cells).collect() };
    let curves = findings.curves.iter().filter_map(curve);
    let charts: Vec<Chart> = curves.chain(findings.sweeps.iter().filter_map(sweep)).collect();
    let of_sweep = |sweep: &LoadSweep| {
        let title = sweep.dial.title();
        sweep.notes.iter().map(move |note| format!("sweep of {title}: {note}")).collect::<Vec<_>>()
    };
    let notes = findings.sweeps.iter().flat_map(of_sweep).chain(findings.failures.iter().cloned()).collect();
    let drawing = Drawing::new(&(findings, &charts))?;
    let version = env!("CARGO_PKG_VERSION");
    let numbers = (0..charts.len()).collect();
    Ok(Page { findings, facts, rows, answers, charts, numbers, notes, version, drawing }.render()?)
}

/// A chart over windows, leftmost way first, as masks are read.
fn curve(curve: &Curve) -> Option<Chart> {
    let mut windows: Vec<_> = curve.lines.iter().flatten().map(|(window, _, _)| *window).collect();
    windows.sort();
    windows.dedup();
    windows.reverse();
    let at = |window| windows.iter().position(|known| *known == window).map(|index| index as f64);
    let lines = curve.lines.iter().enumerate().map(|(index, points)| Points {
        name: format!("others at position {}", index + 1),
        look: Look::numbered(index),
        dash: index,
        points: points.iter().filter_map(|(window, mean, _)| Some((at(*window)?, *mean))).collect(),
    });
    let names = windows.iter().map(ToString::to_string).collect();
    let x = Axis::Names { label: "window of the co-runner".to_owned(), names };
    let chart = Chart::new(title(&curve.title), Unit::Ratio, x, lines.collect())?;
    Some(Chart { has_points: true, is_whole: false, ..chart })
}

/// A chart of hit rates over the swept value.
fn sweep(sweep: &LoadSweep) -> Option<Chart> {
    let line = |name: &str, look, dash, of: fn(&Point) -> Option<f64>| Points {
        name: name.to_owned(),
        look,
        dash,
        points: sweep.points.iter().filter_map(|point| Some((point.value, of(point)?))).collect(),
    };
    let lines = vec![
        line("writes that hit", Look::FIRST, 0, |point| point.write_hit),
        line("reads that hit", Look::SECOND, 1, |point| point.read_hit),
    ];
    let x = Axis::Numbers { label: sweep.dial.title().to_owned() };
    let title = format!("Hit rates of devices over {}", sweep.dial.title());
    Some(Chart { has_points: true, ..Chart::new(title, Unit::Ratio, x, lines)? })
}

/// A text that begins with a capital letter.
fn title(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
