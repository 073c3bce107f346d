//! What each workload of a sweep's only policy is scored by, as a table: a row per point, a column per workload.
//!
//! Must not know how a score becomes a performance ratio.

use super::{Column, Grid, Item, Medium, workload_item};
use crate::results::{PolicyResult, SweepSummary, WorkloadResult};
use crate::show;
use indexmap::IndexMap;

/// The table with its heading; nothing if no workload has such a number.
pub fn scores(sweep: &SweepSummary, policy: &str, medium: Medium) -> String {
    let results: Vec<Option<&PolicyResult>> =
        sweep.points.iter().map(|point| point.run.policies.get(policy)).collect();
    let mut workloads: IndexMap<&str, &WorkloadResult> = IndexMap::new();
    for (name, workload) in results.iter().flatten().flat_map(|result| &result.workloads) {
        workloads.entry(name).or_insert(workload);
    }
    let mut columns: Vec<Column> = sweep.keys.iter().map(|key| Column::number(key.title())).collect();
    let leading = columns.len();
    columns.extend(workloads.iter().map(|(name, workload)| {
        let metric = show::metric_name(workload.score.metric());
        Column::number(&format!("{}\n{metric}", show::name(name)))
    }));
    let mut grid = Grid::new(columns, leading);
    for (point, result) in sweep.points.iter().zip(results) {
        let at = point.at.values().map(|value| Item::text(show::name(&value.to_string())));
        let numbers = workloads.iter().map(|(name, workload)| {
            workload_item(result.and_then(|result| result.workloads.get(*name)), workload.score.metric())
        });
        grid.row(at.chain(numbers));
    }
    let grid = grid.without_empty_columns(leading);
    if grid.columns.len() == leading {
        return String::new();
    }
    format!("\nwhat each workload is scored by\n{}", grid.render(medium))
}
