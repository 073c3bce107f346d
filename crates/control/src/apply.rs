//! Compares the wanted values with the values read back and decides which knobs to set; remembers refused values.
//!
//! Must not know policy or time.

use crate::record::{Knob, Problem};
use std::collections::BTreeMap;
use waykeeper_host::{Applied, KnobOutcome, KnobValues, Plan};
use waykeeper_units::{GroupId, PortId};

/// A knob without a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Mask(GroupId),
    DcaWays,
    Dca(PortId),
    RxRing(PortId),
    RxBurst(PortId),
}

impl Place {
    /// Its value among those read back.
    pub fn standing(self, knobs: &KnobValues) -> Option<Knob> {
        match self {
            Place::Mask(group) => knobs.masks.get(&group).map(|mask| Knob::Mask(group, *mask)),
            Place::DcaWays => knobs.dca_ways.map(Knob::DcaWays),
            Place::Dca(port) => knobs.dca.get(&port).map(|on| Knob::Dca(port, *on)),
            Place::RxRing(port) => knobs.rx_ring.get(&port).map(|ring| Knob::RxRing(port, *ring)),
            Place::RxBurst(port) => knobs.rx_burst.get(&port).map(|burst| Knob::RxBurst(port, *burst)),
        }
    }
}

impl Place {
    /// False for the mask of a group that is gone.
    pub fn is_alive(self, alive: impl Fn(GroupId) -> bool) -> bool {
        !matches!(self, Place::Mask(group) if !alive(group))
    }
}

impl Knob {
    pub(crate) fn place(self) -> Place {
        match self {
            Knob::Mask(group, _) => Place::Mask(group),
            Knob::DcaWays(_) => Place::DcaWays,
            Knob::Dca(port, _) => Place::Dca(port),
            Knob::RxRing(port, _) => Place::RxRing(port),
            Knob::RxBurst(port, _) => Place::RxBurst(port),
        }
    }

    /// True if it reads back this value already.
    fn stands(self, knobs: &KnobValues) -> bool {
        self.place().standing(knobs) == Some(self)
    }

    pub(crate) fn put_into(self, plan: &mut Plan) {
        match self {
            Knob::Mask(group, mask) => {
                plan.masks.insert(group, mask);
            }
            Knob::DcaWays(mask) => plan.dca_ways = Some(mask),
            Knob::Dca(port, on) => {
                plan.dca.insert(port, on);
            }
            Knob::RxRing(port, ring) => {
                plan.rx_ring.insert(port, ring);
            }
            Knob::RxBurst(port, burst) => {
                plan.rx_burst.insert(port, burst);
            }
        }
    }

    fn outcome(self, applied: &Applied) -> Option<&KnobOutcome> {
        match self {
            Knob::Mask(group, _) => applied.masks.get(&group),
            Knob::DcaWays(_) => applied.dca_ways.as_ref(),
            Knob::Dca(port, _) => applied.dca.get(&port),
            Knob::RxRing(port, _) => applied.rx_ring.get(&port),
            Knob::RxBurst(port, _) => applied.rx_burst.get(&port),
        }
    }

    /// The value alone, as text.
    pub(crate) fn value(self) -> String {
        match self {
            Knob::Mask(_, mask) | Knob::DcaWays(mask) => mask.to_string(),
            Knob::Dca(_, on) => if on { "on" } else { "off" }.to_owned(),
            Knob::RxRing(_, number) | Knob::RxBurst(_, number) => number.to_string(),
        }
    }
}

/// All knobs a plan names.
pub(crate) fn knobs_of(plan: &Plan) -> Vec<Knob> {
    let masks = plan.masks.iter().map(|(group, mask)| Knob::Mask(*group, *mask));
    let dca = plan.dca.iter().map(|(port, on)| Knob::Dca(*port, *on));
    let rings = plan.rx_ring.iter().map(|(port, ring)| Knob::RxRing(*port, *ring));
    let bursts = plan.rx_burst.iter().map(|(port, burst)| Knob::RxBurst(*port, *burst));
    masks.chain(plan.dca_ways.map(Knob::DcaWays)).chain(dca).chain(rings).chain(bursts).collect()
}

/// The longest backoff of a busy knob, in steps. Assumption: another tool's lock or a full disk lasts longer than a few
/// seconds; with steps of 1 s a knob is set at most 16 s after it is free.
const MOST_STEPS: u64 = 16;

/// The last refused value per knob, which is neither tried nor reported again until another value is wanted.
#[derive(Default, Debug)]
pub(crate) struct Refusals(BTreeMap<Place, Refusal>);

#[derive(Clone, Copy, Debug)]
struct Refusal {
    knob: Knob,
    /// For a busy host: the last backoff, in steps, and the step of the next try.
    again: Option<(u64, u64)>,
}

impl Refusals {
    /// The part of `desired` to set in this step: knobs without the wanted value whose value was not refused.
    pub fn worth_turning(&mut self, desired: &Plan, knobs: &KnobValues, step: u64) -> Plan {
        let mut plan = Plan::default();
        for knob in knobs_of(desired) {
            let place = knob.place();
            let refused = self.0.get(&place).filter(|refusal| refusal.knob == knob);
            if knob.stands(knobs) {
                self.0.remove(&place);
            } else if refused.is_none_or(|refusal| refusal.again.is_some_and(|(_, from)| from <= step)) {
                knob.put_into(&mut plan);
            }
        }
        plan
    }

    /// Another program owns the knob until another value is wanted for it.
    pub fn leave(&mut self, knob: Knob) {
        self.0.insert(knob.place(), Refusal { knob, again: None });
    }

    /// Takes in the outcomes of `plan` and the values then read back, and returns the problems. `knobs` is `None` if
    /// nothing could be read: then only the outcomes count.
    ///
    /// If the host reports `Applied` and another value reads back, the value read back counts: otherwise the knob would
    /// be set again in every step without a report.
    pub fn note(
        &mut self,
        plan: &Plan,
        applied: &Applied,
        knobs: Option<&KnobValues>,
        step: u64,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for knob in knobs_of(plan) {
            let place = knob.place();
            let standing = knobs.and_then(|knobs| place.standing(knobs));
            let problem = match knob.outcome(applied) {
                Some(KnobOutcome::Applied) if knobs.is_none() || standing == Some(knob) => {
                    self.0.remove(&place);
                    continue;
                }
                Some(KnobOutcome::Applied) => {
                    let found = standing.map_or_else(|| "nothing".to_owned(), Knob::value);
                    Problem::ReadsBack { knob, found, standing }
                }
                Some(KnobOutcome::Refused(why)) => Problem::Refused { knob, why: why.clone(), standing },
                Some(KnobOutcome::ReadsBack(found)) => {
                    Problem::ReadsBack { knob, found: found.clone(), standing }
                }
                Some(KnobOutcome::Busy(why)) => {
                    let before = self.0.get(&place).filter(|refusal| refusal.knob == knob);
                    let last = before.and_then(|refusal| refusal.again).map(|(gap, _)| gap);
                    // Backoff of 1, 2, 4, 8 and then 16 steps, so that a lock held for long is not tried at every step.
                    // There is no last try: a lock that is held for a minute would otherwise disable the knob for good.
                    let gap = last.map_or(1, |gap| (2 * gap).min(MOST_STEPS));
                    self.0.insert(place, Refusal { knob, again: Some((gap, step + gap)) });
                    problems.extend(last.is_none().then(|| Problem::Busy { knob, why: why.clone() }));
                    continue;
                }
                None => {
                    let why = "the host reported no result".to_owned();
                    Problem::Refused { knob, why, standing }
                }
            };
            self.leave(knob);
            problems.push(problem);
        }
        problems
    }

    /// Forgets groups that are gone.
    pub fn keep_groups(&mut self, alive: impl Fn(GroupId) -> bool) {
        self.0.retain(|place, _| place.is_alive(&alive));
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
        let left = Refusals::default().worth_turning(&plan(0x00c, false), &knobs, 1);
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
        assert_eq!(refusals.note(&wish, &answer, None, 1).len(), 1);
        assert!(refusals.worth_turning(&wish, &knobs, 1).masks.is_empty());
        assert_eq!(refusals.worth_turning(&plan(0x01c, false), &knobs, 1).masks.len(), 1);
        // The value is in force after all (another program set it): the loop forgets the refusal and corrects later
        // changes.
        let mut standing = KnobValues::default();
        standing.masks.insert(GroupId(0), WayMask::from_bits(0x00c));
        refusals.worth_turning(&wish, &standing, 1);
        assert_eq!(refusals.worth_turning(&wish, &knobs, 1).masks.len(), 1);
    }

    #[test]
    fn silence_about_a_knob_is_not_success() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.note(&plan(0x00c, true), &Applied::default(), None, 1).len(), 2);
    }

    #[test]
    fn a_busy_machine_is_asked_again_at_growing_distances_for_ever() {
        let mut refusals = Refusals::default();
        let (wish, knobs) = (plan(0x00c, false), KnobValues::default());
        let mut answer = Applied::default();
        answer.masks.insert(GroupId(0), KnobOutcome::Busy("locked".to_owned()));
        answer.dca.insert(PortId(1), KnobOutcome::Applied);
        let (mut tried, mut told) = (Vec::new(), Vec::new());
        for step in 1..=80 {
            let turn = refusals.worth_turning(&wish, &knobs, step);
            if !turn.masks.is_empty() {
                tried.push(step);
                let one = Plan { masks: turn.masks, ..Plan::default() };
                told.extend(refusals.note(&one, &answer, None, step).iter().map(ToString::to_string));
            }
        }
        // 1, then 1, 2, 4, 8 and from then on 16 steps later.
        assert_eq!(tried, [1, 2, 4, 8, 16, 32, 48, 64, 80]);
        assert_eq!(told, ["mask 0x00c of group 0 is retried later: locked"]);
        // The lock is free: the value is in force, and the next failure is reported and retried at once again.
        answer.masks.insert(GroupId(0), KnobOutcome::Applied);
        let one = Plan { masks: wish.masks.clone(), ..Plan::default() };
        assert_eq!(refusals.note(&one, &answer, None, 80), []);
        assert_eq!(refusals.worth_turning(&wish, &knobs, 81).masks.len(), 1);
    }
}
