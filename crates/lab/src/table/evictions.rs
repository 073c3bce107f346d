//! Who evicts whose lines from the LLC, as a table: a row per evictor, a column per owner of the evicted lines.
//!
//! Must not know what a reason means, except whether it evicts from the LLC.

use super::{Column, Grid, Item, Medium};
use crate::results::{Evictions, RunSummary};
use crate::show;
use indexmap::IndexSet;
use std::fmt::Write;

/// One policy's evictions, with a heading; nothing if there were none.
pub fn evictions(summary: &RunSummary, policy: &str, medium: Medium) -> String {
    let Some(result) = summary.policies.get(policy) else { return String::new() };
    let all: Vec<&Evictions> = result.evictions.iter().filter(|one| one.reason.from_llc()).collect();
    if all.is_empty() {
        return String::new();
    }
    let names = names(summary, &all);
    let mut columns = vec![Column::text("evicted by")];
    columns.extend(names.iter().map(|name| Column::number(name)));
    columns.extend(["all", "of these\nunread"].map(Column::number));
    let mut grid = Grid::new(columns, 1);
    for by in &names {
        let mine = || all.iter().filter(|one| one.by == *by);
        let lines = |of: &str| mine().filter(|one| one.of == of).map(|one| one.lines_per_s).sum();
        let row = names
            .iter()
            .map(|of| lines(of))
            .chain([mine().map(|one| one.lines_per_s).sum(), mine().map(|one| one.unread_lines_per_s).sum()]);
        let cells = row.map(|lines_per_s: f64| Item::text(show::digits(lines_per_s / 1e6)));
        grid.row([Item::text(show::name(by))].into_iter().chain(cells));
    }
    let policy = show::plain(policy);
    let mut out =
        format!("who evicts whose lines from the LLC under {policy}, Mlines/s (a column per owner)\n");
    let _ = write!(out, "{}", grid.render(medium));
    out
}

/// Everything that evicts or loses lines: workloads in the order of the other tables, then devices.
fn names<'a>(summary: &'a RunSummary, all: &[&'a Evictions]) -> Vec<&'a str> {
    let involved: IndexSet<&str> = all.iter().flat_map(|one| [one.by.as_str(), one.of.as_str()]).collect();
    let workloads = summary.workload_names().into_iter().map(|(name, _)| name);
    let mut names: IndexSet<&str> = workloads.filter(|name| involved.contains(name)).collect();
    let mut devices: Vec<&str> = involved.into_iter().filter(|name| !names.contains(name)).collect();
    devices.sort_unstable();
    names.extend(devices);
    names.into_iter().collect()
}
