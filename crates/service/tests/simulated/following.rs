//! One process that follows another: at which call one is killed, and a watch over the knobs from the time when the first is
//! asked to end until the second one is.
//!
//! Must not know what a process does.

use crate::picture::{self, Picture};
use crate::world::{JOURNAL, State};
use std::collections::BTreeSet;

/// What is noted where one process follows another.
#[derive(Default)]
pub struct Following {
    /// The process is killed as it enters this call, counted from the first call of all processes.
    pub kill_at: Option<u64>,
    /// The number of calls when a process was asked to end.
    pub asked_to_end: u64,
    /// The number of calls when the last process had taken its first step.
    pub first_step: u64,
    /// Whether the knobs are watched from the time when one process is asked to end until the next one is.
    pub watches: bool,
    watch: Option<Watch>,
    /// What a watch that ended has found.
    pub watched: Option<Watch>,
}

/// What a look at the knobs after every call that may change one has found.
pub struct Watch {
    /// The knobs at first.
    first: Picture,
    /// How often they were looked at.
    pub looks: u64,
    /// The first knobs that were different once.
    pub changed: BTreeSet<String>,
}

impl Watch {
    fn new(first: Picture) -> Watch {
        Watch { first, looks: 0, changed: BTreeSet::new() }
    }

    fn look(&mut self, now: &Picture) {
        self.looks += 1;
        for name in self.first.keys().chain(now.keys()) {
            let (before, after) = (self.first.get(name), now.get(name));
            if before != after && self.changed.len() < 20 {
                self.changed.insert(format!("{name}: {after:?}, was {before:?}"));
            }
        }
    }
}

impl State {
    /// A process is asked to end.
    pub fn note_stop(&mut self) {
        self.following.asked_to_end = self.calls;
        match self.following.watch.take() {
            Some(watch) => self.following.watched = Some(watch),
            None if self.following.watches => {
                self.following.watch = Some(Watch::new(picture::take(&self.files, &self.clock)));
            }
            None => {}
        }
    }

    /// The last process has taken its first step.
    pub fn note_first_step(&mut self) {
        self.following.first_step = self.calls;
    }

    /// Looks at the knobs, if that is asked for.
    pub fn look(&mut self) {
        if let Some(mut watch) = self.following.watch.take() {
            watch.look(&picture::take(&self.files, &self.clock));
            self.following.watch = Some(watch);
        }
    }

    /// Whether the durable journal has the mark of a hand-over.
    pub fn has_hand_over(&self) -> bool {
        let text = self.disk.durable(JOURNAL).unwrap_or_default();
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(first).contains("\"hand_over\":")
    }
}
