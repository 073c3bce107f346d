//! Who may turn knobs: one manager a journal, and one a host, whatever its journal is called.
//!
//! flock(2) on files that only their owner can open. It must not know what is journaled.

use super::look::usual_path;
use super::{JournalError, directory_of, untrusted};
use crate::root::Root;
use crate::trust;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long somebody who only looks may have the lock, even on a busy machine.
const LOOK: Duration = Duration::from_millis(200);

/// A lock, given back when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Whose name goes with it.
    passing: Option<PathBuf>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still held: whoever opened the file before sees then that its name is another's.
        if let Some(path) = &self.passing {
            let _ = fs::remove_file(path);
        }
        // A child that another thread is just starting has the descriptor too: closing ours would not give it back.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Lock {
    /// Takes the lock beside a journal. Its file stays for good.
    pub fn take(path: &Path) -> Result<Lock, JournalError> {
        Ok(Lock { file: take(path)?, passing: None })
    }

    /// Takes the one of a host's usual journal, for a manager with another one; `None` if that is `own`, or if this user has
    /// no right to the place: who may not write there is not the one who manages the machine.
    pub fn of_host(root: &Root, own: &Lock) -> Result<Option<Lock>, JournalError> {
        // One host has one name, however its prefix is written.
        let prefix = root.prefix().canonicalize().unwrap_or_else(|_| root.prefix().to_path_buf());
        let path = usual_path(&Root::at(prefix)).with_extension("lock");
        let failed = |source| JournalError::Write { path: path.clone(), source };
        if is_same(&own.file.metadata().map_err(failed)?, &path) {
            return Ok(None);
        }
        let folder = directory_of(&path);
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed);
        let trusted = made.and_then(|()| trust::folder(folder).map_err(|why| untrusted(&path, why, &failed)));
        match trusted.and_then(|()| take(&path)) {
            Err(JournalError::Write { source, .. }) if is_no_right(&source) => Ok(None),
            file => Ok(Some(Lock { file: file?, passing: Some(path) })),
        }
    }
}

fn is_no_right(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Whether a path leads to this file.
fn is_same(file: &Metadata, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
}

fn take(path: &Path) -> Result<File, JournalError> {
    let failed = |source| JournalError::Write { path: path.to_path_buf(), source };
    let begun = Instant::now();
    loop {
        let open = trust::open(path, File::options().read(true).write(true).create(true).truncate(false));
        let mut file = open.map_err(|why| untrusted(path, why, &failed))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::INTR) => continue,
            // Somebody who only looks whether it is held has it for some microseconds: he is no manager.
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LOOK => {
                std::thread::sleep(LOOK / 100);
                continue;
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // A pid that cannot be read is one that is not told.
                let _ = (&mut file).take(32).read_to_string(&mut text);
                let holder = text.trim().parse().ok();
                return Err(JournalError::Held { path: path.to_path_buf(), holder });
            }
            Err(error) => return Err(failed(error.into())),
            // A lock on a file that lost its name would be none: another one has it.
            Ok(()) if !is_same(&file.metadata().map_err(failed)?, path) => continue,
            Ok(()) => {}
        }
        // For people only, and the disk may be full: what counts is the lock.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        return Ok(file);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Journal;
    use super::*;

    #[test]
    fn a_host_has_one_manager_whatever_its_journal_is_called() {
        assert!(rustix::process::geteuid().is_root(), "not run: needs root: the locks of hosts are root's");
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path().join("host"));
        fs::create_dir(root.prefix()).unwrap();
        let path = |name: &str| folder.path().join(name);
        let first = Journal::open(&path("one"), &root).unwrap();
        // The prefix written in another way is the same host.
        let same = Root::at(folder.path().join("host/../host"));
        for root in [&root, &same] {
            let why = Journal::open(&path("two"), root).unwrap_err().to_string();
            let told = format!(
                "another waykeeper process (pid {}) manages this host; end it first",
                std::process::id()
            );
            assert!(why.contains(&told), "{why}");
        }
        let common = usual_path(&root).with_extension("lock");
        assert!(common.exists());
        let other = Root::at(folder.path());
        drop(Journal::open(&path("two"), &other).expect("another host is another matter"));
        drop(first);
        assert!(!common.exists(), "nobody needs it any more");
        // With the usual journal it is the journal's own lock.
        let usual = Journal::open(&usual_path(&root), &root).unwrap();
        assert!(matches!(Journal::open(&path("one"), &root), Err(JournalError::Held { .. })));
        drop(usual);
        fs::remove_file(common).unwrap();
        drop(Journal::open(&path("one"), &root).unwrap());
    }

    #[test]
    fn a_journal_is_not_called_as_its_lock_is() {
        let folder = tempfile::tempdir().unwrap();
        let why = Journal::open(&folder.path().join("journal.lock"), &Root::at(folder.path())).unwrap_err();
        assert!(matches!(why, JournalError::Name { .. }), "{why}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
