//! What the policy has learnt of the present workloads, for the policy of the next daemon. It must not know how.

use super::super::super::machine::Learnt as LearntBySteps;
use super::{Machine, PhaseMemory, Progress, State, TwinMachine};
use serde::{Deserialize, Serialize};
use waykeeper_host::{Knob, Plan};
use waykeeper_units::WayMask;

/// What is known of the present workloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Learnt {
    /// The knobs before any policy set them.
    found: Plan,
    best: Plan,
    /// Progress under the layout as found in the last phase, measured or foreseen.
    reference: Option<Progress>,
    was_opened: bool,
    phases: PhaseMemory<Plan>,
    /// What the search by measured steps knows, if the policy searches by them.
    by_steps: Option<LearntBySteps>,
}

impl TwinMachine {
    /// What it knows of the present workloads; `None` before the first interval.
    pub fn learnt(&self) -> Option<Learnt> {
        Some(Learnt {
            found: self.found.clone()?,
            best: self.best.clone(),
            reference: self.reference.clone(),
            was_opened: self.was_opened,
            phases: self.memory.clone(),
            by_steps: match &self.state {
                State::Measured(machine) => Some(machine.learnt()),
                _ => None,
            },
        })
    }

    /// Begins with what another machine knew of the same workloads, whose layout is in force. False if that has knobs that
    /// this one may not turn: nothing is used then.
    pub fn recall(&mut self, learnt: Learnt) -> bool {
        if !self.can_set(&learnt.found) || !self.can_set(&learnt.best) {
            return false;
        }
        (self.reference, self.was_opened, self.memory) = (learnt.reference, learnt.was_opened, learnt.phases);
        let is_as_found = learnt.best == learnt.found;
        self.found = Some(learnt.found);
        self.look_at(learnt.best);
        if is_as_found {
            // No knob was turned, or each was turned back.
            self.in_force = Plan::default();
        }
        self.recalls = true;
        if let Some(by_steps) = learnt.by_steps {
            let mut machine = Machine::new(self.config.measured, &self.server.inventory, &self.server.groups);
            machine.recall(by_steps);
            self.state = State::Measured(Box::new(machine));
        }
        true
    }

    /// Whether the layout in force was the best when the present traffic was met before.
    pub fn is_best_of_phase(&self) -> bool {
        self.memory.best(self.phase.start(), &self.server) == Some(&self.best)
    }

    /// Whether a layout names the knobs that this machine sets, with values that they may have.
    fn can_set(&self, layout: &Plan) -> bool {
        let full = WayMask::full(self.server.inventory.known_llc().ways);
        let has_mask = |id| layout.mask(id).is_some_and(|mask| mask.and(full) == mask && !mask.is_empty());
        let mut ports = layout.dca_by_port().map(|(port, _)| port);
        self.server.groups.iter().all(|group| has_mask(group.id))
            && !(layout.names(Knob::DcaWays) && self.limits.dca_ways.is_empty())
            && ports.all(|port| self.limits.switches.contains(&port))
    }
}
