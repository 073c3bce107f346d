//! Who turned what: the values knobs had before the loop turned them, for when one policy follows another.
//!
//! Knows knobs as values; must not know any policy.

use crate::apply::{Place, knobs_of};
use crate::record::Knob;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{KnobValues, Plan};
use waykeeper_units::GroupId;

/// What stood before, what was turned since, and what nobody wants any more.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    /// Values as found, before anything was turned there.
    found: BTreeMap<Place, Knob>,
    /// Turned at least once by the policy in charge.
    turned: BTreeSet<Place>,
    /// Values that predecessors' knobs go back to, as long as the policy in charge does not name them.
    given_back: BTreeMap<Place, Knob>,
}

impl Ledger {
    /// Takes in a reading: what was never turned reads as it was found.
    pub fn saw(&mut self, knobs: &KnobValues) {
        let all = Plan {
            masks: knobs.masks.clone(),
            dca_ways: knobs.dca_ways,
            dca: knobs.dca.clone(),
            rx_ring: knobs.rx_ring.clone(),
            rx_burst: knobs.rx_burst.clone(),
        };
        for knob in knobs_of(&all) {
            let place = knob.place();
            if !self.turned.contains(&place) && !self.given_back.contains_key(&place) {
                self.found.insert(place, knob);
            }
        }
    }

    /// Takes in a plan that is handed to the machine.
    pub fn turns(&mut self, plan: &Plan) {
        let ours = knobs_of(plan).into_iter().map(Knob::place);
        self.turned.extend(ours.filter(|place| !self.given_back.contains_key(place)));
    }

    /// True if the policy in charge turned it.
    pub fn is_turned(&self, place: Place) -> bool {
        self.turned.contains(&place)
    }

    /// A knob is left to somebody else: it is not ours to put back.
    pub fn disown(&mut self, knob: Knob) {
        self.turned.remove(&knob.place());
        self.found.remove(&knob.place());
    }

    /// Another policy takes over: what the last one turned goes back to what was found, as far as the new
    /// one does not name it. Returns how many knobs were its predecessor's.
    pub fn hand_over(&mut self) -> usize {
        let left = std::mem::take(&mut self.turned);
        let found = &self.found;
        self.given_back.extend(left.iter().filter_map(|place| Some((*place, *found.get(place)?))));
        left.len()
    }

    /// Puts what goes back under a plan; what the plan names is the policy's from now on.
    pub fn complete(&mut self, plan: &mut Plan) {
        for knob in knobs_of(plan) {
            if self.given_back.remove(&knob.place()).is_some() {
                // It was turned before, by a predecessor: what reads back is not what was found.
                self.turned.insert(knob.place());
            }
        }
        for knob in self.given_back.values() {
            knob.put_into(plan);
        }
    }

    /// Everything was to go back, and this is how it reads now: what reads as it was found is done with. The rest, as it was
    /// found, stays remembered: it goes back with whatever plan comes next.
    pub fn settle(&mut self, knobs: &KnobValues) -> Vec<Knob> {
        // What was put into a plan to go back counts as turned.
        self.hand_over();
        self.given_back.retain(|place, knob| place.standing(knobs) != Some(*knob));
        self.found.retain(|place, _| self.given_back.contains_key(place));
        self.given_back.values().copied().collect()
    }

    /// Forgets groups that are gone.
    pub fn keep_groups(&mut self, alive: impl Fn(GroupId) -> bool) {
        let keep = |place: &Place| place.is_alive(&alive);
        self.found.retain(|place, _| keep(place));
        self.given_back.retain(|place, _| keep(place));
        self.turned.retain(|place| keep(place));
    }
}
