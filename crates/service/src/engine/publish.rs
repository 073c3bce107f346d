//! Publishes each step: in the published state, to the step queues and in the log.
//!
//! Must not know the readers.

use super::{Engine, ManagedHost};
use crate::naming::HostNames;
use crate::published_state::{DaemonMode, LastAction, Published};
use std::collections::BTreeSet;
use std::sync::Arc;
use waykeeper_control::{Problem, StepRecord};
use waykeeper_host::{
    HostCounter, Interval, Knob, KnobOutcome, KnobSetting, Reading, Readings, Snapshot, Workload,
};
use waykeeper_policy::Event;

impl<H: ManagedHost> Engine<'_, H> {
    /// Publishes what the loop did: a step, or a change of the policy.
    pub(super) fn publish(&mut self) {
        self.unpublished = false;
        let record = self.looping.record().clone();
        let groups = self.looping.host().workloads();
        self.active_problems.note(&record, &groups, self.looping.host().inventory());
        let actions = self.totals.actions.entry(self.looping.policy().name().to_owned()).or_default();
        for event in &record.events {
            *actions.entry(event.action.clone()).or_default() += 1;
        }
        self.keep_action(&record, &groups);
        self.totals.summary = self.looping.summary();
        self.totals.unlogged = (self.unlogged)();
        let snapshot = self.looping.snapshot().cloned();
        for reason in dropped(&record, self.looping.seen(), self.before.as_ref(), snapshot.as_ref()) {
            *self.totals.dropped.entry(reason.to_owned()).or_default() += 1;
        }
        self.before.clone_from(&snapshot);
        let step = self.published(record, groups, snapshot);
        self.log.step(step.clone());
        for step_queue in &self.step_queues {
            if !step_queue.offer(step.clone()) {
                self.totals.unrecorded += 1;
            }
        }
    }

    /// Keeps what turned knobs in this step, in a line.
    fn keep_action(&mut self, record: &StepRecord, groups: &[Workload]) {
        if self.config.mode != DaemonMode::Manage {
            return;
        }
        let Some((action, text)) = action_of(record) else { return };
        let at = self.system.wall_clock();
        let policy = self.looping.policy().name().to_owned();
        let text = HostNames::new(groups, &self.inventory).text(&text);
        self.last_actions.push(LastAction { step: self.step, at, policy, action, text });
        if self.last_actions.len() > LastAction::KEPT {
            self.last_actions.remove(0);
        }
    }

    /// Publishes a change between two steps. A new record of the loop is sent to the published state, the log and step
    /// queues; without one, only the published state is updated, because the last record was published already.
    pub(super) fn publish_change(&mut self) {
        if self.unpublished {
            return self.publish();
        }
        let record = self.looping.record().clone();
        let groups = self.looping.host().workloads();
        let snapshot = self.looping.snapshot().cloned();
        self.published(record, groups, snapshot);
    }

    fn published(
        &mut self,
        mut record: StepRecord,
        groups: Vec<Workload>,
        snapshot: Option<Snapshot>,
    ) -> Arc<Published> {
        if self.config.mode != DaemonMode::Manage {
            for event in &mut record.events {
                event.text = format!("{}{}", crate::replay::DRY_RUN_PREFIX, event.text);
            }
            let turned = would_turn(&record, &groups);
            record.events.extend(turned);
        }
        if *self.inventory != *self.looping.host().inventory() {
            self.inventory = Arc::new(self.looping.host().inventory().clone());
        }
        let problems = self.lasting_problems();
        let (active_problems, changes) = self.active_problems.list(problems);
        let at = self.system.wall_clock();
        let happened = self.looping.host().take_events();
        self.log.problem_changes(at, &changes, &happened);
        let next = Published {
            step: self.step,
            at,
            started: self.started.0,
            at_clock: self.system.now(),
            started_clock: self.started.1,
            mode: self.config.mode,
            paused: self.paused,
            hands_over_until: self.hands_over_until.filter(|until| self.system.now() < *until),
            policy: self.looping.policy().name().to_owned(),
            file_policy: super::file_policy_of(&self.config),
            settings: self.settings.clone(),
            period_ns: self.config.period_ns,
            inventory: self.inventory.clone(),
            groups,
            groupings: self.looping.host().groupings(),
            classes: self.looping.host().classes(),
            snapshot,
            seen: self.looping.seen().cloned(),
            record,
            twin: self.show_twin.as_ref().map(|show| show()),
            advice: self.looping.policy().advice().cloned(),
            last_actions: self.last_actions.clone(),
            active_problems,
            totals: self.totals.clone(),
        };
        self.published_state.replace(next)
    }
}

/// The action of a step that turned knobs, and its line: what was done, and what the host did not take.
fn action_of(record: &StepRecord) -> Option<(String, String)> {
    let of = |is_set: bool| {
        let is_so =
            |knob: Knob| record.applied.get(knob).is_some_and(|own| (*own == KnobOutcome::Applied) == is_set);
        let settings = record.wanted.settings().filter(|wanted| is_so(wanted.knob));
        settings.map(|wanted| wanted.to_string()).collect::<Vec<_>>()
    };
    let (turned, not_turned) = (of(true), of(false));
    if turned.is_empty() {
        return None;
    }
    let (action, mut text) = match record.events.first() {
        Some(event) => (event.action.clone(), event.text.clone()),
        None => ("knobs-turned".to_owned(), turned.join(", ")),
    };
    if record.events.len() > 1 {
        text += &format!("; and {} more", record.events.len() - 1);
    }
    if !not_turned.is_empty() {
        text += &format!("; not turned: {}", not_turned.join(", "));
    }
    Some((action, text))
}

/// The knobs that a dry run would have set, one event each, since not every policy reports its own.
fn would_turn(record: &StepRecord, groups: &[Workload]) -> Vec<Event> {
    let event = |group: Option<&Workload>, text: String| Event {
        action: "would-turn".to_owned(),
        group: group.map(|group| group.name.clone()),
        text,
        causes: Vec::new(),
    };
    let wanted = record.wanted.settings().filter(|wanted| record.applied.names(wanted.knob));
    let would = |wanted: KnobSetting| match wanted.knob {
        Knob::Mask(id) => {
            let group = groups.iter().find(|group| group.id == id);
            let name = group.map_or_else(|| id.to_string(), |group| group.name.clone());
            event(group, format!("would: mask {} of {name}", wanted.setting))
        }
        // Where the text is shown, it gets the names of the devices.
        _ => event(None, format!("would: {wanted}")),
    };
    wanted.map(would).collect()
}

/// Reasons why values of a step could not be used, each once.
fn dropped(
    record: &StepRecord,
    seen: Option<&Interval>,
    before: Option<&Snapshot>,
    after: Option<&Snapshot>,
) -> Vec<&'static str> {
    let mut reasons: BTreeSet<&'static str> = BTreeSet::new();
    for problem in &record.problems {
        match problem {
            Problem::Sample(_) => reasons.insert("unreadable"),
            Problem::NoTime => reasons.insert("no-time"),
            Problem::ClockBack { .. } => reasons.insert("clock-back"),
            _ => false,
        };
    }
    if let Some(seen) = seen {
        let groups = seen.groups.values().flat_map(|group| group.counts().map(|(_, rate)| rate));
        let ports = seen.ports.values().flat_map(|port| port.counts().map(|(_, rate)| rate));
        let mut all = groups.chain(ports).chain(seen.socket.counts().map(|(_, rate)| rate));
        if all.any(|rate| rate == Reading::Unavailable) {
            reasons.insert("unavailable");
        }
    }
    if let (Some(before), Some(after)) = (before, after)
        && ran_back(before, after)
    {
        reasons.insert("ran-back");
    }
    reasons.into_iter().collect()
}

/// Whether a counter of the same group or port is lower than before: a reset, or an unnoticed wrap.
fn ran_back(before: &Snapshot, after: &Snapshot) -> bool {
    let mut groups = after.groups.iter().filter_map(|(id, now)| Some((before.groups.get(id)?, now)));
    let mut ports = after.ports.iter().filter_map(|(id, now)| Some((before.ports.get(id)?, now)));
    groups.any(|(a, b)| fell(a, b)) || ports.any(|(a, b)| fell(a, b)) || fell(&before.socket, &after.socket)
}

/// Whether a count of `after` is lower than in `before`.
fn fell<K: HostCounter<N>, const N: usize>(
    before: &Readings<K, u64, N>,
    after: &Readings<K, u64, N>,
) -> bool {
    before.counts().any(|(counter, before)| match (before, after[counter]) {
        (Reading::Value(before), Reading::Value(after)) => after < before,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::{WayMask, WorkloadId};

    fn record(events: usize, outcomes: [KnobOutcome; 2]) -> StepRecord {
        let mut record = StepRecord::default();
        for (id, outcome) in (0..).map(WorkloadId).zip(outcomes) {
            record.wanted.insert(Knob::Mask(id), WayMask::from_bits(0x00f));
            record.applied.insert(Knob::Mask(id), outcome);
        }
        let event = Event {
            action: "layout".to_owned(),
            group: None,
            text: "fio gets 4 ways".to_owned(),
            causes: Vec::new(),
        };
        record.events = vec![event; events];
        record
    }

    #[test]
    fn a_knob_that_the_host_did_not_take_was_not_turned() {
        let busy = || KnobOutcome::Busy("group excl has its ways".to_owned());
        let line = |events, outcomes| action_of(&record(events, outcomes)).map(|(_, text)| text);
        let both = line(0, [KnobOutcome::Applied, KnobOutcome::Applied]).unwrap();
        let one = line(0, [KnobOutcome::Applied, busy()]).unwrap();
        let (first, second) = both.split_once(", ").unwrap();
        assert_eq!(one, format!("{first}; not turned: {second}"));
        let decided = line(2, [KnobOutcome::Applied, busy()]).unwrap();
        assert_eq!(decided, format!("fio gets 4 ways; and 1 more; not turned: {second}"));
        assert_eq!(line(1, [busy(), KnobOutcome::Refused("no".to_owned())]), None);
    }
}
