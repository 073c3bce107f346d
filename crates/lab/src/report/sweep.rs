//! The page of a sweep: a chart per metric over the swept key, and the numbers as tables.
//!
//! One line per workload and policy; with two swept keys the second splits the lines. The mark identifies the workload, the
//! dash pattern the policy and the second value. Must not know HTML or compute results.

use super::bars::{BarGroup, Bars};
use super::chart::{Axis, Chart, Look, Points, Unit};
use super::{Cell, Drawing, Grid, ReportError, run};
use crate::results::{
    PolicyResult, RunSummary, SweepPoint, SweepSummary, SystemMetrics, ThroughputUnit, Warning, partial_line,
    warning,
};
use crate::show;
use askama::Template;
use indexmap::{IndexMap, IndexSet};
use waykeeper_drawing::Marks;

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page<'a> {
    sweep: &'a SweepSummary,
    partial: Option<String>,
    timeless: SweepSummary,
    facts: Vec<(&'static str, String)>,
    /// Of all points, each kind once.
    warnings: Vec<Warning>,
    charts: Vec<Chart>,
    /// Numbers of the charts.
    numbers: Vec<usize>,
    grids: Vec<(String, Grid)>,
    drawing: Drawing,
}

pub(super) fn page(sweep: &SweepSummary) -> Result<String, ReportError> {
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
    let charts = charts(sweep);
    let drawing = Drawing::new(&(&timeless, &charts))?;
    let numbers = (0..charts.len()).collect();
    let page =
        Page { sweep, partial, timeless, facts, warnings, charts, numbers, grids: grids.collect(), drawing };
    Ok(page.render()?)
}

fn unit_of(throughput: Option<ThroughputUnit>) -> Unit {
    match throughput {
        Some(ThroughputUnit::Packets) => Unit::PacketsPerSecond,
        Some(ThroughputUnit::Bytes) => Unit::BytesPerSecond,
        Some(ThroughputUnit::Instructions) => Unit::InstructionsPerSecond,
        _ => Unit::OperationsPerSecond,
    }
}

/// A metric's name as a title.
fn title_of(key: &str) -> String {
    let mut letters = show::metric_name(key).chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn charts(sweep: &SweepSummary) -> Vec<Chart> {
    let mut charts = Vec::new();
    if sweep.policy_names().len() > 1 {
        let value = |group: &'static str| {
            move |policy: &PolicyResult| policy.groups.get(group).and_then(|group| group.performance_ratio)
        };
        let mut lines = Lineup::new(sweep);
        lines.add("HPW mean", Look::FIRST, &value("HPW"));
        lines.add("LPW mean", Look::SECOND, &value("LPW"));
        charts.extend(lines.chart(title_of("performance_ratio"), Unit::Relative));
    }
    let workloads: IndexSet<&String> = policies(sweep).flat_map(|policy| policy.workloads.keys()).collect();
    let marks = Marks::of(workloads.iter().map(|name| (*name).clone()));
    let units: IndexSet<Option<ThroughputUnit>> =
        policies(sweep).flat_map(|policy| policy.workloads.values()).map(|w| w.throughput_unit).collect();
    for unit in units {
        let mut lines = Lineup::new(sweep);
        for name in &workloads {
            lines.add(name, Look::of(marks.get(name)), &|policy| {
                let workload =
                    policy.workloads.get(*name).filter(|workload| workload.throughput_unit == unit);
                workload.and_then(|workload| workload.metrics.get("throughput"))
            });
        }
        charts.extend(lines.chart(title_of("throughput"), unit_of(unit)));
    }
    let metrics = [
        ("latency_mean_us", Unit::Microseconds),
        ("latency_p99_us", Unit::Microseconds),
        ("llc_hit_ratio", Unit::Ratio),
    ];
    for (key, unit) in metrics {
        let mut lines = Lineup::new(sweep);
        for name in &workloads {
            lines.add(name, Look::of(marks.get(name)), &|policy| {
                policy.workloads.get(*name).and_then(|w| w.metrics.get(key))
            });
        }
        charts.extend(lines.chart(title_of(key), unit));
    }
    let pairs = [
        ("memory_read_bytes_per_s", "memory_write_bytes_per_s", "Memory bandwidth", Unit::BytesPerSecond),
        ("dca_write_hit_ratio", "dca_read_hit_ratio", "DCA hit ratio", Unit::Ratio),
        ("inbound_bytes_per_s", "outbound_bytes_per_s", "I/O bandwidth", Unit::BytesPerSecond),
    ];
    for (first, second, title, unit) in pairs {
        let mut lines = Lineup::new(sweep);
        for (key, look) in [(first, Look::FIRST), (second, Look::SECOND)] {
            lines.add(show::metric_name(key), look, &|policy| policy.system.metrics.get(key));
        }
        charts.extend(lines.chart(title.to_owned(), unit));
    }
    charts
}

/// The group means at each point, a group of bars per point, as a picture of its own.
pub(super) fn means_chart(sweep: &SweepSummary) -> Result<String, askama::Error> {
    let Some(first) = sweep.points.first().map(|point| &point.run) else { return Ok(String::new()) };
    let names = sweep.policy_names();
    let several = names.len() > 1;
    // The bars of the baseline would all be 1.
    let shown = names.into_iter().filter(|name| !several || Some(*name) != first.baseline.as_deref());
    let groups: IndexSet<&str> =
        policies(sweep).flat_map(|policy| policy.groups.keys().map(String::as_str)).collect();
    let series: Vec<(&str, &str)> =
        shown.flat_map(|policy| groups.iter().map(move |group| (policy, *group))).collect();
    let bars = sweep.points.iter().map(|point| BarGroup {
        label: point.at.values().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        bars: series
            .iter()
            .map(|(policy, group)| run::mean(point.run.policies.get(*policy)?, group))
            .collect(),
    });
    let keys: Vec<&str> = sweep.keys.iter().map(|key| key.title()).collect();
    let title = format!(
        "{}: performance over {} (higher is better)",
        show::name(&sweep.scenario),
        keys.join(" and ")
    );
    let baseline = show::name(first.baseline.as_deref().unwrap_or(show::NOTHING));
    let words = |(policy, group): &(&str, &str)| match several {
        true => format!("{policy}, {}", run::group_words(group)),
        false => run::group_words(group).to_owned(),
    };
    let y_label = format!("performance relative to {baseline} (ratio)");
    let chart = Bars {
        alt: "Bar chart: mean performance of high- and low-priority workloads at every point of the sweep, higher is better",
        width: 760.0,
        height: 270.0,
        y_label: &y_label,
        series: series.iter().map(words).collect(),
        groups: bars.collect(),
        first_colour: 1,
        title: Some((title, run::what_means_are(first.seeds))),
    };
    chart.svg()
}

fn policies(sweep: &SweepSummary) -> impl Iterator<Item = &PolicyResult> {
    sweep.points.iter().flat_map(|point| point.run.policies.values())
}

/// The lines of one chart during their collection.
struct Lineup<'a> {
    sweep: &'a SweepSummary,
    /// Names of the positions on the x axis, when the first key's values are not all numbers.
    x_names: Option<Vec<String>>,
    lines: Vec<Points>,
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
    fn add(&mut self, label: &str, look: Look, value: &dyn Fn(&PolicyResult) -> Option<f64>) {
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
        for (dash, (words, points)) in lines.into_iter().enumerate() {
            let name = if words.is_empty() { label.to_owned() } else { format!("{label} {words}") };
            self.lines.push(Points { name, look, dash, points });
        }
    }

    fn chart(self, title: String, unit: Unit) -> Option<Chart> {
        let label = self.sweep.keys.first().map(|key| show::plain(key.title())).unwrap_or_default();
        let x = match self.x_names {
            Some(names) => Axis::Names { label, names: names.iter().map(|name| show::name(name)).collect() },
            None => Axis::Numbers { label },
        };
        Some(Chart { has_points: true, ..Chart::new(title, unit, x, self.lines)? })
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
