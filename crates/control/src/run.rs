//! The loop. Must not know the host and the policy except by their traits, and writes no files.
//!
//! One step: wait for the deadline, read all counters, detect external changes and knobs without an effect, compute the
//! interval since the last reading, let the policy decide, check that the masks fit into the classes of service, set
//! the knobs that differ from the wanted values, read back, report. Intervals have no gaps: each starts where the last
//! one ended, also after a step in which nothing could be read.
//!
//! In a look back (`run/look_back.rs`) the layout as found is in force for a few steps, which the policy does not see.
//!
//! When a loop ends for any reason, it restores the original value of every knob that it set, unless it leaves them to
//! another loop (`run/leave.rs`).

mod deadlines;
mod leave;
mod look_back;
mod memory;
mod watching;

use crate::classes::classes;
use crate::effect::Effects;
use crate::knobs::Knobs;
use crate::predictor::Predictor;
use crate::record::{LoopSummary, Observer, Problem, StepRecord};
use crate::worth::{WorthMeter, WorthUnknown};
pub use look_back::LookBack;
use look_back::LooksBack;
pub use memory::{LoopMemory, TakenOver};
use std::collections::BTreeMap;
use watching::Watching;
use waykeeper_host::{Host, HostError, Interval, KnobValues, Plan, Snapshot, Workload};
use waykeeper_policy::{Cause, Decision, Event, Policy};

/// When the loop steps and when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlConfig {
    /// Time between two samples, nanoseconds of the host's clock (A4 and IAT: 1 s).
    pub period_ns: u64,
    /// Length of the run, nanoseconds; with `None` it lasts until the observer ends it.
    pub duration_ns: Option<u64>,
    /// After how many corrections an external change of a knob is accepted; 0 accepts the first one.
    pub take_back: u32,
    /// Whether to check with counters that knobs have an effect, and to measure what the policy is worth. False in a dry
    /// run, which sets no knobs.
    pub verify: bool,
    /// Looks back at the layout as found, to measure what the policy is worth; `None`: it is never put back for that.
    pub look_back: Option<LookBack>,
}

impl ControlConfig {
    /// Default number of corrections of an external change (assumption): enough for a mistake by hand, too few for a
    /// lasting conflict with another manager.
    pub const TAKE_BACK: u32 = 3;

    /// A step every `period_ns`, until the observer ends the run.
    pub const fn every(period_ns: u64) -> ControlConfig {
        let take_back = ControlConfig::TAKE_BACK;
        ControlConfig { period_ns, duration_ns: None, take_back, verify: true, look_back: None }
    }

    /// The same, for `duration_ns` nanoseconds.
    #[must_use]
    pub const fn lasting(self, duration_ns: u64) -> ControlConfig {
        ControlConfig { duration_ns: Some(duration_ns), ..self }
    }
}

/// Why a run could not continue.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The period is 0.
    #[error("the period must be longer than 0 ns")]
    NoPeriod,
    /// The host is gone.
    #[error("the host cannot go on")]
    Host(#[from] HostError),
}

/// Runs `policy` on `host` until the time is over or `observer` ends the run.
///
/// The observer is called once for the start and once for every step. The last step is at the end of the last whole
/// period; the loop then waits for the end of the run, restores the knobs and calls [`Observer::ended`].
///
/// # Errors
/// A period of 0, or a host that can no longer wait. Counters that cannot be read and knobs that are refused are
/// problems in the records, and the run continues.
pub fn run(
    host: &mut dyn Host,
    policy: &mut dyn Policy,
    config: ControlConfig,
    observer: &mut dyn Observer,
) -> Result<LoopSummary, ControlError> {
    let mut looping = Loop::start(host, Box::new(policy), config)?;
    let mut goes_on = observer.observe(&looping.record, None).is_continue();
    while goes_on && looping.step()? {
        goes_on = observer.observe(&looping.record, looping.seen.as_ref()).is_continue();
    }
    looping.restore();
    observer.ended(&looping.record);
    Ok(looping.summary)
}

/// How often the end of a run tries to restore the knobs. Assumption: a tool that holds a lock for a moment releases it
/// before the third try.
const ENDING_TRIES: u32 = 3;
/// Pause before the second of these tries, ns of the host's clock; the next is twice as long. Assumption: as above.
const ENDING_PAUSE_NS: u64 = 100_000_000;

/// A run in progress, one step at a time; [`run()`] is this in a loop.
pub struct Loop<'a, H: Host + ?Sized = dyn Host + 'a> {
    host: &'a mut H,
    policy: Box<dyn Policy + 'a>,
    /// Answers the policy's questions; without it they are not answered.
    predictor: Option<Box<dyn Predictor + 'a>>,
    /// The number of the present policy's last question.
    asked: Option<u64>,
    config: ControlConfig,
    started_ns: u64,
    /// Number of the next deadline; deadline n is n periods after the start.
    next: u64,
    /// Found when the next deadline was determined: a clock that went backwards, and the number of missed deadlines.
    due: Option<(Option<Problem>, u64)>,
    /// The last successful reading of the counters.
    before: Option<Snapshot>,
    knobs: Knobs,
    effects: Effects,
    /// The classes of service that the policy knows of; `None` where the LLC is not known.
    clos_count: Option<u32>,
    /// The last error about classes of service, so that it is reported once.
    reported_classes_error: Option<String>,
    worth: WorthMeter,
    looks_back: LooksBack,
    /// The layout as found, when knobs were read last.
    as_found: KnobValues,
    record: StepRecord,
    seen: Option<Interval>,
    summary: LoopSummary,
    /// The knobs are left in force: the end of the loop restores none.
    leaves: bool,
}

impl<'a, H: Host + ?Sized> Loop<'a, H> {
    /// Starts the policy, sets its initial knobs and takes the first reading.
    ///
    /// # Errors
    /// A period of 0.
    pub fn start(
        host: &'a mut H,
        policy: Box<dyn Policy + 'a>,
        config: ControlConfig,
    ) -> Result<Loop<'a, H>, ControlError> {
        Loop::take_over(host, policy, config, TakenOver::default())
    }

    /// The same with knobs that an earlier loop left in force ([`Loop::leave`]), and with what it has learnt. A policy whose
    /// first decision names no knob begins with the values in force; otherwise the knobs that it does not name return to
    /// their original values, as at [`Loop::replace`].
    ///
    /// # Errors
    /// A period of 0.
    pub fn take_over(
        host: &'a mut H,
        policy: Box<dyn Policy + 'a>,
        config: ControlConfig,
        before: TakenOver,
    ) -> Result<Loop<'a, H>, ControlError> {
        if config.period_ns == 0 {
            return Err(ControlError::NoPeriod);
        }
        let started_ns = host.now_ns();
        let mut looping = Loop {
            host,
            policy,
            predictor: None,
            asked: None,
            config,
            started_ns,
            next: 1,
            due: None,
            before: None,
            knobs: Knobs::new(config.take_back),
            effects: Effects::default(),
            clos_count: None,
            reported_classes_error: None,
            worth: WorthMeter::new(),
            looks_back: LooksBack::default(),
            as_found: KnobValues::default(),
            record: StepRecord { at_ns: started_ns, ..StepRecord::default() },
            seen: None,
            summary: LoopSummary::default(),
            leaves: false,
        };
        if !config.verify {
            looping.worth.forget(WorthUnknown::NoKnobs);
        }
        let recalled = before.memory.and_then(|(memory, ago)| looping.recall(memory, ago));
        looping.begin(recalled.into_iter().collect(), &before.originals);
        Ok(looping)
    }

    /// The policy's questions go to `predictor` from now on; its present one too, if it has one.
    pub fn set_predictor(&mut self, predictor: Box<dyn Predictor + 'a>) {
        self.predictor = Some(predictor);
        self.ask();
    }

    /// Passes the policy's new question on, if it has one.
    fn ask(&mut self) {
        if let Some(predictor) = &mut self.predictor
            && let Some(question) = self.policy.question()
        {
            self.asked = Some(question.number);
            self.worth.asked(question.number);
            predictor.ask(question);
        }
    }

    /// Replaces the policy between two steps: the initial knobs of the new one are set at once, and the next step's
    /// interval begins afterwards. [`Loop::record`] then describes the change.
    ///
    /// Knobs that both policies name keep their present value until the new policy's value is set; the others get back
    /// the value that they had before the loop first set them. Both happen in one plan, so that no workload runs with a
    /// mixture that neither policy wanted. The last value that the host refused is not tried again.
    pub fn replace(&mut self, policy: Box<dyn Policy + 'a>) {
        let external = self.recent_external_changes();
        self.record = StepRecord { at_ns: self.host.now_ns(), problems: external, ..StepRecord::default() };
        let before = std::mem::replace(&mut self.policy, policy);
        self.asked = None;
        self.worth.replaced();
        self.looks_back.stop();
        let knobs = self.knobs.hand_over();
        let text = format!("policy {} replaces {}", self.policy.name(), before.name());
        let turned = Cause {
            what: "knobs that the previous policy turned".to_owned(),
            value: knobs as f64,
            limit: None,
        };
        let event = Event { action: "policy-replaced".to_owned(), group: None, text, causes: vec![turned] };
        self.seen = None;
        self.begin(vec![event], &Plan::default());
    }

    /// Starts the current policy and sets its initial knobs; the events in `first_events` come before the policy's own.
    /// `originals` are those of knobs that an earlier loop left in force.
    fn begin(&mut self, first_events: Vec<Event>, originals: &Plan) {
        let groups = self.host.workloads();
        self.clos_count = self.host.inventory().llc.map(|llc| llc.clos_count);
        if self.clos_count.is_none() {
            self.policy = Box::new(Watching::instead_of(self.policy.name()));
        }
        let mut decision = self.policy.start(self.host.inventory(), &groups);
        decision.events.splice(0..0, first_events);
        self.knobs.take_over(originals, &decision.plan);
        // Read the knobs before the first write: otherwise every knob would be written, also those that have the wanted
        // value.
        if self.sample() {
            self.carry_out(decision, &groups);
            // The first interval starts after the initial knobs are set.
            self.sample();
        } else {
            // A knob whose present value is not known could not be restored. It is set in the first step with an interval.
            (self.record.state, self.record.events) = (decision.state, decision.events);
            self.record.wanted = self.knobs.want(&decision.plan);
        }
        self.ask();
    }

    /// The record of the last step, or of the start.
    pub fn record(&self) -> &StepRecord {
        &self.record
    }

    /// What the policy saw in the last step; `None` if nothing could be read.
    pub fn seen(&self) -> Option<&Interval> {
        self.seen.as_ref()
    }

    /// All counters as last read, cumulative; `None` before the first successful reading.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.before.as_ref()
    }

    /// The host, for changes between two steps (tenants that start or end). Only the loop sets its knobs.
    pub fn host(&mut self) -> &mut H {
        self.host
    }

    /// The current policy.
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// The totals so far.
    pub fn summary(&self) -> LoopSummary {
        self.summary
    }

    /// Waits for the next deadline and takes one step; false if the time of the run is over.
    ///
    /// # Errors
    /// If the host can no longer wait.
    pub fn step(&mut self) -> Result<bool, ControlError> {
        self.advance(true)
    }

    /// The same without the policy: reads the counters and reports external changes, but sets no knob.
    ///
    /// # Errors
    /// If the host can no longer wait.
    pub fn watch(&mut self) -> Result<bool, ControlError> {
        self.advance(false)
    }

    fn advance(&mut self, decides: bool) -> Result<bool, ControlError> {
        let deadline_ns = self.due_ns();
        let (went_back, missed) = self.due.take().unwrap_or_default();
        if let Some(end_ns) = self.config.duration_ns.map(|ns| self.started_ns.saturating_add(ns))
            && deadline_ns > end_ns
        {
            self.host.wait_until(end_ns)?;
            return Ok(false);
        }
        self.host.wait_until(deadline_ns)?;
        self.next += 1;
        self.summary.steps += 1;
        self.summary.missed_deadlines += missed;
        let state = std::mem::take(&mut self.record.state);
        let worth = self.worth.worth();
        self.record = StepRecord { at_ns: self.host.now_ns(), state, worth, ..StepRecord::default() };
        self.record.problems.extend(went_back);
        if missed > 0 {
            self.record.problems.push(Problem::Late { missed });
        }
        let before = self.before.take();
        self.seen = None;
        if !self.sample() {
            self.before = before;
            self.summary.blind_steps += 1;
            return Ok(true);
        }
        let Some(before) = before else {
            // The first reading: there is no earlier one to compare with.
            self.summary.blind_steps += 1;
            return Ok(true);
        };
        let external = self.knobs.external_changes(&self.record.knobs);
        self.record.problems.extend(external);
        let seen = self.before.as_ref().and_then(|after| Interval::between(&before, after));
        match seen {
            None => {
                self.record.problems.push(Problem::NoTime);
                self.summary.blind_steps += 1;
            }
            Some(mut seen) => {
                if self.config.verify {
                    let (llc, knobs) = (self.host.inventory().llc, &self.knobs);
                    let problems = self.effects.check(&seen, llc.as_ref(), |knob| knobs.is_turned(knob));
                    self.record.problems.extend(problems);
                    self.effects.correct(&mut seen.knobs);
                }
                let groups = self.host.workloads();
                let is_comparable = self.measure_worth(&groups, &seen);
                if !decides {
                    self.end_look_back(&groups);
                    self.keep_groups(&groups);
                    self.knobs.confirm(&self.record.knobs);
                } else if !self.look_back(&groups, is_comparable) {
                    self.decide(&groups, &seen);
                }
                self.seen = Some(seen);
            }
        }
        Ok(true)
    }

    /// Passes an answer to the policy, lets it decide, and sets its knobs.
    fn decide(&mut self, groups: &[Workload], seen: &Interval) {
        let answer = self.predictor.as_mut().and_then(|predictor| predictor.answer());
        // A policy that was replaced may have asked another one.
        if let Some(answer) = answer.filter(|answer| self.asked == Some(answer.question)) {
            self.hear_of_as_found(&answer);
            self.policy.hear(&answer);
            self.record.answer = Some(answer);
        }
        let clos_count = self.host.inventory().llc.map(|llc| llc.clos_count);
        if let Some(count) = clos_count.filter(|_| self.clos_count != clos_count) {
            self.policy.classes(count);
        }
        self.clos_count = clos_count;
        let decision = self.policy.step(groups, seen);
        self.carry_out(decision, groups);
        self.looks_back.decided(!self.record.applied.is_empty());
        self.ask();
    }

    /// Ends the run: restores the original value of every knob that the loop set, except knobs that were left to
    /// another program and masks of groups that ended. [`Loop::record`] then describes it. Dropping the loop does this
    /// too, so that a panic also restores the knobs.
    ///
    /// Returns the knobs that do not read back their original values afterwards, with those values. The next call tries
    /// them again, and so does the next policy unless it names them.
    pub fn restore(&mut self) -> Plan {
        self.seen = None;
        self.looks_back.stop();
        let external = self.recent_external_changes();
        self.record = StepRecord { at_ns: self.host.now_ns(), ..StepRecord::default() };
        let knobs = self.knobs.hand_over();
        let plan = self.knobs.want(&Plan::default());
        let mut decision = Decision { plan, state: "Restored".to_owned(), ..Decision::default() };
        if decision.plan.is_empty() {
            (self.record.state, self.record.problems) = (decision.state, external);
            return Plan::default();
        }
        let cause = Cause { what: "knobs turned".to_owned(), value: knobs as f64, limit: None };
        decision.events.push(Event {
            action: "restored".to_owned(),
            group: None,
            text: "every knob of the policy returns to its original value".to_owned(),
            causes: vec![cause],
        });
        // There is no later step in which a busy machine could be asked again.
        for number in 0..ENDING_TRIES {
            if number > 0 {
                let pause_ns = ENDING_PAUSE_NS << (number - 1);
                // A host that can no longer wait may still take the knobs.
                let _ = self.host.wait_until(self.host.now_ns().saturating_add(pause_ns));
            }
            self.record.problems.clear();
            self.reported_classes_error = None;
            self.sample();
            let groups = self.host.workloads();
            self.knobs.forget_refusals();
            self.carry_out(decision.clone(), &groups);
            if self.record.problems.is_empty() {
                break;
            }
        }
        self.record.problems.splice(0..0, external);
        self.knobs.settle(&self.record.knobs)
    }

    /// Reads all counters and knobs; false if that failed.
    fn sample(&mut self) -> bool {
        match self.host.sample() {
            Ok(snapshot) => {
                self.knobs.observe(&snapshot.knobs);
                self.record.knobs = snapshot.knobs.clone();
                self.before = Some(snapshot);
                true
            }
            Err(error) => {
                self.record.problems.push(Problem::Sample(error.to_string()));
                false
            }
        }
    }

    /// The knobs that another program turned since the last step; none if they cannot be read.
    fn recent_external_changes(&mut self) -> Vec<Problem> {
        let Ok(snapshot) = self.host.sample() else { return Vec::new() };
        self.knobs.observe(&snapshot.knobs);
        self.knobs.external_changes(&snapshot.knobs)
    }

    /// Forgets the knobs of groups that have ended. No group gets the number of an earlier one.
    fn keep_groups(&mut self, alive: &[Workload]) {
        self.knobs.keep_groups(|id| alive.iter().any(|group| group.id == id));
    }

    /// Sets the knobs of a decision that do not have the wanted value yet, and reads back.
    fn carry_out(&mut self, decision: Decision, alive: &[Workload]) {
        (self.record.state, self.record.events) = (decision.state, decision.events);
        self.keep_groups(alive);
        let wanted = self.knobs.want(&decision.plan);
        self.turn(wanted, alive);
    }

    /// Sets the knobs that do not have the wanted value yet, and reads back.
    fn turn(&mut self, wanted: Plan, alive: &[Workload]) {
        let is_alive = |id| alive.iter().any(|group| group.id == id);
        let mut possible = wanted.clone();
        possible.retain(|knob, _| knob.workload().is_none_or(is_alive));
        self.check_classes(&mut possible, alive);
        self.record.wanted = wanted;
        let step = self.summary.steps;
        let plan = self.knobs.due(&possible, &self.record.knobs, step);
        if plan.is_empty() {
            self.knobs.confirm(&self.record.knobs);
            return;
        }
        self.worth.turned();
        let first = self.knobs.turning(&plan);
        let applied = self.host.apply(&plan);
        let could_read = self.read_back();
        match applied {
            Err(error) => self.record.problems.push(Problem::Apply(error.to_string())),
            Ok(applied) => {
                let knobs = could_read.then_some(&self.record.knobs);
                let problems = self.knobs.note(&plan, &applied, knobs, step);
                self.record.problems.extend(problems);
                if could_read {
                    self.knobs.give_up(&first, &applied, &self.record.knobs);
                }
                self.record.applied = applied;
            }
        }
        self.knobs.confirm(&self.record.knobs);
    }

    /// Masks that need more classes than there are cannot all be in force: then no mask is set.
    fn check_classes(&mut self, wanted: &mut Plan, alive: &[Workload]) {
        if wanted.masks().next().is_none() {
            return;
        }
        let clos_count = self.host.inventory().known_llc().clos_count;
        let is_alive = |id| alive.iter().any(|group| group.id == id);
        let in_force = self.record.knobs.masks().filter(|(id, _)| is_alive(*id));
        let masks: BTreeMap<_, _> = in_force.chain(wanted.masks()).collect();
        match classes(&masks, self.host.root_mask(), clos_count) {
            Ok(_) => self.reported_classes_error = None,
            Err(error) => {
                wanted.retain(|knob, _| knob.workload().is_none());
                let text = error.to_string();
                if self.reported_classes_error.as_ref() != Some(&text) {
                    self.record.problems.push(Problem::Classes(text.clone()));
                    self.reported_classes_error = Some(text);
                }
            }
        }
    }

    /// Reads the knobs after they were set; false if that failed. Only the knob values of this reading are used: the
    /// next interval still starts at the sample before, so that no counts are lost between two intervals.
    fn read_back(&mut self) -> bool {
        match self.host.sample() {
            Ok(snapshot) => {
                self.record.knobs = snapshot.knobs;
                true
            }
            Err(error) => {
                self.record.knobs = KnobValues::default();
                self.record.problems.push(Problem::Sample(error.to_string()));
                false
            }
        }
    }
}

impl<H: Host + ?Sized> Drop for Loop<'_, H> {
    fn drop(&mut self) {
        if !self.leaves {
            self.restore();
        }
    }
}
