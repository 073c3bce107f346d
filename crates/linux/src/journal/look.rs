//! Where the journal lies by default, and a look at it that changes nothing: neither the file nor the lock.
//!
//! For those who only want to know. Must not be used to decide whether a knob may be turned: that is
//! [`Journal::open`](super::Journal::open)'s word.

use super::{Entry, JournalError, Knobs, MOST_BYTES, boot_id, parse_line, untrusted};
use crate::root::Root;
use crate::trust;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Where the journal of the machine itself lies. Cleared by a reboot, as the knobs are.
const DIRECTORY: &str = "/run/waykeeper";

/// The journal of the host under `root` unless somebody names another: one a host, `/run/waykeeper/journal` for `/`.
///
/// A tree elsewhere has a journal beside it of a name made of its path: the knobs of a virtual host are no business of
/// the machine it runs on, and no two hosts share a journal. A slash becomes `-`, whatever is no letter or digit `_` and its
/// hex digits; so no two paths come to one name, and none has a dot, behind which the lock's name would differ.
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

/// What lies in a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Originals that it holds, those of knobs that are to stay too.
    pub originals: usize,
    /// It is of an earlier boot: its values mean nothing any more.
    pub stale: bool,
    /// A manager is at work with it, of this pid where the lock file tells.
    pub held: Option<Option<u32>>,
}

/// Looks into the journal at `path`; `None` if there is none and nobody is at work.
///
/// # Errors
/// Whatever is wrong with it, as [`Journal::open`](super::Journal::open) would find it.
pub fn look(path: &Path, root: &Root) -> Result<Option<Look>, JournalError> {
    let unreadable = |source| JournalError::Read { path: path.to_path_buf(), source };
    let held = holder(&path.with_extension("lock"));
    let mut bytes = Vec::new();
    let there = match trust::open(path, File::options().read(true)) {
        Err(error) if error.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound) => false,
        Err(why) => return Err(untrusted(path, why, &unreadable)),
        Ok(file) => {
            file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
            true
        }
    };
    if !there {
        return Ok(held.map(|pid| Look { originals: 0, stale: false, held: Some(pid) }));
    }
    let mut knobs = Knobs::default();
    let mut written_in = None;
    // What has no newline was not finished and counts for nothing.
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
    Ok(Some(Look { originals: knobs.originals.len() + knobs.kept.len(), stale, held }))
}

/// Who holds the lock beside a journal: nobody, or somebody whose pid may stand in it.
fn holder(path: &Path) -> Option<Option<u32>> {
    let mut file = trust::open(path, File::options().read(true)).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = flock(&file, FlockOperation::Unlock);
            None
        }
        Err(_) => {
            let mut text = String::new();
            // A pid that cannot be read is one that is not told.
            let _ = (&mut file).take(32).read_to_string(&mut text);
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
        assert_eq!(look(&path, &root).unwrap(), None);
        let mut journal = Journal::open(&path, &root).unwrap();
        journal.record(&[Original::whole_msr(0, Some(0), 0xc8b, 0x600)]).unwrap();
        let me = Some(Some(std::process::id()));
        assert_eq!(look(&path, &root).unwrap(), Some(Look { originals: 1, stale: false, held: me }));
        drop(journal);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(look(&path, &root).unwrap(), Some(Look { originals: 1, stale: false, held: None }));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::write(&path, b"00000000 {}\n").unwrap();
        assert!(matches!(look(&path, &root), Err(JournalError::Damaged { line: 1, .. })));
    }
}
