//! The result of a census: the present tenants, the absent ones, and notes for the user.
//!
//! A note is new only when its condition begins, not at each look. Must not open a file.

use super::Tenant;
use serde::Serialize;
use std::collections::BTreeMap;

/// The tenants at one moment. No two have a core, a process, a device or a name in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roster {
    /// Present tenants, in the order of their declaration; the matches of one declaration by path, number or pid.
    pub tenants: Vec<Tenant>,
    /// Declared tenants that are not present. A declaration with `each` is listed only if nothing matches.
    pub absent: Vec<Absent>,
    /// The start time of each of the tenants' processes, in clock ticks since boot (field 22 of `/proc/PID/stat`): a
    /// pid with another start time is another process.
    pub started: BTreeMap<u32, u64>,
    /// Conditions that began since the last look.
    pub notes: Vec<Note>,
    /// All present conditions, with the text of when they began.
    pub standing: Vec<Note>,
    /// Number of files read and directories listed for this roster.
    pub reads: usize,
}

/// A declared tenant that is not present.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Absent {
    /// Its name as declared, with `{name}` in it where each match would be a tenant.
    pub name: String,
    /// What was not found.
    pub why: String,
}

/// The kind of condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// No part of a tenant is present.
    Absent,
    /// A process, core or device that was declared by number or name is not present.
    Missing,
    /// A tenant has processes but no cores of its own, so core counters do not cover it.
    NoCores,
    /// Something belongs to a tenant that is declared earlier.
    Taken,
    /// Devices of several tenants are behind one root port, where DCA is switched for all of them.
    SharedPort,
    /// There are more items than the census reads.
    TooMany,
    /// A file cannot be read.
    Unreadable,
}

/// A note for the user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Note {
    /// The tenant; `None` if it is about the machine.
    pub tenant: Option<String>,
    /// The kind of condition.
    pub about: About,
    /// The message.
    pub text: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "tenant {tenant}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Identifies a condition from look to look; it contains no numbers that change all the time.
type Key = (Option<String>, About, String);

/// Present conditions, to detect when one begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    standing: BTreeMap<Key, Note>,
    now: BTreeMap<Key, Note>,
    fresh: Vec<Note>,
}

impl Notes {
    /// Reports a condition. `key` distinguishes it from other conditions of the kind for the same tenant.
    pub fn tell(&mut self, tenant: Option<&str>, about: About, key: &str, text: impl FnOnce() -> String) {
        let key = (tenant.map(str::to_owned), about, key.to_owned());
        if self.now.contains_key(&key) {
            return;
        }
        let note = self.standing.remove(&key).unwrap_or_else(|| {
            let note = Note { tenant: key.0.clone(), about, text: text() };
            self.fresh.push(note.clone());
            note
        });
        self.now.insert(key, note);
    }

    /// The conditions of the last completed look.
    pub fn standing(&self) -> Vec<Note> {
        self.standing.values().cloned().collect()
    }

    /// Ends a look and returns its new notes. A condition that ended is reported again when it returns.
    pub fn take(&mut self) -> Vec<Note> {
        self.standing = std::mem::take(&mut self.now);
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_reported_when_it_begins() {
        let mut notes = Notes::default();
        let mut look = |holds: bool| {
            for text in ["4 of them", "5 of them"] {
                if holds {
                    notes.tell(Some("a"), About::Taken, "b", || text.to_owned());
                }
            }
            notes.take().iter().map(Note::to_string).collect::<Vec<_>>()
        };
        assert_eq!(look(true), ["tenant a: 4 of them"]);
        assert_eq!(look(true), [""; 0]);
        assert_eq!(look(false), [""; 0]);
        assert_eq!(look(true), ["tenant a: 4 of them"], "it began again");
    }
}
