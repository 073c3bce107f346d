//! Standing orders: what the policy last wanted of every knob it named, and who else turns these knobs.
//!
//! A plan names what is to change; what it does not name stays wanted as it was. Knows knobs as values; must not
//! know the policy, the host or time.

use crate::apply::{Place, knobs_of};
use crate::record::{Knob, Problem};
use std::collections::BTreeMap;
use waykeeper_host::{KnobValues, Plan};
use waykeeper_units::GroupId;

/// What is wanted, and what of it was seen in force.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Times a knob is taken back from somebody else before it is left to them.
    take_back: u32,
    wanted: BTreeMap<Place, Knob>,
    /// Knobs that read back as wanted at the end of the last step.
    in_force: BTreeMap<Place, Knob>,
    /// How often somebody else turned one.
    disputes: BTreeMap<Place, u32>,
}

impl Orders {
    /// Nothing ordered yet; a knob is taken back so often.
    pub fn new(take_back: u32) -> Orders {
        Orders { take_back, wanted: BTreeMap::new(), in_force: BTreeMap::new(), disputes: BTreeMap::new() }
    }

    /// Takes in what a policy names, and returns all that is wanted now.
    pub fn add(&mut self, plan: &Plan) -> Plan {
        self.wanted.extend(knobs_of(plan).into_iter().map(|knob| (knob.place(), knob)));
        let mut all = Plan::default();
        for knob in self.wanted.values() {
            knob.put_into(&mut all);
        }
        all
    }

    /// Another policy takes over: it has ordered nothing yet.
    pub fn forget(&mut self) {
        self.wanted.clear();
        self.in_force.clear();
    }

    /// The end of a step: what now stands as wanted is ours.
    pub fn stood(&mut self, knobs: &KnobValues) {
        let standing = |knob: &&Knob| knob.place().standing(knobs) == Some(**knob);
        self.in_force = self.wanted.values().filter(standing).map(|knob| (knob.place(), *knob)).collect();
    }

    /// Compares a reading with what stood at the end of the last step; says who was overruled.
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
