//! The page of a probe: the answers with their evidence, and charts of slides and sweeps.
//!
//! Must not know HTML or how the findings were made.

use super::charts::{Colour, Frame, Line, Lines, Surface};
use super::{Cell, Figure, Grid};
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
    figures: Vec<Figure>,
    notes: Vec<String>,
    version: &'static str,
}

pub(super) fn page(findings: &Findings) -> Result<String, askama::Error> {
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
    let figures = curves.chain(findings.sweeps.iter().filter_map(sweep)).collect();
    let of_sweep = |sweep: &LoadSweep| {
        let title = sweep.dial.title();
        sweep.notes.iter().map(move |note| format!("sweep of {title}: {note}")).collect::<Vec<_>>()
    };
    let notes = findings.sweeps.iter().flat_map(of_sweep).chain(findings.failures.iter().cloned()).collect();
    Page { findings, facts, rows, answers, figures, notes, version: env!("CARGO_PKG_VERSION") }.render()
}

/// A chart over windows, leftmost way first, as masks are read.
fn curve(curve: &Curve) -> Option<Figure> {
    let mut windows: Vec<_> = curve.lines.iter().flatten().map(|(window, _, _)| *window).collect();
    windows.sort();
    windows.dedup();
    windows.reverse();
    let at = |window| windows.iter().position(|known| *known == window).map(|index| index as f64);
    let lines = curve.lines.iter().enumerate().map(|(index, points)| Line {
        label: format!("others at position {}", index + 1),
        colour: Colour::Series(index + 1),
        dash: index,
        points: points.iter().filter_map(|(window, mean, _)| Some((at(*window)?, 100.0 * mean))).collect(),
    });
    let chart = Lines {
        frame: frame(&curve.id, &curve.title, "window of the co-runner", "%"),
        lines: lines.collect(),
        y_max: None,
        x_names: Some(windows.iter().map(ToString::to_string).collect()),
        legend_below: true,
        points: true,
        may_be_log: false,
    };
    figure(&curve.title, chart.svg())
}

/// A chart of hit rates over the swept value.
fn sweep(sweep: &LoadSweep) -> Option<Figure> {
    let line = |label: &str, colour: usize, of: fn(&Point) -> Option<f64>| Line {
        label: label.to_owned(),
        colour: Colour::Series(colour),
        dash: colour - 1,
        points: sweep.points.iter().filter_map(|point| Some((point.value, 100.0 * of(point)?))).collect(),
    };
    let title = format!("Hit rates of devices over {}", sweep.dial.title());
    let id = format!("sweep-{}", sweep.dial.title().split([' ', ',']).next().unwrap_or_default());
    let chart = Lines {
        frame: frame(&id, &title, sweep.dial.title(), "%"),
        lines: vec![
            line("writes that hit", 1, |point| point.write_hit),
            line("reads that hit", 2, |point| point.read_hit),
        ],
        y_max: Some(100.0),
        x_names: None,
        legend_below: true,
        points: true,
        may_be_log: false,
    };
    figure(&title, chart.svg())
}

fn frame<'a>(id: &'a str, alt: &'a str, x_label: &'a str, y_label: &'a str) -> Frame<'a> {
    Frame { id, alt, surface: Surface::Page, width: 540.0, height: 330.0, x_label, y_label }
}

fn figure(title: &str, svg: String) -> Option<Figure> {
    let mut letters = title.chars();
    let title = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
    (!svg.is_empty()).then_some(Figure { title, svg })
}
