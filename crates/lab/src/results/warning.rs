//! Warnings about a result: why its numbers may mean something else than a reader expects, and what to do.
//!
//! One warning of each kind names all workloads and policies that it concerns. Those of a finished result are found
//! here; those that need the scenario or the model come from the runner. Must not know how a warning is shown.

use super::verdict::{Comparison, Finding, LEAST, Scope};
use super::{RunSummary, WorkloadResult};
use crate::show;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::fmt;
use waykeeper_host::WorkloadKind;

/// Dropped packets / offered ones, above which a workload is named (the issue's limit: 1 %).
const DROPPED_RATIO: f64 = 0.01;

/// A workload with less of its time beyond the MLC cannot gain a hundredth, the least that the verdict counts.
const LLC_TIME_RATIO: f64 = LEAST;

/// Drives that move this part of what they can are the limit (ours: a full array reaches 0.99 in the model).
const DRIVES_FULL: f64 = 0.95;

/// Differences of hit ratios below this, in points, are not worth a warning (ours).
const LEAST_POINTS: f64 = 1.0;

/// More seeds than this are not proposed (ours: the effect is then too small to matter).
const MOST_SEEDS: u32 = 64;

/// What a warning is about. The text in files does not change between versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKey {
    /// More than 1 % of the packets are dropped.
    PacketsDropped,
    /// A policy did not settle before the measurement.
    NotSettled,
    /// An interval is too short for the caches to react to a policy.
    ShortIntervals,
    /// The spread over the seeds is larger than the effect on a group.
    SpreadLargerThanEffect,
    /// The sampling error of a hit ratio is larger than its difference from the baseline.
    SamplingError,
    /// A workload whose performance no placement in the LLC can change.
    CannotReact,
    /// Memory that the sampled sets cover badly.
    SampleGap,
    /// A capture that says what no wire delivers.
    CaptureChanged,
    /// A workload, a job or a device that did nothing while it was measured, or a phase after the end.
    Silent,
    /// Lines of a job file that have no effect here, or another one.
    JobFile,
}

/// One warning.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Warning {
    /// What it is about.
    pub key: WarningKey,
    /// What was found, for people.
    pub text: String,
    /// What to do about it, for people.
    pub advice: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.text, self.advice)
    }
}

/// The warnings of a combined result, the gravest first.
pub(super) fn of(summary: &RunSummary) -> Vec<Warning> {
    let found = [
        dropped(summary),
        not_settled(summary),
        spread(summary),
        sampling(summary),
        if summary.policies.len() > 1 { cannot_react(summary) } else { None },
    ];
    found.into_iter().flatten().collect()
}

/// The warnings that a short simulation under the scenario's own knob values can give.
pub(crate) fn of_short_simulation(summary: &RunSummary) -> Vec<Warning> {
    [dropped(summary), cannot_react(summary)].into_iter().flatten().collect()
}

/// The warnings of the points of a sweep, one for each kind.
pub(crate) fn of_points(runs: &[&RunSummary]) -> Vec<Warning> {
    let mut kinds: IndexMap<WarningKey, Vec<Warning>> = IndexMap::new();
    for run in runs {
        let mut known: Vec<WarningKey> = Vec::new();
        for warning in &run.warnings {
            // A run can have several of a kind, for example gaps of several owners; points are counted once.
            if !known.contains(&warning.key) {
                kinds.entry(warning.key).or_default().push(warning.clone());
                known.push(warning.key);
            }
        }
    }
    kinds.into_values().map(|all| with_points(all, runs.len())).collect()
}

/// One warning for those of one kind at several points of a sweep: the first, and how many there are.
pub(crate) fn with_points(all: Vec<Warning>, points: usize) -> Warning {
    let count = all.len();
    let first = all.into_iter().next().expect("a kind of warning has at least one");
    match points {
        0 | 1 => first,
        _ if count == 1 => Warning { text: format!("at 1 of {points} points, {}", first.text), ..first },
        _ => Warning { text: format!("at {count} of {points} points, the first: {}", first.text), ..first },
    }
}

/// Per workload, what `value` is under each policy that has it.
fn by_policy(
    summary: &RunSummary,
    value: impl Fn(&WorkloadResult) -> Option<f64>,
) -> Vec<(&str, &WorkloadResult, Vec<f64>)> {
    let names = summary.workload_names().into_iter();
    let values = names.map(|(name, workload)| {
        let policies = summary.policies.values();
        let values = policies.filter_map(|policy| value(policy.workloads.get(name)?)).collect();
        (name, workload, values)
    });
    values.collect()
}

fn per_cent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// `fastclick 1.2 % to 6.5 %`.
fn dropped(summary: &RunSummary) -> Option<Warning> {
    // A result does not say which devices are drives, but no NIC belongs to a workload of drives alone.
    let drives: Vec<&String> = summary
        .workload_names()
        .into_iter()
        .filter(|(_, workload)| workload.kind == WorkloadKind::StorageIo)
        .flat_map(|(_, workload)| &workload.devices)
        .collect();
    let mut nic = None;
    let mut parts = Vec::new();
    for (name, workload, ratios) in by_policy(summary, |workload| workload.metrics.dropped_ratio) {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        if most > DROPPED_RATIO {
            let range = match (per_cent(least), per_cent(most)) {
                (least, most) if least == most => most,
                (least, most) => format!("{least} to {most}"),
            };
            parts.push(format!("{} {range}", show::name(name)));
            nic = nic.or_else(|| workload.devices.iter().find(|device| !drives.contains(device)));
        }
    }
    // The NIC is named always: a scenario may have others, on which nothing is dropped.
    let advice = match nic.map(|nic| show::plain(nic)) {
        None => "offer less, or give the workload more cores".to_owned(),
        Some(nic) => format!(
            "`--find-zero-loss={nic}` finds the load without loss; set it with `--set nic.{nic}.offered_gbps=N`"
        ),
    };
    (!parts.is_empty()).then(|| Warning {
        key: WarningKey::PacketsDropped,
        text: format!("packets are dropped: {}; latencies are those of full queues", parts.join(", ")),
        advice,
    })
}

fn not_settled(summary: &RunSummary) -> Option<Warning> {
    let from_s = summary.measured_from_s;
    let acted = summary.policies.iter().filter(|(_, result)| !result.turned(0.0, f64::INFINITY).is_empty());
    let late = acted.filter_map(|(name, result)| match result.settled_s {
        None => Some(format!("{} never", show::name(name))),
        Some(at_s) if at_s > from_s => Some(format!("{} at {}", show::name(name), show::seconds(at_s))),
        Some(_) => None,
    });
    let late: Vec<String> = late.collect();
    (!late.is_empty()).then(|| Warning {
        key: WarningKey::NotSettled,
        text: format!(
            "policies settled too late for the measurement from {}: {}",
            show::seconds(from_s),
            late.join(", ")
        ),
        advice: format!("try a longer run, `--duration {}`", 2.0 * summary.duration_s),
    })
}

/// The intervals of a policy against the time that caches take to react.
pub(crate) fn short_intervals(interval_s: f64, time_factor: f64) -> Option<Warning> {
    // A working set that is accessed at random takes 8 to 30 ms to settle (microarchitecture.md 9).
    const REACTION_S: f64 = 0.03;
    let traffic_s = interval_s / time_factor;
    (traffic_s < REACTION_S * (1.0 - 1e-9)).then(|| Warning {
        key: WarningKey::ShortIntervals,
        text: format!(
            "a policy's interval is {} ms of traffic, and caches take up to 30 ms to react to a knob",
            show::digits(traffic_s * 1e3)
        ),
        advice: match interval_s / REACTION_S {
            factor if factor >= 1.0 => format!("`--set time_factor={:.0}` is slow enough", factor.floor()),
            _ => format!("`--set interval_s={}` is long enough", REACTION_S * time_factor),
        },
    })
}

/// The comparisons of groups whose spread is larger than a difference worth measuring.
fn unclear<'a>(comparisons: &'a [Comparison], baseline: &'a str) -> impl Iterator<Item = &'a Comparison> {
    comparisons.iter().filter(move |one| {
        one.scope == Scope::Group
            && one.against == baseline
            && one.finding == Finding::NotDistinguishable
            && one.difference.abs() >= LEAST
    })
}

fn spread(summary: &RunSummary) -> Option<Warning> {
    let comparisons = &summary.verdict.as_ref()?.comparisons;
    let found: Vec<&Comparison> = unclear(comparisons, summary.baseline.as_deref()?).collect();
    let parts = found.iter().map(|one| {
        let deviation = one.deviation.unwrap_or_default();
        format!(
            "{}s x{:.2} ±{deviation:.2} under {}",
            show::name(&one.name),
            1.0 + one.difference,
            show::name(&one.policy)
        )
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| Warning {
        key: WarningKey::SpreadLargerThanEffect,
        text: format!("the spread over the seeds is larger than the effect: {}", parts.join(", ")),
        advice: match found.iter().filter_map(|one| seeds_for(one, summary.seeds)).min() {
            Some(seeds) => format!("`--seeds {seeds}` may show it"),
            None => "take it for no effect".to_owned(),
        },
    })
}

/// The number of seeds, more than `seeds`, with which the difference would exceed its limit if mean and deviation stayed
/// as they are. Student's t is near 2 for many seeds; one seed in four is added for chance (ours).
fn seeds_for(comparison: &Comparison, seeds: u32) -> Option<u32> {
    let needed = 1.25 * (2.0 * comparison.deviation? / comparison.difference).powi(2);
    let needed = (needed.ceil() as u32).max(seeds.saturating_mul(2));
    (needed <= MOST_SEEDS).then_some(needed)
}

fn sampling(summary: &RunSummary) -> Option<Warning> {
    let baseline = summary.policies.get(summary.baseline.as_deref()?)?;
    let mut worst: Option<(f64, String)> = None;
    let mut count = 0;
    for (policy, result) in &summary.policies {
        for (name, workload) in &result.workloads {
            let Some(before) = baseline.workloads.get(name) else { continue };
            let key = "llc_hit_ratio";
            let ratio = |workload: &WorkloadResult| workload.metrics.get(key);
            let (Some(now), Some(then)) = (ratio(workload), ratio(before)) else { continue };
            let errors = [workload, before].map(|workload| workload.sampling_error.get(key).copied());
            let [Some(error), Some(other)] = errors else { continue };
            let (points, error) = (100.0 * (now - then), error.hypot(other));
            if points.abs() >= LEAST_POINTS && error > points.abs() {
                count += 1;
                if worst.as_ref().is_none_or(|(most, _)| error > *most) {
                    let text = format!(
                        "{} differs by {} points under {}, with an error of {}",
                        show::name(name),
                        show::digits(points),
                        show::name(policy),
                        show::digits(error)
                    );
                    worst = Some((error, text));
                }
            }
        }
    }
    let (_, text) = worst?;
    let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    Some(Warning {
        key: WarningKey::SamplingError,
        text: format!("the sampling error of LLC hit ratios is larger than their difference: {text}{more}"),
        advice: match denser(&summary.sets) {
            Some(sets) => format!("`--sets {sets}` halves it"),
            None => "more seeds lower it".to_owned(),
        },
    })
}

/// Four times as many sets as `sets`, for half the error.
fn denser(sets: &str) -> Option<String> {
    let one_in: u32 = sets.strip_prefix("1/")?.parse().ok()?;
    Some(if one_in >= 8 { format!("1/{}", one_in / 4) } else { "exact".to_owned() })
}

fn cannot_react(summary: &RunSummary) -> Option<Warning> {
    let all = |key: &str, holds: fn(f64) -> bool| -> Vec<String> {
        let names = by_policy(summary, |workload| workload.metrics.get(key)).into_iter();
        let names =
            names.filter(|(_, _, values)| !values.is_empty() && values.iter().all(|value| holds(*value)));
        names.map(|(name, _, _)| show::name(name)).collect()
    };
    let idle = all("llc_time_ratio", |ratio| ratio < LLC_TIME_RATIO);
    let full = all("drive_busy_ratio", |ratio| ratio >= DRIVES_FULL);
    let parts = [(idle, "less than 1 % of the time beyond the MLC"), (full, "drives at their limit")];
    let parts = parts.into_iter().filter(|(names, _)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(names, why)| format!("{} ({why})", names.join(", "))).collect();
    (!parts.is_empty()).then(|| Warning {
        key: WarningKey::CannotReact,
        text: format!("no policy can change much for {}", parts.join(", ")),
        advice: "compare policies by the other workloads: the means move less than they do".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_less_than_30_ms_of_traffic_is_short() {
        assert_eq!(short_intervals(1.0, 20.0), None);
        assert_eq!(short_intervals(0.03, 1.0), None);
        // 1 s at factor 100 are 10 ms; at most 1 / 0.03 = 33.3 fit.
        let warning = short_intervals(1.0, 100.0).unwrap();
        assert_eq!(warning.key, WarningKey::ShortIntervals);
        assert!(warning.text.contains("10.0 ms of traffic"), "{warning}");
        assert_eq!(warning.advice, "`--set time_factor=33` is slow enough");
        // Below 30 ms no factor of 1 or more is enough.
        assert_eq!(short_intervals(0.01, 1.0).unwrap().advice, "`--set interval_s=0.03` is long enough");
    }

    #[test]
    fn the_number_of_seeds_follows_from_spread_and_effect() {
        let comparison = |difference, deviation| Comparison {
            scope: Scope::Group,
            name: "HPW".to_owned(),
            policy: "a4".to_owned(),
            against: "default".to_owned(),
            difference,
            deviation: Some(deviation),
            standard_error: None,
            limit: None,
            finding: Finding::NotDistinguishable,
        };
        // (2 x 0.2 / 0.2)^2 = 4, and a quarter more is 5; at least twice as many as there were.
        assert_eq!(seeds_for(&comparison(0.2, 0.2), 2), Some(5));
        assert_eq!(seeds_for(&comparison(0.2, 0.2), 4), Some(8));
        // (2 x 0.2 / 0.02)^2 = 400.
        assert_eq!(seeds_for(&comparison(0.02, 0.2), 4), None);
    }

    #[test]
    fn four_times_as_many_sets_halve_the_error() {
        assert_eq!(denser("1/32").as_deref(), Some("1/8"));
        assert_eq!(denser("1/4").as_deref(), Some("exact"));
        assert_eq!(denser("exact"), None);
    }

    #[test]
    fn a_key_in_a_file_is_kebab_case() {
        let warning = Warning { key: WarningKey::PacketsDropped, text: "a".into(), advice: "b".into() };
        assert_eq!(
            serde_json::to_string(&warning).unwrap(),
            r#"{"key":"packets-dropped","text":"a","advice":"b"}"#
        );
        assert_eq!(warning.to_string(), "a; b");
    }
}
