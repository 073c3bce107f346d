//! resctrl's shared lock, as the control thread takes it: it never waits, and ignores a holder that cannot write
//! resctrl.
//!
//! Any user who can open the mount's directory can hold its lock. A holder that may not write there is ignored. An
//! unidentifiable holder is honoured for 2 s, each anew as far as `/proc/locks` tells them apart. Must not know what is
//! done under the lock.

use super::Allocation;
use std::time::Duration;
use waykeeper_kernel::resctrl::{FlockGuard, Holder, ResctrlError, ResctrlErrorKind, WriteAccess};

/// How long an unidentifiable lock holder is honoured. Tools hold the lock for single changes; this is two steps of 1 s
/// (assumption).
const UNIDENTIFIED_HOLDER_WAIT: Duration = Duration::from_secs(2);

/// How long opening a host waits for the lock; no step is due yet then.
const START_WAIT: Duration = Duration::from_millis(2500);

/// Permission to change groups, with or without the lock. Hold it for all changes of one step.
#[derive(Debug)]
pub struct ResctrlLock {
    /// `None` if the holder is ignored.
    _lock: Option<FlockGuard>,
}

/// The state of the lock between steps.
#[derive(Debug, Default)]
pub(super) struct LockState {
    /// The unidentifiable holder that was seen last, and when it was first seen, on the system's clock.
    unidentified: Option<(Option<String>, Duration)>,
    /// An ignored holder was already reported.
    reported: bool,
}

impl LockState {
    /// Why a holder is ignored, if it is.
    fn ignores(&mut self, holder: &Holder, now: Duration) -> Option<&'static str> {
        // Another holder: the time of the one before does not count for a later one.
        self.unidentified
            .take_if(|(who, _)| holder.write_access != WriteAccess::Unknown || *who != holder.who);
        match holder.write_access {
            WriteAccess::Writes => None,
            WriteAccess::None => Some("which cannot write there, so the lock protects nothing"),
            WriteAccess::Unknown => {
                let (_, since) = self.unidentified.get_or_insert((holder.who.clone(), now));
                let is_over = now.saturating_sub(*since) >= UNIDENTIFIED_HOLDER_WAIT;
                is_over.then_some("and tools hold it only for single changes")
            }
        }
    }
}

impl Allocation {
    /// Takes the lock if it is free or its holder may be ignored; never waits. Call it once per step.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Locked`] with the holder: retry at the next step.
    pub fn take_lock(&mut self) -> Result<ResctrlLock, ResctrlError> {
        let holder = match self.resctrl.try_lock()? {
            Ok(lock) => {
                self.lock_state = LockState::default();
                return Ok(ResctrlLock { _lock: Some(lock) });
            }
            Err(holder) => holder,
        };
        let now = self.root.system().now();
        let Some(why) = self.lock_state.ignores(&holder, now) else {
            return Err(self.resctrl.locked_by(&holder, Duration::ZERO));
        };
        if !std::mem::replace(&mut self.lock_state.reported, true) {
            self.notes.push(format!(
                "the lock on {} is held by {}, {why}: Waykeeper does not wait for it",
                self.resctrl.mount_point().display(),
                holder.who.as_deref().unwrap_or("a process that cannot be identified")
            ));
        }
        Ok(ResctrlLock { _lock: None })
    }

    /// The same before the first step: retries for up to 2.5 s.
    ///
    /// # Errors
    /// As [`Allocation::take_lock`], after that time.
    pub fn take_lock_at_start(&mut self) -> Result<ResctrlLock, ResctrlError> {
        let system = self.root.system().clone();
        let start = system.now();
        loop {
            match self.take_lock() {
                Err(error)
                    if error.kind == ResctrlErrorKind::Locked
                        && system.now().saturating_sub(start) < START_WAIT =>
                {
                    system.sleep(START_WAIT / 50);
                }
                taken => return taken,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unidentifiable_holder_is_honoured_for_two_seconds() {
        let holder = |who: &str, write_access| Holder { who: Some(who.to_owned()), pid: None, write_access };
        let unknown = |who| holder(who, WriteAccess::Unknown);
        let mut state = LockState::default();
        let mut ignored = |holder: &Holder, ms| state.ignores(holder, Duration::from_millis(ms)).is_some();
        assert!(!ignored(&unknown("pid 1"), 1000));
        assert!(!ignored(&unknown("pid 1"), 2999));
        // 2 s after pid 1 was seen, but 0.1 s after pid 2 was.
        assert!(!ignored(&unknown("pid 2"), 3000));
        assert!(!ignored(&unknown("pid 2"), 4999));
        assert!(ignored(&unknown("pid 2"), 5000));
        assert!(ignored(&unknown("pid 2"), 6000));
        // A tool that may write had it in between: pid 2 holds it anew.
        assert!(!ignored(&holder("pqos", WriteAccess::Writes), 6100));
        assert!(!ignored(&unknown("pid 2"), 6200));
        assert!(ignored(&holder("pid 3", WriteAccess::None), 6300));
    }
}
