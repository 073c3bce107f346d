//! What policies are worth as their control loops know it, as a table beside the comparison with the baseline.
//!
//! Must not know how it is measured.

use super::{Column, Grid, Item, Medium};
use crate::results::{PolicyResult, PolicyWorth, ProgressRatio, RunSummary, group_name};
use crate::show;
use std::fmt::Write;
use waykeeper_control::WorthSource;
use waykeeper_host::Priority;

/// A row per policy whose worth is known, and a line with the reasons of the others. Empty if no policy turned a knob and
/// nothing is unknown.
pub fn worth(summary: &RunSummary, medium: Medium) -> String {
    let all =
        || summary.policies.iter().filter_map(|(name, result)| Some((name, result, result.worth.as_ref()?)));
    let known: Vec<(&String, &PolicyResult, &PolicyWorth)> =
        all().filter(|(_, _, worth)| worth.hpw.is_some() || worth.lpw.is_some()).collect();
    let unknown = all().filter_map(|(name, _, worth)| {
        Some(format!("{} ({})", show::name(name), show::plain(worth.unknown.as_ref()?)))
    });
    let mut out = String::new();
    if known.iter().any(|(_, _, worth)| worth.from != Some(WorthSource::Unchanged)) {
        let baseline = summary.baseline.as_deref().unwrap_or(show::NOTHING);
        let _ = writeln!(
            out,
            "worth: progress since the state as found ±error, as the control loop knows it; beside it the means relative to {}",
            show::name(baseline)
        );
        let titles = ["HPWs", "LPWs", "HPW mean", "LPW mean", "unseen\nintervals"].map(Column::number);
        let columns = [Column::text("policy"), Column::text("from"), Column::number("at")];
        let mut grid = Grid::new(columns.into_iter().chain(titles).collect(), 1);
        for (name, result, worth) in known {
            let from = worth.from.map_or(show::NOTHING, source);
            let at = worth.at_s.map_or_else(Item::nothing, |at_s| Item::text(show::seconds(at_s)));
            let mean = |priority| {
                let group = result.groups.get(group_name(priority))?;
                Some((group.performance_ratio?, group.spread.get("performance_ratio").copied()))
            };
            let means = [Priority::High, Priority::Low].map(mean).map(Item::ratio);
            let head = [Item::text(show::name(name)), Item::text(from), at];
            let row = head.into_iter().chain([worth.hpw, worth.lpw].map(progress)).chain(means);
            grid.row(row.chain([Item::text(worth.look_intervals.to_string())]));
        }
        out.push_str(&grid.render(medium));
    }
    out.push_str(&show::listed("worth is unknown: ", unknown.collect()));
    out
}

/// `1.121 ±0.004`, with the standard error; coloured like a performance ratio.
fn progress(value: Option<ProgressRatio>) -> Item {
    let Some(it) = value else { return Item::nothing() };
    let text = format!("{:.3} ±{:.3}", it.ratio, it.error);
    Item { text, ..Item::ratio(Some((it.ratio, None))) }
}

fn source(from: WorthSource) -> &'static str {
    match from {
        WorthSource::Unchanged => "unchanged",
        WorthSource::AsFound => "as found",
        WorthSource::Look => "look",
        WorthSource::Foreseen => "foreseen",
    }
}
