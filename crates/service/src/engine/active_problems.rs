//! The list of problems that last; reports each once when it begins and once when it ends.
//!
//! Must not know causes of problems.

use crate::ActiveProblem;
use crate::naming::HostNames;
use std::collections::BTreeSet;
use waykeeper_control::{Problem, StepRecord};
use waykeeper_host::{Inventory, Knob, KnobSetting, KnobValues, Plan, Workload};

/// Most problems that are shown. Assumption: three for each of 64 tenants.
const MAX_SHOWN: usize = 200;

/// Problems that began or ended since the list was last made. Problems of knobs do not appear in `begun`: the log has
/// them as problems of the step.
#[derive(Debug, Default)]
pub(crate) struct ProblemChanges {
    /// New problems.
    pub begun: Vec<ActiveProblem>,
    /// Ended problems.
    pub ended: Vec<ActiveProblem>,
}

/// Kinds that the log reports elsewhere: a refused configuration at each refusal, unreadable counters with the reason.
pub(super) const LOGGED_SEPARATELY: [&str; 2] = ["config", "blind"];

/// All lasting problems.
#[derive(Debug, Default)]
pub(super) struct ActiveProblems {
    /// The list as last shown.
    now: BTreeSet<ActiveProblem>,
    /// Knobs that do not have the wanted value, with the problem.
    knobs: Vec<(KnobSetting, ActiveProblem)>,
    /// Why the last configuration was refused.
    pub config: Option<ActiveProblem>,
}

impl ActiveProblem {
    /// A declared tenant that does not run; its start is reported as an event, not as a problem's end.
    pub(crate) const ABSENT: &'static str = "absent";

    pub(crate) fn new(kind: &str, text: impl Into<String>) -> ActiveProblem {
        ActiveProblem { kind: kind.to_owned(), text: text.into() }
    }
}

impl ActiveProblems {
    /// Updates the list from a step.
    pub fn note(&mut self, record: &StepRecord, groups: &[Workload], inventory: &Inventory) {
        let names = HostNames::new(groups, inventory);
        let alive = |knob: Knob| knob.workload().is_none_or(|group| groups.iter().any(|own| own.id == group));
        let is_over = |kind: &str, wanted: KnobSetting| {
            // A knob without effect stays in the list; others end when the value is in force or no longer wanted.
            let is = |knobs: &KnobValues| knobs.setting(wanted.knob) == Some(wanted);
            !alive(wanted.knob)
                || kind != "no-effect"
                    && (is(&record.knobs) || !record.wanted.is_empty() && !is(&record.wanted))
        };
        self.knobs.retain(|(knob, problem)| !is_over(&problem.kind, *knob));
        for problem in &record.problems {
            let (kind, knob) = match problem {
                Problem::Refused { knob, .. } | Problem::ReadsBack { knob, .. } => ("refused", *knob),
                Problem::Busy { knob, .. } => ("busy", *knob),
                Problem::ExternalChange { knob, other_stays: true, .. } => ("outsider", *knob),
                Problem::NoEffect { knob, .. } => ("no-effect", *knob),
                _ => continue,
            };
            self.knobs.retain(|(own, _)| own.knob != knob.knob);
            self.knobs.push((knob, ActiveProblem::new(kind, names.text(&problem.to_string()))));
        }
    }

    /// The policy changed and wants `plan`: problems with other values end. The loop does not try a refused value
    /// again and does not report it again, so a problem with a value that is still wanted stays.
    pub fn policy_changed(&mut self, plan: &Plan) {
        let is_wanted = |knob: &KnobSetting| plan.setting(knob.knob) == Some(*knob);
        self.knobs.retain(|(knob, problem)| problem.kind == "no-effect" || is_wanted(knob));
    }

    /// The list to show, and its changes.
    pub fn list(&mut self, others: Vec<ActiveProblem>) -> (Vec<ActiveProblem>, ProblemChanges) {
        let knobs = self.knobs.iter().map(|(_, problem)| problem.clone());
        let mut next: BTreeSet<ActiveProblem> = knobs.chain(self.config.clone()).chain(others).collect();
        if next.len() > MAX_SHOWN {
            let more = ActiveProblem::new("more", "more problems than this list holds");
            next = next.into_iter().take(MAX_SHOWN).chain([more]).collect();
        }
        let elsewhere = |one: &&ActiveProblem| !LOGGED_SEPARATELY.contains(&one.kind.as_str());
        let is_knob = |one: &&ActiveProblem| self.knobs.iter().any(|(_, own)| own == *one);
        let begun =
            next.difference(&self.now).filter(elsewhere).filter(|one| !is_knob(one)).cloned().collect();
        // The start of a tenant is reported as an event.
        let ended =
            self.now.difference(&next).filter(elsewhere).filter(|one| one.kind != ActiveProblem::ABSENT);
        let ended = ended.cloned().collect();
        self.now.clone_from(&next);
        (next.into_iter().collect(), ProblemChanges { begun, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::{PortId, WayMask};

    #[test]
    fn a_refused_value_that_the_next_policy_wants_too_stays_in_the_list() {
        let mut problems = ActiveProblems::default();
        let refused = Knob::DcaWays.at(WayMask::from_bits(0x700));
        let left = Knob::Dca(PortId(0)).at(false);
        let found = Knob::Dca(PortId(0)).at(true);
        let record = StepRecord {
            wanted: Plan::default().with(refused.knob, refused.setting).with(left.knob, left.setting),
            problems: vec![
                Problem::Refused { knob: refused, why: "no".to_owned(), in_force: None },
                Problem::ExternalChange { knob: left, found, other_stays: true },
            ],
            ..StepRecord::default()
        };
        problems.note(&record, &[], &crate::published_state::tests::published().inventory);
        let kinds = |problems: &mut ActiveProblems| -> Vec<String> {
            problems.list(Vec::new()).0.into_iter().map(|problem| problem.kind).collect()
        };
        assert_eq!(kinds(&mut problems), ["outsider", "refused"]);
        problems.policy_changed(&Plan::default().with(left.knob, left.setting));
        assert_eq!(kinds(&mut problems), ["outsider"]);
        problems.policy_changed(&Plan::default());
        assert_eq!(kinds(&mut problems), [""; 0]);
    }
}
