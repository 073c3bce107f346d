//! The lock that tools share, as a control thread takes it: never waited for, and worth what its holder may write.
//!
//! Whoever can open the mount's directory can hold its lock, which is everybody. One who cannot write in it keeps nobody
//! out; one whom nobody can name keeps us out for a while. Must not know what is done behind it.

use super::Groups;
use crate::resctrl::{Kind, Lock, ResctrlError, Right};
use std::time::{Duration, Instant};

/// How long a lock counts whose holder is unknown. Tools hold it for single changes: two steps of a second (assumption).
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the opening of a host waits for a lock, when no step is due yet.
const AT_FIRST: Duration = Duration::from_millis(2500);

/// The way in, for one change of several steps.
#[derive(Debug)]
pub struct Passage {
    /// `None` where it is gone without.
    _lock: Option<Lock>,
}

/// What is known of the lock from one step to the next.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Since when somebody whom nobody can name has had it.
    since: Option<Instant>,
    /// It was told that it is gone without.
    told: bool,
}

impl Groups {
    /// Takes the lock if it is free or nothing worth; nothing is waited for. Take it once a step, at its outermost.
    ///
    /// # Errors
    /// [`Kind::Locked`] with who has it: try again at the next step.
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

    /// The same before any step is due: it may take a moment.
    ///
    /// # Errors
    /// As [`Groups::pass`], after that moment.
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
