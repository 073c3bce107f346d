//! Original values of the knobs that the loop set, to restore them at its end or when another policy takes over.
//!
//! Knows knobs as values; must not know any policy.

use crate::apply::{Place, knobs_of};
use crate::record::Knob;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{KnobValues, Plan};
use waykeeper_units::GroupId;

/// The original values, the knobs that the current policy set, and the knobs that are to be restored.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    /// Values read before the loop first set the knob.
    found: BTreeMap<Place, Knob>,
    /// Knobs that the current policy set at least once.
    turned: BTreeSet<Place>,
    /// Original values of knobs that earlier policies set. Plans restore them unless the current policy names the knob.
    given_back: BTreeMap<Place, Knob>,
}

impl Ledger {
    /// Takes in the values read back: a knob that was never set still has its original value.
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

    /// Takes in a plan that is about to be applied.
    pub fn turns(&mut self, plan: &Plan) {
        let ours = knobs_of(plan).into_iter().map(Knob::place);
        self.turned.extend(ours.filter(|place| !self.given_back.contains_key(place)));
    }

    /// True if the current policy set the knob.
    pub fn is_turned(&self, place: Place) -> bool {
        self.turned.contains(&place)
    }

    /// Another program owns the knob from now on: the loop will not restore it.
    pub fn disown(&mut self, knob: Knob) {
        self.turned.remove(&knob.place());
        self.found.remove(&knob.place());
    }

    /// Another policy takes over: the knobs that the last one set are restored, except those that the new one names.
    /// Returns how many knobs the last policy set.
    pub fn hand_over(&mut self) -> usize {
        let left = std::mem::take(&mut self.turned);
        let found = &self.found;
        self.given_back.extend(left.iter().filter_map(|place| Some((*place, *found.get(place)?))));
        left.len()
    }

    /// Adds the original values to be restored to a plan. Knobs that the plan names now belong to the current policy.
    pub fn complete(&mut self, plan: &mut Plan) {
        for knob in knobs_of(plan) {
            if self.given_back.remove(&knob.place()).is_some() {
                // An earlier policy set it, so the value that it reads back is not the original one.
                self.turned.insert(knob.place());
            }
        }
        for knob in self.given_back.values() {
            knob.put_into(plan);
        }
    }

    /// Called after the plan that restores everything, with the values read back then. A knob that has its original
    /// value again is done; the others stay remembered, and the next plan restores them. Returns those.
    pub fn settle(&mut self, knobs: &KnobValues) -> Vec<Knob> {
        // Knobs that a plan restored count as set.
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
