//! Locks that allow one manager per journal, one per host regardless of its journal's path, and one per mounted resctrl
//! regardless of the manager's /run, which a container may have of its own.
//!
//! flock(2) on files that only their owner can open. Must not know what is journaled.

use super::error::untrusted;
use super::summary::usual_path;
use super::{JournalError, directory_of};
use crate::resctrl::{Group, LOCKS, WriteAccess, holder_of};
use crate::root::Root;
use crate::system::{FileReader, FileWriter, OpenFile, SharedSystem, System};
use crate::trust;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time a reader (`journal::summarize`) holds the lock, even on a busy machine.
const LOOK: Duration = Duration::from_millis(200);

/// A lock, released when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    system: SharedSystem,
    file: Box<dyn OpenFile>,
    /// The path of a lock file that is removed when the lock is dropped.
    passing: Option<PathBuf>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while locked: a process that opened the file earlier then sees that the path no longer names it.
        if let Some(path) = &self.passing {
            let _ = self.system.remove_file(path);
        }
        // A child that another thread is just starting has the descriptor too: closing ours would not unlock.
        let _ = self.file.lock(FlockOperation::Unlock);
    }
}

impl Lock {
    /// Takes the lock beside a journal. Its file is never removed.
    pub fn take(system: &SharedSystem, path: &Path) -> Result<Lock, JournalError> {
        Ok(Lock { system: system.clone(), file: take(system.as_ref(), path)?, passing: None })
    }

    /// Takes the lock of a host's default journal, for a manager with another journal. `None` if that is `own`, or if
    /// this user may not write there: such a user cannot manage the machine.
    pub fn of_host(root: &Root, own: &Lock) -> Result<Option<Lock>, JournalError> {
        // Different spellings of a prefix name the same host.
        let system = root.system();
        let prefix = system.canonical(root.prefix()).unwrap_or_else(|_| root.prefix().to_path_buf());
        let path = usual_path(&Root::at(prefix)).with_extension("lock");
        let failed = |source| JournalError::Write { path: path.clone(), source };
        if is_same(system.as_ref(), own.file.as_ref(), &path).map_err(failed)? {
            return Ok(None);
        }
        let folder = directory_of(&path);
        let made = system.make_dirs(folder, Mode::from_raw_mode(0o755)).map_err(failed);
        let trusted = made.and_then(|()| {
            trust::folder(system.as_ref(), folder).map_err(|why| untrusted(&path, why, &failed))
        });
        match trusted.and_then(|()| take(system.as_ref(), &path)) {
            Err(JournalError::Write { source, .. }) if is_no_right(&source) => Ok(None),
            file => Ok(Some(Lock { system: system.clone(), file: file?, passing: Some(path) })),
        }
    }
}

/// The directory of resctrl that a manager locks. Other tools lock the mount point for single changes.
const INFO: &str = "/sys/fs/resctrl/info";

/// The lock of the mounted resctrl. A manager that did not get it tries again as long as it runs.
#[derive(Debug)]
pub(super) struct ResctrlLock {
    system: SharedSystem,
    path: PathBuf,
    /// The directory; `None` if none is mounted or it cannot be opened.
    file: Option<Box<dyn OpenFile>>,
    state: LockState,
    /// The next attempt while the manager runs, on the system's clock, and the pause after it.
    again: Duration,
    pause: Duration,
    /// It has been waited for.
    was_awaited: bool,
}

/// Who has the lock of the mounted resctrl.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LockState {
    /// We have.
    Taken,
    /// It protects nothing: none is mounted, or the holder may not write there. Any user can open the directory.
    Void,
    /// A process that cannot be identified: a manager in another container, or any user there.
    Unidentified,
}

/// The pauses between two attempts while the manager runs: doubled from the first to the last (assumption).
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Longest wait for a holder that cannot be identified, where only this lock proves what is ours: as for another tool's
/// lock on resctrl in a restore.
const WAIT: Duration = Duration::from_secs(5);

impl Drop for ResctrlLock {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ResctrlLock {
    /// Takes the lock of the mounted resctrl.
    ///
    /// # Errors
    /// [`JournalError::Held`] if a process that may write there has it.
    pub fn take(root: &Root) -> Result<ResctrlLock, JournalError> {
        let (system, path) = (root.system().clone(), root.path(INFO));
        let file = system.open(&path, OFlags::RDONLY, Mode::empty()).ok();
        let (again, pause) = (Duration::ZERO, PAUSES.0);
        let state = LockState::Void;
        let mut lock = ResctrlLock { system, path, file, state, again, pause, was_awaited: false };
        lock.look(LOOK)?;
        Ok(lock)
    }

    /// Tries for so long, then looks who has it.
    fn look(&mut self, wait: Duration) -> Result<(), JournalError> {
        let Some(file) = &self.file else { return Ok(()) };
        let system = self.system.as_ref();
        if is_free(system, file.as_ref(), FlockOperation::NonBlockingLockExclusive, wait) {
            self.state = LockState::Taken;
            return Ok(());
        }
        let holder = holder_of(system, Path::new(LOCKS), file.as_ref());
        self.state = match holder.write_access {
            WriteAccess::None => LockState::Void,
            WriteAccess::Unknown => LockState::Unidentified,
            WriteAccess::Writes => {
                return Err(JournalError::Held { path: self.path.clone(), holder: holder.pid });
            }
        };
        Ok(())
    }

    /// Tries once if we do not have it and an attempt is due: one call of the kernel, two where resctrl was mounted since.
    ///
    /// # Errors
    /// [`JournalError::Held`] if a process that may write there has it now; the next attempt is due at once.
    pub fn retry(&mut self) -> Result<(), JournalError> {
        let now = self.system.now();
        if self.state == LockState::Taken || now < self.again {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = self.system.open(&self.path, OFlags::RDONLY, Mode::empty()).ok();
        }
        self.look(Duration::ZERO)?;
        (self.again, self.pause) = (now + self.pause, (2 * self.pause).min(PAUSES.1));
        Ok(())
    }

    /// Releases a resctrl that was unmounted: what is open keeps it alive, and while it lives none can be mounted. The next
    /// attempt is for the one that is mounted then.
    pub fn leave(&mut self) {
        if let Some(file) = self.file.take().filter(|_| self.state == LockState::Taken) {
            // As for a `Lock`.
            let _ = file.lock(FlockOperation::Unlock);
        }
        (self.state, self.again, self.pause) = (LockState::Void, Duration::ZERO, PAUSES.0);
    }

    /// Checks that these groups, of which no journal proves that we made them, are not those of another manager. Waits
    /// once for a holder that cannot be identified.
    ///
    /// # Errors
    /// [`JournalError::Unidentified`], or [`JournalError::Held`] if the holder may write there.
    pub fn check_alone(&mut self, groups: &[Group]) -> Result<(), JournalError> {
        if self.state == LockState::Unidentified {
            let wait = if std::mem::replace(&mut self.was_awaited, true) { Duration::ZERO } else { WAIT };
            self.look(wait)?;
        }
        if self.state == LockState::Unidentified {
            let groups = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(JournalError::Unidentified { path: self.path.clone(), groups });
        }
        Ok(())
    }
}

/// Whether a manager holds the lock of the mounted resctrl, in this or another container.
pub fn is_managed(root: &Root) -> bool {
    let system = root.system().as_ref();
    let Ok(file) = system.open(&root.path(INFO), OFlags::RDONLY, Mode::empty()) else { return false };
    let is_free = is_free(system, file.as_ref(), FlockOperation::NonBlockingLockShared, LOOK);
    let _ = file.lock(FlockOperation::Unlock);
    let holder = || holder_of(system, Path::new(LOCKS), file.as_ref());
    !is_free && holder().write_access != WriteAccess::None
}

/// Takes a lock. False if another process holds it for so long. If it cannot be locked at all, it counts as free.
fn is_free(system: &dyn System, file: &dyn OpenFile, operation: FlockOperation, wait: Duration) -> bool {
    let begun = system.now();
    let mut pause = LOOK / 100;
    loop {
        match file.lock(operation) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return true,
        }
        let left = wait.saturating_sub(system.now().saturating_sub(begun));
        if left.is_zero() {
            return false;
        }
        system.sleep(pause.min(left));
        pause = (2 * pause).min(LOOK);
    }
}

fn is_no_right(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Whether a path leads to this file.
fn is_same(system: &dyn System, file: &dyn OpenFile, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    Ok(system.metadata(path).is_ok_and(|there| there.is_same_file(&own)))
}

fn take(system: &dyn System, path: &Path) -> Result<Box<dyn OpenFile>, JournalError> {
    let failed = |source| JournalError::Write { path: path.to_path_buf(), source };
    let begun = system.now();
    loop {
        let open = trust::open(system, path, OFlags::RDWR | OFlags::CREATE);
        let file = open.map_err(|why| untrusted(path, why, &failed))?;
        match file.lock(FlockOperation::NonBlockingLockExclusive) {
            // A reader that only checks the lock holds it for some microseconds: retry.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if system.now().saturating_sub(begun) < LOOK {
                    system.sleep(LOOK / 100);
                    continue;
                }
                let mut text = String::new();
                // If the pid cannot be read, the error does not name it.
                let _ = FileReader(file.as_ref()).take(32).read_to_string(&mut text);
                let holder = text.trim().parse().ok();
                return Err(JournalError::Held { path: path.to_path_buf(), holder });
            }
            Err(error) => return Err(failed(error)),
            // If the path now names another file, this lock is void: open the new file.
            Ok(()) if !is_same(system, file.as_ref(), path).map_err(failed)? => continue,
            Ok(()) => {}
        }
        // The pid is only information for messages; an error (a full disk) does not matter.
        let line = format!("{}\n", system.process_id());
        let _ = file.set_len(0).and_then(|()| FileWriter(file.as_ref()).write_all(line.as_bytes()));
        return Ok(file);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Journal, Original};
    use super::*;
    use std::fs;

    #[test]
    fn a_host_has_one_manager_whatever_its_journal_is_called() {
        assert!(rustix::process::geteuid().is_root(), "not run: needs root: the locks of hosts are root's");
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path().join("host"));
        fs::create_dir(root.prefix()).unwrap();
        let path = |name: &str| folder.path().join(name);
        let first = Journal::open(&path("one"), &root).unwrap();
        // Another spelling of the prefix is the same host.
        let same = Root::at(folder.path().join("host/../host"));
        for root in [&root, &same] {
            let why = Journal::open(&path("two"), root).unwrap_err().to_string();
            let reported = format!(
                "another waykeeper process (pid {}) manages this host; end it first",
                std::process::id()
            );
            assert!(why.contains(&reported), "{why}");
        }
        let common = usual_path(&root).with_extension("lock");
        assert!(common.exists());
        let other = Root::at(folder.path());
        drop(Journal::open(&path("two"), &other).expect("another host is another matter"));
        drop(first);
        assert!(!common.exists(), "the last host is gone");
        // With the default journal the host's lock is the journal's own lock.
        let usual = Journal::open(&usual_path(&root), &root).unwrap();
        assert!(matches!(Journal::open(&path("one"), &root), Err(JournalError::Held { .. })));
        drop(usual);
        fs::remove_file(common).unwrap();
        drop(Journal::open(&path("one"), &root).unwrap());
    }

    /// The managers of two containers share resctrl, and nothing else.
    #[test]
    fn a_resctrl_that_was_unmounted_is_left_and_the_next_one_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path().join("host"));
        let info = root.path(INFO);
        fs::create_dir_all(&info).unwrap();
        let mut journal = Journal::open(&folder.path().join("one"), &root).unwrap();
        assert!(is_managed(&root));
        fs::remove_dir(&info).unwrap();
        journal.leave_resctrl();
        fs::create_dir(&info).unwrap();
        assert!(!is_managed(&root), "nothing is held open");
        let planned = Original::Planned { group: Group::control("own").unwrap() };
        journal.record(std::slice::from_ref(&planned)).unwrap();
        assert!(is_managed(&root));
        // Another manager was faster at the one that is mounted then.
        journal.leave_resctrl();
        let other = fs::File::open(&info).unwrap();
        rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
        let late = Original::Planned { group: Group::control("late").unwrap() };
        let mut record = || journal.record(std::slice::from_ref(&late));
        assert!(matches!(record(), Err(JournalError::Held { .. })), "nothing is set beside it");
        assert!(matches!(record(), Err(JournalError::Held { .. })), "nor at the next attempt");
        drop(other);
        record().unwrap();
        drop(journal);
        assert!(!is_managed(&root));
    }

    #[test]
    fn a_journal_is_not_called_as_its_lock_is() {
        let folder = tempfile::tempdir().unwrap();
        let why = Journal::open(&folder.path().join("journal.lock"), &Root::at(folder.path())).unwrap_err();
        assert!(matches!(why, JournalError::Name { .. }), "{why}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
