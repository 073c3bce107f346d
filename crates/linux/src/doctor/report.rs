//! What an examination finds: one line a subject, its state, and what would make it better.
//!
//! Plain values. Must not know how anything is found out, nor how it is shown.

use serde::Serialize;
use std::fmt::Display;

/// How it stands with one subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there and can be used.
    Ok,
    /// It is not there, or cannot be used as things are; the remedy says what would bring it.
    Missing,
    /// It is there and worse than it could be, or somebody else is at it.
    Degraded,
    /// It could not be found out: a file is unreadable or makes no sense, or nobody knows (hardware.md 13).
    Unknown,
    /// A plain fact, neither good nor bad.
    Info,
}

/// Which part of the report a subject belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// What this host is.
    Host,
    /// The ways to it: devices of the kernel, permissions, lockdown.
    Access,
    /// What can be watched.
    Watch,
    /// What can be steered.
    Steer,
    /// Who else is at work, and what an earlier run has left.
    Others,
}

impl Family {
    /// The heading over its subjects.
    pub fn heading(self) -> &'static str {
        match self {
            Family::Host => "this host",
            Family::Access => "access",
            Family::Watch => "can be watched",
            Family::Steer => "can be steered",
            Family::Others => "other tools",
        }
    }
}

/// One subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// Its name; names do not change between versions.
    pub name: &'static str,
    /// How it stands with it.
    pub state: State,
    /// What was found, for people, with units.
    pub value: String,
    /// What to do about it: a command, a boot option, a setting. None if nothing needs doing or nothing would help.
    pub remedy: Option<String>,
    /// Where it belongs.
    #[serde(skip)]
    pub family: Family,
}

impl Check {
    /// A subject without a remedy.
    pub fn new(family: Family, name: &'static str, state: State, value: impl Display) -> Check {
        Check { name, state, value: value.to_string(), remedy: None, family }
    }

    /// The same with a remedy; an empty text is none.
    pub fn remedy(self, remedy: impl Display) -> Check {
        Check { remedy: Some(remedy.to_string()).filter(|remedy| !remedy.is_empty()), ..self }
    }
}

/// All subjects, in the order in which they are told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The subjects.
    pub checks: Vec<Check>,
}

impl Report {
    /// The subject of that name.
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// True if there is a knob that can be turned: CAT masks, DDIO ways, DCA of a port, or the I/O share of AMD.
    pub fn is_manageable(&self) -> bool {
        let knobs = ["cat", "ddio-ways", "dca-ports", "io-alloc"];
        knobs.iter().filter_map(|name| self.check(name)).any(|check| check.state == State::Ok)
    }

    /// How many subjects are in `state`.
    pub fn count(&self, state: State) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }
}
