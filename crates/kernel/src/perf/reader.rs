//! One thread per package that reads uncore events: a read from another package interrupts a CPU there, a read from a
//! CPU of the same package does not (hardware.md 3.5, 6.3).
//!
//! Must not know what the events count.

use super::call::PerfGroup;
use crate::counters::Shown;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The values of each group, or the error.
pub(super) type Answers = Vec<Result<Vec<Shown>, Errno>>;

/// A thread pinned to one CPU that reads the groups on request.
#[derive(Debug)]
pub(super) struct PinnedReader {
    ask: Option<Sender<()>>,
    answers: Receiver<Answers>,
    thread: Option<JoinHandle<()>>,
    count: usize,
}

impl PinnedReader {
    /// Starts the thread. The second result says why it could not be pinned; it then runs on any CPU, and each read
    /// costs an interrupt.
    pub fn start(mut groups: Vec<PerfGroup>, cpu: u16) -> std::io::Result<(PinnedReader, Option<Errno>)> {
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
            // If the starter is gone, there is no receiver and the loop below ends.
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
        // A reader thread that ended has no values.
        answers.unwrap_or_else(|| vec![Err(Errno::SRCH); self.count])
    }
}

impl Drop for PinnedReader {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // The closed channel ends the thread; a panic in it was already printed.
            let _ = thread.join();
        }
    }
}
