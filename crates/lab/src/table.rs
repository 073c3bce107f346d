//! Results as tables: policies side by side, workloads in detail, the system, and the curve of a sweep.
//!
//! Returns text; must not know where it is printed, except for [`Medium`], which says whether colour is allowed and
//! whether a table may be wider than a terminal of 110 columns. comfy-table does borders, padding and alignment; for a
//! terminal, a table too wide for it is split into several that repeat its leading columns.

mod causes;
mod evictions;
mod medium;
mod point;
mod sampling_error;
mod scores;
mod worth;

pub use causes::causes;
pub use evictions::evictions;
pub use medium::{Ink, Medium, obeys_escapes};
pub use point::point;
pub use worth::worth;

use crate::results::{
    MissingRun, PolicyResult, RunSummary, SEEDS, Score, SweepSummary, SystemMetrics, Warning, WarningKey,
    WorkloadMetrics, WorkloadResult, partial_line, warning,
};
use crate::{show, timeline};
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};
use indexmap::{IndexMap, IndexSet};
use std::cmp::Ordering;
use std::fmt::Write;
use waykeeper_host::Priority;

/// Columns of the terminal that every table on it fits.
pub const PAGE_COLUMNS: usize = show::PAGE_COLUMNS;

const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// Which part of a run is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// At most a screen: the comparison and the verdict; of a single policy, its workloads and the system.
    Screen,
    /// The same, where a page with charts is written as well.
    ScreenBesidePage,
    /// Also every policy's workloads, the system, who evicts whose lines, the timelines.
    Details,
}

/// A run as text: the comparison, other requested tables, and last the verdict.
pub fn run(summary: &RunSummary, medium: Medium, extent: Extent) -> String {
    let details = extent == Extent::Details;
    let alone = summary.policies.len() == 1;
    let mut out = heading(summary);
    if details || !alone {
        out.push_str(&comparison(summary, medium));
        out.push_str(&footer(summary));
        out.push_str(if details { "\n" } else { "" });
    }
    let has_looked = summary.policies.values().any(looked);
    let worth = if details || has_looked { worth(summary, medium) } else { String::new() };
    if !worth.is_empty() {
        out.push_str(if details { "" } else { "\n" });
        let _ = writeln!(out, "{worth}");
    }
    let causes = if details { causes(summary, medium) } else { String::new() };
    if !causes.is_empty() {
        let _ = writeln!(out, "{causes}");
    }
    if details || alone {
        for policy in summary.policies.keys() {
            let _ = writeln!(out, "{}\n{}", show::plain(policy), workloads(summary, policy, medium));
        }
        let _ = write!(out, "system\n{}", system(summary, medium));
    }
    if alone && !details {
        out.push_str(&footer(summary));
    }
    if details {
        let evictions = summary.policies.keys().map(|policy| evictions(summary, policy, medium));
        for table in evictions.filter(|table| !table.is_empty()) {
            let _ = write!(out, "\n{table}");
        }
        let _ = write!(out, "\n{}", timeline::legend(summary));
        for policy in summary.policies.keys() {
            let _ = write!(out, "\n{}", timeline::timeline(summary, policy));
        }
    } else {
        let more = if alone { "what the policy did and why" } else { "each policy's numbers and decisions" };
        let page = if extent == Extent::Screen { "; `--out DIR` writes a page with charts" } else { "" };
        let _ = writeln!(out, "more: `--details` prints {more}{page}");
    }
    if let Some(verdict) = &summary.verdict {
        let lines: Vec<String> = verdict.lines.iter().map(|line| show::plain(line)).collect();
        let _ = writeln!(out, "\n{}", lines.join("\n  "));
    }
    out
}

/// Whether the control loop looked back at the layout as found.
fn looked(policy: &PolicyResult) -> bool {
    policy.worth.as_ref().is_some_and(|worth| worth.look_intervals > 0)
}

/// The heading of a run, in a line or two: scenario, chip, seeds, sets, time.
pub fn heading(summary: &RunSummary) -> String {
    let mut out = show::plain(&summary.scenario);
    if let Some(about) = &summary.about {
        let _ = write!(out, ": {}", show::plain(about));
    }
    let seeds = match summary.seeds {
        0 | 1 => format!("seed {}", summary.seed),
        more => format!("{more} seeds from {} (mean ±sd)", summary.seed),
    };
    let sets =
        if summary.sets == "exact" { "all sets".to_owned() } else { format!("{} of the sets", summary.sets) };
    let _ = writeln!(
        out,
        "\n{}, {seeds}, {}, time factor {}, waykeeper {}",
        show::plain(&summary.chip),
        show::plain(&sets),
        summary.time_factor,
        show::plain(&summary.version),
    );
    let _ = writeln!(
        out,
        "measured {}-{} of {} of the server's clock; {}\n",
        show::seconds(summary.measured_from_s).trim_end_matches(" s"),
        show::seconds(summary.duration_s),
        show::seconds(summary.duration_s),
        show::simulated(summary),
    );
    out.push_str(&partial(&summary.missing));
    out
}

/// The mark of a partial result, and an empty line; nothing for a complete one.
fn partial(missing: &[MissingRun]) -> String {
    partial_line(missing).map_or_else(String::new, |line| show::wrapped(&show::plain(&line)) + "\n")
}

/// Notes on the comparison: that it is one seed (unless the verdict says so), when policies settled, which of them
/// changed knobs in the measured interval, and which knobs did not read back as written.
pub fn footer(summary: &RunSummary) -> String {
    let mut out = String::new();
    if summary.seeds <= 1 && summary.verdict.is_none() {
        let _ = writeln!(out, "{}", one_seed());
    }
    out.push_str(&sampling_error::line(&[summary]));
    out.push_str(&warnings(&[summary]));
    let seed = match summary.seeds {
        0 | 1 => String::new(),
        _ => format!(" (seed {})", summary.seed),
    };
    let acted = summary.policies.iter().filter(|(_, result)| !result.turned(0.0, f64::INFINITY).is_empty());
    let settled = acted.map(|(name, result)| match result.settled_s {
        Some(at_s) => format!("{} at {}", show::name(name), show::seconds(at_s)),
        None => format!("{} never", show::name(name)),
    });
    out.push_str(&show::listed(&format!("settled{seed}: "), settled.collect()));
    let turning = summary.policies.iter().filter_map(|(name, result)| {
        let moments = result.turned(summary.measured_from_s, summary.duration_s);
        let (first, last) = (moments.first()?, moments.last()?);
        let when = match moments.len() {
            1 => format!("at {}", show::seconds(*first)),
            count => format!("{count} times from {} to {}", show::seconds(*first), show::seconds(*last)),
        };
        Some(format!("{} {when}", show::name(name)))
    });
    out.push_str(&show::listed(&format!("changed knobs while measured{seed}: "), turning.collect()));
    let disobeyed = summary.policies.iter().filter_map(|(name, result)| {
        let complaints: IndexSet<String> = result.decisions.iter().flat_map(timeline::complaints).collect();
        let more = match complaints.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!("{} {}{more}", show::name(name), complaints.first()?))
    });
    out.push_str(&show::listed(&format!("knobs that did not take effect{seed}: "), disobeyed.collect()));
    out
}

/// The warnings of a run, or of all points of a sweep, those of a kind once.
fn warnings(runs: &[&RunSummary]) -> String {
    let warnings = match runs {
        [run] => {
            let mut kinds: IndexMap<WarningKey, Vec<Warning>> = IndexMap::new();
            for warning in &run.warnings {
                kinds.entry(warning.key).or_default().push(warning.clone());
            }
            kinds.into_values().flat_map(of_one_run).collect()
        }
        _ => warning::of_points(runs),
    };
    let line = |warning: &Warning| show::wrapped(&format!("warning: {}", show::plain(&warning.to_string())));
    warnings.iter().map(line).collect()
}

/// The warnings of a kind that are printed.
const MOST_OF_A_KIND: usize = 2;

/// The warnings of one kind of a run; of more than [`MOST_OF_A_KIND`] the last one printed counts the others.
fn of_one_run(mut all: Vec<Warning>) -> Vec<Warning> {
    let more = all.len().saturating_sub(MOST_OF_A_KIND);
    all.truncate(MOST_OF_A_KIND);
    if let (Some(last), true) = (all.last_mut(), more > 0) {
        last.advice = format!("{} ({more} more of this kind are in the JSON, under `warnings`)", last.advice);
    }
    all
}

/// Printed under every comparison of a single seed, because users took the first number for exact.
fn one_seed() -> String {
    format!("one seed: no error known; `--seeds {SEEDS}` shows mean and spread")
}

/// Performance ratios: a row per workload and per group mean, a column per policy.
pub fn comparison(summary: &RunSummary, medium: Medium) -> String {
    let baseline = summary.baseline.as_deref().unwrap_or(show::NOTHING);
    let mut columns = vec![Column::text("workload"), Column::text("prio"), Column::text("score")];
    columns.extend(summary.policies.keys().map(|policy| Column::number(policy)));
    let mut grid = Grid::new(columns, 3);
    for (name, workload) in summary.workload_names() {
        let ratios = summary.policies.values().map(|policy| {
            let workload = policy.workloads.get(name)?;
            Some((
                workload.metrics.get("performance_ratio")?,
                workload.spread.get("performance_ratio").copied(),
            ))
        });
        let score = match workload.score {
            Score::InverseLatency => "1/latency",
            Score::Ipc => "IPC",
        };
        let head = [Item::text(show::name(name)), Item::text(priority(workload.priority)), Item::text(score)];
        grid.row(head.into_iter().chain(ratios.map(Item::ratio)));
    }
    let groups: IndexMap<&String, ()> =
        summary.policies.values().flat_map(|policy| policy.groups.keys()).map(|name| (name, ())).collect();
    for group in groups.keys() {
        let ratios = summary.policies.values().map(|policy| {
            let group = policy.groups.get(*group)?;
            Some((group.performance_ratio?, group.spread.get("performance_ratio").copied()))
        });
        let head =
            [Item::text(format!("{} mean", show::name(group))), Item::text(""), Item::text("by cores")];
        grid.row(head.into_iter().chain(ratios.map(Item::ratio)));
    }
    format!("performance relative to {} (higher is better)\n{}", show::plain(baseline), grid.render(medium))
}

/// One policy's workloads in detail: a row each, a column per metric that any of them has.
pub fn workloads(summary: &RunSummary, policy: &str, medium: Medium) -> String {
    let Some(result) = summary.policies.get(policy) else { return String::new() };
    let names: Vec<&str> = summary.workload_names().into_iter().map(|(name, _)| name).collect();
    let workloads: Vec<(&str, &WorkloadResult)> =
        names.iter().filter_map(|name| Some((*name, result.workloads.get(*name)?))).collect();
    let keys: Vec<&str> = DETAIL_KEYS
        .into_iter()
        .filter(|key| workloads.iter().any(|(_, workload)| workload.metrics.get(key).is_some()))
        .collect();
    let mut columns = vec![Column::text("workload"), Column::text("prio"), Column::number("cores")];
    columns.extend(keys.iter().map(|key| Column::number(&show::metric_name(key).replace(' ', "\n"))));
    let mut grid = Grid::new(columns, 3);
    for (name, workload) in workloads {
        let head = [
            Item::text(show::name(name)),
            Item::text(priority(workload.priority)),
            Item::text(workload.cores.to_string()),
        ];
        let numbers = keys.iter().map(|key| match (*key, workload.metrics.get(key)) {
            (_, None) => Item::nothing(),
            ("throughput", Some(value)) => Item::text(show::throughput(workload, value)),
            ("performance_ratio", Some(value)) => Item::ratio(Some((value, None))),
            (key, Some(value)) => Item::text(show::metric(key, value)),
        });
        grid.row(head.into_iter().chain(numbers));
    }
    grid.render(medium)
}

/// The metrics of the detail table; the others are in the files.
const DETAIL_KEYS: [&str; 8] = [
    "throughput",
    "latency_mean_us",
    "latency_p99_us",
    "ipc",
    "llc_hit_ratio",
    "llc_occupancy_bytes",
    "drops_per_s",
    "performance_ratio",
];

/// The whole socket: a row per metric that any policy has, a column per policy.
pub fn system(summary: &RunSummary, medium: Medium) -> String {
    let mut columns = vec![Column::text("metric")];
    columns.extend(summary.policies.keys().map(|policy| Column::number(policy)));
    let mut grid = Grid::new(columns, 1);
    for key in SystemMetrics::KEYS {
        let values: Vec<Option<f64>> =
            summary.policies.values().map(|policy| policy.system.metrics.get(key)).collect();
        if values.iter().any(Option::is_some) {
            let items = values
                .into_iter()
                .map(|value| value.map_or(Item::nothing(), |value| Item::text(show::metric(key, value))));
            grid.row([Item::text(show::metric_name(key))].into_iter().chain(items));
        }
    }
    grid.render(medium)
}

/// A sweep: per policy a row per point and a column per metric. First comes a short table: the group means of several
/// policies side by side, or what each workload of a single one is scored by.
pub fn curve(sweep: &SweepSummary, medium: Medium) -> String {
    let mut out = show::plain(&sweep.scenario);
    if let Some(about) = &sweep.about {
        let _ = write!(out, ": {}", show::plain(about));
    }
    out.push('\n');
    out.push_str(&partial(&sweep.missing));
    let policies = sweep.policy_names();
    match policies.as_slice() {
        // Alone it is its own baseline: the ratios would all be 1.
        [policy] => out.push_str(&scores::scores(sweep, policy, medium)),
        [] => {}
        _ => {
            let _ = write!(out, "\nperformance by policy\n{}", group_curve(sweep, &policies, medium));
        }
    }
    if sweep.points.iter().any(|point| point.run.seeds <= 1) {
        let _ = writeln!(out, "{}", one_seed());
    }
    let runs: Vec<&RunSummary> = sweep.points.iter().map(|point| &point.run).collect();
    out.push_str(&sampling_error::line(&runs));
    out.push_str(&warnings(&runs));
    for policy in policies {
        let _ = write!(out, "\n{}\n{}", show::plain(policy), policy_curve(sweep, policy, medium));
    }
    out
}

fn group_curve(sweep: &SweepSummary, policies: &[&str], medium: Medium) -> String {
    let pairs: Vec<(&str, &str)> =
        policies.iter().flat_map(|policy| ["HPW", "LPW"].map(|group| (*policy, group))).collect();
    let mut columns: Vec<Column> = sweep.keys.iter().map(|key| Column::number(key.title())).collect();
    let leading = columns.len();
    columns.extend(pairs.iter().map(|(policy, group)| Column::number(&format!("{policy} {group}"))));
    let mut grid = Grid::new(columns, leading);
    for point in &sweep.points {
        let at = point.at.values().map(|value| Item::text(show::name(&value.to_string())));
        let ratios = pairs.iter().map(|(policy, group)| {
            let group = point.run.policies.get(*policy)?.groups.get(*group)?;
            Some((group.performance_ratio?, group.spread.get("performance_ratio").copied()))
        });
        grid.row(at.chain(ratios.map(Item::ratio)));
    }
    grid.without_empty_columns(leading).render(medium)
}

/// The metrics of a curve, of every workload and of the system.
const CURVE_KEYS: [&str; 4] = ["throughput", "latency_mean_us", "latency_p99_us", "llc_hit_ratio"];
const CURVE_SYSTEM_KEYS: [&str; 5] = [
    "memory_read_bytes_per_s",
    "memory_write_bytes_per_s",
    "dca_write_hit_ratio",
    "dca_read_hit_ratio",
    "drops_per_s",
];

fn policy_curve(sweep: &SweepSummary, policy: &str, medium: Medium) -> String {
    let results: Vec<Option<&PolicyResult>> =
        sweep.points.iter().map(|point| point.run.policies.get(policy)).collect();
    let workloads: IndexMap<&String, ()> =
        results.iter().flatten().flat_map(|result| result.workloads.keys()).map(|name| (name, ())).collect();
    let mut columns: Vec<Column> = sweep.keys.iter().map(|key| Column::number(key.title())).collect();
    let leading = columns.len();
    for name in workloads.keys() {
        columns.extend(
            CURVE_KEYS
                .map(|key| Column::number(&format!("{}\n{}", show::name(name), show::metric_name(key)))),
        );
    }
    columns.extend(CURVE_SYSTEM_KEYS.map(|key| Column::number(show::metric_name(key))));
    let mut grid = Grid::new(columns, leading);
    for (point, result) in sweep.points.iter().zip(results) {
        let mut row: Vec<Item> =
            point.at.values().map(|value| Item::text(show::name(&value.to_string()))).collect();
        for name in workloads.keys() {
            let workload = result.and_then(|result| result.workloads.get(*name));
            row.extend(CURVE_KEYS.map(|key| workload_item(workload, key)));
        }
        let system = result.map(|result| result.system.metrics);
        row.extend(CURVE_SYSTEM_KEYS.map(|key| match system.and_then(|system| system.get(key)) {
            Some(value) => Item::text(show::metric(key, value)),
            None => Item::nothing(),
        }));
        grid.row(row);
    }
    grid.without_empty_columns(leading).render(medium)
}

fn workload_item(workload: Option<&WorkloadResult>, key: &str) -> Item {
    debug_assert!(WorkloadMetrics::KEYS.contains(&key));
    match workload.and_then(|workload| Some((workload, workload.metrics.get(key)?))) {
        Some((workload, value)) if key == "throughput" => Item::text(show::throughput(workload, value)),
        Some((_, value)) => Item::text(show::metric(key, value)),
        None => Item::nothing(),
    }
}

fn priority(priority: Priority) -> &'static str {
    match priority {
        Priority::High => "high",
        Priority::Low => "low",
    }
}

/// A column: its heading (may have two lines) and the alignment of its items.
struct Column {
    title: String,
    alignment: CellAlignment,
}

impl Column {
    fn text(title: &str) -> Column {
        Column { title: title.to_owned(), alignment: CellAlignment::Left }
    }

    fn number(title: &str) -> Column {
        let lines: Vec<String> = title.split('\n').map(show::name).collect();
        Column { title: lines.join("\n"), alignment: CellAlignment::Right }
    }

    fn title_chars(&self) -> usize {
        self.title.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }
}

/// The text of a cell, and its colour if it has one.
#[derive(Clone)]
struct Item {
    text: String,
    colour: Option<Color>,
}

impl Item {
    fn text(text: impl Into<String>) -> Item {
        Item { text: text.into(), colour: None }
    }

    fn nothing() -> Item {
        Item::text(show::NOTHING)
    }

    /// A performance ratio and its standard deviation over the seeds.
    fn ratio(value: Option<(f64, Option<f64>)>) -> Item {
        let Some((ratio, deviation)) = value else { return Item::nothing() };
        let colour = match show::verdict(ratio) {
            Ordering::Greater => Some(Color::Green),
            Ordering::Less => Some(Color::Red),
            Ordering::Equal => None,
        };
        let spread = deviation.map(|deviation| format!(" ±{deviation:.2}")).unwrap_or_default();
        Item { text: format!("{ratio:.2}{spread}"), colour }
    }
}

/// A table before it is cut to the terminal.
struct Grid {
    columns: Vec<Column>,
    leading: usize,
    rows: Vec<Vec<Item>>,
}

impl Grid {
    /// The `leading` columns identify a row and are repeated when the table is split.
    fn new(columns: Vec<Column>, leading: usize) -> Grid {
        Grid { columns, leading, rows: Vec::new() }
    }

    fn row(&mut self, items: impl IntoIterator<Item = Item>) {
        let row: Vec<Item> = items.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Drops columns without any value, except the first `keep`.
    fn without_empty_columns(mut self, keep: usize) -> Grid {
        let used: Vec<bool> = (0..self.columns.len())
            .map(|i| i < keep || self.rows.iter().any(|row| row[i].text != show::NOTHING))
            .collect();
        let mut flags = used.iter();
        self.columns.retain(|_| *flags.next().unwrap_or(&true));
        for row in &mut self.rows {
            let mut flags = used.iter();
            row.retain(|_| *flags.next().unwrap_or(&true));
        }
        self
    }

    fn render(&self, medium: Medium) -> String {
        let parts = match medium {
            Medium::Terminal(_) => self.pages(),
            Medium::Stream => vec![(0..self.columns.len()).collect()],
        };
        let tables: Vec<String> = parts.iter().map(|columns| self.part(columns, medium)).collect();
        tables.join("\n")
    }

    /// The columns of each table, so that none is wider than the terminal.
    fn pages(&self) -> Vec<Vec<usize>> {
        let width = |i: usize| {
            let widest = self.rows.iter().map(|row| row[i].text.chars().count()).max().unwrap_or(0);
            // Two blanks between columns: the padding and where a border would be.
            widest.max(self.columns[i].title_chars()) + 2
        };
        let leading: Vec<usize> = (0..self.leading).collect();
        let leading_width: usize = leading.iter().copied().map(width).sum();
        let mut pages = vec![leading.clone()];
        let mut used = leading_width;
        for i in self.leading..self.columns.len() {
            let page_is_empty = pages.last().is_some_and(|page| page.len() == self.leading);
            if used + width(i) > PAGE_COLUMNS && !page_is_empty {
                pages.push(leading.clone());
                used = leading_width;
            }
            used += width(i);
            if let Some(page) = pages.last_mut() {
                page.push(i);
            }
        }
        pages
    }

    fn part(&self, columns: &[usize], medium: Medium) -> String {
        let mut table = Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        match medium {
            Medium::Terminal(Ink::Plain) | Medium::Stream => table.force_no_tty(),
            Medium::Terminal(Ink::Colour) => table.force_no_tty().enforce_styling(),
        };
        let cell = |i: usize, text: &str| Cell::new(text).set_alignment(self.columns[i].alignment);
        table.set_header(columns.iter().map(|&i| cell(i, &self.columns[i].title)));
        for row in &self.rows {
            table.add_row(columns.iter().map(|&i| match row[i].colour {
                Some(colour) => cell(i, &row[i].text).fg(colour),
                None => cell(i, &row[i].text),
            }));
        }
        table.column_iter_mut().for_each(|column| {
            column.set_padding((0, 1));
        });
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        lines.concat()
    }
}
