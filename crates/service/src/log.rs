//! The log: each decision as one structured line with its reasons, the knobs that were set, and problems.
//!
//! A lasting fact is logged when it begins, not at every step. A token bucket limits these lines to [`BURST`] at once
//! and [`PER_SECOND`] on average; lines about orders, signals and configurations are not limited. Must not know where
//! lines are written, only that writing does not block.

use crate::engine::ProblemChanges;
use crate::naming::HostNames;
use crate::{DaemonMode, Published, PublishedStep};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;
use tracing::{info, warn};
use waykeeper_control::Problem;
use waykeeper_host::{Applied, Knob, KnobOutcome, KnobSetting};
use waykeeper_policy::{Cause, Event};
use waykeeper_units::four_digits;

/// Most lines at once. Assumption: a start with 64 tenants has about that many.
const BURST: f64 = 200.0;
/// Most lines per second on average (assumption: more than a person reads).
const PER_SECOND: f64 = 5.0;
/// Most knobs that one line names. Assumption: as many as a start with 16 tenants sets.
const KNOBS_NAMED: usize = 32;

/// What was logged last, so that it is not repeated.
#[derive(Debug, Default)]
pub struct DaemonLog {
    before: Option<Arc<Published>>,
    budget: Option<Budget>,
}

/// Token bucket for log lines, on the steps' clock.
#[derive(Debug)]
struct Budget {
    lines: f64,
    at: SystemTime,
    left_out: u64,
}

impl Budget {
    /// The bucket, refilled for the time `now`.
    fn at(budget: &mut Option<Budget>, now: SystemTime) -> &mut Budget {
        let budget = budget.get_or_insert(Budget { lines: BURST, at: now, left_out: 0 });
        budget.pass(now);
        budget
    }

    fn pass(&mut self, now: SystemTime) {
        let seconds = now.duration_since(self.at).unwrap_or_default().as_secs_f64();
        self.lines = (self.lines + seconds * PER_SECOND).min(BURST);
        self.at = now;
        if self.left_out > 0 && self.lines >= 1.0 {
            self.lines -= 1.0;
            warn!(lines = self.left_out, "lines were left out of the log: too many at once");
            self.left_out = 0;
        }
    }

    fn spend(&mut self) -> bool {
        let affordable = self.lines >= 1.0;
        if affordable {
            self.lines -= 1.0;
        } else {
            self.left_out += 1;
        }
        affordable
    }
}

impl DaemonLog {
    /// Logs lasting problems that began or ended, and events between the steps.
    pub(crate) fn problem_changes(&mut self, at: SystemTime, changes: &ProblemChanges, happened: &[String]) {
        let budget = Budget::at(&mut self.budget, at);
        for one in changes.begun.iter().filter(|_| budget.spend()) {
            warn!(kind = one.kind, "{}", one.text);
        }
        for one in changes.ended.iter().filter(|_| budget.spend()) {
            info!(kind = one.kind, "no longer: {}", one.text);
        }
        for line in happened.iter().filter(|_| budget.spend()) {
            info!("{line}");
        }
    }

    /// Logs what is new in a step.
    pub fn step(&mut self, step: PublishedStep) {
        let budget = Budget::at(&mut self.budget, step.at);
        let before = self.before.as_deref();
        let lost = step.totals.unlogged;
        if before.map_or(0, |before| before.totals.unlogged) < lost && budget.spend() {
            warn!(lines = lost, "lines of the log were lost since the start, because its reader is too slow");
        }
        let policy = step.policy.as_str();
        let names = HostNames::of(&step);
        let known = before.map_or(&[][..], |before| &before.record.events);
        // The order or configuration that replaced the policy has its own line.
        let is_news =
            |event: &&Event| !known.contains(event) && event.action != crate::replay::POLICY_REPLACED;
        for event in step.record.events.iter().filter(is_news) {
            if budget.spend() {
                reported_event(policy, event, &names);
            }
        }
        let turned = turned(&step);
        if !turned.is_empty() && budget.spend() {
            let more = turned.len().saturating_sub(KNOBS_NAMED);
            let named = turned[..turned.len() - more].join("; ");
            let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
            info!(
                policy,
                step = step.step,
                count = turned.len(),
                knobs = format!("{named}{rest}"),
                "knobs turned"
            );
        }
        let known: BTreeSet<_> =
            before.map_or(&[][..], |before| &before.record.problems).iter().map(kind).collect();
        for problem in step.record.problems.iter().filter(|problem| !known.contains(&kind(problem))) {
            if budget.spend() {
                let (text, causes) = (names.text(&problem.to_string()), causes(&problem.causes(), &names));
                warn!(policy, step = step.step, kind = kind(problem).0, text, causes, "problem");
            }
        }
        let blind = |step: &Published| {
            step.record.problems.iter().any(|problem| matches!(problem, Problem::Sample(_)))
        };
        if before.is_some_and(blind) && !blind(&step) && budget.spend() {
            info!(step = step.step, "counters can be read again");
        }
        self.before = Some(step);
    }
}

fn reported_event(policy: &str, event: &Event, names: &HostNames<'_>) {
    let Event { action, group, text, causes: numbers } = event;
    let (text, causes) = (names.text(text), causes(numbers, names));
    info!(policy, action, tenant = group.as_deref(), text, causes, "decision");
}

/// `DCA write miss ratio=0.41 limit dmalk_miss_thr=0.3; ...`
pub fn causes(causes: &[Cause], names: &HostNames<'_>) -> String {
    let mut out = String::new();
    for Cause { what, value, limit } in causes {
        let between = if out.is_empty() { "" } else { "; " };
        let _ = write!(out, "{between}{}={}", names.text(what), four_digits(*value));
        if let Some((name, limit)) = limit {
            let _ = write!(out, " limit {name}={}", four_digits(*limit));
        }
    }
    out
}

/// Kind and knob of a problem: the same pair in the next step is the same problem.
fn kind(problem: &Problem) -> (&'static str, Option<KnobSetting>) {
    match problem {
        Problem::Sample(_) => ("sample", None),
        Problem::NoTime => ("no-time", None),
        Problem::Apply(_) => ("apply", None),
        Problem::Refused { knob, .. } => ("refused", Some(*knob)),
        Problem::ReadsBack { knob, .. } => ("reads-back", Some(*knob)),
        Problem::Busy { knob, .. } => ("busy", Some(*knob)),
        Problem::ExternalChange { knob, .. } => ("outsider", Some(*knob)),
        Problem::NoEffect { knob, .. } => ("no-effect", Some(*knob)),
        Problem::ClockBack { .. } => ("clock-back", None),
        Problem::Classes(_) => ("classes", None),
        Problem::Late { .. } => ("late", None),
    }
}

/// Every knob that was set. A dry run sets none: its decisions name what it would set.
pub fn turned(step: &Published) -> Vec<String> {
    turned_of(step.mode, &step.record.wanted, &step.record.applied, &HostNames::of(step))
}

/// The same, from wanted values and outcomes. A knob that was not set is a problem of the step.
pub fn turned_of(
    mode: DaemonMode,
    wanted: &waykeeper_host::Plan,
    applied: &Applied,
    names: &HostNames<'_>,
) -> Vec<String> {
    if mode == DaemonMode::DryRun {
        return Vec::new();
    }
    let text = |knob: Knob| {
        let setting = wanted.get(knob).map_or_else(|| "?".to_owned(), ToString::to_string);
        match knob {
            Knob::Mask(id) => format!("mask {setting} of {}", names.workload(id)),
            Knob::DcaWays => format!("DCA ways {setting}"),
            Knob::Dca(port) => format!("DCA {setting} on {}", names.port(port)),
            Knob::RxRing(port) => format!("RX ring of {setting} on {}", names.port(port)),
            Knob::RxBurst(port) => format!("RX burst of {setting} on {}", names.port(port)),
        }
    };
    let set = applied.iter().filter(|(_, outcome)| **outcome == KnobOutcome::Applied);
    set.map(|(knob, _)| text(knob)).collect()
}

#[cfg(test)]
mod tests;
