//! Replays a recording with another policy: what it would have decided on the recorded counters.
//!
//! Open loop: the counters stay as recorded, whatever the replayed policy wants. Knobs read as recorded where both
//! policies want the same; with the replayed policy's value where it wants another; and with the original value (or the
//! power-on value) where only the recorded policy named them. So the same policy with the same settings decides the
//! same at every step. A policy's questions are answered as recorded, without a twin. Must not know where the recording
//! is or how results are shown.

mod summary;

pub use summary::{DifferenceSummary, FirstDifference, KnobDifference, Why};

use crate::naming::HostNames;
use crate::recorder::{Header, RecordedStep, writable};
use crate::{DaemonMode, Pause};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::SystemTime;
use waykeeper_control::StepRecord;
use waykeeper_host::{Knob, KnobValues, Plan, Setting, Workload};
use waykeeper_policy::{Event, Policy, PolicyError, build};
use waykeeper_units::WayMask;

/// The decision of one of the two policies.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// Its state afterwards.
    pub state: String,
    /// What it did and why.
    pub events: Vec<Event>,
    /// All values that it wants.
    #[serde(rename = "wish")]
    pub wanted: Plan,
}

/// A step with both decisions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// The step's number.
    pub step: u64,
    /// The recorded decision.
    pub recorded: Side,
    /// The replayed policy's decision.
    pub replayed: Side,
}

impl Compared {
    /// True if both are equal.
    pub fn agrees(&self) -> bool {
        self.recorded == self.replayed
    }
}

/// A policy that runs on a recording.
pub struct Replay {
    name: String,
    settings: toml::Table,
    policy: Option<Box<dyn Policy>>,
    life: Option<Header>,
    last_step: u64,
    /// The number of the replayed policy's last question.
    asked: Option<u64>,
    /// What each policy wanted at the end of the step before.
    recorded: Plan,
    replayed: Plan,
    /// Knob values read while the recorded policy did not name them.
    found: Plan,
}

impl Replay {
    /// Replays policy `name` with `settings`.
    ///
    /// # Errors
    /// If the policy or a setting does not exist.
    pub fn new(name: &str, settings: toml::Table) -> Result<Replay, PolicyError> {
        build(name, &settings)?;
        let (recorded, replayed, found) = <(Plan, Plan, Plan)>::default();
        let name = name.to_owned();
        let (policy, life, asked) = (None, None, None);
        Ok(Replay { name, settings, policy, life, last_step: 0, asked, recorded, replayed, found })
    }

    /// A segment begins. The policy restarts if the daemon restarted or the inventory changed.
    pub fn segment(&mut self, header: &Header) {
        let same = |life: &Header| life.started == header.started && life.inventory == header.inventory;
        if !self.life.as_ref().is_some_and(same) {
            self.policy = None;
            (self.recorded, self.replayed, self.found) = Default::default();
        }
        self.life = Some(header.clone());
    }

    /// A step. `None` if nothing was decided in it: nothing could be read, the policy was paused, or the host's LLC is not
    /// known, so that no policy ran.
    ///
    /// # Errors
    /// Settings that do not fit the recorded server and its tenants.
    pub fn step(&mut self, entry: &RecordedStep<'_>) -> Result<Option<Compared>, PolicyError> {
        let (Some(header), Some(groups)) = (self.life.clone(), entry.groups.as_deref()) else {
            return Ok(None);
        };
        if header.inventory.llc.is_none() {
            return Ok(None);
        }
        let begins = begins(entry);
        // Step numbers that go backwards: the daemon restarted although the header is the same.
        if entry.step < self.last_step {
            self.policy = None;
        }
        self.last_step = entry.step;
        // After a pause that restored the knobs the policy restarts, as in the daemon.
        if entry.paused == Some(Pause::Release) {
            self.policy = None;
        }
        // In a look back the daemon's policy saw nothing either.
        if entry.paused.is_some() || entry.record.look_back || (entry.seen.is_none() && !begins) {
            return Ok(None);
        }
        let record = writable(&entry.record);
        let mut decided = None;
        if self.policy.is_none() {
            let mut policy = build(&self.name, &self.settings)?;
            let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            policy.check(&header.inventory, &names)?;
            // As in the daemon: where no knob was set, a policy that can advise did no more.
            if header.mode != DaemonMode::Manage
                && let Some(advisor) = policy.advisor()
            {
                policy = advisor;
            }
            (self.recorded, self.replayed) = Default::default();
            decided = Some(policy.start(&header.inventory, groups));
            self.asked = policy.question().map(|question| question.number);
            self.policy = Some(policy);
        }
        if let Some(seen) = &entry.seen {
            if let Some(first) = decided.take() {
                want(&mut self.replayed, first.plan, groups);
            }
            let mut seen = seen.clone().into_owned();
            seen.knobs = self.overlay(&seen.knobs, &header);
            let Some(policy) = &mut self.policy else { return Ok(None) };
            // Recorded answers take the place of a twin.
            if let Some(answer) = record.answer.as_ref().filter(|answer| self.asked == Some(answer.question))
            {
                policy.hear(answer);
            }
            decided = Some(policy.step(groups, &seen));
            if let Some(question) = policy.question() {
                self.asked = Some(question.number);
            }
        }
        if header.mode != DaemonMode::Observe {
            self.recorded = record.wanted.clone();
        }
        let Some(decision) = decided else { return Ok(None) };
        want(&mut self.replayed, decision.plan, groups);
        let wanted = self.replayed.clone();
        let own = StepRecord { events: decision.events, ..StepRecord::default() };
        let events = writable(&own).into_owned().events;
        let replayed = Side { state: decision.state, events, wanted };
        let recorded = Side {
            state: record.state.clone(),
            events: record.events.iter().filter_map(|event| reported_event(event, header.mode)).collect(),
            wanted: record.wanted.clone(),
        };
        Ok(Some(Compared { step: entry.step, recorded, replayed }))
    }

    /// The knob values that the replayed policy reads.
    fn overlay(&mut self, read: &KnobValues, header: &Header) -> KnobValues {
        let inventory = &header.inventory;
        let mut out = read.clone();
        for (knob, setting) in read.iter() {
            let (then, now) = (self.recorded.get(knob), self.replayed.get(knob));
            if then.is_none() {
                self.found.insert(knob, *setting);
            }
            if then != now {
                let at_power_on = match knob {
                    Knob::Mask(_) => inventory.llc.map(|llc| Setting::Ways(WayMask::full(llc.ways))),
                    Knob::DcaWays => inventory.dca_ways_default.map(Setting::Ways),
                    Knob::Dca(_) => Some(Setting::Switch(true)),
                    // The description of a chip has no such value of a NIC.
                    Knob::RxRing(_) | Knob::RxBurst(_) => None,
                };
                let instead = now.or(self.found.get(knob)).copied().or(at_power_on);
                out.insert(knob, instead.unwrap_or(*setting));
            }
        }
        out
    }
}

/// The loop's own event when a policy is replaced.
pub(crate) const POLICY_REPLACED: &str = "policy-replaced";

/// True for the step in which a policy starts: the daemon's first, or a replacement.
pub fn begins(entry: &RecordedStep<'_>) -> bool {
    let follows = entry.record.events.first().is_some_and(|event| event.action == POLICY_REPLACED);
    entry.seen.is_none() && (entry.step == 0 || follows)
}

/// An event as the policy reported it, without a dry run's prefix; `None` for the loop's own event.
fn reported_event(event: &Event, mode: DaemonMode) -> Option<Event> {
    let mut event = (event.action != POLICY_REPLACED).then(|| event.clone())?;
    if mode != DaemonMode::Manage
        && let Some(text) = event.text.strip_prefix(DRY_RUN_PREFIX)
    {
        event.text = text.to_owned();
    }
    Some(event)
}

/// Prefix of an event's text in a dry run.
pub(crate) const DRY_RUN_PREFIX: &str = "would: ";

/// Adds a plan to the wanted values and removes tenants that ended, as the loop does.
fn want(wanted: &mut Plan, plan: Plan, groups: &[Workload]) {
    wanted.retain(|knob, _| knob.workload().is_none_or(|id| groups.iter().any(|group| group.id == id)));
    wanted.extend(plan);
}

/// The knobs of which two sets of wanted values have different ones.
fn differing<'a>(recorded: &'a Plan, replayed: &'a Plan) -> impl Iterator<Item = Knob> + 'a {
    let knobs: BTreeSet<Knob> = recorded.knobs().chain(replayed.knobs()).collect();
    knobs.into_iter().filter(|knob| recorded.get(*knob) != replayed.get(*knob))
}

/// The differences of two sets of wanted values: knob, first value, second value.
pub fn differences(recorded: &Plan, replayed: &Plan, names: &HostNames<'_>) -> Vec<[String; 3]> {
    differing(recorded, replayed).map(|knob| summary::row(knob, recorded, replayed, names)).collect()
}

/// True if a time is in a range.
pub fn within(at: SystemTime, from: Option<SystemTime>, to: Option<SystemTime>) -> bool {
    from.is_none_or(|from| at >= from) && to.is_none_or(|to| at <= to)
}
