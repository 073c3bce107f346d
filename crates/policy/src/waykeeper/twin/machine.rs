//! The order of the steps in each interval.
//!
//! ```text
//! Look --settled--> Ask --answer--> Try --judged--> Ask or Stable
//!   ^                |                                  |
//!   |                +--no answer--> Measured           |
//!   +------------- workloads or phase change -----------+
//! ```
//!
//! It must not know a model, nor how a description is made.

mod learnt;

use super::super::event;
use super::super::machine::{Machine, RECALLED};
use super::super::memory::PhaseMemory;
use super::super::phase::PhaseDetector;
use super::super::progress::{Gain, Progress};
use super::super::server::Server;
use super::super::settling::Settling;
use super::apart;
use super::config::TwinConfig;
use super::forecast::Forecast;
use super::layouts::{allowed, foreseen, found, score, unforeseen};
use super::words::{causes, changes, expected, percents};
use crate::knobs::RefusedKnobs;
use crate::{Cause, Decision, Event};
pub(super) use learnt::Learnt;
use std::collections::{BTreeMap, VecDeque};
use waykeeper_calibration::{Calibrator, Candidate, GoalScore, LayoutAnswer, LayoutLimits, LayoutQuestion};
use waykeeper_host::{Interval, Inventory, Knob, Plan, Workload};
use waykeeper_units::WayMask;

/// Intervals without an answer after which the policy measures instead. Assumption: an answer takes one or two, or more on a
/// server whose CPUs are all busy; waiting costs nothing, since the layout in force stays.
pub(super) const WAIT_MOST: u32 = 30;
/// Questions in turn whose layout was dropped and whose HPWs were foreseen wrongly, after which none is asked. Assumption:
/// one may be chance.
const FAILURES: u32 = 2;
/// Gain of HPWs that must be foreseen for a layout to be tried before HPWs were once apart from LPWs. Assumption: less is
/// within the errors of a description by one layout.
const CLEAR: f64 = 0.03;
/// Intervals with a question that was not taken, after which there is no model.
const UNASKED: u32 = 2;
/// Layouts in an answer: more than are tried, since some were tried before.
pub(super) const ANSWERS: usize = 6;

enum State {
    /// Measures the layout in force.
    Look,
    /// Waits for an answer, for so many intervals.
    Ask(u32),
    /// Measures a proposed layout.
    Try(Candidate),
    /// Nothing better is foreseen.
    Stable,
    /// Puts the layout as found back, from which it then searches by measured steps.
    Return,
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
    /// Whether these workloads were measured with the open LLC: the calibrator then knows them with all ways.
    was_opened: bool,
    /// Questions in this phase, and the last ones in turn whose layout was dropped and whose HPWs were foreseen wrongly.
    questions: u32,
    failures: u32,
    /// The number of the last question, and whether it is still to be answered.
    number: u64,
    is_open: bool,
    /// The layout in force is another machine's best; whether it is that of the present phase is not known yet.
    recalls: bool,
    /// Intervals in which there was a question that was not taken.
    unasked: u32,
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
            was_opened: false,
            questions: 0,
            failures: 0,
            number: 0,
            is_open: false,
            recalls: false,
            unasked: 0,
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
            State::Return => "Return",
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
        let found = self.found.clone().filter(|found| *found != self.best);
        let asked = found.into_iter().chain(self.apart()).collect();
        self.number += 1;
        self.questions += 1;
        self.is_open = true;
        self.asked_from = self.best_progress.clone();
        let since_found = self.reference.as_ref().map_or_else(BTreeMap::new, |reference| {
            let ratio = |group: &Workload| Some((group.id, self.best_progress.ratio(reference, group.id)?));
            self.server.groups.iter().filter_map(ratio).collect()
        });
        Some(LayoutQuestion {
            number: self.number,
            limits: allowed(&self.limits, &server, &self.config),
            server,
            goal: self.config.goal(),
            since_found,
            kept: self.forecast.unpredictable(),
            asked,
            most: ANSWERS,
        })
    }

    /// How well this progress serves the goal.
    fn score(&self, now: &Progress, found: &Progress) -> GoalScore {
        score(&self.config.goal(), &self.server.groups, |id| now.ratio(found, id))
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
                Some(measured) => self.begin(measured, &mut events),
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
            State::Return => self.state = self.measured(),
            State::Measured(machine) => self.state = State::Measured(machine),
        }
        events
    }

    /// A phase begins with the measured progress of the layout in force.
    fn begin(&mut self, measured: Progress, events: &mut Vec<Event>) {
        self.phase.begin_phase();
        (self.tried, self.questions, self.failures) = (vec![self.best.clone()], 0, 0);
        self.queue.clear();
        if std::mem::take(&mut self.recalls) && self.is_best_of_phase() {
            self.best_progress = measured;
            events.push(event("settle", RECALLED.to_owned(), Vec::new()));
            self.state = State::Stable;
            return;
        }
        let is_as_found = Some(&self.best) == self.found.as_ref();
        self.reference = is_as_found.then(|| measured.clone());
        self.best_progress = measured;
        self.asked_from = self.best_progress.clone();
        // What was best in this phase before, and once, where the layout as found restricts a workload, the open LLC:
        // one layout alone says little of what a workload would do with more ways.
        let known = self.memory.best(self.phase.start(), &self.server).cloned();
        let open = (is_as_found && !std::mem::replace(&mut self.was_opened, true)).then(|| self.open());
        for plan in known.into_iter().chain(open).filter(|plan| *plan != self.best) {
            if self.queue.iter().all(|queued| queued.plan != plan) {
                self.queue.push_back(unforeseen(plan));
            }
        }
        match self.queue.is_empty() {
            true => self.ask(),
            false => self.next(events),
        }
    }

    /// The layout with HPWs apart from LPWs, if it was not tried in this phase and may help.
    fn apart(&self) -> Option<Plan> {
        let plan = apart::apart(&self.best, self.found.as_ref()?, &self.server)?;
        let is_new = !self.tried.contains(&plan);
        (is_new && apart::may_help(&self.calibrator.describe()?)).then_some(plan)
    }

    /// Whether LPWs together are foreseen to lose more under this layout than they may, also if the error is in their
    /// favour.
    fn costs_too_much(&self, layout: &Plan, foreseen: &[Candidate]) -> bool {
        let Some(candidate) = foreseen.iter().find(|candidate| candidate.plan == *layout) else {
            return false;
        };
        let so_far =
            self.reference.as_ref().map_or(1.0, |reference| self.gain(&self.best_progress, reference).lpw);
        so_far * (candidate.lpw.value + candidate.lpw.error) < self.config.goal().lpw_floor
    }

    /// The layout as found with all ways for all workloads.
    fn open(&self) -> Plan {
        let mut open = self.best.clone();
        let full = WayMask::full(self.server.inventory.known_llc().ways);
        self.server.groups.iter().for_each(|group| open.insert(Knob::Mask(group.id), full));
        open
    }

    fn ask(&mut self) {
        (self.is_open, self.answer, self.unasked) = (false, None, 0);
        self.state = State::Ask(0);
    }

    /// Takes the answer if it is there.
    fn wait(&mut self, waited: u32, events: &mut Vec<Event>) {
        match self.answer.take() {
            Some(answer) => self.take(answer, events),
            None => {
                let could_ask = !self.is_open && self.calibrator.describe().is_some();
                self.unasked += u32::from(could_ask);
                if self.unasked > UNASKED {
                    self.measure("there is no model", events);
                } else if waited < WAIT_MOST {
                    self.state = State::Ask(waited + 1);
                } else {
                    self.measure("the model has not answered", events);
                }
            }
        }
    }

    fn take(&mut self, answer: LayoutAnswer, events: &mut Vec<Event>) {
        let as_found = answer.asked.iter().find(|candidate| Some(&candidate.plan) == self.found.as_ref());
        if let (None, Some(as_found)) = (&self.reference, as_found) {
            let ratios = as_found.tenants.iter().map(|(id, ratio)| (*id, ratio.value)).collect();
            self.reference = Some(self.best_progress.scaled(&ratios));
        }
        if let Some(found) = self.found.clone()
            && self.best != found
            && self
                .reference
                .as_ref()
                .is_some_and(|reference| self.score(&self.best_progress, reference).shortfall > self.noise())
        {
            let text = "the layout costs more than it may: back to the layout as found".to_owned();
            events.push(event("release", text, Vec::new()));
            self.look_at(found);
            return;
        }
        let apart = self.apart().filter(|apart| !self.costs_too_much(apart, &answer.asked));
        let foreseen = self.worth_trying(answer, events);
        let is_clear = foreseen.iter().any(|candidate| candidate.hpw.value - 1.0 > CLEAR);
        if !is_clear && let Some(apart) = apart {
            self.queue.push_back(unforeseen(apart));
        } else {
            self.queue.extend(foreseen);
        }
        self.next(events);
    }

    /// The candidates of an answer that are foreseen to gain, and that were not tried in this phase.
    fn worth_trying(&self, answer: LayoutAnswer, events: &mut Vec<Event>) -> Vec<Candidate> {
        let needed = self.needed();
        let goal = self.config.goal();
        let simulated = answer.simulated;
        let new = answer.best.into_iter().filter(|candidate| !self.tried.contains(&candidate.plan));
        let chosen: Vec<Candidate> = new
            .filter(|candidate| foreseen(candidate, &self.server.groups, &goal).value > needed)
            .take(self.config.tries_max as usize)
            .collect();
        if chosen.is_empty() {
            let text = format!("none of {simulated} simulated layouts is foreseen to be better");
            events.push(event("foresee", text, Vec::new()));
        }
        chosen
    }

    /// A change of progress that noise may cause.
    fn noise(&self) -> f64 {
        self.settling.tolerance()
    }

    /// The least gain that is worth a change.
    fn needed(&self) -> f64 {
        self.server.config.min_gain.max(self.noise())
    }

    /// Tries the next layout, asks again, or is done.
    fn next(&mut self, events: &mut Vec<Event>) {
        self.settling.restart();
        if let Some(candidate) = self.queue.pop_front() {
            let what = changes(&self.server, &self.best, &candidate.plan);
            let text = match candidate.hpw.error.is_finite() {
                true => format!("foreseen are {}: try {what}", expected(&candidate)),
                false => {
                    format!(
                        "its measurement tells more than the model knows, or it was best in this phase before: try {what}"
                    )
                }
            };
            events.push(event("try", text, causes(&candidate)));
            self.tried.push(candidate.plan.clone());
            self.in_force = candidate.plan.clone();
            self.state = State::Try(candidate);
            return;
        }
        self.in_force = self.restored();
        let text = format!("settled; layouts tried in this phase: {}", self.tried.len() - 1);
        events.push(event("settle", text, Vec::new()));
        self.phase.reset_streak();
        self.memory.remember(self.phase.start(), &self.best, &self.server);
        self.state = State::Stable;
    }

    /// Keeps or drops the layout that was tried.
    fn judge(&mut self, candidate: &Candidate, measured: &Progress, events: &mut Vec<Event>) {
        let found = self.reference.clone().unwrap_or_else(|| self.best_progress.clone());
        let (now, before) = (self.score(measured, &found), self.score(&self.best_progress, &found));
        // A layout that costs more than it may is left even for one that gains nothing.
        let is_better = match before.shortfall > self.noise() {
            true => now.shortfall < before.shortfall - self.noise(),
            false => now.value - before.value > self.needed() && now.shortfall <= self.noise(),
        };
        let verb = if is_better { "keep" } else { "drop" };
        let what = changes(&self.server, &self.best, &candidate.plan);
        let since = self.gain(measured, &self.asked_from);
        let seen = format!("measured are {}", percents(since.hpw - 1.0, since.lpw - 1.0));
        let is_foreseen = candidate.hpw.error.is_finite();
        let said = match is_foreseen {
            true => format!("{seen}; expected were {}", expected(candidate)),
            false => seen,
        };
        events.push(event(verb, format!("{said}: {verb} {what}"), causes(candidate)));
        if is_better {
            (self.best, self.best_progress) = (candidate.plan.clone(), measured.clone());
        } else {
            self.in_force = self.restored();
        }
        if is_foreseen {
            self.compare(candidate, measured, events);
            let off = (since.hpw - candidate.hpw.value).abs();
            let is_wrong = !is_better && off > self.config.prediction_error_max;
            self.failures = if is_wrong { self.failures + 1 } else { 0 };
        }
        if self.failures >= FAILURES && Some(&self.best) == self.found.as_ref() {
            self.measure("HPWs were foreseen wrongly", events);
        } else if self.queue.is_empty()
            && self.failures < FAILURES
            && self.questions < self.config.questions_max
        {
            // What was measured refines the description.
            self.settling.restart();
            self.ask();
        } else {
            self.next(events);
        }
    }

    /// Compares what was foreseen of each tenant with what was measured.
    fn compare(&mut self, candidate: &Candidate, measured: &Progress, events: &mut Vec<Event>) {
        let limit = self.config.prediction_error_max;
        for (id, error) in self.forecast.note(candidate, measured, &self.asked_from, limit) {
            let name = self.server.groups.iter().find(|group| group.id == id).map_or("", |group| &group.name);
            let cause = Cause {
                what: format!("error of the progress of {name}"),
                value: error,
                limit: Some(("prediction_error_max".to_owned(), limit)),
            };
            let text = format!("{name} is not predictable: its mask stays");
            events.push(event("not-predictable", text, vec![cause]));
        }
    }

    /// The knobs that put the best layout in force again: none, if that is the one as found and none was turned.
    fn restored(&self) -> Plan {
        if self.in_force.is_empty() && Some(&self.best) == self.found.as_ref() {
            return Plan::default();
        }
        self.best.clone()
    }

    /// An event if the traffic differs from that at the start of the phase, or an HPW lost progress.
    fn another_phase(&mut self, progress: &Progress, seen: &Interval) -> Option<Event> {
        let change = self.phase.observe(seen, &self.server);
        let change = match self.state {
            State::Look | State::Return | State::Measured(_) => return None,
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
        self.state = match (&self.found, self.in_force.is_empty()) {
            (Some(found), false) => {
                self.in_force = found.clone();
                State::Return
            }
            _ => self.measured(),
        };
    }

    fn measured(&self) -> State {
        let machine = Machine::new(self.config.measured, &self.server.inventory, &self.server.groups);
        State::Measured(Box::new(machine))
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
        self.was_opened = false;
        let full = WayMask::full(self.server.inventory.known_llc().ways);
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
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
