//! The order of the steps in each interval.
//!
//! ```text
//! Look --settled--> Ask --answer--> Try --judged--> Try, Ask or Stable
//!   ^                |                                    |
//!   |                +--no answer--> Measured             |
//!   +------------- workloads or phase change -------------+
//! ```
//!
//! It must not know a model, nor how a description is made.

use super::super::event;
use super::super::machine::Machine;
use super::super::memory::PhaseMemory;
use super::super::phase::PhaseDetector;
use super::super::progress::{Gain, Progress};
use super::super::server::Server;
use super::super::settling::Settling;
use super::config::TwinConfig;
use super::forecast::Forecast;
use crate::knobs::RefusedKnobs;
use crate::{Cause, Decision, Event};
use std::collections::{BTreeMap, VecDeque};
use waykeeper_calibration::{
    Calibrator, Candidate, Estimate, Goal, LayoutAnswer, LayoutLimits, LayoutQuestion,
};
use waykeeper_host::{Interval, Inventory, Knob, Plan, Priority, Setting, Workload};
use waykeeper_units::WayMask;

/// Intervals without an answer after which the policy measures instead. Assumption: an answer takes one or two.
const WAIT_MOST: u32 = 8;
/// Layouts in an answer: more than are tried, since some were tried before.
const ANSWERS: usize = 6;

enum State {
    /// Measures the layout in force.
    Look,
    /// Waits for an answer, for so many intervals.
    Ask(u32),
    /// Measures a proposed layout.
    Try(Candidate),
    /// Nothing better is foreseen.
    Stable,
    /// Searches by measured steps.
    Measured(Box<Machine>),
}

/// The whole state of the policy on one server.
pub(super) struct TwinMachine {
    config: TwinConfig,
    server: Server,
    limits: LayoutLimits,
    calibrator: Calibrator,
    phase: PhaseDetector,
    settling: Settling,
    memory: PhaseMemory<Plan>,
    forecast: Forecast,
    refused: RefusedKnobs,
    state: State,
    /// The knobs before the policy set any; `None` before the first interval.
    found: Option<Plan>,
    /// The knobs that the policy wants: empty until it tries a layout.
    in_force: Plan,
    /// The best layout so far and the progress under it.
    best: Plan,
    best_progress: Progress,
    /// Progress under the layout as found, in this phase: measured or foreseen.
    reference: Option<Progress>,
    /// The progress when the last question was asked: what an answer is relative to.
    asked_from: Progress,
    queue: VecDeque<Candidate>,
    /// Layouts tried in this phase.
    tried: Vec<Plan>,
    /// Questions in this phase.
    questions: u32,
    /// The number of the last question, and whether it is still to be answered.
    number: u64,
    is_open: bool,
    answer: Option<LayoutAnswer>,
}

impl TwinMachine {
    pub fn new(config: TwinConfig, inventory: &Inventory, groups: &[Workload]) -> TwinMachine {
        let server = Server::new(config.measured, inventory, groups);
        TwinMachine {
            config,
            limits: waykeeper_calibration::limits(inventory),
            calibrator: Calibrator::new(inventory),
            phase: PhaseDetector::new(),
            settling: Settling::new(&server),
            memory: PhaseMemory::default(),
            forecast: Forecast::default(),
            refused: RefusedKnobs::default(),
            state: State::Look,
            found: None,
            in_force: Plan::default(),
            best: Plan::default(),
            best_progress: Progress::default(),
            reference: None,
            asked_from: Progress::default(),
            queue: VecDeque::new(),
            tried: Vec::new(),
            questions: 0,
            number: 0,
            is_open: false,
            answer: None,
            server,
        }
    }

    /// The knobs of the layout in force.
    pub fn decide(&self, events: Vec<Event>) -> Decision {
        let state = match &self.state {
            State::Look => "Look",
            State::Ask(_) => "Ask",
            State::Try(_) => "Try",
            State::Stable => "Stable",
            State::Measured(machine) => {
                let decision = machine.decide(events);
                return Decision { state: format!("Measured: {}", decision.state), ..decision };
            }
        };
        Decision { plan: self.in_force.clone(), state: state.to_owned(), events }
    }

    /// The answer to the last question.
    pub fn hear(&mut self, answer: &LayoutAnswer) {
        if self.is_open && answer.question == self.number {
            self.is_open = false;
            self.answer = Some(answer.clone());
        }
    }

    /// A question, while the policy waits for an answer and none is open.
    pub fn question(&mut self) -> Option<LayoutQuestion> {
        if self.is_open || self.answer.is_some() || !matches!(self.state, State::Ask(_)) {
            return None;
        }
        let server = self.calibrator.describe()?;
        let found = self.found.clone()?;
        self.number += 1;
        self.questions += 1;
        self.is_open = true;
        self.asked_from = self.best_progress.clone();
        Some(LayoutQuestion {
            number: self.number,
            server,
            limits: self.limits.clone(),
            goal: self.goal(),
            asked: if self.best == found { Vec::new() } else { vec![found] },
            most: ANSWERS,
        })
    }

    /// The goal relative to the layout in force: what HPWs and LPWs have gained or lost since the state as found is
    /// counted in.
    fn goal(&self) -> Goal {
        let since = self.reference.as_ref().map(|reference| self.gain(&self.best_progress, reference));
        let (lpw, worst_hpw) = since.map_or((1.0, 1.0), |gain| (gain.lpw, gain.worst_hpw));
        Goal {
            lpw_floor: (1.0 - self.config.lpw_loss_max) / lpw.max(1e-9),
            gain_per_loss: self.config.gain_per_loss,
            hpw_floor: (1.0 - self.config.measured.hpw_loss_max) / worst_hpw.max(1e-9),
            llc_cost: self.config.measured.llc_cost,
            memory_cost: self.config.measured.memory_cost,
        }
    }

    fn gain(&self, now: &Progress, before: &Progress) -> Gain {
        now.gain(before, &self.server.groups, &self.server.config)
    }

    /// Processes one interval.
    pub fn step(&mut self, groups: &[Workload], seen: &Interval) -> Vec<Event> {
        if self.server.groups != groups {
            return vec![self.groups_changed(groups)];
        }
        if let State::Measured(machine) = &mut self.state {
            return machine.step(groups, seen);
        }
        let found =
            self.found.get_or_insert_with(|| found(groups, seen, &self.server.inventory, &self.limits));
        if self.best.is_empty() {
            self.best = found.clone();
        }
        self.calibrator.observe(groups, seen);
        let mut events = self.refused.drop_mismatches(&mut self.in_force, &seen.knobs);
        if !events.is_empty() {
            self.give_up_knobs();
            return events;
        }
        let progress = Progress::of(groups, seen, &self.server.inventory, &self.server.config);
        if progress.is_empty() {
            return events;
        }
        if let Some(phase) = self.another_phase(&progress, seen) {
            events.push(phase);
            self.look_at(self.best.clone());
            return events;
        }
        let settled = self.settling.step(&progress, &self.server);
        match std::mem::replace(&mut self.state, State::Stable) {
            State::Look => match settled {
                None => self.state = State::Look,
                Some(measured) => self.begin(measured),
            },
            State::Ask(waited) => {
                if let Some(measured) = settled {
                    self.best_progress = self.best_progress.mixed(&measured);
                }
                self.wait(waited, &mut events);
            }
            State::Try(candidate) => match settled {
                None => self.state = State::Try(candidate),
                Some(measured) => self.judge(&candidate, &measured, &mut events),
            },
            State::Stable => {
                if let Some(measured) = settled {
                    self.best_progress = self.best_progress.mixed(&measured);
                }
            }
            State::Measured(machine) => self.state = State::Measured(machine),
        }
        events
    }

    /// A phase begins with the measured progress of the layout in force.
    fn begin(&mut self, measured: Progress) {
        self.phase.begin_phase();
        (self.tried, self.questions) = (vec![self.best.clone()], 0);
        self.queue.clear();
        self.reference = (Some(&self.best) == self.found.as_ref()).then(|| measured.clone());
        self.best_progress = measured;
        if let Some(known) = self.memory.best(self.phase.start(), &self.server)
            && *known != self.best
        {
            // It was best in this phase before; nothing is foreseen of it.
            let one = Estimate { value: 1.0, error: f64::INFINITY };
            let plan = known.clone();
            self.queue.push_back(Candidate { plan, tenants: BTreeMap::new(), hpw: one, lpw: one });
        }
        self.asked_from = self.best_progress.clone();
        self.ask();
    }

    fn ask(&mut self) {
        (self.is_open, self.answer) = (false, None);
        self.state = State::Ask(0);
    }

    /// Takes the answer if it is there.
    fn wait(&mut self, waited: u32, events: &mut Vec<Event>) {
        match self.answer.take() {
            Some(answer) => self.take(answer, events),
            None if waited < WAIT_MOST => self.state = State::Ask(waited + 1),
            None => self.measure("the model has not answered", events),
        }
    }

    fn take(&mut self, answer: LayoutAnswer, events: &mut Vec<Event>) {
        if let (None, Some(as_found)) = (&self.reference, answer.asked.first()) {
            let ratios = as_found.tenants.iter().map(|(id, ratio)| (*id, ratio.value)).collect();
            self.reference = Some(self.best_progress.scaled(&ratios));
        }
        if let Some(found) = self.found.clone()
            && self.best != found
            && self
                .reference
                .as_ref()
                .is_some_and(|reference| !self.is_allowed(&self.gain(&self.best_progress, reference)))
        {
            let text = "the layout costs LPWs more than HPWs gain: back to the layout as found".to_owned();
            events.push(event("release", text, Vec::new()));
            self.look_at(found);
            return;
        }
        let foreseen = self.worth_trying(answer, events);
        self.queue.extend(foreseen);
        self.next(events);
    }

    /// The candidates of an answer that are foreseen to gain, and that were not tried in this phase.
    fn worth_trying(&self, answer: LayoutAnswer, events: &mut Vec<Event>) -> Vec<Candidate> {
        let weight = self.server.config.lpw_weight;
        let needed = self.server.config.min_gain.max(self.settling.tolerance());
        let unpredictable = self.forecast.unpredictable();
        let is_kept = |candidate: &Candidate| {
            unpredictable.iter().all(|id| candidate.plan.mask(*id) == self.best.mask(*id))
        };
        let total = |candidate: &Candidate| candidate.hpw.value.ln() + weight * candidate.lpw.value.ln();
        let simulated = answer.simulated;
        let new = answer.best.into_iter().filter(|candidate| !self.tried.contains(&candidate.plan));
        let chosen: Vec<Candidate> = new
            .filter(|candidate| is_kept(candidate) && total(candidate) > needed)
            .take(self.config.tries_max as usize)
            .collect();
        if chosen.is_empty() {
            let text = format!("none of {simulated} simulated layouts is foreseen to be better");
            events.push(event("foresee", text, Vec::new()));
        }
        chosen
    }

    /// Tries the next layout, asks again, or is done.
    fn next(&mut self, events: &mut Vec<Event>) {
        self.settling.restart();
        if let Some(candidate) = self.queue.pop_front() {
            let what = self.changes(&self.best, &candidate.plan);
            let text = match candidate.hpw.error.is_finite() {
                true => format!("try {what}: foreseen are {}", expected(&candidate)),
                false => format!("try {what}: it was best in this phase before"),
            };
            events.push(event("try", text, causes(&candidate)));
            self.tried.push(candidate.plan.clone());
            self.in_force = candidate.plan.clone();
            self.state = State::Try(candidate);
            return;
        }
        if self.in_force != self.best
            && !(self.in_force.is_empty() && Some(&self.best) == self.found.as_ref())
        {
            self.in_force = self.best.clone();
        }
        let text = format!("settled; layouts tried in this phase: {}", self.tried.len() - 1);
        events.push(event("settle", text, Vec::new()));
        self.phase.reset_streak();
        self.memory.remember(self.phase.start(), &self.best, &self.server);
        self.state = State::Stable;
    }

    /// Keeps or drops the layout that was tried.
    fn judge(&mut self, candidate: &Candidate, measured: &Progress, events: &mut Vec<Event>) {
        let gain = self.gain(measured, &self.best_progress);
        let needed = self.server.config.min_gain.max(self.settling.tolerance());
        let is_allowed =
            self.reference.as_ref().is_none_or(|reference| self.is_allowed(&self.gain(measured, reference)));
        let what = self.changes(&self.best, &candidate.plan);
        let since = self.gain(measured, &self.asked_from);
        let said = match candidate.hpw.error.is_finite() {
            true => format!(
                "{}; measured are {}",
                expected(candidate),
                percents(since.hpw - 1.0, since.lpw - 1.0)
            ),
            false => format!("measured are {}", percents(since.hpw - 1.0, since.lpw - 1.0)),
        };
        let (action, verb) = match gain.all > needed && is_allowed {
            true => ("keep", "keep"),
            false => ("drop", "drop"),
        };
        events.push(event(action, format!("{verb} {what}: expected are {said}"), causes(candidate)));
        if action == "keep" {
            (self.best, self.best_progress) = (candidate.plan.clone(), measured.clone());
        }
        let limit = self.config.prediction_error_max;
        let lost = self.forecast.note(candidate, measured, &self.asked_from, limit);
        for (id, error) in &lost {
            let name =
                self.server.groups.iter().find(|group| group.id == *id).map_or("", |group| &group.name);
            let cause = Cause {
                what: format!("error of the progress of {name}"),
                value: *error,
                limit: Some(("prediction_error_max".to_owned(), limit)),
            };
            let text = format!("{name} is not predictable: its mask stays");
            events.push(event("not-predictable", text, vec![cause]));
        }
        let is_hpw = |id| self.server.groups.iter().any(|g| g.id == id && g.priority == Priority::High);
        if lost.iter().any(|(id, _)| is_hpw(*id)) {
            self.measure("an HPW was foreseen wrongly", events);
            return;
        }
        if self.queue.is_empty() && self.questions < self.config.questions_max {
            // What was measured refines the description.
            if action == "drop" {
                self.in_force = self.best.clone();
            }
            self.settling.restart();
            self.ask();
        } else {
            self.next(events);
        }
    }

    /// Whether LPWs lost no more since the state as found than they may, and no HPW lost too much.
    fn is_allowed(&self, since: &Gain) -> bool {
        let cores = |priority| {
            let groups = self.server.groups.iter().filter(|group| group.priority == priority);
            groups.map(|group| group.cores.len().max(1) as f64).sum::<f64>()
        };
        let gained = since.hpw.ln() * cores(Priority::High);
        let lost = -since.lpw.ln() * cores(Priority::Low);
        let is_paid =
            since.lpw >= 1.0 - self.config.lpw_loss_max || gained >= self.config.gain_per_loss * lost;
        is_paid && since.worst_hpw >= 1.0 - self.config.measured.hpw_loss_max
    }

    /// An event if the traffic differs from that at the start of the phase, or an HPW lost progress.
    fn another_phase(&mut self, progress: &Progress, seen: &Interval) -> Option<Event> {
        let change = self.phase.observe(seen, &self.server);
        let change = match self.state {
            State::Look | State::Measured(_) => return None,
            State::Ask(_) | State::Try(_) => change,
            State::Stable => {
                let loss = 1.0 - self.gain(progress, &self.best_progress).worst_hpw;
                change.or_hpw_loss(loss, &self.server)
            }
        };
        self.phase.confirm(change)
    }

    /// Measures a layout as if nothing had been tried.
    fn look_at(&mut self, layout: Plan) {
        (self.in_force, self.best) = (layout.clone(), layout);
        self.queue.clear();
        (self.is_open, self.answer) = (false, None);
        self.settling.restart();
        self.phase.reset_streak();
        self.state = State::Look;
    }

    /// Searches by measured steps from now on, until workloads start or end.
    fn measure(&mut self, why: &str, events: &mut Vec<Event>) {
        events.push(event(
            "measured-steps",
            format!("{why}: the policy searches by measured steps"),
            Vec::new(),
        ));
        let machine = Machine::new(self.config.measured, &self.server.inventory, &self.server.groups);
        self.state = State::Measured(Box::new(machine));
    }

    /// Knobs that read back differently are out of the plan already: no later layout names them.
    fn give_up_knobs(&mut self) {
        if !self.in_force.names(Knob::DcaWays) {
            self.limits.dca_ways.clear();
        }
        let named = |port: &waykeeper_units::PortId| self.in_force.names(Knob::Dca(*port));
        self.limits.switches.retain(named);
        self.best = self.in_force.clone();
        self.memory.clear();
        self.look_at(self.best.clone());
    }

    fn groups_changed(&mut self, groups: &[Workload]) -> Event {
        let text = self.server.difference(groups);
        self.server.groups = groups.to_vec();
        self.memory.clear();
        self.forecast = Forecast::default();
        let full = WayMask::full(self.server.inventory.llc.ways);
        let alive = |plan: &mut Plan| {
            plan.retain(|knob, _| knob.workload().is_none_or(|id| groups.iter().any(|g| g.id == id)));
            for group in groups {
                if !plan.names(Knob::Mask(group.id)) {
                    plan.insert(Knob::Mask(group.id), full);
                }
            }
        };
        let mut layout = self.best.clone();
        alive(&mut layout);
        if let Some(found) = &mut self.found {
            alive(found);
        }
        self.look_at(layout);
        event("workloads", text, Vec::new())
    }

    /// The differences of two layouts, in words.
    fn changes(&self, before: &Plan, after: &Plan) -> String {
        let (groups, inventory) = (&self.server.groups, &self.server.inventory);
        let changed = after.settings().filter(|setting| before.setting(setting.knob) != Some(*setting));
        let said: Vec<String> = changed
            .map(|changed| match (changed.knob, changed.setting) {
                (Knob::Mask(id), setting) => {
                    let name =
                        groups.iter().find(|g| g.id == id).map_or_else(|| id.to_string(), |g| g.name.clone());
                    format!("{name} {setting}")
                }
                (Knob::Dca(port), Setting::Switch(on)) => {
                    let device = inventory.devices.iter().find(|device| device.ports.contains(&port));
                    let name = device.map_or_else(|| port.to_string(), |device| device.name.clone());
                    format!("DCA {} for {name}", if on { "on" } else { "off" })
                }
                _ => changed.to_string(),
            })
            .collect();
        if said.is_empty() { "nothing changes".to_owned() } else { said.join(", ") }
    }
}

/// The knobs as found: masks, and the DCA knobs that can be turned.
fn found(groups: &[Workload], seen: &Interval, inventory: &Inventory, limits: &LayoutLimits) -> Plan {
    let full = WayMask::full(inventory.llc.ways);
    let masks = groups.iter().map(|group| (group.id, seen.knobs.mask(group.id).unwrap_or(full)));
    let mut plan = Plan::of_masks(masks);
    let ways = seen.knobs.dca_ways().or(inventory.dca_ways_default);
    if let Some(ways) = ways.filter(|_| !limits.dca_ways.is_empty()) {
        plan.insert(Knob::DcaWays, ways);
    }
    for port in &limits.switches {
        plan.insert(Knob::Dca(*port), seen.knobs.dca(*port).unwrap_or(true));
    }
    plan
}

/// `HPWs +12.0 %, LPWs -1.0 %`.
fn percents(hpw: f64, lpw: f64) -> String {
    format!("HPWs {:+.1} %, LPWs {:+.1} %", 100.0 * hpw, 100.0 * lpw)
}

/// `HPWs +12.0 +- 4.0 %, LPWs -1.0 +- 0.5 %`.
fn expected(candidate: &Candidate) -> String {
    let percent = |it: Estimate| format!("{:+.1} +- {:.1} %", 100.0 * (it.value - 1.0), 100.0 * it.error);
    format!("HPWs {}, LPWs {}", percent(candidate.hpw), percent(candidate.lpw))
}

fn causes(candidate: &Candidate) -> Vec<Cause> {
    let cause = |what: &str, value| Cause { what: what.to_owned(), value, limit: None };
    if !candidate.hpw.error.is_finite() {
        return Vec::new();
    }
    vec![
        cause("foreseen progress of HPWs", candidate.hpw.value),
        cause("its error", candidate.hpw.error),
        cause("foreseen progress of LPWs", candidate.lpw.value),
    ]
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
