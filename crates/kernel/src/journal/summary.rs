//! The journal's default path, and a summary of a journal that changes neither the file nor the lock.
//!
//! For information only. Must not decide whether a knob may be set: [`Journal::open`](super::Journal::open) does.

use super::{Entry, JournalError, Knobs, MOST_BYTES, boot_id, parse_line, untrusted};
use crate::root::Root;
use crate::system::{FileReader, System};
use crate::trust;
use rustix::fs::{FlockOperation, OFlags};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Directory of journals. A reboot clears it and resets the knobs.
const DIRECTORY: &str = "/run/waykeeper";

/// The default path of the journal of the host under `root`, one per host: `/run/waykeeper/journal` for `/`.
///
/// For another root the name contains the root's path: a virtual host has its own knobs. A slash becomes `-`; any
/// other character that is not a letter or digit becomes `_` and its hex digits. So different paths give different
/// names, and no name has a dot, after which the lock file's name would differ.
pub fn usual_path(root: &Root) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mut name = "journal".to_owned();
    for part in root.prefix().components() {
        match part {
            Component::RootDir | Component::Prefix(_) => {}
            part => {
                name.push('-');
                for byte in part.as_os_str().as_bytes() {
                    match byte.is_ascii_alphanumeric() {
                        true => name.push(char::from(*byte)),
                        false => name.push_str(&format!("_{byte:02x}")),
                    }
                }
            }
        }
    }
    Path::new(DIRECTORY).join(name)
}

/// Summary of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalSummary {
    /// Number of originals, kept ones included.
    pub originals: usize,
    /// It is from an earlier boot: its values no longer apply.
    pub stale: bool,
    /// A manager holds its lock, with its pid if the lock file contains it.
    pub held: Option<Option<u32>>,
}

/// Reads the journal at `path`; `None` if there is none and no manager holds the lock.
///
/// # Errors
/// It cannot be read, or a line is damaged. Format version and root are not checked.
pub fn summarize(path: &Path, root: &Root) -> Result<Option<JournalSummary>, JournalError> {
    let unreadable = |source| JournalError::Read { path: path.to_path_buf(), source };
    let held = holder(root.system().as_ref(), &path.with_extension("lock"));
    let mut bytes = Vec::new();
    let there = match trust::open(root.system().as_ref(), path, OFlags::RDONLY) {
        Err(error) if error.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound) => false,
        Err(why) => return Err(untrusted(path, why, &unreadable)),
        Ok(file) => {
            FileReader(file.as_ref()).take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
            true
        }
    };
    if !there {
        return Ok(held.map(|pid| JournalSummary { originals: 0, stale: false, held: Some(pid) }));
    }
    let mut knobs = Knobs::default();
    let mut written_in = None;
    // A line without a newline was not finished and is ignored.
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if text.last() != Some(&b'\n') {
            break;
        }
        let damaged = |why| JournalError::Damaged { path: path.to_path_buf(), line: index + 1, why };
        match parse_line(index + 1, text).map_err(damaged)? {
            Entry::Host { boot, .. } => written_in = boot,
            Entry::Original(original) => knobs.originals.push(original),
            Entry::Forget(original) => knobs.forget(&original),
            Entry::Keep(original) => knobs.keep(&original),
        }
    }
    let stale = matches!((written_in, boot_id(root)?), (Some(then), Some(now)) if then != now);
    Ok(Some(JournalSummary { originals: knobs.originals.len() + knobs.kept.len(), stale, held }))
}

/// Whether the lock beside a journal is held, and the holder's pid if the file contains it.
fn holder(system: &dyn System, path: &Path) -> Option<Option<u32>> {
    let file = trust::open(system, path, OFlags::RDONLY).ok()?;
    match file.lock(FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = file.lock(FlockOperation::Unlock);
            None
        }
        Err(_) => {
            let mut text = String::new();
            // If the pid cannot be read, it is unknown.
            let _ = FileReader(file.as_ref()).take(32).read_to_string(&mut text);
            Some(text.trim().parse().ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Journal, Original};
    use super::*;

    #[test]
    fn every_host_has_a_journal_of_its_own() {
        assert_eq!(usual_path(&Root::at("/")), Path::new("/run/waykeeper/journal"));
        let names = ["/tmp/v h", "/tmp/a-b", "/tmp/a/b", "/tmp/a_2db", "/tmp/.a", "/tmp/.b", "/mnt/vhost/"];
        let journals = names.map(|name| usual_path(&Root::at(name)));
        let expected = ["v_20h", "a_2db", "a-b", "a_5f2db", "_2ea", "_2eb"].map(|name| format!("tmp-{name}"));
        for (journal, expected) in journals.iter().zip(expected) {
            assert_eq!(*journal, Path::new("/run/waykeeper").join(format!("journal-{expected}")));
        }
        assert_eq!(journals[6], Path::new("/run/waykeeper/journal-mnt-vhost"));
        let locks: std::collections::BTreeSet<_> =
            journals.iter().map(|path| path.with_extension("lock")).collect();
        assert_eq!(locks.len(), names.len(), "no two hosts lock each other out");
    }

    #[test]
    fn a_look_sees_what_lies_there_and_who_is_at_work_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let path = folder.path().join("run/journal");
        assert_eq!(summarize(&path, &root).unwrap(), None);
        let mut journal = Journal::open(&path, &root).unwrap();
        journal.record(&[Original::whole_msr(0, Some(0), 0xc8b, 0x600)]).unwrap();
        let me = Some(Some(std::process::id()));
        assert_eq!(
            summarize(&path, &root).unwrap(),
            Some(JournalSummary { originals: 1, stale: false, held: me })
        );
        drop(journal);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(
            summarize(&path, &root).unwrap(),
            Some(JournalSummary { originals: 1, stale: false, held: None })
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::write(&path, b"00000000 {}\n").unwrap();
        assert!(matches!(summarize(&path, &root), Err(JournalError::Damaged { line: 1, .. })));
    }
}
