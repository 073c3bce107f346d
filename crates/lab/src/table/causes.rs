//! Why performance changed, as a table: a row per workload, a column per policy with the main cause.
//!
//! Must not know how a cause is found.

use super::{Column, Grid, Item, Medium, priority};
use crate::results::RunSummary;
use crate::show;

/// The main causes under all policies but the baseline; nothing where no cause is known.
pub fn causes(summary: &RunSummary, medium: Medium) -> String {
    let policies: Vec<&String> =
        summary.policies.keys().filter(|policy| summary.baseline.as_ref() != Some(policy)).collect();
    let main = |policy: &str, name: &str| summary.policies[policy].workloads.get(name)?.cause?.main;
    let names: Vec<_> = summary.workload_names();
    if !names.iter().any(|(name, _)| policies.iter().any(|policy| main(policy, name).is_some())) {
        return String::new();
    }
    let mut columns = vec![Column::text("workload"), Column::text("prio")];
    columns.extend(policies.iter().map(|policy| Column::text(&show::plain(policy))));
    let mut grid = Grid::new(columns, 2);
    for (name, workload) in names {
        let head = [Item::text(show::name(name)), Item::text(priority(workload.priority))];
        let cells = policies
            .iter()
            .map(|policy| main(policy, name).map_or(Item::nothing(), |cause| Item::text(cause.text())));
        grid.row(head.into_iter().chain(cells));
    }
    format!("main cause of a change of 2 % or more, where memory time explains it\n{}", grid.render(medium))
}
