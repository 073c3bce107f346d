//! Injected faults: any operation on any file can be made to fail, and all operations are counted.
//!
//! A test first runs a client and reads its operations ([`Faults::seen`]), then fails each one in turn. Rules can be
//! added and removed while the tree is mounted. This file must not know the meaning of files.

use crate::inodes::locked;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// An operation of a client on a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// open(2) of a file.
    Open,
    /// read(2).
    Read,
    /// write(2).
    Write,
    /// open(2) of a directory.
    List,
    /// readlink(2), and following a link.
    ReadLink,
    /// mkdir(2); the path is that of the new directory.
    MakeDirectory,
    /// rmdir(2); the path is that of the directory.
    RemoveDirectory,
    /// rename(2); the path is the old one.
    Rename,
    /// chmod(2), chown(2), truncate(2).
    Change,
}

/// The effect of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// The operation does nothing and fails: EIO, EBUSY, ENOSPC, ENODEV, EACCES.
    Refuse(Errno),
    /// A read returns at most this many bytes. Other operations are not affected.
    ShortRead(usize),
    /// A read returns this content instead of the file's. Other operations are not affected.
    Garbage(Vec<u8>),
    /// A write changes nothing and reports at most this many bytes as written. Other operations are not affected.
    ShortWrite(usize),
}

/// Which of the matching operations get the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All.
    All,
    /// Only the nth matching one since the rule was added, counted from 1.
    Nth(u64),
}

/// A fault and where it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Path in the tree, without a leading slash: `sys/fs/resctrl/*/schemata`. `*` is any text, slashes too, `?` any
    /// one character.
    pub path: String,
    /// The operation; `None` for any.
    pub operation: Option<Operation>,
    /// Which calls.
    pub calls: Calls,
    /// The fault.
    pub fault: FileFault,
}

#[derive(Default)]
struct State {
    rules: Vec<(FaultRule, u64)>,
    seen: BTreeMap<(String, Operation), u64>,
    struck: u64,
}

/// The faults of one tree; clones share them.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    /// No faults.
    pub fn new() -> Self {
        Faults::default()
    }

    /// Adds a rule. The first rule that matches path, operation and call number applies.
    pub fn inject(&self, rule: FaultRule) {
        locked(&self.0).rules.push((rule, 0));
    }

    /// Removes all rules. Counts stay.
    pub fn lift(&self) {
        locked(&self.0).rules.clear();
    }

    /// How often each operation occurred, with or without a fault, since the start or the last [`Faults::forget`].
    pub fn seen(&self) -> BTreeMap<(String, Operation), u64> {
        locked(&self.0).seen.clone()
    }

    /// Number of operations that got a fault.
    pub fn struck(&self) -> u64 {
        locked(&self.0).struck
    }

    /// Resets the counts. Rules stay.
    pub fn forget(&self) {
        let mut state = locked(&self.0);
        state.seen.clear();
        state.struck = 0;
    }

    /// Counts an operation and returns its fault, if any. For a server of files other than this tree's.
    pub fn strike(&self, path: &str, operation: Operation) -> Option<FileFault> {
        let mut state = locked(&self.0);
        *state.seen.entry((path.to_owned(), operation)).or_default() += 1;
        let mut fault = None;
        for (rule, fitting) in &mut state.rules {
            if rule.operation.is_none_or(|it| it == operation) && fits(rule.path.as_bytes(), path.as_bytes())
            {
                *fitting += 1;
                if fault.is_none() && (rule.calls == Calls::All || rule.calls == Calls::Nth(*fitting)) {
                    fault = Some(rule.fault.clone());
                }
            }
        }
        state.struck += u64::from(fault.is_some());
        fault
    }

    /// Counts an operation and returns an error if its fault refuses it.
    pub(crate) fn refuse(&self, path: &str, operation: Operation) -> Result<(), Errno> {
        match self.strike(path, operation) {
            Some(FileFault::Refuse(errno)) => Err(errno),
            _ => Ok(()),
        }
    }
}

/// Whether a pattern with `*` and `?` matches a whole text.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&letter) if letter == b'?' || letter == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                // The last star matches one more character.
                let Some((place, start)) = star else { return false };
                star = Some((place, start + 1));
                (at, from) = (place + 1, start + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_paths() {
        for (pattern, text, expected) in [
            ("sys/fs/resctrl/*/schemata", "sys/fs/resctrl/g1/schemata", true),
            ("sys/fs/resctrl/*/schemata", "sys/fs/resctrl/schemata", false),
            ("*schemata", "sys/fs/resctrl/schemata", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("dev/cpu/?/msr", "dev/cpu/7/msr", true),
            ("dev/cpu/?/msr", "dev/cpu/17/msr", false),
            ("*a*b*c", "xaxbxbxc", true),
            ("*a*b*c", "xaxbxbx", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_nth_call_is_counted_from_when_the_rule_was_set() {
        let faults = Faults::new();
        assert_eq!(faults.refuse("a", Operation::Read), Ok(()));
        let fault = FileFault::Refuse(Errno::IO);
        faults.inject(FaultRule {
            path: "*".into(),
            operation: Some(Operation::Read),
            calls: Calls::Nth(2),
            fault,
        });
        let outcomes: Vec<bool> = (0..4).map(|_| faults.refuse("a", Operation::Read).is_err()).collect();
        assert_eq!(outcomes, [false, true, false, false]);
        assert_eq!(faults.refuse("a", Operation::Write), Ok(()));
        assert_eq!(faults.seen()[&("a".to_owned(), Operation::Read)], 5);
        assert_eq!(faults.struck(), 1);
        faults.forget();
        assert!(faults.seen().is_empty());
    }
}
