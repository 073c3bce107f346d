//! Replays a recording with another policy: what it would have decided on the recorded counters.
//!
//! Open loop: the counters stay as recorded, whatever the replayed policy wants. Knobs read as recorded where both
//! policies want the same; with the replayed policy's value where it wants another; and with the original value (or the
//! power-on value) where only the recorded policy named them. So the same policy with the same settings decides the
//! same at every step. Must not know where the recording is or how results are shown.

use crate::recorder::{Entry, Header, writable};
use crate::{Mode, Pause};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;
use waykeeper_control::Record;
use waykeeper_host::{Group, KnobValues, Plan};
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
    pub wish: Plan,
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
        Ok(Replay { name, settings, policy: None, life: None, last_step: 0, recorded, replayed, found })
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

    /// A step. `None` if nothing was decided in it: nothing could be read, or the policy was paused.
    ///
    /// # Errors
    /// Settings that do not fit the recorded server and its tenants.
    pub fn step(&mut self, entry: &Entry<'_>) -> Result<Option<Compared>, PolicyError> {
        let (Some(header), Some(groups)) = (self.life.clone(), entry.groups.as_deref()) else {
            return Ok(None);
        };
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
        if entry.paused.is_some() || (entry.seen.is_none() && !begins) {
            return Ok(None);
        }
        let record = writable(&entry.record);
        let mut decided = None;
        if self.policy.is_none() {
            let mut policy = build(&self.name, &self.settings)?;
            let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            policy.check(&header.inventory, &names)?;
            (self.recorded, self.replayed) = Default::default();
            decided = Some(policy.start(&header.inventory, groups));
            self.policy = Some(policy);
        }
        if let Some(seen) = &entry.seen {
            if let Some(first) = decided.take() {
                want(&mut self.replayed, first.plan, groups);
            }
            let mut seen = seen.clone().into_owned();
            seen.knobs = self.overlay(&seen.knobs, &header);
            let Some(policy) = &mut self.policy else { return Ok(None) };
            decided = Some(policy.step(groups, &seen));
        }
        if header.mode != Mode::Observe {
            self.recorded = record.desired.clone();
        }
        let Some(decision) = decided else { return Ok(None) };
        want(&mut self.replayed, decision.plan, groups);
        let wish = self.replayed.clone();
        let own = Record { events: decision.events, ..Record::default() };
        let events = writable(&own).into_owned().events;
        let replayed = Side { state: decision.state, events, wish };
        let recorded = Side {
            state: record.state.clone(),
            events: record.events.iter().filter_map(|event| said(event, header.mode)).collect(),
            wish: record.desired.clone(),
        };
        Ok(Some(Compared { step: entry.step, recorded, replayed }))
    }

    /// The knob values that the replayed policy reads.
    fn overlay(&mut self, read: &KnobValues, header: &Header) -> KnobValues {
        let llc = &header.inventory.llc;
        let mut out = read.clone();
        let (recorded, replayed, found) = (&self.recorded, &self.replayed, &mut self.found);
        let full = WayMask::full(llc.ways);
        let sides = (&recorded.masks, &replayed.masks);
        overlay(&mut out.masks, sides, &mut found.masks, |_, _| full);
        let sides = (&recorded.dca, &replayed.dca);
        overlay(&mut out.dca, sides, &mut found.dca, |_, _| true);
        // A chip's description has no power-on value of a ring.
        let sides = (&recorded.rx_ring, &replayed.rx_ring);
        overlay(&mut out.rx_ring, sides, &mut found.rx_ring, |_, read| *read);
        let sides = (&recorded.rx_burst, &replayed.rx_burst);
        overlay(&mut out.rx_burst, sides, &mut found.rx_burst, |_, read| *read);
        if recorded.dca_ways.is_none() {
            found.dca_ways = out.dca_ways;
        }
        if recorded.dca_ways != replayed.dca_ways && out.dca_ways.is_some() {
            out.dca_ways = replayed.dca_ways.or(found.dca_ways).or(header.inventory.dca_ways_default);
        }
        out
    }
}

/// The loop's own event when a policy is replaced.
pub(crate) const FOLLOWS: &str = "policy-replaced";

/// True for the step in which a policy starts: the daemon's first, or a replacement.
pub fn begins(entry: &Entry<'_>) -> bool {
    let follows = entry.record.events.first().is_some_and(|event| event.action == FOLLOWS);
    entry.seen.is_none() && (entry.step == 0 || follows)
}

/// An event as the policy reported it, without a dry run's prefix; `None` for the loop's own event.
fn said(event: &Event, mode: Mode) -> Option<Event> {
    let mut event = (event.action != FOLLOWS).then(|| event.clone())?;
    if mode == Mode::DryRun
        && let Some(text) = event.text.strip_prefix(WOULD)
    {
        event.text = text.to_owned();
    }
    Some(event)
}

/// Prefix of an event's text in a dry run.
pub(crate) const WOULD: &str = "would: ";

/// Overlays one kind of knob, only where it can be read.
fn overlay<K: Ord + Copy, V: PartialEq + Copy>(
    out: &mut BTreeMap<K, V>,
    (recorded, replayed): (&BTreeMap<K, V>, &BTreeMap<K, V>),
    found: &mut BTreeMap<K, V>,
    usual: impl Fn(K, &V) -> V,
) {
    for (place, value) in out.iter_mut() {
        let (then, now) = (recorded.get(place), replayed.get(place));
        if then.is_none() {
            found.insert(*place, *value);
        }
        if then != now {
            *value = now.or(found.get(place)).copied().unwrap_or_else(|| usual(*place, value));
        }
    }
}

/// Adds a plan to the wanted values and removes tenants that ended, as the loop does.
fn want(wish: &mut Plan, plan: Plan, groups: &[Group]) {
    wish.masks.retain(|id, _| groups.iter().any(|group| group.id == *id));
    wish.masks.extend(plan.masks);
    wish.dca_ways = plan.dca_ways.or(wish.dca_ways);
    wish.dca.extend(plan.dca);
    wish.rx_ring.extend(plan.rx_ring);
    wish.rx_burst.extend(plan.rx_burst);
}

/// The differences of two sets of wanted values: knob, first value, second value.
pub fn differences(recorded: &Plan, replayed: &Plan, groups: &[Group]) -> Vec<[String; 3]> {
    let mut all = Vec::new();
    let mut push = |place: String, first: Option<String>, second: Option<String>| {
        if first != second {
            let dash = || "-".to_owned();
            all.push([place, first.unwrap_or_else(dash), second.unwrap_or_else(dash)]);
        }
    };
    let masks: BTreeSet<_> = recorded.masks.keys().chain(replayed.masks.keys()).collect();
    for id in masks {
        let text = |plan: &Plan| plan.masks.get(id).map(ToString::to_string);
        push(format!("mask of {}", crate::log::name_of(*id, groups)), text(recorded), text(replayed));
    }
    let text = |plan: &Plan| plan.dca_ways.map(|mask| mask.to_string());
    push("DCA ways".to_owned(), text(recorded), text(replayed));
    let ports: BTreeSet<_> = [recorded, replayed]
        .into_iter()
        .flat_map(|plan| plan.dca.keys().chain(plan.rx_ring.keys()).chain(plan.rx_burst.keys()))
        .collect();
    for port in ports {
        let on = |plan: &Plan| plan.dca.get(port).map(|on| if *on { "on" } else { "off" }.to_owned());
        push(format!("DCA of {port}"), on(recorded), on(replayed));
        let ring = |plan: &Plan| plan.rx_ring.get(port).map(ToString::to_string);
        push(format!("RX ring of {port}"), ring(recorded), ring(replayed));
        let burst = |plan: &Plan| plan.rx_burst.get(port).map(ToString::to_string);
        push(format!("RX burst of {port}"), burst(recorded), burst(replayed));
    }
    all
}

/// True if a time is in a range.
pub fn within(at: SystemTime, from: Option<SystemTime>, to: Option<SystemTime>) -> bool {
    from.is_none_or(|from| at >= from) && to.is_none_or(|to| at <= to)
}
