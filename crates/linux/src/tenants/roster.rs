//! What a census found: the tenants that are here, those that are not, and what people should know of it.
//!
//! A note is made when something begins to hold, not at each look. Must not open a file.

use super::Tenant;
use serde::Serialize;
use std::collections::BTreeMap;

/// The tenants at one moment. No core, no process and no device is in two of them, and their names are different.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roster {
    /// Those that are here, in the order of their declaration; matches of one declaration by their own names.
    pub tenants: Vec<Tenant>,
    /// Those that are declared and not here. Of `each` match only those that are here are known.
    pub absent: Vec<Absent>,
    /// When each of the tenants' processes was started, in clock ticks since boot (field 22 of `/proc/PID/stat`): a pid
    /// with another start is another process.
    pub started: BTreeMap<u32, u64>,
    /// What is so now and was not at the last look.
    pub notes: Vec<Note>,
    /// What is so now, new or not, in the words of when it began.
    pub standing: Vec<Note>,
    /// Files read and directories listed for it.
    pub reads: usize,
}

/// A tenant that is declared and not here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Absent {
    /// Its name as declared, with `{name}` in it where each match would be a tenant.
    pub name: String,
    /// What was looked for and not found.
    pub why: String,
}

/// What a note is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// Nothing of a tenant is here.
    Absent,
    /// A process, a core or a device that was declared by its number or name is not here.
    Missing,
    /// A tenant has processes and no cores of its own, so that core counters do not tell of it.
    NoCores,
    /// Something belongs to a tenant declared before.
    Taken,
    /// Devices of several tenants are behind one root port, where DCA is switched for all of them.
    SharedPort,
    /// There is more of something than is looked at.
    TooMany,
    /// A file that should tell something cannot be read.
    Unreadable,
}

/// Something that people should know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Note {
    /// The tenant; `None` if it is about the machine.
    pub tenant: Option<String>,
    /// What it is about.
    pub about: About,
    /// In words.
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

/// What a condition is told apart by from look to look: numbers that change all the time are no part of it.
type Key = (Option<String>, About, String);

/// What holds, so that it is told when it begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    standing: BTreeMap<Key, Note>,
    now: BTreeMap<Key, Note>,
    fresh: Vec<Note>,
}

impl Notes {
    /// Something holds. `key` tells it apart from other things of the kind about the same tenant.
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

    /// What held at the last look that has ended.
    pub fn standing(&self) -> Vec<Note> {
        self.standing.values().cloned().collect()
    }

    /// The end of a look: what is new in it. What does not hold any more will be told again.
    pub fn take(&mut self) -> Vec<Note> {
        self.standing = std::mem::take(&mut self.now);
        std::mem::take(&mut self.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_told_when_it_begins() {
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
