//! The page of a sweep: a chart per metric over the swept key, and the numbers as tables.
//!
//! One line per workload and policy; with two swept keys the second splits the lines. The colour identifies the
//! workload, the dash pattern the policy and the second value. Must not know HTML or compute results.

use super::charts::{Colour, Frame, Line, Lines, Surface};
use super::{Cell, Figure, Grid, run};
use crate::results::{
    PolicyResult, RunSummary, SweepPoint, SweepSummary, SystemMetrics, ThroughputUnit, Warning, partial_line,
    warning,
};
use crate::show;
use askama::Template;
use indexmap::{IndexMap, IndexSet};

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page<'a> {
    sweep: &'a SweepSummary,
    partial: Option<String>,
    timeless: SweepSummary,
    facts: Vec<(&'static str, String)>,
    /// Of all points, each kind once.
    warnings: Vec<Warning>,
    figures: Vec<Figure>,
    grids: Vec<(String, Grid)>,
}

pub(super) fn page(sweep: &SweepSummary) -> Result<String, askama::Error> {
    let mut timeless = SweepSummary { wall_s: None, ..sweep.clone() };
    timeless.points.iter_mut().for_each(|point| point.run.wall_s = None);
    let keys: Vec<&str> = sweep.keys.iter().map(|key| key.key.as_str()).collect();
    let mut facts = vec![("Swept", keys.join(", ")), ("Points", sweep.points.len().to_string())];
    facts.extend(sweep.points.first().map(|point| run::facts(&point.run)).unwrap_or_default());
    let grids = sweep.policy_names().into_iter().map(|policy| (policy.to_owned(), grid(sweep, policy)));
    let runs: Vec<&RunSummary> = sweep.points.iter().map(|point| &point.run).collect();
    facts.extend(run::sampling_error(&runs));
    let warnings = warning::of_points(&runs);
    let partial = partial_line(&sweep.missing);
    Page { sweep, partial, timeless, facts, warnings, figures: figures(sweep), grids: grids.collect() }
        .render()
}

/// How a metric is drawn.
struct Plotted {
    title: String,
    y_label: String,
    y_max: Option<f64>,
    scale: f64,
}

fn plotted(key: &str, unit: Option<ThroughputUnit>) -> Plotted {
    let name = show::metric_name(key);
    let (unit, scale, y_max) = match (key, unit) {
        ("throughput", Some(ThroughputUnit::Packets)) => ("Mpackets/s", 1e-6, None),
        ("throughput", Some(ThroughputUnit::Bytes)) => ("GB/s", 1e-9, None),
        ("throughput", Some(ThroughputUnit::Instructions)) => ("Ginstructions/s", 1e-9, None),
        ("throughput", _) => ("1000 operations/s", 1e-3, None),
        _ if key.ends_with("_hit_ratio") => ("%", 100.0, Some(100.0)),
        _ if key.ends_with("_us") => ("us", 1.0, None),
        _ if key.ends_with("bytes_per_s") => ("GB/s", 1e-9, None),
        _ if key.ends_with("_per_s") => ("1000/s", 1e-3, None),
        _ => ("", 1.0, None),
    };
    let mut letters = name.chars();
    let title = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
    let y_label =
        if key == "performance_ratio" { format!("{name} ratio") } else { format!("{name}, {unit}") };
    Plotted { title, y_label, y_max, scale }
}

fn figures(sweep: &SweepSummary) -> Vec<Figure> {
    let mut figures = Vec::new();
    if sweep.policy_names().len() > 1 {
        let value = |group: &'static str| {
            move |policy: &PolicyResult| policy.groups.get(group).and_then(|group| group.performance_ratio)
        };
        let mut lines = Lineup::new(sweep);
        lines.add("HPW mean", Colour::Series(1), &value("HPW"));
        lines.add("LPW mean", Colour::Series(2), &value("LPW"));
        figures.extend(lines.figure("means", plotted("performance_ratio", None)));
    }
    let workloads: IndexSet<&String> = policies(sweep).flat_map(|policy| policy.workloads.keys()).collect();
    let of_workload = |index| Colour::Workload { index, of: workloads.len() };
    let units: IndexSet<Option<ThroughputUnit>> =
        policies(sweep).flat_map(|policy| policy.workloads.values()).map(|w| w.throughput_unit).collect();
    for unit in units {
        let mut lines = Lineup::new(sweep);
        for (i, name) in workloads.iter().enumerate() {
            lines.add(name, of_workload(i), &|policy| {
                let workload =
                    policy.workloads.get(*name).filter(|workload| workload.throughput_unit == unit);
                workload.and_then(|workload| workload.metrics.get("throughput"))
            });
        }
        let id = format!("throughput-{}", unit.map_or("unknown", ThroughputUnit::as_str).replace('/', "-"));
        figures.extend(lines.figure(&id, plotted("throughput", unit)));
    }
    for key in ["latency_mean_us", "latency_p99_us", "llc_hit_ratio"] {
        let mut lines = Lineup::new(sweep);
        for (i, name) in workloads.iter().enumerate() {
            lines.add(name, of_workload(i), &|policy| {
                policy.workloads.get(*name).and_then(|w| w.metrics.get(key))
            });
        }
        figures.extend(lines.figure(key, plotted(key, None)));
    }
    let pairs = [
        ("memory", "memory_read_bytes_per_s", "memory_write_bytes_per_s", "Memory bandwidth", "GB/s"),
        ("dca", "dca_write_hit_ratio", "dca_read_hit_ratio", "DCA hit ratio", "DCA hit ratio, %"),
        ("io", "inbound_bytes_per_s", "outbound_bytes_per_s", "I/O bandwidth", "GB/s"),
    ];
    for (id, first, second, title, y_label) in pairs {
        let mut lines = Lineup::new(sweep);
        for (i, key) in [first, second].into_iter().enumerate() {
            lines
                .add(show::metric_name(key), Colour::Series(i + 1), &|policy| policy.system.metrics.get(key));
        }
        let how = Plotted { title: title.to_owned(), y_label: y_label.to_owned(), ..plotted(first, None) };
        figures.extend(lines.figure(id, how));
    }
    figures
}

fn policies(sweep: &SweepSummary) -> impl Iterator<Item = &PolicyResult> {
    sweep.points.iter().flat_map(|point| point.run.policies.values())
}

/// The lines of one chart during their collection.
struct Lineup<'a> {
    sweep: &'a SweepSummary,
    /// Names of the positions on the x axis, when the first key's values are not all numbers.
    x_names: Option<Vec<String>>,
    lines: Vec<Line>,
}

impl<'a> Lineup<'a> {
    fn new(sweep: &'a SweepSummary) -> Lineup<'a> {
        let first = |point: &'a SweepPoint| point.at.first().map(|(_, value)| value);
        let numeric =
            sweep.points.iter().all(|point| first(point).is_some_and(|value| value.number().is_some()));
        let names: IndexSet<String> =
            sweep.points.iter().filter_map(first).map(ToString::to_string).collect();
        Lineup { sweep, x_names: (!numeric).then(|| names.into_iter().collect()), lines: Vec::new() }
    }

    /// Adds the values of `value`: a line per policy and value of the second key.
    fn add(&mut self, label: &str, colour: Colour, value: &dyn Fn(&PolicyResult) -> Option<f64>) {
        let several = self.sweep.policy_names().len() > 1;
        let mut lines: IndexMap<String, Vec<(f64, f64)>> = IndexMap::new();
        for point in &self.sweep.points {
            let Some((_, at)) = point.at.first() else { continue };
            let x = match &self.x_names {
                Some(names) => {
                    names.iter().position(|name| *name == at.to_string()).map(|index| index as f64)
                }
                None => at.number(),
            };
            let Some(x) = x else { continue };
            for (name, policy) in &point.run.policies {
                let mut words: Vec<String> = if several { vec![name.clone()] } else { Vec::new() };
                words.extend(point.at.values().skip(1).map(ToString::to_string));
                let line = lines.entry(words.join(", ")).or_default();
                line.extend(value(policy).filter(|value| value.is_finite()).map(|value| (x, value)));
            }
        }
        for (dash, (words, mut points)) in lines.into_iter().enumerate() {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let label = if words.is_empty() { label.to_owned() } else { format!("{label} {words}") };
            self.lines.push(Line { label, colour, dash, points });
        }
    }

    fn figure(mut self, id: &str, how: Plotted) -> Option<Figure> {
        for line in &mut self.lines {
            line.points.iter_mut().for_each(|(_, y)| *y *= how.scale);
        }
        let chart = Lines {
            frame: Frame {
                id,
                alt: &how.title,
                surface: Surface::Page,
                width: 540.0,
                height: 330.0,
                x_label: self.sweep.keys.first().map(|key| key.title()).unwrap_or_default(),
                y_label: &how.y_label,
            },
            lines: self.lines,
            y_max: how.y_max,
            x_names: self.x_names,
            legend_below: true,
            points: true,
            may_be_log: false,
        };
        let svg = chart.svg();
        (!svg.is_empty()).then_some(Figure { title: how.title, svg })
    }
}

fn grid(sweep: &SweepSummary, policy: &str) -> Grid {
    const WORKLOAD_KEYS: [&str; 5] =
        ["throughput", "latency_mean_us", "latency_p99_us", "ipc", "llc_hit_ratio"];
    let results: Vec<Option<&PolicyResult>> =
        sweep.points.iter().map(|point| point.run.policies.get(policy)).collect();
    let workloads: IndexSet<&String> =
        results.iter().flatten().flat_map(|result| result.workloads.keys()).collect();
    let columns: Vec<(Option<&String>, &str)> = workloads
        .iter()
        .flat_map(|name| WORKLOAD_KEYS.map(|key| (Some(*name), key)))
        .chain(SystemMetrics::KEYS.iter().map(|key| (None, *key)))
        .collect();
    let cell = |result: Option<&PolicyResult>, (workload, key): (Option<&String>, &str)| -> Option<String> {
        let result = result?;
        let Some(name) = workload else { return Some(show::metric(key, result.system.metrics.get(key)?)) };
        let workload = result.workloads.get(name)?;
        let value = workload.metrics.get(key)?;
        Some(if key == "throughput" { show::throughput(workload, value) } else { show::metric(key, value) })
    };
    let used: Vec<_> = columns
        .into_iter()
        .filter(|column| results.iter().any(|result| cell(*result, *column).is_some()))
        .collect();
    let mut head: Vec<Cell> = sweep.keys.iter().map(|key| Cell::number(key.title())).collect();
    head.extend(used.iter().map(|(workload, key)| match workload {
        Some(name) => Cell::number(format!("{name} {}", show::metric_name(key))),
        None => Cell::number(show::metric_name(key)),
    }));
    let rows = sweep.points.iter().zip(&results).map(|(point, result)| {
        let mut row: Vec<Cell> = point.at.values().map(|value| Cell::number(value.to_string())).collect();
        row.extend(used.iter().map(|column| cell(*result, *column).map_or_else(Cell::nothing, Cell::number)));
        row
    });
    Grid { head, rows: rows.collect() }
}
