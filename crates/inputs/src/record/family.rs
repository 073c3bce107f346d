//! The processes that a recorded program starts. They are not recorded, and the user should know.
//!
//! Reads /proc, where a process that lives for a moment only may be missed; that it was there is then seen in the page
//! faults of ended children. Must not know valgrind's text.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Least time between two looks: a look is some ten system calls.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Most processes that are kept: more than a message can name.
const MOST: usize = 10_000;
/// Most names in a message.
const MOST_NAMES: usize = 8;
/// How the kernel's name of a program under lackey begins.
const TOOL: &str = "lackey";
/// Field of `/proc/PID/stat` with the page faults of children that ended and were waited for, counted from the state
/// (proc_pid_stat(5): state is field 3, cminflt field 11).
const CHILDRENS_FAULTS: usize = 8;

/// What a program did that its recording does not contain.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Unrecorded {
    /// Names of the processes that it started, in no order; empty for one that ended, or was last seen, before it ran a
    /// program of its own.
    pub started: Vec<String>,
    /// Others ended before they could be named.
    pub has_unseen: bool,
    /// The program that took its place by execve(2); empty if that one cannot be named.
    pub replaced_by: Option<String>,
}

impl Unrecorded {
    /// What to tell the user, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        let names = self.names();
        match self.started.len() {
            0 if self.has_unseen => said.push(
                "started other processes, which are not recorded; record one of them directly".to_owned(),
            ),
            0 => {}
            1 => said.push(format!("started 1 process, which is not recorded{names}; record it directly")),
            count => said.push(format!(
                "started {count} processes, which are not recorded{names}; record one of them directly"
            )),
        }
        if let Some(name) = &self.replaced_by {
            let name = if name.is_empty() { "another program" } else { name.as_str() };
            said.push(format!("became {name} (exec), which is not recorded; record it directly"));
        }
        said
    }

    /// `: ls, sort (2 times)`; nothing if none has a name.
    fn names(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.started.iter().filter(|name| !name.is_empty()) {
            *counts.entry(name).or_default() += 1;
        }
        let mut shown: Vec<String> = counts
            .iter()
            .take(MOST_NAMES)
            .map(|(name, count)| match count {
                1 => (*name).to_owned(),
                count => format!("{name} ({count} times)"),
            })
            .collect();
        if counts.len() > MOST_NAMES {
            shown.push("...".to_owned());
        }
        if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) }
    }
}

/// The processes below a program, as far as they were seen.
pub(super) struct Family {
    program: u32,
    /// Their names; empty for one that still runs the program's own code.
    seen: BTreeMap<u32, String>,
    looked: Option<Instant>,
}

impl Family {
    pub(super) fn new(program: u32) -> Family {
        Family { program, seen: BTreeMap::new(), looked: None }
    }

    /// Looks which processes there are, unless that was done just now.
    pub(super) fn look(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let own = name_of(self.program);
        let mut parents = vec![self.program];
        while let Some(parent) = parents.pop() {
            for child in children_of(parent) {
                if self.seen.len() >= MOST && !self.seen.contains_key(&child) {
                    return;
                }
                let Some(name) = name_of(child) else { continue };
                let is_copy = Some(&name) == own.as_ref();
                self.seen.insert(child, if is_copy { String::new() } else { name });
                parents.push(child);
            }
        }
    }

    /// All that was seen, of a program that has ended and was not collected. `is_replaced`: it ended as another program.
    pub(super) fn ended(&mut self, is_replaced: bool) -> Unrecorded {
        let started: Vec<String> = std::mem::take(&mut self.seen).into_values().collect();
        Unrecorded {
            has_unseen: started.is_empty() && has_waited_for_children(self.program),
            started,
            // Valgrind itself may have failed.
            replaced_by: is_replaced
                .then(|| name_of(self.program).unwrap_or_default())
                .filter(|name| !name.starts_with(TOOL)),
        }
    }
}

/// The children of all threads of a process; none where the kernel does not list them.
fn children_of(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect()
}

/// The name that the kernel has of a process: of its program, unless it was changed.
fn name_of(process: u32) -> Option<String> {
    // A name may have any bytes.
    let name = fs::read(format!("/proc/{process}/comm")).ok()?;
    Some(name.trim_ascii_end().escape_ascii().to_string())
}

/// Whether children of a process have ended and were waited for: each has faults of pages.
fn has_waited_for_children(process: u32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{process}/stat")) else { return false };
    // The name, in brackets, may contain any byte, a bracket too.
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let fields = String::from_utf8_lossy(&stat[end + 1..]);
    fields.split_whitespace().nth(CHILDRENS_FAULTS).is_some_and(|faults| faults != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_is_said_in_one_sentence() {
        let said = |started: &[&str], has_unseen, replaced_by: Option<&str>| {
            let started = started.iter().map(|name| (*name).to_owned()).collect();
            Unrecorded { started, has_unseen, replaced_by: replaced_by.map(str::to_owned) }.sentences()
        };
        assert_eq!(said(&[], false, None), [""; 0]);
        assert_eq!(
            said(&["ls"], false, None),
            ["started 1 process, which is not recorded: ls; record it directly"]
        );
        assert_eq!(
            said(&["sort", "ls", "sort", ""], false, Some("tail")),
            [
                "started 4 processes, which are not recorded: ls, sort (2 times); record one of \
                 them directly",
                "became tail (exec), which is not recorded; record it directly",
            ]
        );
        assert_eq!(
            said(&[""], false, None),
            ["started 1 process, which is not recorded; record it directly"]
        );
        let unseen = said(&[], true, Some(""));
        assert!(
            unseen[0].starts_with("started other processes") && unseen[1].contains("another program"),
            "{unseen:?}"
        );
    }
}
