//! resctrl's shared lock, as the control thread takes it: it never waits, and ignores a holder that cannot write
//! resctrl.
//!
//! Any user who can open the mount's directory can hold its lock. A holder that may not write there is ignored. An
//! unidentifiable holder is honoured for 2 s. Must not know what is done under the lock.

use super::Groups;
use crate::resctrl::{Kind, Lock, ResctrlError, Right};
use std::time::{Duration, Instant};

/// How long an unidentifiable lock holder is honoured. Tools hold the lock for single changes; this is two steps of 1 s
/// (assumption).
const PATIENCE: Duration = Duration::from_secs(2);

/// How long opening a host waits for the lock; no step is due yet then.
const AT_FIRST: Duration = Duration::from_millis(2500);

/// Permission to change groups, with or without the lock. Hold it for all changes of one step.
#[derive(Debug)]
pub struct Passage {
    /// `None` if the holder is ignored.
    _lock: Option<Lock>,
}

/// The state of the lock between steps.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Since when an unidentifiable holder has had it.
    since: Option<Instant>,
    /// An ignored holder was already reported.
    told: bool,
}

impl Groups {
    /// Takes the lock if it is free or its holder may be ignored; never waits. Call it once per step.
    ///
    /// # Errors
    /// [`Kind::Locked`] with the holder: retry at the next step.
    pub fn pass(&mut self) -> Result<Passage, ResctrlError> {
        let holder = match self.resctrl.try_lock()? {
            Ok(lock) => {
                self.gate = Gate::default();
                return Ok(Passage { _lock: Some(lock) });
            }
            Err(holder) => holder,
        };
        let (goes_on, why) = match holder.right {
            Right::Writes => (false, ""),
            Right::None => (true, "which cannot write there, so the lock protects nothing"),
            Right::Unknown => {
                let since = *self.gate.since.get_or_insert_with(Instant::now);
                (since.elapsed() >= PATIENCE, "and tools hold it only for single changes")
            }
        };
        if !goes_on {
            return Err(self.resctrl.locked_by(&holder, Duration::ZERO));
        }
        if !std::mem::replace(&mut self.gate.told, true) {
            self.notes.push(format!(
                "the lock on {} is held by {}, {why}: Waykeeper does not wait for it",
                self.resctrl.mount_point().display(),
                holder.who.as_deref().unwrap_or("a process that cannot be identified")
            ));
        }
        Ok(Passage { _lock: None })
    }

    /// The same before the first step: retries for up to 2.5 s.
    ///
    /// # Errors
    /// As [`Groups::pass`], after that time.
    pub fn pass_at_first(&mut self) -> Result<Passage, ResctrlError> {
        let start = Instant::now();
        loop {
            match self.pass() {
                Err(error) if error.kind == Kind::Locked && start.elapsed() < AT_FIRST => {
                    std::thread::sleep(AT_FIRST / 50);
                }
                passed => return passed,
            }
        }
    }
}
