//! The order of the steps in each interval, and the knobs that turned out to have no effect.
//!
//! ```text
//! Look --settled--> Try --nothing left--> Stable --recheck--> Try
//!   ^                                       |
//!   +------- workloads or phase change -----+
//! ```
//!
//! It must not know masks, or the papers' thresholds, which are in [`super::config`].

use super::config::Config;
use super::event;
use super::layout::Layout;
use super::memory::PhaseMemory;
use super::phase::PhaseDetector;
use super::progress::Progress;
use super::recheck::Recheck;
use super::search::{Search, State};
use super::server::Server;
use super::settling::Settling;
use crate::{Decision, Event};
use serde::{Deserialize, Serialize};
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_units::PortId;

/// Steps in a row in which a knob must read back as another value before the policy gives it up. Assumption: a single
/// reading may happen while the knob is written.
const MISMATCH_STEPS: u32 = 2;

/// The text of the event where nothing is tried.
pub(super) const RECALLED: &str =
    "the layout of the daemon before was its best in this phase: nothing is tried";

/// The whole state of the policy on one server.
pub(super) struct Machine {
    server: Server,
    phase: PhaseDetector,
    settling: Settling,
    search: Search,
    memory: PhaseMemory,
    recheck: Recheck,
    /// Steps in a row in which a knob read back as another value.
    mismatch_streak: u32,
    /// The layout in force is another machine's best; whether it is that of the present phase is not known yet.
    recalls: bool,
}

/// What is known of the present workloads, for another machine with them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Learnt {
    best: Layout,
    phases: PhaseMemory,
}

impl Machine {
    pub fn new(config: Config, inventory: &Inventory, groups: &[Workload]) -> Machine {
        let server = Server::new(config, inventory, groups);
        Machine {
            phase: PhaseDetector::new(),
            settling: Settling::new(&server),
            search: Search::new(server.limits.first(groups)),
            memory: PhaseMemory::default(),
            recheck: Recheck::new(config.recheck),
            mismatch_streak: 0,
            recalls: false,
            server,
        }
    }

    /// What it knows of the present workloads.
    pub fn learnt(&self) -> Learnt {
        Learnt { best: self.search.best().clone(), phases: self.memory.clone() }
    }

    /// Begins with what another machine knew of the same workloads.
    pub fn recall(&mut self, learnt: Learnt) {
        self.memory = learnt.phases;
        self.look_at(self.server.limits.fitted(learnt.best));
        self.recalls = true;
    }

    /// The knobs of the layout in force.
    pub fn decide(&self, events: Vec<Event>) -> Decision {
        let plan = self.server.limits.plan(self.search.in_force(), &self.server.groups);
        Decision { plan, state: self.search.state().name().to_owned(), events }
    }

    /// Processes one interval.
    pub fn step(&mut self, groups: &[Workload], seen: &Interval) -> Vec<Event> {
        let mut events = Vec::new();
        self.give_up_dead_knobs(seen, &mut events);
        if self.server.groups != groups {
            events.push(self.groups_changed(groups));
            return events;
        }
        let progress = Progress::of(groups, seen, &self.server.inventory, &self.server.config);
        if progress.is_empty() {
            return events;
        }
        if let Some(phase) = self.another_phase(&progress, seen) {
            events.push(phase);
            self.look_at(self.search.best().clone());
            return events;
        }
        let Some(settled) = self.settling.step(&progress, &self.server) else { return events };
        match self.search.state().clone() {
            State::Look => {
                self.phase.begin_phase();
                let known = self.memory.best(self.phase.start(), &self.server).cloned();
                if std::mem::take(&mut self.recalls) && known.as_ref() == Some(self.search.best()) {
                    self.search.rest(settled);
                    self.recheck.settled();
                    events.push(event("settle", RECALLED.to_owned(), Vec::new()));
                } else {
                    self.search.begin(settled, known, &self.server.view(seen));
                    self.next(&mut events);
                }
            }
            State::Try(tried) => {
                let (noise, view) = (self.settling.tolerance(), self.server.view(seen));
                events.push(self.search.judge(&tried, settled, noise, &view));
                self.next(&mut events);
            }
            State::Stable => self.watch(&settled, seen, &mut events),
        }
        events
    }

    /// An event if the traffic of programs or devices differs from that at the start of the phase, or an HPW lost
    /// progress. The policy then measures again.
    fn another_phase(&mut self, progress: &Progress, seen: &Interval) -> Option<Event> {
        let change = self.phase.observe(seen, &self.server);
        let change = match self.search.state() {
            State::Look => return None,
            State::Try(_) => change,
            State::Stable => {
                let (groups, config) = (&self.server.groups, &self.server.config);
                let loss = 1.0 - progress.gain(self.search.best_progress(), groups, config).worst_hpw;
                change.or_hpw_loss(loss, &self.server)
            }
        };
        self.phase.confirm(change)
    }

    /// In Stable: tries layouts that a counter newly asks for; at growing intervals undoes one restriction to see
    /// whether it still helps.
    fn watch(&mut self, measured: &Progress, seen: &Interval, events: &mut Vec<Event>) {
        self.search.refine(measured);
        let view = self.server.view(seen);
        let requests = self.search.requests(&view);
        if self.recheck.confirm_request(!requests.is_empty()) {
            self.search.resume(requests);
            self.next(events);
        } else if let Some(which) = self.recheck.due()
            && let Some(release) = self.search.release(which, &view)
        {
            self.search.resume([release]);
            self.next(events);
        }
    }

    /// Puts the next layout in force, or remembers the best one if none is left.
    fn next(&mut self, events: &mut Vec<Event>) {
        let before = self.search.in_force().clone();
        self.search.next(&self.server, events);
        if *self.search.state() == State::Stable {
            self.recheck.settled();
            self.phase.reset_streak();
            self.memory.remember(self.phase.start(), self.search.best(), &self.server);
        }
        if *self.search.in_force() != before {
            self.settling.restart();
        }
        self.server.limits.note_in_force(self.search.in_force());
    }

    /// Measures a layout as if the search had not begun.
    fn look_at(&mut self, layout: Layout) {
        self.server.limits.note_in_force(&layout);
        self.search.look_at(layout);
        self.settling.restart();
        self.phase.reset_streak();
        self.recheck = Recheck::new(self.server.config.recheck);
    }

    /// Workloads started, ended or changed class: the best layout is kept, without trash entries of ended ones.
    /// Remembered phases are forgotten.
    fn groups_changed(&mut self, groups: &[Workload]) -> Event {
        let text = self.server.difference(groups);
        self.server.groups = groups.to_vec();
        let mut layout = self.search.best().clone();
        layout.trash.retain(|id| groups.iter().any(|group| group.id == *id));
        self.start_over(&layout);
        event("workloads", text, Vec::new())
    }

    /// Stops setting a knob that keeps reading back as another value. Adopts DCA ways that another program set before
    /// the policy first set them.
    fn give_up_dead_knobs(&mut self, seen: &Interval, events: &mut Vec<Event>) {
        if let Some(found) = seen.knobs.dca_ways()
            && self.server.limits.adopt_dca(found)
        {
            events.push(event("dca-ways", format!("DCA ways were set to {found} by hand"), Vec::new()));
            self.start_over(&self.search.best().clone());
            return;
        }
        let wanted = self.server.limits.plan(self.search.in_force(), &self.server.groups);
        let ways = wanted.dca_ways().zip(seen.knobs.dca_ways()).filter(|(wanted, found)| wanted != found);
        let differs = |(port, on): &(PortId, bool)| seen.knobs.dca(*port).is_some_and(|found| found != *on);
        let ports: Vec<PortId> = wanted.dca_by_port().filter(differs).map(|(port, _)| port).collect();
        let mismatch = ways.is_some() || !ports.is_empty();
        self.mismatch_streak = if mismatch { self.mismatch_streak + 1 } else { 0 };
        if self.mismatch_streak < MISMATCH_STEPS {
            return;
        }
        self.mismatch_streak = 0;
        let mut dead = Vec::new();
        if let Some((wanted, found)) = ways {
            self.server.limits.can_size_dca = false;
            dead.push(format!("DCA ways {wanted} did not take effect, {found} reads back"));
        }
        for port in ports {
            self.server.limits.switches.remove(&port);
            dead.push(format!("the DCA switch of {port} has no effect"));
        }
        events.extend(dead.into_iter().map(|text| event("dead-knob", text, Vec::new())));
        self.start_over(&self.search.best().clone());
    }

    /// Workloads or limits of the chip changed: fits the layout to them and measures it. Remembered phases are
    /// forgotten.
    fn start_over(&mut self, layout: &Layout) {
        self.memory.clear();
        self.look_at(self.server.limits.fitted(layout.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{interval, server};
    use super::*;
    use waykeeper_host::Knob;

    #[test]
    fn a_switch_that_reads_back_differently_twice_is_not_set_any_more() {
        let Server { config, inventory, groups, .. } = server(2);
        let mut machine = Machine::new(config, &inventory, &groups);
        let port = inventory.ports[0].id;
        let mut seen = interval(&[1.0, 1.0], 1e9);
        seen.knobs.insert(Knob::Dca(port), false);
        assert!(machine.step(&groups, &seen).is_empty());
        let events = machine.step(&groups, &seen);
        assert_eq!(events[0].text, "the DCA switch of port 0 has no effect");
        let decision = machine.decide(events);
        assert_eq!((decision.plan.dca(port), decision.state.as_str()), (None, "Look"));
    }
}
