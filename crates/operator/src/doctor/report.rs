//! The result of an examination: per check one line with its state and remedy.
//!
//! Plain values. Must not know how anything is checked or shown.

use serde::Serialize;
use std::fmt::Display;
use waykeeper_kernel::root::Root;

/// The state of one check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// It exists and can be used.
    Ok,
    /// It does not exist, or cannot be used now; the remedy says how to get it.
    Missing,
    /// It works less well than it could, or another program uses it.
    Degraded,
    /// It could not be determined: a file cannot be read or parsed, or no source documents it (hardware.md 13).
    Unknown,
    /// A plain fact, neither good nor bad.
    Info,
}

/// The part of the report that a check belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// Identity of the host.
    Host,
    /// Access to the hardware: kernel devices, permissions, lockdown.
    Access,
    /// Counters.
    Watch,
    /// Knobs.
    Steer,
    /// Other tools at work, and leftovers of an earlier run.
    Others,
}

impl Family {
    /// The heading of this family.
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

/// One check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// Its name; names do not change between versions.
    pub name: &'static str,
    /// Its state.
    pub state: CheckState,
    /// What was found, for people, with units.
    pub value: String,
    /// What to do about it: a command, a boot option, a setting. None if nothing needs doing or nothing would help.
    pub remedy: Option<String>,
    /// Its part of the report.
    #[serde(skip)]
    pub family: Family,
}

impl Check {
    /// The same with a remedy; an empty text is none.
    pub fn remedy(self, remedy: impl Display) -> Check {
        Check { remedy: Some(remedy.to_string()).filter(|remedy| !remedy.is_empty()), ..self }
    }
}

/// A check without a remedy. The report sets its family.
pub(super) fn check(name: &'static str, state: CheckState, value: impl Display) -> Check {
    Check { name, state, value: value.to_string(), remedy: None, family: Family::Host }
}

/// What can be done on a host, the most first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HostUse {
    /// The daemon can manage it.
    Manage,
    /// Its DDIO can be changed by hand.
    Knobs,
    /// Its counters can be read.
    Observe,
    /// Nothing of its cache can be seen or set. The virtual server needs no hardware.
    Simulate,
}

impl HostUse {
    /// The command that works on such a host and shows most.
    pub fn command(self) -> &'static str {
        match self {
            HostUse::Manage => "waykeeper init",
            HostUse::Knobs => "waykeeper ddio show",
            HostUse::Observe => "waykeeper daemon --observe",
            HostUse::Simulate => "waykeeper top --scenario a4-hpw-heavy",
        }
    }
}

/// All checks, in the order of the report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DoctorReport {
    /// The checks.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// The check of that name.
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// What can be done on this host.
    pub fn best_use(&self) -> HostUse {
        let any = |names: &[&str]| {
            names.iter().filter_map(|name| self.check(name)).any(|check| check.state == CheckState::Ok)
        };
        if any(&["daemon"]) {
            HostUse::Manage
        } else if any(&["ddio-ways", "dca-ports"]) {
            HostUse::Knobs
        } else if any(&["observe"]) {
            HostUse::Observe
        } else {
            HostUse::Simulate
        }
    }

    /// What to do next: mount resctrl, if that alone is missing, else the command that works now on the host at this root.
    pub fn next_command(&self, root: &Root) -> String {
        match (self.mount_command(), self.best_use()) {
            (Some(mount), _) => mount.to_owned(),
            // The virtual server is no part of the host.
            (None, HostUse::Simulate) => HostUse::Simulate.command().to_owned(),
            (None, host_use) => format!("{}{}", host_use.command(), root.as_option()),
        }
    }

    /// How to mount resctrl where it is there and not mounted, and the daemon needs it.
    pub fn mount_command(&self) -> Option<&str> {
        let resctrl = self.check("resctrl").filter(|check| check.state == CheckState::Missing)?;
        let advice = resctrl.remedy.as_deref().filter(|remedy| remedy.starts_with("mount "))?;
        // The advice may have another way beside the command.
        Some(advice.rsplit_once(", or ").map_or(advice, |(command, _)| command))
    }

    /// Why the daemon cannot manage this host; empty if it can.
    pub fn why_unmanaged(&self) -> &str {
        let missing = self.check("daemon").filter(|check| check.state != CheckState::Ok);
        missing.map_or("", |check| check.value.as_str())
    }

    /// The number of checks in `state`.
    pub fn count(&self, state: CheckState) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }
}
