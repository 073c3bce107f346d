//! The page of a run: the content of `report.html`, arranged for the template.
//!
//! Must not know HTML, which is in the template. Must not compute results, only read them.

use super::bars::{self, BarGroup, Bars};
use super::chart::{Axis, Chart, Look, Points, Unit};
use super::{Cell, Drawing, Grid, ReportError, waymap};
use crate::results::{
    DecisionRecord, PolicyResult, RunSummary, Score, SystemMetrics, TimeSample, WorkloadMetrics, group_name,
    partial_line, sampling_error,
};
use crate::ways::WayClass;
use crate::{show, timeline};
use askama::Template;
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use waykeeper_drawing::Marks;

#[derive(Template)]
#[template(path = "run.html")]
struct Page<'a> {
    summary: &'a RunSummary,
    partial: Option<String>,
    timeless: RunSummary,
    facts: Vec<(&'static str, String)>,
    ratios_chart: String,
    means_chart: String,
    ratios: Grid,
    system: Grid,
    legend: Vec<(&'static str, char, &'static str)>,
    way_colours: &'static str,
    bars_style: String,
    panels: Vec<Panel>,
    drawn: Drawn,
    drawing: Drawing,
}

/// What the page's script draws: the charts, each at the place with its number, and with which marks the names.
#[derive(Serialize)]
struct Drawn {
    charts: Vec<Chart>,
    marks: IndexMap<String, Look>,
}

/// The part of the page for one policy.
struct Panel {
    name: String,
    summary: String,
    way_map: String,
    dca_off: String,
    /// Numbers of its charts.
    charts: Vec<usize>,
    workloads: Grid,
    decisions: Vec<DecisionRow>,
}

struct DecisionRow {
    at: String,
    state: String,
    text: String,
    causes: Vec<String>,
    knobs: Vec<String>,
}

pub(super) fn page(summary: &RunSummary) -> Result<String, ReportError> {
    let names = summary.workload_names();
    let marks = Marks::of(names.iter().map(|(name, _)| (*name).to_owned()));
    let looks = names.iter().map(|(name, _)| ((*name).to_owned(), Look::of(marks.get(name))));
    let mut drawn = Drawn { charts: Vec::new(), marks: looks.collect() };
    let mut panels = Vec::new();
    for (name, result) in &summary.policies {
        let first = drawn.charts.len();
        drawn.charts.extend(charts(result, &drawn.marks));
        panels.push(panel(summary, name, result, (first..drawn.charts.len()).collect())?);
    }
    let timeless = RunSummary { wall_s: None, ..summary.clone() };
    let page = Page {
        summary,
        partial: partial_line(&summary.missing),
        facts: facts(summary).into_iter().chain(sampling_error(&[summary])).collect(),
        ratios_chart: ratios_chart(summary)?,
        means_chart: means_chart(summary, false)?,
        ratios: ratios(summary),
        system: system(summary),
        legend: WayClass::ALL.map(|class| (waymap::style(class), class.letter(), class.meaning())).to_vec(),
        way_colours: waymap::COLOURS,
        bars_style: bars::dark("svg.bars "),
        panels,
        drawing: Drawing::new(&(&timeless, &drawn))?,
        drawn,
        timeless,
    };
    Ok(page.render()?)
}

/// How the numbers were made: seeds, sets, times.
pub(super) fn facts(summary: &RunSummary) -> Vec<(&'static str, String)> {
    let seeds = match summary.seeds {
        0 | 1 => summary.seed.to_string(),
        more => format!("{more} from {}, mean ± standard deviation", summary.seed),
    };
    let sets = if summary.sets == "exact" { "all (exact)".to_owned() } else { summary.sets.clone() };
    vec![
        ("Chip", summary.chip.clone()),
        ("Seed", seeds),
        ("LLC sets simulated", sets),
        (
            "Measured",
            format!(
                "{} to {} of the server's clock",
                show::seconds(summary.measured_from_s),
                show::seconds(summary.duration_s)
            ),
        ),
        ("Simulated time", show::simulated(summary)),
        ("Time factor", summary.time_factor.to_string()),
        ("Baseline", summary.baseline.clone().unwrap_or_else(|| show::NOTHING.to_owned())),
        ("Waykeeper", summary.version.clone()),
        ("Schema", summary.schema.clone()),
    ]
}

/// The sampling error of the hit ratios over all runs.
pub(super) fn sampling_error(runs: &[&RunSummary]) -> Option<(&'static str, String)> {
    let errors = sampling_error::overall(runs);
    let errors: Vec<String> = errors
        .iter()
        .map(|(key, error)| {
            let largest = sampling_error::largest(runs, key).map(|(name, points)| (name.to_owned(), points));
            show::sampling_error(key, *error, largest)
        })
        .collect();
    (!errors.is_empty()).then(|| ("Sampling error of hit ratios, points", errors.join(", ")))
}

fn ratios_chart(summary: &RunSummary) -> Result<String, askama::Error> {
    let groups = summary.workload_names().into_iter().map(|(name, _)| BarGroup {
        label: name.to_owned(),
        bars: summary
            .policies
            .values()
            .map(|policy| {
                let workload = policy.workloads.get(name)?;
                let deviation = workload.spread.get("performance_ratio").copied().unwrap_or(0.0);
                Some((workload.metrics.get("performance_ratio")?, deviation))
            })
            .collect(),
    });
    let chart = Bars {
        alt: "Bar chart: performance of every workload under every policy, relative to the baseline",
        width: 1080.0,
        height: 270.0,
        y_label: "performance ratio",
        series: summary.policies.keys().cloned().collect(),
        groups: groups.collect(),
        first_colour: 0,
        title: None,
    };
    chart.svg()
}

/// The group means, a group of bars per policy; `alone` with a title, as a picture of its own.
pub(super) fn means_chart(summary: &RunSummary, alone: bool) -> Result<String, askama::Error> {
    let names: IndexSet<&str> =
        summary.policies.values().flat_map(|policy| policy.groups.keys().map(String::as_str)).collect();
    let groups = summary.policies.iter().map(|(label, policy)| BarGroup {
        label: label.clone(),
        bars: names.iter().map(|name| mean(policy, name)).collect(),
    });
    let baseline = show::name(summary.baseline.as_deref().unwrap_or(show::NOTHING));
    let y_label = format!("performance relative to {baseline} (ratio)");
    let title =
        format!("{}: performance under each policy (higher is better)", show::name(&summary.scenario));
    let chart = Bars {
        alt: "Bar chart: mean performance of high- and low-priority workloads under every policy, higher is better",
        width: 760.0,
        height: 270.0,
        y_label: &y_label,
        series: names.iter().map(|name| group_words(name).to_owned()).collect(),
        groups: groups.collect(),
        first_colour: 1,
        title: alone.then(|| (title, what_means_are(summary.seeds))),
    };
    chart.svg()
}

/// The mean of a group under a policy, and its deviation over the seeds.
pub(super) fn mean(policy: &PolicyResult, group: &str) -> Option<(f64, f64)> {
    let group = policy.groups.get(group)?;
    let deviation = group.spread.get("performance_ratio").copied().unwrap_or(0.0);
    Some((group.performance_ratio?, deviation))
}

/// A group's name in words.
pub(super) fn group_words(group: &str) -> &str {
    match group {
        "HPW" => "high priority",
        "LPW" => "low priority",
        other => other,
    }
}

/// What the means of a picture are taken over.
pub(super) fn what_means_are(seeds: u32) -> String {
    match seeds {
        0 | 1 => "mean of the workloads, weighted by cores; one seed".to_owned(),
        seeds => format!(
            "mean of the workloads, weighted by cores, and of {seeds} seeds; whiskers: one standard deviation"
        ),
    }
}

fn ratios(summary: &RunSummary) -> Grid {
    let mut head = vec![Cell::text("workload"), Cell::text("priority"), Cell::text("judged by")];
    head.extend(summary.policies.keys().map(Cell::number));
    let mut rows = Vec::new();
    for (name, workload) in summary.workload_names() {
        let score = match workload.score {
            Score::InverseLatency => "1 / mean latency",
            Score::Ipc => "IPC",
        };
        let mut row = vec![Cell::text(name), Cell::text(group_name(workload.priority)), Cell::text(score)];
        row.extend(summary.policies.values().map(|policy| {
            let workload = policy.workloads.get(name);
            let spread = workload.and_then(|workload| workload.spread.get("performance_ratio").copied());
            Cell::ratio(workload.and_then(|workload| workload.metrics.get("performance_ratio")), spread)
        }));
        rows.push(row);
    }
    let groups: IndexSet<&String> =
        summary.policies.values().flat_map(|policy| policy.groups.keys()).collect();
    for name in groups {
        let mut row =
            vec![Cell::text(format!("{name} mean")), Cell::text(name), Cell::text("weighted by cores")];
        row.extend(summary.policies.values().map(|policy| {
            let group = policy.groups.get(name);
            let spread = group.and_then(|group| group.spread.get("performance_ratio").copied());
            Cell::ratio(group.and_then(|group| group.performance_ratio), spread)
        }));
        rows.push(row);
    }
    Grid { head, rows }
}

fn system(summary: &RunSummary) -> Grid {
    let mut head = vec![Cell::text("whole socket")];
    head.extend(summary.policies.keys().map(Cell::number));
    let measured =
        |key: &&&str| summary.policies.values().any(|policy| policy.system.metrics.get(key).is_some());
    let rows = SystemMetrics::KEYS.iter().filter(measured).map(|key| {
        let mut row = vec![Cell::text(show::metric_name(key))];
        row.extend(summary.policies.values().map(|policy| match policy.system.metrics.get(key) {
            Some(value) => Cell::number(show::metric(key, value)),
            None => Cell::nothing(),
        }));
        row
    });
    Grid { head, rows: rows.collect() }
}

fn panel(
    summary: &RunSummary,
    name: &str,
    result: &PolicyResult,
    charts: Vec<usize>,
) -> Result<Panel, askama::Error> {
    let mean = |group: &str| {
        let ratio = result.groups.get(group)?.performance_ratio?;
        Some(format!("{group} mean {ratio:.2}"))
    };
    let mut words: Vec<String> = ["HPW", "LPW"].into_iter().filter_map(mean).collect();
    words.push(match result.decisions.len() {
        0 => "no decisions".to_owned(),
        1 => "1 decision".to_owned(),
        count => format!("{count} decisions"),
    });
    words.extend(result.settled_s.map(|at_s| format!("settled at {}", show::seconds(at_s))));
    let ports: IndexSet<&str> =
        result.way_map.iter().flat_map(|slice| slice.dca_off_ports.iter().map(String::as_str)).collect();
    Ok(Panel {
        name: name.to_owned(),
        summary: words.join(", "),
        way_map: waymap::svg(result, summary.llc_ways, format!("Way map over time under {name}"))?,
        dca_off: ports.into_iter().map(|port| dca_off(result, port)).collect::<Vec<_>>().join("; "),
        charts,
        workloads: workloads(summary, result),
        decisions: result.decisions.iter().map(decision).collect(),
    })
}

/// When DCA was off at a port: `0000:5e:00.0 from 12 s to 30 s`.
fn dca_off(result: &PolicyResult, port: &str) -> String {
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for slice in result.way_map.iter().filter(|slice| slice.dca_off_ports.iter().any(|name| name == port)) {
        match spans.last_mut() {
            Some(span) if span.1 == slice.from_s => span.1 = slice.to_s,
            _ => spans.push((slice.from_s, slice.to_s)),
        }
    }
    let spans: Vec<String> = spans
        .into_iter()
        .map(|(from, to)| format!("{} to {}", show::seconds(from), show::seconds(to)))
        .collect();
    format!("{port} from {}", spans.join(", "))
}

/// The charts over time; none without samples.
fn charts(result: &PolicyResult, looks: &IndexMap<String, Look>) -> Vec<Chart> {
    let over_time = |value: &dyn Fn(&TimeSample) -> Option<f64>| -> Vec<(f64, f64)> {
        result.samples.iter().filter_map(|sample| Some((sample.at_s, value(sample)?))).collect()
    };
    let of_workloads = |key: &'static str| -> Vec<Points> {
        let lines = looks.iter().enumerate().map(|(index, (name, look))| {
            let dash = looks.values().take(index).filter(|other| other.has_colour_of(look)).count();
            let points = over_time(&|sample: &TimeSample| sample.workloads.get(name)?.get(key));
            Points { name: name.clone(), look: *look, dash, points }
        });
        lines.collect()
    };
    let system = |name: &str, look, dash, key: &'static str, change: fn(f64) -> f64| {
        let points = over_time(&|sample| sample.system.get(key).map(change));
        Points { name: name.to_owned(), look, dash, points }
    };
    let memory = vec![
        system("reads", Look::FIRST, 0, "memory_read_bytes_per_s", |bytes| bytes),
        system("writes", Look::SECOND, 1, "memory_write_bytes_per_s", |bytes| bytes),
    ];
    let dca = vec![
        system("device writes", Look::FIRST, 0, "dca_write_hit_ratio", |ratio| 1.0 - ratio),
        system("device reads", Look::SECOND, 1, "dca_read_hit_ratio", |ratio| 1.0 - ratio),
    ];
    let charts = [
        ("Mean latency per workload", Unit::Microseconds, false, of_workloads("latency_mean_us")),
        ("LLC hit ratio per workload", Unit::Ratio, true, of_workloads("llc_hit_ratio")),
        ("Memory bandwidth", Unit::BytesPerSecond, false, memory),
        // Of devices' accesses often only a small part misses.
        ("DCA miss ratio", Unit::Ratio, false, dca),
    ];
    let decided: Vec<f64> = result.decisions.iter().map(|decision| decision.at_s).collect();
    let charts = charts.into_iter().filter_map(|(title, unit, is_whole, lines)| {
        let chart = Chart::new(title.to_owned(), unit, Axis::Time, lines)?;
        let chart = Chart { is_whole, marks: decided.clone(), ..chart };
        Some(if unit == Unit::Microseconds { chart.log_where_it_helps() } else { chart })
    });
    charts.collect()
}

fn workloads(summary: &RunSummary, result: &PolicyResult) -> Grid {
    let names = summary.workload_names();
    let rows: Vec<_> =
        names.iter().filter_map(|(name, _)| Some((*name, result.workloads.get(*name)?))).collect();
    let keys: Vec<&&str> = WorkloadMetrics::KEYS
        .iter()
        .filter(|key| rows.iter().any(|(_, workload)| workload.metrics.get(key).is_some()))
        .collect();
    let mut head =
        vec![Cell::text("workload"), Cell::text("program"), Cell::text("priority"), Cell::number("cores")];
    head.extend(keys.iter().map(|key| Cell::number(show::metric_name(key))));
    let rows = rows.into_iter().map(|(name, workload)| {
        let mut row = vec![
            Cell::text(name),
            Cell::text(&workload.program),
            Cell::text(group_name(workload.priority)),
            Cell::number(workload.cores.to_string()),
        ];
        row.extend(keys.iter().map(|key| match (**key, workload.metrics.get(key)) {
            ("performance_ratio", ratio) => {
                Cell::ratio(ratio, workload.spread.get("performance_ratio").copied())
            }
            (_, None) => Cell::nothing(),
            ("throughput", Some(value)) => Cell::number(show::throughput(workload, value)),
            (key, Some(value)) => Cell::number(show::metric(key, value)),
        }));
        row
    });
    Grid { head, rows: rows.collect() }
}

fn decision(decision: &DecisionRecord) -> DecisionRow {
    let knobs = decision.knobs.iter().map(|knob| {
        let (what, target) = timeline::knob_words(knob);
        match knob.outcome.as_deref() {
            None | Some("applied") => format!("{what}{target} = {}", knob.value),
            Some(outcome) => format!("{what}{target} = {} ({outcome})", knob.value),
        }
    });
    DecisionRow {
        at: show::seconds(decision.at_s),
        state: decision.state.clone(),
        text: timeline::text_of(decision),
        causes: decision.causes.iter().map(timeline::cause).collect(),
        knobs: knobs.collect(),
    }
}
