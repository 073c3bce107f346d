//! Publishes each step: in the published state, to the step queues and in the log.
//!
//! Must not know the readers.

use super::{Engine, ManagedHost};
use crate::published_state::{Mode, Published};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;
use waykeeper_control::{Problem, Record};
use waykeeper_host::{Group, Interval, Knob, KnobSetting, Reading, Snapshot};
use waykeeper_policy::Event;

impl<H: ManagedHost> Engine<'_, H> {
    /// Publishes what the loop did: a step, or a change of the policy.
    pub(super) fn publish(&mut self) {
        self.unpublished = false;
        let record = self.looping.record().clone();
        let groups = self.looping.host().groups();
        self.active_problems.note(&record, &groups);
        let actions = self.totals.actions.entry(self.looping.policy().name().to_owned()).or_default();
        for event in &record.events {
            *actions.entry(event.action.clone()).or_default() += 1;
        }
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

    /// Publishes a change between two steps. A new record of the loop is sent to the published state, the log and step
    /// queues; without one, only the published state is updated, because the last record was published already.
    pub(super) fn publish_change(&mut self) {
        if self.unpublished {
            return self.publish();
        }
        let record = self.looping.record().clone();
        let groups = self.looping.host().groups();
        let snapshot = self.looping.snapshot().cloned();
        self.published(record, groups, snapshot);
    }

    fn published(
        &mut self,
        mut record: Record,
        groups: Vec<Group>,
        snapshot: Option<Snapshot>,
    ) -> Arc<Published> {
        if self.config.mode == Mode::DryRun {
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
        let at = SystemTime::now();
        let happened = self.looping.host().take_events();
        self.log.problem_changes(at, &changes, &happened);
        let next = Published {
            step: self.step,
            at,
            started: self.started,
            mode: self.config.mode,
            paused: self.paused,
            policy: self.looping.policy().name().to_owned(),
            settings: self.settings.clone(),
            period_ns: self.config.period_ns,
            inventory: self.inventory.clone(),
            groups,
            groupings: self.looping.host().groupings(),
            classes: self.looping.host().classes(),
            snapshot,
            seen: self.looping.seen().cloned(),
            record,
            active_problems,
            totals: self.totals.clone(),
        };
        self.published_state.replace(next)
    }
}

/// The knobs that a dry run would have set, one event each, since not every policy reports its own.
fn would_turn(record: &Record, groups: &[Group]) -> Vec<Event> {
    let event = |group: Option<&Group>, text: String| Event {
        action: "would-turn".to_owned(),
        group: group.map(|group| group.name.clone()),
        text,
        causes: Vec::new(),
    };
    let wanted = record.desired.settings().filter(|wanted| record.applied.names(wanted.knob));
    let would = |wanted: KnobSetting| match wanted.knob {
        Knob::Mask(id) => {
            let group = groups.iter().find(|group| group.id == id);
            let name = group.map_or_else(|| id.to_string(), |group| group.name.clone());
            event(group, format!("would: mask {} of {name}", wanted.setting))
        }
        _ => event(None, format!("would: {wanted}")),
    };
    wanted.map(would).collect()
}

/// Reasons why values of a step could not be used, each once.
fn dropped(
    record: &Record,
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
        let ports = seen.ports.values().flat_map(|port| [port.inbound_bytes, port.outbound_bytes]);
        let socket = &seen.socket;
        let groups = seen.groups.values().flat_map(|group| {
            [
                group.instructions,
                group.cycles,
                group.mlc_hits,
                group.mlc_misses,
                group.llc_hits,
                group.llc_misses,
            ]
        });
        let all = groups.chain(ports).chain([
            socket.dca_write_hits,
            socket.dca_write_misses,
            socket.dca_read_hits,
            socket.dca_read_misses,
            socket.memory_read_bytes,
            socket.memory_write_bytes,
        ]);
        if all.into_iter().any(|rate| rate == Reading::Unavailable) {
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
    let fell = |before: Reading<u64>, after: Reading<u64>| match (before, after) {
        (Reading::Value(before), Reading::Value(after)) => after < before,
        _ => false,
    };
    let groups = after.groups.iter().filter_map(|(id, now)| Some((before.groups.get(id)?, now)));
    let ports = after.ports.iter().filter_map(|(id, now)| Some((before.ports.get(id)?, now)));
    let mut groups = groups.map(|(a, b)| {
        fell(a.instructions, b.instructions)
            || fell(a.cycles, b.cycles)
            || fell(a.mlc_hits, b.mlc_hits)
            || fell(a.mlc_misses, b.mlc_misses)
            || fell(a.llc_hits, b.llc_hits)
            || fell(a.llc_misses, b.llc_misses)
    });
    let mut ports = ports
        .map(|(a, b)| fell(a.inbound_bytes, b.inbound_bytes) || fell(a.outbound_bytes, b.outbound_bytes));
    let (a, b) = (&before.socket, &after.socket);
    groups.any(|fell| fell)
        || ports.any(|fell| fell)
        || fell(a.dca_write_hits, b.dca_write_hits)
        || fell(a.dca_write_misses, b.dca_write_misses)
        || fell(a.dca_read_hits, b.dca_read_hits)
        || fell(a.dca_read_misses, b.dca_read_misses)
        || fell(a.memory_read_bytes, b.memory_read_bytes)
        || fell(a.memory_write_bytes, b.memory_write_bytes)
}
