//! Looks back at the layout as found, to measure what the policy is worth: short and rare, and only if the operator allows
//! it.
//!
//! The loop puts the original value of every knob back through the same code as every change, and the policy's values
//! afterwards. The policy sees neither the intervals of the look nor the one that follows, in which the LLC still has
//! lines of the other layout. Must not know host and policy except by their traits.

use super::Loop;
use crate::worth::{Under, WorthSource, WorthUnknown, signed};
use waykeeper_calibration::LayoutAnswer;
use waykeeper_host::{Host, Interval, KnobValues, Plan, Workload};
use waykeeper_policy::{Cause, Event};

use crate::record::Problem;

/// How often and how long the loop looks back at the layout as found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookBack {
    /// Shortest time between two looks, ns of the host's clock. A layout as found that was measured later than this ago is
    /// not looked at.
    pub every_ns: u64,
    /// Intervals of a look. The first is not used, as the LLC still has lines of the other layout.
    pub intervals: u32,
}

impl Default for LookBack {
    /// Three intervals in ten minutes: half a per cent of the time at one interval a second.
    fn default() -> LookBack {
        LookBack { every_ns: 600_000_000_000, intervals: 3 }
    }
}

/// Steps without a turned knob before a look: a policy that tries layouts is not disturbed. Assumption.
const QUIET: u32 = 5;

/// Where the looks are.
#[derive(Default, Debug)]
pub(super) struct LooksBack {
    stage: Stage,
    /// When the last look began.
    last_ns: Option<u64>,
    /// Steps of the policy since it turned a knob.
    quiet: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Stage {
    /// The policy's layout is in force.
    #[default]
    Idle,
    /// The layout as found is in force, for so many intervals more.
    Looking(u32),
    /// The policy's layout came back at the end of the last interval.
    Returning,
}

impl LooksBack {
    /// The policy decided, and turned a knob or not.
    pub fn decided(&mut self, turned: bool) {
        self.quiet = if turned { 0 } else { self.quiet + 1 };
    }

    /// The policy's layout is to be in force at once.
    pub fn stop(&mut self) {
        (self.stage, self.quiet) = (Stage::Idle, 0);
    }
}

impl<H: Host + ?Sized> Loop<'_, H> {
    /// Sets or forbids looks back. One in progress ends with the next step.
    pub fn set_look_back(&mut self, look_back: Option<LookBack>) {
        self.config.look_back = look_back;
    }

    /// Takes an interval in to measure what the policy is worth. False if a look cannot go on after it.
    pub(super) fn measure_worth(&mut self, groups: &[Workload], seen: &Interval) -> bool {
        if !self.config.verify {
            return false;
        }
        let as_found = self.knobs.as_found(&self.record.knobs);
        let is_as_found = as_found == self.record.knobs;
        let is_same = has_same_values(&self.as_found, &as_found);
        self.as_found = as_found;
        if !is_same {
            self.worth.forget(WorthUnknown::KnobsChanged);
        }
        let under = match (self.looks_back.stage, is_as_found) {
            (Stage::Idle, false) => Under::Policy,
            (Stage::Idle, true) => Under::AsFound(WorthSource::AsFound),
            (Stage::Looking(_), true) => Under::AsFound(WorthSource::Look),
            (Stage::Looking(_), false) | (Stage::Returning, _) => Under::Both,
        };
        let goes_on = self.worth.observe(groups, seen, self.host.inventory(), under);
        self.record.worth = self.worth.worth();
        let is_turned = |problem: &Problem| matches!(problem, Problem::ExternalChange { .. });
        goes_on && is_same && is_as_found && !self.record.problems.iter().any(is_turned)
    }

    /// Begins, continues or ends a look. True if the policy must not see this step.
    pub(super) fn look_back(&mut self, groups: &[Workload], may_go_on: bool) -> bool {
        match self.looks_back.stage {
            Stage::Idle => {
                let Some(look_back) = self.config.look_back.filter(|look_back| self.is_due(*look_back))
                else {
                    return false;
                };
                self.looks_back.stage = Stage::Looking(look_back.intervals);
                self.looks_back.last_ns = Some(self.record.at_ns);
                let text = "the layout as found is put back, to measure what the policy is worth";
                let cause = Cause {
                    what: "intervals".to_owned(),
                    value: f64::from(look_back.intervals),
                    limit: None,
                };
                self.sit_out("look-back", text, vec![cause]);
                self.keep_groups(groups);
                let wanted = self.knobs.look_back();
                self.turn(wanted, groups);
            }
            Stage::Looking(left) => {
                let left = left.saturating_sub(1);
                if left > 0 && may_go_on && self.config.look_back.is_some() {
                    self.looks_back.stage = Stage::Looking(left);
                    self.record.look_back = true;
                    self.keep_groups(groups);
                    self.record.wanted = self.knobs.look_back();
                    self.knobs.confirm(&self.record.knobs);
                } else {
                    self.end_look_back(groups);
                }
            }
            Stage::Returning => {
                self.looks_back.stop();
                self.record.look_back = true;
                self.keep_groups(groups);
                let wanted = self.knobs.want(&Plan::default());
                self.turn(wanted, groups);
            }
        }
        true
    }

    /// Puts the policy's layout in force again, if a look is in progress.
    pub(super) fn end_look_back(&mut self, groups: &[Workload]) {
        if !matches!(self.looks_back.stage, Stage::Looking(_)) {
            self.looks_back.stage = Stage::Idle;
            return;
        }
        self.looks_back.stage = Stage::Returning;
        self.sit_out("look-back-ends", "the policy's layout is put back", Vec::new());
        self.keep_groups(groups);
        let wanted = self.knobs.want(&Plan::default());
        self.turn(wanted, groups);
    }

    fn sit_out(&mut self, action: &str, text: &str, causes: Vec<Cause>) {
        self.record.look_back = true;
        let event = Event { action: action.to_owned(), group: None, text: text.to_owned(), causes };
        self.record.events.push(event);
    }

    /// Whether a look may begin now.
    fn is_due(&self, look_back: LookBack) -> bool {
        let last_ns = self.looks_back.last_ns.map(signed).max(self.worth.found_ns());
        self.config.verify
            && self.looks_back.quiet >= QUIET
            && self.as_found != self.record.knobs
            && last_ns.is_none_or(|last_ns| {
                signed(self.record.at_ns).saturating_sub(last_ns) >= signed(look_back.every_ns)
            })
    }

    /// Notes what an answer says of the layout as found.
    pub(super) fn hear_of_as_found(&mut self, answer: &LayoutAnswer) {
        let as_found = |plan: &Plan| {
            let turned =
                self.as_found.iter().filter(|(knob, found)| self.record.knobs.get(*knob) != Some(*found));
            let mut turned = turned.map(|(knob, _)| knob);
            turned.all(|knob| plan.names(knob)) && has_same_values(plan, &self.as_found)
        };
        let candidate = answer.asked.iter().chain(&answer.best).find(|candidate| as_found(&candidate.plan));
        self.worth.answered(answer.question, candidate);
    }
}

/// Whether the knobs that both name have the same values.
fn has_same_values(a: &KnobValues, b: &KnobValues) -> bool {
    a.iter().all(|(knob, value)| b.get(knob).is_none_or(|other| other == value))
}
