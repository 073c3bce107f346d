//! From a wish to knobs: what of a plan is worth turning, and what is remembered of what was refused.
//!
//! Knows neither policy nor time.

use crate::record::{Knob, Problem};
use std::collections::BTreeMap;
use waykeeper_host::{Applied, KnobOutcome, KnobValues, Plan};
use waykeeper_units::{GroupId, PortId};

/// Which knob, whatever its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Mask(GroupId),
    DcaWays,
    Dca(PortId),
}

impl Knob {
    fn place(self) -> Place {
        match self {
            Knob::Mask(group, _) => Place::Mask(group),
            Knob::DcaWays(_) => Place::DcaWays,
            Knob::Dca(port, _) => Place::Dca(port),
        }
    }

    /// True if it reads back so already.
    fn stands(self, knobs: &KnobValues) -> bool {
        match self {
            Knob::Mask(group, mask) => knobs.masks.get(&group) == Some(&mask),
            Knob::DcaWays(mask) => knobs.dca_ways == Some(mask),
            Knob::Dca(port, on) => knobs.dca.get(&port) == Some(&on),
        }
    }

    fn put_into(self, plan: &mut Plan) {
        match self {
            Knob::Mask(group, mask) => {
                plan.masks.insert(group, mask);
            }
            Knob::DcaWays(mask) => plan.dca_ways = Some(mask),
            Knob::Dca(port, on) => {
                plan.dca.insert(port, on);
            }
        }
    }

    fn outcome(self, applied: &Applied) -> Option<&KnobOutcome> {
        match self {
            Knob::Mask(group, _) => applied.masks.get(&group),
            Knob::DcaWays(_) => applied.dca_ways.as_ref(),
            Knob::Dca(port, _) => applied.dca.get(&port),
        }
    }
}

/// All knobs a plan names.
fn knobs_of(plan: &Plan) -> Vec<Knob> {
    let masks = plan.masks.iter().map(|(group, mask)| Knob::Mask(*group, *mask));
    let dca = plan.dca.iter().map(|(port, on)| Knob::Dca(*port, *on));
    masks.chain(plan.dca_ways.map(Knob::DcaWays)).chain(dca).collect()
}

/// What the machine would not take: the last value per knob, so that it is neither tried nor told again
/// until another value is wanted there.
#[derive(Default, Debug)]
pub(crate) struct Refusals(BTreeMap<Place, Knob>);

impl Refusals {
    /// The part of `desired` worth turning: not standing already, and not known to be refused.
    pub fn worth_turning(&mut self, desired: &Plan, knobs: &KnobValues) -> Plan {
        let mut plan = Plan::default();
        for knob in knobs_of(desired) {
            let place = knob.place();
            if knob.stands(knobs) {
                self.0.remove(&place);
            } else if self.0.get(&place) != Some(&knob) {
                knob.put_into(&mut plan);
            }
        }
        plan
    }

    /// Takes in the report on `plan` and says what went wrong in it.
    pub fn note(&mut self, plan: &Plan, applied: &Applied) -> Vec<Problem> {
        let mut problems = Vec::new();
        for knob in knobs_of(plan) {
            let problem = match knob.outcome(applied) {
                Some(KnobOutcome::Applied) => None,
                Some(KnobOutcome::Refused(why)) => Some(Problem::Refused { knob, why: why.clone() }),
                Some(KnobOutcome::ReadsBack(found)) => {
                    Some(Problem::ReadsBack { knob, found: found.clone() })
                }
                None => Some(Problem::Refused { knob, why: "the host said nothing about it".to_owned() }),
            };
            match problem {
                None => {
                    self.0.remove(&knob.place());
                }
                Some(problem) => {
                    self.0.insert(knob.place(), knob);
                    problems.push(problem);
                }
            }
        }
        problems
    }

    /// Forgets groups that are gone.
    pub fn keep_groups(&mut self, alive: impl Fn(GroupId) -> bool) {
        self.0.retain(|place, _| !matches!(place, Place::Mask(group) if !alive(*group)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::WayMask;

    fn plan(bits: u32, on: bool) -> Plan {
        let mut plan = Plan::default();
        plan.masks.insert(GroupId(0), WayMask::from_bits(bits));
        plan.dca.insert(PortId(1), on);
        plan
    }

    #[test]
    fn knobs_that_stand_as_wanted_are_not_turned() {
        let mut knobs = KnobValues::default();
        knobs.masks.insert(GroupId(0), WayMask::from_bits(0x00c));
        let left = Refusals::default().worth_turning(&plan(0x00c, false), &knobs);
        assert!(left.masks.is_empty());
        assert!(!left.dca[&PortId(1)]);
    }

    #[test]
    fn a_refused_value_is_told_once_and_tried_again_only_after_another() {
        let mut refusals = Refusals::default();
        let knobs = KnobValues::default();
        let mut answer = Applied::default();
        answer.masks.insert(GroupId(0), KnobOutcome::Refused("no".to_owned()));
        answer.dca.insert(PortId(1), KnobOutcome::Applied);
        let wish = plan(0x00c, false);
        assert_eq!(refusals.note(&wish, &answer).len(), 1);
        assert!(refusals.worth_turning(&wish, &knobs).masks.is_empty());
        assert_eq!(refusals.worth_turning(&plan(0x01c, false), &knobs).masks.len(), 1);
        // It stands after all (somebody else did it): forgotten, so a later loss is repaired.
        let mut standing = KnobValues::default();
        standing.masks.insert(GroupId(0), WayMask::from_bits(0x00c));
        refusals.worth_turning(&wish, &standing);
        assert_eq!(refusals.worth_turning(&wish, &knobs).masks.len(), 1);
    }

    #[test]
    fn silence_about_a_knob_is_not_success() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.note(&plan(0x00c, true), &Applied::default()).len(), 2);
    }
}
