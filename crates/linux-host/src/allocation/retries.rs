//! Steps that failed and are tried again with backoff. Otherwise a group that cannot be removed for hours would cost a
//! reading of all groups at every interval.
//!
//! A step is recognised by its value: if anything about it changes, it is another step and is tried at once. Must not
//! know why a step is planned.

use super::plan::AllocationPlan;
use super::state::AllocationStep;
use super::{Allocation, GroupsError, Pass};
use crate::backoff::{Backoff, MOST_ROUNDS};
use waykeeper_kernel::resctrl::{Group, ResctrlError};
use waykeeper_units::few;

/// Why a tenant has no monitoring group although it needs one.
#[derive(Debug)]
pub(super) struct Unwatched {
    pub why: String,
    backoff: Backoff,
}

impl Unwatched {
    /// Whether it is tried again in `round`.
    pub fn is_due(&self, round: u64) -> bool {
        !self.backoff.waits(round)
    }
}

/// The steps that failed last time and are still planned.
#[derive(Debug, Default)]
pub(super) struct FailedSteps {
    steps: Vec<(AllocationStep, Backoff)>,
}

impl FailedSteps {
    /// A step failed in `round`.
    pub fn note(&mut self, step: &AllocationStep, round: u64) {
        match self.steps.iter_mut().find(|(own, _)| own == step) {
            Some((_, backoff)) => *backoff = Backoff::after(Some(*backoff), round),
            None => self.steps.push((step.clone(), Backoff::after(None, round))),
        }
    }

    /// The steps that are not to be tried in `round`.
    pub fn waiting(&self, round: u64) -> Vec<AllocationStep> {
        let waiting = self.steps.iter().filter(|(_, backoff)| backoff.waits(round));
        waiting.map(|(step, _)| step.clone()).collect()
    }

    /// Drops the steps that are not planned any more: they succeeded, or are not needed.
    pub fn keep_planned(&mut self, plan: &AllocationPlan) {
        self.steps.retain(|(step, _)| plan.steps().any(|planned| planned == step));
    }
}

/// Whether a step may be tried, given the steps that failed: the same step may not, nor a step in a group that could
/// not be made.
pub(super) fn permits(failed: &[AllocationStep], step: &AllocationStep) -> bool {
    let unmade = |group: &Group| {
        failed.iter().any(|failed| matches!(failed, AllocationStep::Make(other) if other == group))
    };
    let group = step.group();
    let is_removal = matches!(step, AllocationStep::Remove(_));
    !failed.contains(step) && (is_removal || !(unmade(group) || unmade(&group.parent())))
}

impl Allocation {
    /// A round begins, with this number.
    pub fn begin_round(&mut self, round: u64) {
        self.round = round;
        // A cause that lasts is noted again after the longest pause at the latest.
        self.noted.retain(|_, last| last.saturating_add(2 * MOST_ROUNDS) >= round);
    }

    /// A step of the lasting plan failed: it is reported once, and tried again with backoff.
    pub(super) fn note_failure(&mut self, step: &AllocationStep, why: &GroupsError) {
        self.failed_steps.note(step, self.round);
        let (kind, note) = match step {
            AllocationStep::Remove(_) => ("removal", "a group that is no longer needed could not be removed"),
            _ => ("change", "a change of resctrl groups failed and is tried again"),
        };
        self.note_once(format!("{kind} of {}", step.group()), format!("{note}: {why}"));
    }

    /// A note that is not repeated while its cause lasts, whatever its text is then.
    pub(super) fn note_once(&mut self, about: String, note: String) {
        if self.noted.insert(about, self.round).is_none() {
            self.notes.push(note);
        }
    }

    /// A new monitoring group that fails leaves its tenant's occupancy unknown, which the next sample reports. Masks
    /// can still be set. It is tried again with backoff: an RMID may be free by then.
    pub(super) fn gives_up_watching(
        &mut self,
        step: &AllocationStep,
        why: &ResctrlError,
        plan: &AllocationPlan,
    ) -> bool {
        let group = step.group();
        let tenant = self.members.keys().copied().find(|id| self.monitor_of(*id).as_ref() == Some(group));
        let is_new = plan.fills.contains(&AllocationStep::Make(group.clone()));
        let holders: Vec<String> = self.others().map(Group::to_string).collect();
        let held = match holders.is_empty() {
            true => String::new(),
            false => format!("; groups of other programs, each with an RMID: {}", few(&holders)),
        };
        let Some(member) = tenant.filter(|_| is_new).and_then(|id| self.members.get_mut(&id)) else {
            return false;
        };
        let before = member.unwatched.as_ref().map(|unwatched| unwatched.backoff);
        member.unwatched = Some(Unwatched {
            why: format!("the LLC occupancy of {} is not known: {why}{held}", member.tenant.name),
            backoff: Backoff::after(before, self.round),
        });
        true
    }

    /// The plan is carried out: the tenants whose monitoring groups were due have them.
    pub(super) fn watches_again(&mut self) {
        let round = self.round;
        for member in self.members.values_mut() {
            member.unwatched.take_if(|unwatched| unwatched.is_due(round));
        }
    }

    /// The steps that wait, and those that failed in this pass.
    pub(super) fn permits(&self, pass: &Pass, step: &AllocationStep) -> bool {
        let barred = |group: &Group| pass.barred.contains(group);
        let group = step.group();
        let is_removal = matches!(step, AllocationStep::Remove(_));
        permits(&pass.failed, step) && (is_removal || !(barred(group) || barred(&group.parent())))
    }
}
