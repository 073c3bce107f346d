//! What the policy would do, for a host whose knobs it must not set: it asks what other layouts would bring, and says so.
//!
//! It asks from the layout in force only and tries nothing, so it never waits for the effect of a layout that was not in
//! force. When workloads, traffic or, by another's hand, knobs change, it begins again. It must not know who answers.

use super::super::event;
use super::super::phase::PhaseDetector;
use super::super::progress::Progress;
use super::super::server::Server;
use super::super::settling::Settling;
use super::config::{self, TwinConfig};
use super::describe;
use super::layouts::{allowed, foreseen, found};
use super::machine::{ANSWERS, WAIT_MOST};
use super::words::{causes, changes, expected};
use crate::{Decision, Description, Event, Policy};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_calibration::{Calibrator, Candidate, LayoutAnswer, LayoutLimits, LayoutQuestion};
use waykeeper_host::{Interval, Inventory, Plan, Workload};

/// Intervals after which it asks again where no answer came. Assumption: a minute.
const ASK_AGAIN: u32 = 60;

/// Its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Measures the layout in force.
    Look,
    /// Waits for an answer, for so many intervals.
    Ask(u32),
    /// Has the answer.
    Advise,
    /// No answer came, so many intervals ago.
    Unanswered(u32),
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Look => "Look",
            Stage::Ask(_) => "Ask",
            Stage::Advise => "Advise",
            Stage::Unanswered(_) => "Unanswered",
        }
    }
}

/// The policy `waykeeper` where it sets no knob.
pub(super) struct TwinAdvisor {
    config: TwinConfig,
    /// `None` before the start.
    watched: Option<Watched>,
}

/// The server, and what is known of it.
struct Watched {
    server: Server,
    limits: LayoutLimits,
    calibrator: Calibrator,
    phase: PhaseDetector,
    settling: Settling,
    stage: Stage,
    /// The layout in force; empty before the first interval.
    in_force: Plan,
    /// The number of the last question, and whether it is still to be answered.
    number: u64,
    is_open: bool,
    answer: Option<LayoutAnswer>,
    advice: Option<Candidate>,
    /// Intervals in turn without readable counters.
    blind: u32,
    /// Whether it was said why there is no advice.
    is_told: bool,
}

impl TwinAdvisor {
    pub fn new(config: TwinConfig) -> TwinAdvisor {
        TwinAdvisor { config, watched: None }
    }

    fn decide(&self, events: Vec<Event>) -> Decision {
        let state = self.watched.as_ref().map_or("", |watched| watched.stage.name());
        Decision { plan: Plan::default(), state: state.to_owned(), events }
    }
}

impl Policy for TwinAdvisor {
    fn name(&self) -> &'static str {
        config::NAME
    }

    fn describe(&self) -> Description {
        describe::describe(&self.config)
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.watched = Some(Watched::new(&self.config, inventory, groups));
        self.decide(vec![event("look", "measuring the server as found".to_owned(), Vec::new())])
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let config = self.config;
        let events =
            self.watched.as_mut().map(|watched| watched.step(&config, groups, seen)).unwrap_or_default();
        self.decide(events)
    }

    fn question(&mut self) -> Option<LayoutQuestion> {
        let config = self.config;
        self.watched.as_mut()?.question(&config)
    }

    fn hear(&mut self, answer: &LayoutAnswer) {
        if let Some(watched) = &mut self.watched
            && watched.is_open
            && answer.question == watched.number
        {
            watched.is_open = false;
            watched.answer = Some(answer.clone());
        }
    }

    fn advice(&self) -> Option<&Candidate> {
        self.watched.as_ref()?.advice.as_ref()
    }
}

impl Watched {
    fn new(config: &TwinConfig, inventory: &Inventory, groups: &[Workload]) -> Watched {
        let server = Server::new(config.measured, inventory, groups);
        Watched {
            limits: waykeeper_calibration::limits(inventory),
            calibrator: Calibrator::new(inventory),
            phase: PhaseDetector::new(),
            settling: Settling::new(&server),
            stage: Stage::Look,
            in_force: Plan::default(),
            number: 0,
            is_open: false,
            answer: None,
            advice: None,
            blind: 0,
            is_told: false,
            server,
        }
    }

    fn question(&mut self, config: &TwinConfig) -> Option<LayoutQuestion> {
        if self.is_open || self.answer.is_some() || !matches!(self.stage, Stage::Ask(_)) {
            return None;
        }
        let server = self.calibrator.describe()?;
        self.number += 1;
        self.is_open = true;
        Some(LayoutQuestion {
            number: self.number,
            limits: allowed(&self.limits, &server, config),
            server,
            goal: config.goal(),
            since_found: BTreeMap::new(),
            kept: BTreeSet::new(),
            asked: Vec::new(),
            most: ANSWERS,
        })
    }

    /// Processes one interval.
    fn step(&mut self, config: &TwinConfig, groups: &[Workload], seen: &Interval) -> Vec<Event> {
        if self.server.groups != groups {
            let text = self.server.difference(groups);
            self.server.groups = groups.to_vec();
            self.look();
            return vec![event("workloads", text, Vec::new())];
        }
        self.calibrator.observe(groups, seen);
        let in_force = found(groups, seen, &self.server.inventory, &self.limits);
        let before = std::mem::replace(&mut self.in_force, in_force);
        if before != self.in_force && !before.is_empty() {
            let what = changes(&self.server, &before, &self.in_force);
            self.look();
            return vec![event("layout", format!("the layout in force changed: {what}"), Vec::new())];
        }
        let progress = Progress::of(groups, seen, &self.server.inventory, &self.server.config);
        if progress.is_empty() {
            self.blind += 1;
            let why = "counters of no tenant can be read";
            return if self.blind > WAIT_MOST { self.no_advice(why) } else { Vec::new() };
        }
        self.blind = 0;
        let change = self.phase.observe(seen, &self.server);
        if self.stage != Stage::Look
            && let Some(phase) = self.phase.confirm(change)
        {
            self.look();
            return vec![phase];
        }
        let settled = self.settling.step(&progress, &self.server);
        match self.stage {
            Stage::Look if settled.is_some() => {
                self.phase.begin_phase();
                self.stage = Stage::Ask(0);
            }
            Stage::Ask(waited) => return self.wait(config, waited),
            Stage::Unanswered(ago) if ago >= ASK_AGAIN => self.stage = Stage::Ask(0),
            Stage::Unanswered(ago) => self.stage = Stage::Unanswered(ago + 1),
            Stage::Look | Stage::Advise => {}
        }
        Vec::new()
    }

    /// Begins again: what was foreseen no longer holds.
    fn look(&mut self) {
        (self.is_open, self.answer, self.advice) = (false, None, None);
        self.settling.restart();
        self.phase.reset_streak();
        self.stage = Stage::Look;
    }

    fn wait(&mut self, config: &TwinConfig, waited: u32) -> Vec<Event> {
        if let Some(answer) = self.answer.take() {
            self.stage = Stage::Advise;
            self.is_told = false;
            return vec![self.take(config, answer)];
        }
        if waited < WAIT_MOST {
            self.stage = Stage::Ask(waited + 1);
            return Vec::new();
        }
        self.is_open = false;
        self.stage = Stage::Unanswered(0);
        self.no_advice("the model has not answered")
    }

    /// Says once why there is no advice.
    fn no_advice(&mut self, why: &str) -> Vec<Event> {
        if std::mem::replace(&mut self.is_told, true) {
            return Vec::new();
        }
        vec![event("no-advice", format!("{why}: there is no advice"), Vec::new())]
    }

    /// The best layout, if it is foreseen to gain more than noise and to cost no more than it may.
    fn take(&mut self, config: &TwinConfig, answer: LayoutAnswer) -> Event {
        let noise = self.settling.tolerance();
        let needed = config.measured.min_gain.max(noise);
        let goal = config.goal();
        let gains = |layout: &Candidate| {
            let score = foreseen(layout, &self.server.groups, &goal);
            layout.plan != self.in_force && score.value > needed && score.shortfall <= noise
        };
        self.advice = answer.best.into_iter().find(gains);
        match &self.advice {
            None => {
                let text = format!("none of {} simulated layouts is foreseen to be better", answer.simulated);
                event("foresee", text, Vec::new())
            }
            Some(layout) => {
                let what = changes(&self.server, &self.in_force, &layout.plan);
                event("advise", format!("foreseen are {}: set {what}", expected(layout)), causes(layout))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{interval, server};
    use super::*;
    use toml::Table;
    use waykeeper_calibration::Estimate;
    use waykeeper_host::Knob;
    use waykeeper_units::{WayMask, WorkloadId};

    /// The advisor on the server of an HPW and an LPW, after its first question.
    fn asked() -> (Box<dyn Policy>, Vec<Workload>, LayoutQuestion) {
        let Server { inventory, groups, .. } = server(2);
        let mut advisor = super::super::build(&Table::new()).unwrap().advisor().unwrap();
        advisor.start(&inventory, &groups);
        let question = asks(&mut *advisor, &groups, &interval(&[1.0, 1.0], 1e9));
        (advisor, groups, question)
    }

    /// Steps until it asks.
    fn asks(advisor: &mut dyn Policy, groups: &[Workload], seen: &Interval) -> LayoutQuestion {
        let mut steps = std::iter::repeat_with(|| {
            advisor.step(groups, seen);
            advisor.question()
        });
        steps.by_ref().take(100).flatten().next().expect("a question")
    }

    /// An answer with one layout: these ways for the LPW, and such progress of the HPW.
    fn answer(question: &LayoutQuestion, mask: u32, hpw: f64) -> LayoutAnswer {
        let plan = Plan::of_masks([(WorkloadId(1), WayMask::from_bits(mask))]);
        let lpw = Estimate { value: 0.99, error: 0.005 };
        let hpw = Estimate { value: hpw, error: 0.04 };
        let tenants = [(WorkloadId(0), hpw), (WorkloadId(1), lpw)].into_iter().collect();
        let best = vec![Candidate { plan, tenants, hpw, lpw }];
        LayoutAnswer { question: question.number, simulated: 100, best, asked: Vec::new() }
    }

    #[test]
    fn it_says_what_it_would_set_and_what_that_would_bring_and_wants_nothing() {
        let (mut advisor, groups, question) = asked();
        assert!(advisor.advice().is_none() && advisor.question().is_none());
        advisor.hear(&answer(&question, 0x3, 1.12));
        let decision = advisor.step(&groups, &interval(&[1.0, 1.0], 1e9));
        let said = "foreseen are HPWs +12.0 +- 4.0 %, LPWs -1.0 +- 0.5 %: set w1 0x003";
        assert_eq!((decision.events[0].action.as_str(), decision.events[0].text.as_str()), ("advise", said));
        assert_eq!((decision.state.as_str(), decision.plan.is_empty()), ("Advise", true));
        assert_eq!(advisor.advice().unwrap().hpw.value, 1.12);
        // It waits for no effect, and asks no more while nothing changes.
        for _ in 0..20 {
            let decision = advisor.step(&groups, &interval(&[1.0, 1.0], 1e9));
            assert!(decision.plan.is_empty() && decision.events.is_empty(), "{decision:?}");
            assert!(advisor.question().is_none() && advisor.advice().is_some());
        }
    }

    #[test]
    fn what_is_foreseen_to_gain_no_more_than_noise_is_no_advice() {
        let (mut advisor, groups, question) = asked();
        advisor.hear(&answer(&question, 0x3, 1.005));
        let decision = advisor.step(&groups, &interval(&[1.0, 1.0], 1e9));
        assert_eq!(decision.events[0].text, "none of 100 simulated layouts is foreseen to be better");
        assert!(advisor.advice().is_none());
    }

    #[test]
    fn what_would_cost_lpws_more_than_the_floor_is_no_advice() {
        let (mut advisor, groups, question) = asked();
        let mut costly = answer(&question, 0x3, 1.5);
        costly.best[0].tenants.insert(WorkloadId(1), Estimate::exact(0.9));
        advisor.hear(&costly);
        advisor.step(&groups, &interval(&[1.0, 1.0], 1e9));
        assert!(advisor.advice().is_none());
    }

    #[test]
    fn a_layout_that_an_operator_sets_is_the_next_to_ask_from() {
        let (mut advisor, groups, question) = asked();
        advisor.hear(&answer(&question, 0x3, 1.12));
        advisor.step(&groups, &interval(&[1.0, 1.0], 1e9));
        let mut seen = interval(&[1.1, 1.0], 1e9);
        seen.knobs.insert(Knob::Mask(WorkloadId(1)), WayMask::from_bits(0x3));
        let decision = advisor.step(&groups, &seen);
        assert_eq!(decision.events[0].text, "the layout in force changed: w1 0x003");
        assert!(advisor.advice().is_none());
        let next = asks(&mut *advisor, &groups, &seen);
        assert_eq!(next.number, question.number + 1);
        assert_eq!(next.server.knobs.mask(WorkloadId(1)), Some(WayMask::from_bits(0x3)));
        // The answer to the earlier question does not count; the goal is relative to what is in force.
        advisor.hear(&answer(&question, 0x1, 1.5));
        assert!(advisor.step(&groups, &seen).events.is_empty());
        assert_eq!((next.goal.lpw_floor, next.asked.len()), (0.97, 0));
    }

    #[test]
    fn without_counters_it_says_so_once() {
        let (mut advisor, groups, _) = asked();
        let mut blind = interval(&[], 1e9);
        blind.socket = waykeeper_host::SocketRates::all(waykeeper_host::Reading::Unavailable);
        let events: Vec<Event> =
            (0..3 * WAIT_MOST).flat_map(|_| advisor.step(&groups, &blind).events).collect();
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["counters of no tenant can be read: there is no advice"]);
    }

    #[test]
    fn without_an_answer_it_says_so_once_and_asks_again_after_a_while() {
        let (mut advisor, groups, _) = asked();
        let seen = interval(&[1.0, 1.0], 1e9);
        let mut events = Vec::new();
        let mut questions = 0;
        for _ in 0..3 * (WAIT_MOST + ASK_AGAIN) {
            let decision = advisor.step(&groups, &seen);
            assert!(decision.plan.is_empty());
            events.extend(decision.events);
            questions += u32::from(advisor.question().is_some());
        }
        let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
        assert_eq!((actions, questions), (vec!["no-advice"], 2));
    }
}
