//! The mark of a hand-over: a daemon ended and left its knobs in force for the next one.
//!
//! It is in the first line of the journal, which the end, the next daemon and a restore replace as a whole: after a kill the
//! mark is there or not, never in part. The originals stay in the journal. A version that does not know the mark reads the
//! journal of a daemon that was killed, and restores it. Must not know how groups are taken over.

use super::{Journal, JournalError};
use crate::resctrl::Group;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use waykeeper_units::WorkloadId;

/// What the daemon that ended leaves to the next one besides the originals.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandOver {
    /// When the daemon ended, on the clock of this boot, in nanoseconds.
    pub at_ns: u64,
    /// Until when the next daemon must have come, on that clock.
    pub until_ns: u64,
    /// A restore after the daemon's end has left the knobs to the next daemon; another restores them.
    #[serde(default)]
    pub waited: bool,
    /// The managed L3, as in resctrl's schemata.
    pub l3: u32,
    /// The tenants with their groups.
    pub tenants: Vec<HandedTenant>,
    /// What it has learnt, for the next daemon; this crate does not know what is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<serde_json::Value>,
}

/// A tenant of the daemon that ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedTenant {
    /// Its name.
    pub name: String,
    /// Its number, by which `memory` names it. Daemons before this key did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<WorkloadId>,
    /// The control group that it is in.
    pub group: Group,
    /// It is counted by the control group's own RMID; otherwise by a monitoring group in it.
    pub leads: bool,
}

impl HandOver {
    /// The time that is left to the next daemon at `now` on the clock of this boot; `None` if it did not come in time.
    pub fn time_left(&self, now: Duration) -> Option<Duration> {
        let (at, until) = (Duration::from_nanos(self.at_ns), Duration::from_nanos(self.until_ns));
        // A clock before the end is that of another boot.
        until.checked_sub(now).filter(|left| !left.is_zero() && now >= at)
    }
}

impl Journal {
    /// The mark of a hand-over, if there is one. It says nothing about a damaged journal, or one of an earlier boot.
    pub fn hand_over(&self) -> Option<&HandOver> {
        self.hand_over.as_ref().filter(|_| self.damage.is_empty() && !self.is_stale())
    }

    /// The mark, if the next daemon may still take the knobs over.
    pub fn valid_hand_over(&self) -> Option<&HandOver> {
        self.hand_over().filter(|mark| mark.time_left(self.system.now()).is_some())
    }

    /// Marks the knobs in this journal as left to the next daemon.
    ///
    /// # Errors
    /// The mark cannot be written; the journal is then unchanged.
    pub fn mark_hand_over(&mut self, mark: HandOver) -> Result<(), JournalError> {
        self.set_hand_over(Some(mark))
    }

    /// Notes in the mark that a restore has left the knobs to the next daemon. Another restore does not leave them.
    ///
    /// # Errors
    /// The journal cannot be written; the mark then stays as it was.
    pub fn note_waited(&mut self) -> Result<(), JournalError> {
        let waited = self.hand_over.clone().map(|mark| HandOver { waited: true, ..mark });
        self.set_hand_over(waited)
    }

    /// Removes the mark: the next daemon has taken the knobs over, or a restore begins.
    ///
    /// # Errors
    /// The journal cannot be written; the mark then stays.
    pub fn end_hand_over(&mut self) -> Result<(), JournalError> {
        self.set_hand_over(None)
    }

    fn set_hand_over(&mut self, mark: Option<HandOver>) -> Result<(), JournalError> {
        if self.hand_over == mark {
            return Ok(());
        }
        if self.is_stale() {
            return Err(JournalError::Stale { path: self.path.clone() });
        }
        if let Some(damage) = self.damage.first() {
            return Err(JournalError::Damaged { path: self.path.clone(), damage: damage.clone() });
        }
        let before = std::mem::replace(&mut self.hand_over, mark);
        let knobs = self.knobs.clone();
        let written = self.make_seal().and_then(|()| {
            self.write_anew(&knobs).map_err(|source| JournalError::Write { path: self.path.clone(), source })
        });
        match written {
            Ok(()) => self.broken = false,
            Err(_) => self.hand_over = before,
        }
        written
    }
}
