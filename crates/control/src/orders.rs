//! The values that the policy wants for all knobs it has named so far, and how often other programs changed them.
//!
//! A plan names only changes; a knob that it does not name keeps its last wanted value. Knows knobs as values; must not
//! know the policy, the host or time.

use crate::apply::{Place, knobs_of};
use crate::record::{Knob, Problem};
use std::collections::BTreeMap;
use waykeeper_host::{KnobValues, Plan};
use waykeeper_units::GroupId;

/// The wanted values, and which of them were in force.
#[derive(Debug)]
pub(crate) struct Orders {
    /// How many external changes of a knob are corrected before one is accepted.
    take_back: u32,
    wanted: BTreeMap<Place, Knob>,
    /// Knobs that read back the wanted value at the end of the last step.
    in_force: BTreeMap<Place, Knob>,
    /// External changes so far, per knob.
    disputes: BTreeMap<Place, u32>,
}

impl Orders {
    /// No wanted values yet; `take_back` corrections per knob.
    pub fn new(take_back: u32) -> Orders {
        Orders { take_back, wanted: BTreeMap::new(), in_force: BTreeMap::new(), disputes: BTreeMap::new() }
    }

    /// Adds the knobs that a policy names, and returns all wanted values.
    pub fn add(&mut self, plan: &Plan) -> Plan {
        self.wanted.extend(knobs_of(plan).into_iter().map(|knob| (knob.place(), knob)));
        let mut all = Plan::default();
        for knob in self.wanted.values() {
            knob.put_into(&mut all);
        }
        all
    }

    /// Another policy takes over: it has named no knobs yet.
    pub fn forget(&mut self) {
        self.wanted.clear();
        self.in_force.clear();
    }

    /// Called at the end of a step: remembers which knobs have the wanted value.
    pub fn stood(&mut self, knobs: &KnobValues) {
        let standing = |knob: &&Knob| knob.place().standing(knobs) == Some(**knob);
        self.in_force = self.wanted.values().filter(standing).map(|knob| (knob.place(), *knob)).collect();
    }

    /// Compares a reading with the values at the end of the last step, and returns a problem per external change.
    pub fn disturbed(&mut self, knobs: &KnobValues) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (place, knob) in std::mem::take(&mut self.in_force) {
            let Some(found) = place.standing(knobs).filter(|found| *found != knob) else {
                continue;
            };
            let times = self.disputes.entry(place).or_default();
            *times += 1;
            problems.push(Problem::Outsider { knob, found, left: *times > self.take_back });
        }
        problems
    }

    /// Forgets groups that are gone.
    pub fn keep_groups(&mut self, alive: impl Fn(GroupId) -> bool) {
        let keep = |place: &Place| place.is_alive(&alive);
        self.wanted.retain(|place, _| keep(place));
        self.in_force.retain(|place, _| keep(place));
        self.disputes.retain(|place, _| keep(place));
    }
}
