//! One thread per package that reads uncore events: reading them from another package interrupts a CPU there, from a CPU
//! of the same package it does not (hardware.md 3.5, 6.3).
//!
//! Must not know what the events count.

use super::call::Group;
use crate::counters::Shown;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What each group shows, or why it does not.
pub(super) type Answers = Vec<Result<Vec<Shown>, Errno>>;

/// A thread pinned to one CPU that reads groups when asked.
#[derive(Debug)]
pub(super) struct PinnedReader {
    ask: Option<Sender<()>>,
    answers: Receiver<Answers>,
    thread: Option<JoinHandle<()>>,
    count: usize,
}

impl PinnedReader {
    /// Starts it. The second part of the answer says why it could not be pinned; it then reads from wherever it runs,
    /// which costs an interrupt a read.
    pub fn start(mut groups: Vec<Group>, cpu: u16) -> std::io::Result<(PinnedReader, Option<Errno>)> {
        let (ask, asked) = channel::<()>();
        let (answer, answers) = channel();
        let (ready, pinned) = channel();
        let count = groups.len();
        let thread = std::thread::Builder::new().name(format!("uncore-{cpu}")).spawn(move || {
            let mut cpus = CpuSet::new();
            let result = if usize::from(cpu) < CpuSet::MAX_CPU {
                cpus.set(usize::from(cpu));
                sched_setaffinity(None, &cpus)
            } else {
                Err(Errno::INVAL)
            };
            // Nobody listens any more if the starter is gone: then there is nothing to do either.
            let _ = ready.send(result.err());
            while asked.recv().is_ok() {
                let read = groups.iter_mut().map(|group| group.read().map(Iterator::collect)).collect();
                if answer.send(read).is_err() {
                    break;
                }
            }
        })?;
        let refused = pinned.recv().unwrap_or(Some(Errno::SRCH));
        Ok((PinnedReader { ask: Some(ask), answers, thread: Some(thread), count }, refused))
    }

    /// Reads all groups, in order.
    pub fn read(&self) -> Answers {
        let asked = self.ask.as_ref().is_some_and(|ask| ask.send(()).is_ok());
        let answers = asked.then(|| self.answers.recv().ok()).flatten();
        // A reader that is gone has no numbers for any of them.
        answers.unwrap_or_else(|| vec![Err(Errno::SRCH); self.count])
    }
}

impl Drop for PinnedReader {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // It ends by itself now that nobody can ask; a panic in it was already printed.
            let _ = thread.join();
        }
    }
}
