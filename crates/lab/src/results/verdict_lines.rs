//! A verdict in at most five lines that fit the page.
//!
//! Must not compute anything: every number comes from a comparison.

use super::verdict::{Comparison, Finding, Scope};
use crate::show;
use indexmap::IndexSet;

/// Width of a line: the page's, less the indent of all lines but the first on a terminal.
const COLUMNS: usize = show::PAGE_COLUMNS - 2;

/// The lines of a verdict: a heading, a line per group, one for the two best policies and one for single workloads.
pub(super) fn lines(comparisons: &[Comparison], seeds: usize, baseline: &str) -> Vec<String> {
    let scope = |scope: Scope| comparisons.iter().filter(move |comparison| comparison.scope == scope);
    let base = show::name(baseline);
    let mut lines = vec![match seeds {
        1 => format!(
            "verdict against {base}, one seed: its spread is unknown; `--seeds 3` shows mean and spread"
        ),
        _ => format!(
            "verdict against {base}, {seeds} seeds (clear: by a paired t test over the seeds, 5 % level)"
        ),
    }];
    let against_base: Vec<&Comparison> = scope(Scope::Group).filter(|one| one.against == baseline).collect();
    let groups: IndexSet<&str> = against_base.iter().map(|one| one.name.as_str()).collect();
    for group in groups {
        let members: Vec<&Comparison> =
            against_base.iter().filter(|one| one.name == group).copied().collect();
        lines.push(group_line(group, members));
    }
    let pair: Vec<&Comparison> = scope(Scope::Group).filter(|one| one.against != baseline).collect();
    lines.extend(pair_line(&pair));
    lines.extend(workload_line(&scope(Scope::Workload).collect::<Vec<_>>()));
    lines
}

/// `HPWs: gain under a4 x1.35 ±0.10; no clear change under isolate x0.97 ±0.02`, the best policy first. If it is too
/// long, numbers without a clear change are left out first, then policies from the end.
fn group_line(group: &str, mut members: Vec<&Comparison>) -> String {
    members.sort_by(|a, b| b.difference.total_cmp(&a.difference));
    let count = members.len();
    let tries = [(true, count)].into_iter().chain((1..=count).rev().map(|most| (false, most)));
    let mut line = String::new();
    for (all_numbers, most) in tries {
        line = group_words(group, &members, all_numbers, most);
        if line.chars().count() <= COLUMNS {
            return line;
        }
    }
    cut(&line)
}

fn group_words(group: &str, members: &[&Comparison], all_numbers: bool, most: usize) -> String {
    let parts = [
        ("gain under ", Finding::Better, true),
        ("lose under ", Finding::Worse, true),
        ("no clear change under ", Finding::NotDistinguishable, all_numbers),
        ("", Finding::Unknown, true),
    ];
    let parts = parts.into_iter().filter_map(|(words, finding, numbers)| {
        let mut found: Vec<&Comparison> =
            members.iter().filter(|one| one.finding == finding).copied().collect();
        if finding == Finding::Worse {
            found.reverse();
        }
        let items = found.iter().take(most).map(|one| {
            let name = show::name(&one.policy);
            if numbers { format!("{name} {}", ratio(one)) } else { name }
        });
        let items: Vec<String> = items.collect();
        let more = found.len() - items.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!items.is_empty()).then(|| format!("{words}{}{more}", items.join(", ")))
    });
    let parts: Vec<String> = parts.collect();
    let order =
        if members.iter().any(|one| one.finding == Finding::Unknown) { ", best policy first" } else { "" };
    format!("{}s{order}: {}", show::name(group), parts.join("; "))
}

/// `waykeeper against a4: HPWs +0.07 ±0.05, clearly better; LPWs -0.01 ±0.02, no clear difference`.
fn pair_line(pair: &[&Comparison]) -> Option<String> {
    let first = pair.first()?;
    let known = pair.iter().any(|one| matches!(one.finding, Finding::Better | Finding::Worse));
    let parts = pair.iter().map(|one| {
        let words = match one.finding {
            Finding::Better => ", clearly better",
            Finding::Worse => ", clearly worse",
            Finding::NotDistinguishable if known => ", no clear difference",
            Finding::NotDistinguishable | Finding::Unknown => "",
        };
        format!("{}s {}{words}", show::name(&one.name), difference(one))
    });
    let parts = parts.collect::<Vec<_>>().join("; ");
    let names = format!("{} against {}", show::name(&first.policy), show::name(&first.against));
    Some(cut(&match first.finding {
        _ if known => format!("{names}: {parts}"),
        Finding::Unknown => format!("{names}: {parts}"),
        _ => format!("{names}: not distinguishable ({parts})"),
    }))
}

/// `workloads: x264 gains most, x2.04 ±0.01 under a4; omnetpp loses most, x0.90 ±0.01 under a4`.
fn workload_line(extremes: &[&Comparison]) -> Option<String> {
    let parts = extremes.iter().map(|one| {
        let verb = if one.difference > 0.0 { "gains" } else { "loses" };
        format!("{} {verb} most, {} under {}", show::name(&one.name), ratio(one), show::name(&one.policy))
    });
    let parts = parts.collect::<Vec<_>>().join("; ");
    (!parts.is_empty()).then(|| cut(&format!("workloads: {parts}")))
}

/// A performance ratio against the baseline, whose own is 1.
fn ratio(comparison: &Comparison) -> String {
    format!("x{:.2}{}", 1.0 + comparison.difference, deviation(comparison))
}

fn difference(comparison: &Comparison) -> String {
    // The `+ 0.0` avoids `-0.00`.
    let rounded = (comparison.difference * 100.0).round() / 100.0 + 0.0;
    format!("{rounded:+.2}{}", deviation(comparison))
}

fn deviation(comparison: &Comparison) -> String {
    comparison.deviation.map(|deviation| format!(" ±{deviation:.2}")).unwrap_or_default()
}

/// The line, cut to the page's width.
pub(super) fn cut(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    line.chars().take(COLUMNS - 1).chain(['…']).collect()
}
