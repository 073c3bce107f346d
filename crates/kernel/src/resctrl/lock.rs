//! The lock that tools share: flock(2) on the mount's directory.
//!
//! resctrl.rst, "Resource alloc and lock": LOCK_EX for a change of several steps, LOCK_SH for consistent reads. The
//! wait is bounded, and an error names the holder if `/proc/locks` has it. Any user who can open a directory can lock
//! it for any time, so a holder counts only if it may write there. It must not know what is done under the lock.

use super::Resctrl;
use super::error::{Action, ResctrlError, ResctrlErrorKind};
use super::files;
use crate::system::{Metadata, OpenFile, System};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// The lock, released when dropped. Two locks of one process exclude each other too: take it once, at the outermost
/// step.
#[derive(Debug)]
pub struct FlockGuard {
    directory: Box<dyn OpenFile>,
}

impl Drop for FlockGuard {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that another thread is starting has the descriptor too until
        // it calls exec, and the lock lasts until all copies are closed.
        let _ = self.directory.lock(FlockOperation::Unlock);
    }
}

/// Another process holds the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The holder's name and pid, if known.
    pub who: Option<String>,
    /// The holder's pid, if known.
    pub pid: Option<u32>,
    /// Whether the holder may write in this mount.
    pub write_access: WriteAccess,
}

/// Whether a lock holder may write resctrl. Any user can open the directory, and flock(2) requires no more. Only root,
/// or a user with write permission, can write the files in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WriteAccess {
    /// It cannot write here, so its lock protects nothing.
    None,
    /// Unknown: the process that took the lock has ended or is not visible, or only its groups could tell.
    Unknown,
    /// It may write.
    Writes,
}

impl Resctrl {
    /// Takes the lock for a change of several steps, waiting at most `wait`.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Locked`] if another tool holds it during the whole time.
    pub fn lock_exclusive(&self, wait: Duration) -> Result<FlockGuard, ResctrlError> {
        self.lock(FlockOperation::NonBlockingLockExclusive, wait)
    }

    /// Takes the lock for consistent reads, waiting at most `wait`.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Locked`] if another tool holds it for a change during the whole time.
    pub fn lock_shared(&self, wait: Duration) -> Result<FlockGuard, ResctrlError> {
        self.lock(FlockOperation::NonBlockingLockShared, wait)
    }

    /// Takes the lock for a change if it is free now; otherwise returns the holder.
    ///
    /// # Errors
    /// If the directory cannot be opened or locked at all.
    pub fn try_lock(&self) -> Result<Result<FlockGuard, Holder>, ResctrlError> {
        let directory = self.open_for_lock()?;
        Ok(match self.attempt(directory.as_ref(), FlockOperation::NonBlockingLockExclusive)? {
            true => Ok(FlockGuard { directory }),
            false => Err(self.holder(directory.as_ref())),
        })
    }

    /// Takes the lock for a change. Returns `None` if its holder cannot write here, if `wait` is over, or if locking
    /// fails.
    pub fn lock_or_go_on(&self, wait: Duration) -> Option<FlockGuard> {
        let start = self.system.now();
        loop {
            match self.try_lock().ok()? {
                Ok(lock) => return Some(lock),
                Err(holder) if holder.write_access == WriteAccess::None => return None,
                Err(_) if self.system.now().saturating_sub(start) >= wait => return None,
                Err(_) => self.system.sleep(MAX_PAUSE),
            }
        }
    }

    /// The error for a lock that `holder` holds.
    pub fn locked_by(&self, holder: &Holder, waited: Duration) -> ResctrlError {
        let why = format!(
            "{} holds the lock (waited {:.1} s); end it or let it finish, then try again",
            holder.who.as_deref().unwrap_or("another tool"),
            waited.as_secs_f64()
        );
        ResctrlError::ours(ResctrlErrorKind::Locked, self.mount_point(), Action::Lock, why)
    }

    fn open_for_lock(&self) -> Result<Box<dyn OpenFile>, ResctrlError> {
        let mount = self.mount_point();
        let opened = self.system.open(mount, OFlags::RDONLY, Mode::empty());
        opened.map_err(|error| ResctrlError::system(mount, Action::Lock, &error))
    }

    /// True if the lock was free and is now ours.
    fn attempt(&self, directory: &dyn OpenFile, operation: FlockOperation) -> Result<bool, ResctrlError> {
        match directory.lock(operation) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(ResctrlError::system(self.mount_point(), Action::Lock, &error)),
        }
    }

    fn lock(&self, operation: FlockOperation, wait: Duration) -> Result<FlockGuard, ResctrlError> {
        let directory = self.open_for_lock()?;
        let start = self.system.now();
        // flock has no timed wait, so we poll, first after 1 ms: a tool's few writes take well under a millisecond
        // each.
        let mut pause = Duration::from_millis(1);
        loop {
            if self.attempt(directory.as_ref(), operation)? {
                return Ok(FlockGuard { directory });
            }
            let left = wait.saturating_sub(self.system.now().saturating_sub(start));
            if left.is_zero() {
                return Err(self.locked_by(&self.holder(directory.as_ref()), wait));
            }
            self.system.sleep(pause.min(left));
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// The holder of a flock on this directory, from `/proc/locks`. Of several holders, the one with the most rights
    /// counts.
    fn holder(&self, directory: &dyn OpenFile) -> Holder {
        holder_of(self.system.as_ref(), &self.locks, directory)
    }
}

/// The same for any directory, with the kernel's list of locks.
pub(crate) fn holder_of(system: &dyn System, locks: &Path, directory: &dyn OpenFile) -> Holder {
    let unknown = Holder { who: None, pid: None, write_access: WriteAccess::Unknown };
    let (Ok(all), Ok(metadata)) = (files::read(system, locks, files::MOST_BYTES), directory.metadata())
    else {
        return unknown;
    };
    let proc = locks.parent().unwrap_or(Path::new("/proc"));
    let known = holders_in(&all, &metadata, &["FLOCK"]).map(|pid| look_at(system, proc, pid, &metadata));
    known.max_by_key(|holder| holder.write_access).unwrap_or(unknown)
}

/// Longest time between two attempts to take the lock.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// One holder. The kernel lists the process that took the lock. If that has ended and a child inherited the lock, the
/// holder is unknown.
fn look_at(system: &dyn System, proc: &Path, pid: u32, directory: &Metadata) -> Holder {
    let read =
        |file: &str| files::read(system, &proc.join(pid.to_string()).join(file), files::MOST_BYTES).ok();
    let name = read("comm").map(|name| super::error::shown(&name));
    let who = name.map_or_else(|| format!("pid {pid}"), |name| format!("{name} (pid {pid})"));
    let write_access =
        read("status").map_or(WriteAccess::Unknown, |status| write_access_of(&status, directory));
    Holder { who: Some(who), pid: Some(pid), write_access }
}

/// Whether a process may write here, from the line `Uid:` (real, effective, ...) of its status. Root and the mount's
/// owner may; so may all users if the mode lets others write. Capabilities do not count: in its own user namespace any
/// user has all of them (user_namespaces(7)).
fn write_access_of(status: &str, directory: &Metadata) -> WriteAccess {
    let effective = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    match effective.and_then(|uid| uid.parse::<u32>().ok()) {
        None => WriteAccess::Unknown,
        Some(uid) if uid == 0 || uid == directory.uid || directory.mode & 0o002 != 0 => WriteAccess::Writes,
        // The directory's group may write, and we do not know the process's groups.
        Some(_) if directory.mode & 0o020 != 0 => WriteAccess::Unknown,
        Some(_) => WriteAccess::None,
    }
}

/// The pid that holds a lock of one of these kinds on a file, from the lines of `/proc/locks`, which are like `1: FLOCK
/// ADVISORY  WRITE 1234 00:1d:1 0 EOF` (linux:fs/locks.c, lock_get_status).
pub fn holder_in(locks: &str, file: &Metadata, kinds: &[&str]) -> Option<u32> {
    holders_in(locks, file, kinds).next()
}

/// All such pids.
fn holders_in<'a>(locks: &'a str, file: &Metadata, kinds: &'a [&str]) -> impl Iterator<Item = u32> + 'a {
    let (major, minor) = (rustix::fs::major(file.device), rustix::fs::minor(file.device));
    let place = format!("{major:02x}:{minor:02x}:{}", file.inode);
    locks.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The second word of a waiting process's line is `->`.
        let [_, kind, _, _, pid, at, ..] = words[..] else { return None };
        if kinds.contains(&kind) && at == place { pid.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    #[test]
    fn the_holder_is_in_proc_locks() {
        let dir = tempfile::tempdir().unwrap();
        let file = system::real().metadata(dir.path()).unwrap();
        let (major, minor) = (rustix::fs::major(file.device), rustix::fs::minor(file.device));
        let line = |start: &str, pid: u32, place: u64| {
            format!("{start}  ADVISORY  WRITE {pid} {major:02x}:{minor:02x}:{place} 0 EOF\n")
        };
        let locks = line("1: POSIX", 900, file.inode)
            + &line("2: -> FLOCK", 5, file.inode)
            + &line("3: FLOCK", 6, file.inode + 1)
            + &line("4: FLOCK", 1234, file.inode);
        assert_eq!(holder_in(&locks, &file, &["FLOCK"]), Some(1234));
        assert_eq!(holder_in(&locks, &file, &["POSIX", "FLOCK", "OFDLCK"]), Some(900));
        assert_eq!(holder_in(&locks, &file, &["OFDLCK"]), None);
        assert_eq!(holder_in("garbage\n\u{0}", &file, &["FLOCK"]), None);
    }

    #[test]
    fn the_lock_of_who_cannot_write_here_is_worth_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode;
        std::fs::set_permissions(dir.path(), mode(0o555)).unwrap();
        let directory = system::real().metadata(dir.path()).unwrap();
        let of =
            |uids: &str| write_access_of(&format!("Name:\tx\nUid:\t{uids}\nGid:\t0\t0\t0\t0\n"), &directory);
        assert_eq!(of("65534\t65534\t65534\t65534"), WriteAccess::None);
        // The effective user id counts, not the real one.
        assert_eq!(
            (of("0\t65534\t0\t65534"), of("65534\t0\t0\t0")),
            (WriteAccess::None, WriteAccess::Writes)
        );
        assert_eq!(of(&format!("1\t{}\t1\t1", directory.uid)), WriteAccess::Writes, "its owner");
        assert_eq!(write_access_of("Name:\tx\n", &directory), WriteAccess::Unknown);
        for (bits, write_access) in [(0o775, WriteAccess::Unknown), (0o777, WriteAccess::Writes)] {
            std::fs::set_permissions(dir.path(), mode(bits)).unwrap();
            let open = system::real().metadata(dir.path()).unwrap();
            assert_eq!(write_access_of("Uid:\t65534\t65534\t65534\t65534\n", &open), write_access);
        }
    }

    #[test]
    fn a_held_lock_is_waited_for_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let resctrl = Resctrl::at(dir.path(), Path::new("/proc/locks"), "wk-");
        let reader = resctrl.lock_shared(Duration::ZERO).unwrap();
        let other = resctrl.lock_shared(Duration::ZERO).unwrap();
        let error = resctrl.lock_exclusive(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind, ResctrlErrorKind::Locked);
        let me = format!("(pid {}) holds the lock (waited 0.0 s)", std::process::id());
        assert!(error.to_string().contains(&me), "{error}");
        assert_eq!(resctrl.try_lock().unwrap().unwrap_err().write_access, WriteAccess::Writes, "it is ours");
        drop((reader, other));
        let _writer = resctrl.lock_exclusive(Duration::from_secs(20)).unwrap();
        assert_eq!(resctrl.lock_shared(Duration::ZERO).unwrap_err().kind, ResctrlErrorKind::Locked);
    }
}
