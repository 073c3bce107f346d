//! Finds what could be tenants on a machine where none is declared, and guesses their priorities, kinds and devices.
//!
//! `waykeeper init` writes the result as a configuration for an operator to edit, and the daemon observes with it. Every
//! guess has its reason. Must not know what a tenant is managed by, nor who asks.

mod devices;
mod guess;
mod walk;

pub use devices::{SeenDevice, devices_of_file};

use crate::cgroups::Cgroups;
use crate::cores::Cores;
use crate::declaration::{NAME_LIMIT, TenantSpec, is_plain, parse};
use crate::reader::Reader;
use crate::roster::Notes;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use toml::Value;
use walk::Candidate;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_kernel::root::Root;
use waykeeper_units::{CoreList, one_line};

/// A guess and its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guess<T> {
    /// What is guessed.
    pub value: T,
    /// Why: one line.
    pub why: String,
}

impl<T> Guess<T> {
    fn new(value: T, why: impl Into<String>) -> Guess<T> {
        Guess { value, why: why.into() }
    }
}

/// What could be a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundTenant {
    /// A name that no other found tenant has.
    pub name: String,
    /// The selector's key: `unit`, `cgroup`, `process`.
    pub key: &'static str,
    /// The selector's value.
    pub selected: String,
    /// What it is: processes, CPUs, CPU time.
    pub about: String,
    /// CPUs of its own at this moment; empty if it has none.
    pub cores: CoreList,
    /// Its priority.
    pub priority: Guess<Priority>,
    /// What it does, if anything says so.
    pub kind: Option<Guess<WorkloadKind>>,
    /// The devices that it uses, if anything says so.
    pub devices: Option<Guess<Vec<String>>>,
}

/// What was found and left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The unit or cgroup.
    pub name: String,
    /// Why it is no tenant.
    pub why: &'static str,
}

/// What was found on a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Discovery {
    /// Possible tenants: high priority first, then by name.
    pub tenants: Vec<FoundTenant>,
    /// Units that are not worth a declaration.
    pub left_out: Vec<LeftOut>,
    /// Network cards and drives, by name.
    pub devices: Vec<SeenDevice>,
    /// What could not be read.
    pub notes: Vec<String>,
}

impl FoundTenant {
    /// Its declaration, with the reason of each guess as a comment.
    pub fn toml(&self) -> String {
        let quoted = |text: &str| Value::String(text.to_owned()).to_string();
        let mut text = format!("[[tenant]]\nname = {}\n", quoted(&self.name));
        let mut line = |key: &str, value: String, why: &str| {
            // Writing to a text cannot fail. A comment of TOML has no control characters.
            let _ = writeln!(text, "{:<34} # {}", format!("{key} = {value}"), one_line(why));
        };
        line(self.key, quoted(&self.selected), &self.about);
        let priority = if self.priority.value == Priority::High { "high" } else { "low" };
        line("priority", quoted(priority), &self.priority.why);
        if let Some(kind) = &self.kind {
            line("kind", quoted(word(kind.value)), &kind.why);
        }
        if let Some(devices) = &self.devices {
            let names: Vec<String> = devices.value.iter().map(|name| quoted(name)).collect();
            line("devices", format!("[{}]", names.join(", ")), &devices.why);
        }
        text
    }

    /// The declaration as the census reads it; `None` if a name cannot be declared.
    fn spec(&self) -> Option<TenantSpec> {
        parse(Path::new("found tenants"), &self.toml()).ok()?.pop()
    }
}

fn word(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::NonIo => "non-io",
        WorkloadKind::NetworkIo => "network-io",
        WorkloadKind::StorageIo => "storage-io",
    }
}

impl Discovery {
    /// The found tenants as declarations.
    pub fn specs(&self) -> Vec<TenantSpec> {
        self.tenants.iter().filter_map(FoundTenant::spec).collect()
    }
}

/// Looks at the machine under a root prefix. What cannot be read is a note; finding nothing is no error. Reads at most
/// [`walk::MOST_GROUPS`] cgroups and a few files for each of them.
pub fn discover(root: &Root) -> Discovery {
    let mut reader = Reader::new(root);
    let mut notes = Notes::default();
    let mut cores = Cores::default();
    cores.look(&mut reader, &mut notes);
    let mut cgroups = Cgroups::find(&mut reader);
    let walk::Walked { mut candidates, left_out } =
        walk::candidates(&mut reader, &mut cgroups, &cores, &mut notes);
    let seen = devices::all(&mut reader);
    devices::used(&mut reader, &mut candidates);
    let kinds: Vec<_> = candidates.iter().map(guess::kind).collect();
    let devices = devices::guess(&seen, &candidates, &kinds);
    let mut names = BTreeSet::new();
    let mut tenants: Vec<FoundTenant> = Vec::new();
    for ((candidate, kind), devices) in candidates.iter().zip(kinds).zip(devices) {
        let found = FoundTenant {
            name: unique(&candidate.name, candidate.is_family(), &mut names),
            key: candidate.selector.0,
            selected: candidate.selector.1.clone(),
            about: candidate.about(),
            cores: candidate.cores.clone(),
            priority: guess::priority(candidate),
            kind,
            devices,
        };
        // A name of a cgroup may have characters that no declaration accepts.
        if found.spec().is_some() {
            tenants.push(found);
        }
    }
    tenants.sort_by_key(|tenant| (tenant.priority.value != Priority::High, tenant.name.clone()));
    let notes = notes.take().iter().map(ToString::to_string).collect();
    Discovery { tenants, left_out, devices: seen, notes }
}

/// A name with only the characters of a tenant's name, that no earlier one has.
fn unique(name: &str, family: bool, taken: &mut BTreeSet<String>) -> String {
    let kept = |c: char| if is_plain(c) || (family && matches!(c, '{' | '}')) { c } else { '_' };
    // Room for a number at the end. All characters are ASCII now.
    let mut plain: String = name.chars().map(kept).collect();
    plain.truncate(NAME_LIMIT - 4);
    let plain = if plain.is_empty() { "tenant".to_owned() } else { plain };
    let mut made = plain.clone();
    let mut number = 2;
    while !taken.insert(made.clone()) {
        made = format!("{plain}-{number}");
        number += 1;
    }
    made
}

impl Candidate {
    /// What it is, in words.
    fn about(&self) -> String {
        let count = |count: usize, what: &str, many: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {many}"),
        };
        let mut text = match self.groups {
            0 => count(self.processes, "process", "processes"),
            pods => count(pods, "pod now, each a tenant", "pods now, each a tenant"),
        };
        if self.cores.is_empty() {
            text.push_str(", no CPUs of its own");
        } else {
            let _ = write!(text, " on CPU{} {}", if self.cores.len() == 1 { "" } else { "s" }, self.cores);
        }
        if let Some(busy) = self.busy_cpus {
            let _ = write!(text, ", {busy:.1} CPUs busy on average");
        }
        if !self.programs.is_empty() {
            let _ = write!(text, ": {}", self.programs.join(", "));
        }
        text
    }
}
