//! Faults for the tree's clients: any operation on any file can be made to fail, and all that is seen is counted.
//!
//! A test first lets a client run and asks what it did ([`Faults::seen`]), then fails each operation in turn. Rules
//! can be set and lifted while the tree is mounted. This file must not know what the files mean.

use crate::inodes::locked;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a client does to a file or directory.
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

/// What happens instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation does nothing and fails: EIO, EBUSY, ENOSPC, ENODEV, EACCES.
    Refuse(Errno),
    /// A read brings at most so many bytes. Nothing happens to other operations.
    ShortRead(usize),
    /// A read brings this content instead of the file's. Nothing happens to other operations.
    Garbage(Vec<u8>),
    /// A write takes nothing and says that it took at most so many bytes. Nothing happens to other operations.
    ShortWrite(usize),
}

/// Which of the operations that fit are struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All.
    All,
    /// Only the nth after the rule was set, counted from 1.
    Nth(u64),
}

/// A fault and where it strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Path in the tree, without a slash in front: `sys/fs/resctrl/*/schemata`. `*` is any text, slashes too, `?` any
    /// one character.
    pub path: String,
    /// The operation; `None` is any.
    pub operation: Option<Operation>,
    /// Which calls.
    pub calls: Calls,
    /// What happens.
    pub fault: Fault,
}

#[derive(Default)]
struct State {
    rules: Vec<(Rule, u64)>,
    seen: BTreeMap<(String, Operation), u64>,
    struck: u64,
}

/// The faults of one tree; copies share them.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    /// No faults.
    pub fn new() -> Self {
        Faults::default()
    }

    /// Sets a rule. The first rule that fits an operation decides.
    pub fn inject(&self, rule: Rule) {
        locked(&self.0).rules.push((rule, 0));
    }

    /// Lifts all rules. What was counted stays.
    pub fn lift(&self) {
        locked(&self.0).rules.clear();
    }

    /// How often each operation was seen, struck or not, since the start or the last [`Faults::forget`].
    pub fn seen(&self) -> BTreeMap<(String, Operation), u64> {
        locked(&self.0).seen.clone()
    }

    /// How many operations were struck.
    pub fn struck(&self) -> u64 {
        locked(&self.0).struck
    }

    /// Forgets what was counted. Rules stay.
    pub fn forget(&self) {
        let mut state = locked(&self.0);
        state.seen.clear();
        state.struck = 0;
    }

    /// Counts an operation and says what happens to it.
    pub(crate) fn strike(&self, path: &str, operation: Operation) -> Option<Fault> {
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

    /// Counts an operation that can only succeed or fail.
    pub(crate) fn refuse(&self, path: &str, operation: Operation) -> Result<(), Errno> {
        match self.strike(path, operation) {
            Some(Fault::Refuse(errno)) => Err(errno),
            _ => Ok(()),
        }
    }
}

/// Whether a pattern with `*` and `?` fits all of a text.
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
                // The last star takes one more.
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
        let fault = Fault::Refuse(Errno::IO);
        faults.inject(Rule {
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
