//! A policy that waits for every answer of its process: for simulations, where time passes only between the calls.
//!
//! Its first failure is kept for the caller, sets the caller's flag, and is its last call. Must not know what is simulated.

use crate::PolicyFileError;
use crate::file::PolicyFile;
use crate::process::{Described, Interpreter, OPENING, PolicyProcess};
use crate::wire::{PolicyAnswer, PolicyCall};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_policy::{Decision, Description, Policy};

/// The first failure of all policies that share this.
#[derive(Clone, Debug, Default)]
pub struct FirstFailure(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    failure: Option<String>,
    stop: Option<Arc<AtomicBool>>,
}

impl FirstFailure {
    /// The flag to set at the first failure; it is set at once if there was one.
    pub fn stops(&self, stop: Arc<AtomicBool>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stop.fetch_or(noted.failure.is_some(), Ordering::Relaxed);
        noted.stop = Some(stop);
    }

    /// The failure, in one line.
    pub fn first(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    fn note(&self, failure: String) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.failure.get_or_insert(failure);
        if let Some(stop) = &noted.stop {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// A policy that waits for its process.
pub struct WaitingPolicy {
    described: Described,
    /// `None` after a failure.
    process: Option<PolicyProcess>,
    failure: FirstFailure,
    /// Intervals seen.
    intervals: u64,
    /// Their number, for the next step, if it has changed.
    classes: Option<u32>,
}

impl fmt::Debug for WaitingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingPolicy").field("name", &self.described.name).finish_non_exhaustive()
    }
}

impl WaitingPolicy {
    /// Starts the process and makes the policy with these settings.
    ///
    /// # Errors
    /// Everything that can be wrong with the file or the settings; the first failure, if there was one.
    pub fn open(
        file: &PolicyFile,
        with: &Interpreter,
        settings: &Table,
        failure: &FirstFailure,
    ) -> Result<WaitingPolicy, PolicyFileError> {
        // After a failure the caller needs no more results.
        if let Some(failed) = failure.first() {
            return Err(PolicyFileError::Raised(failed));
        }
        let (process, described) = PolicyProcess::open(file, with, Some(settings))?;
        Ok(WaitingPolicy {
            described,
            process: Some(process),
            failure: failure.clone(),
            intervals: 0,
            classes: None,
        })
    }

    fn decide(&mut self, call: &PolicyCall<'_>) -> Decision {
        let Some(process) = &mut self.process else { return Decision::default() };
        let number = process.call(call);
        let failure = match process.wait(Instant::now() + OPENING, OPENING) {
            Ok((answered, PolicyAnswer::Decision(decision))) if answered == number => return decision,
            Ok(_) => process.unexpected("it answers another call"),
            Err(failure) => failure,
        };
        self.process = None;
        let when = match self.intervals {
            0 => "at its start".to_owned(),
            interval => format!("in interval {interval}"),
        };
        self.failure.note(format!("policy {}, {when}: {failure}", self.described.name));
        Decision::default()
    }
}

impl Policy for WaitingPolicy {
    fn name(&self) -> &str {
        &self.described.name
    }

    fn describe(&self) -> Description {
        let Described { name, idea, .. } = self.described.clone();
        Description { name, idea, source: "a file".to_owned(), ..Description::default() }
    }

    fn start(&mut self, inventory: &Inventory, workloads: &[Workload]) -> Decision {
        self.decide(&PolicyCall::Start { inventory, workloads })
    }

    fn step(&mut self, workloads: &[Workload], seen: &Interval) -> Decision {
        self.intervals += 1;
        let classes = self.classes.take();
        self.decide(&PolicyCall::Step { workloads, seen, classes })
    }

    fn classes(&mut self, clos_count: u32) {
        self.classes = Some(clos_count);
    }
}
