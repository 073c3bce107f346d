//! The lock that tools share: flock(2) on the mount's directory.
//!
//! resctrl.rst, "Resource alloc and lock": LOCK_EX for a change of several steps, LOCK_SH for reads that must agree.
//! The wait is bounded, and who holds it is named where `/proc/locks` tells. It must not know what is done under it.

use super::Resctrl;
use super::error::{Action, Kind, ResctrlError};
use super::files;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The lock, given back when dropped. Two of one process exclude each other too: take it once, at the outermost step.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

impl Resctrl {
    /// Takes the lock for a change of several steps, waiting at most `wait`.
    ///
    /// # Errors
    /// [`Kind::Locked`] if another tool holds it all that time.
    pub fn lock_exclusive(&self, wait: Duration) -> Result<Lock, ResctrlError> {
        self.lock(FlockOperation::NonBlockingLockExclusive, wait)
    }

    /// Takes the lock for reads that must agree, waiting at most `wait`.
    ///
    /// # Errors
    /// [`Kind::Locked`] if another tool changes things all that time.
    pub fn lock_shared(&self, wait: Duration) -> Result<Lock, ResctrlError> {
        self.lock(FlockOperation::NonBlockingLockShared, wait)
    }

    fn lock(&self, operation: FlockOperation, wait: Duration) -> Result<Lock, ResctrlError> {
        let mount = self.mount_point();
        let failed = |error: &std::io::Error| ResctrlError::system(mount, Action::Lock, error);
        let directory = File::open(mount).map_err(|error| failed(&error))?;
        let start = Instant::now();
        // flock has no timed wait. From 1 ms up to 50 ms: a tool's few writes take well under a millisecond each.
        let mut pause = Duration::from_millis(1);
        loop {
            match flock(&directory, operation) {
                Ok(()) => return Ok(Lock { _directory: directory }),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(failed(&error.into())),
            }
            let left = wait.saturating_sub(start.elapsed());
            if left.is_zero() {
                let why = format!(
                    "{} holds the lock; waited {:.1} s; end it or let it finish, then try again",
                    holder(&directory, self.locks()).unwrap_or_else(|| "another tool".to_owned()),
                    wait.as_secs_f64()
                );
                return Err(ResctrlError::ours(Kind::Locked, mount, Action::Lock, why));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// Who holds a flock on this directory, from `/proc/locks`.
fn holder(directory: &File, locks: &Path) -> Option<String> {
    let all = files::read(locks, files::MOST_BYTES).ok()?;
    let pid = holder_in(&all, &directory.metadata().ok()?, &["FLOCK"])?;
    let name = locks.parent().map(|proc| proc.join(pid.to_string()).join("comm"));
    let name = name.and_then(|path| files::read(&path, files::MOST_BYTES).ok());
    Some(match name {
        Some(name) => format!("{} (pid {pid})", super::error::shown(&name)),
        None => format!("pid {pid}"),
    })
}

/// The pid that holds a lock of one of these kinds on a file, by the lines of `/proc/locks`, which are like
/// `1: FLOCK  ADVISORY  WRITE 1234 00:1d:1 0 EOF` (linux:fs/locks.c, lock_get_status).
pub(crate) fn holder_in(locks: &str, file: &Metadata, kinds: &[&str]) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A waiter's line has `->` in the second place.
        let [_, kind, _, _, pid, at, ..] = words[..] else { return None };
        if kinds.contains(&kind) && at == place { pid.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_stands_in_proc_locks() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::metadata(dir.path()).unwrap();
        let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let line = |start: &str, pid: u32, place: u64| {
            format!("{start}  ADVISORY  WRITE {pid} {major:02x}:{minor:02x}:{place} 0 EOF\n")
        };
        let locks = line("1: POSIX", 900, file.ino())
            + &line("2: -> FLOCK", 5, file.ino())
            + &line("3: FLOCK", 6, file.ino() + 1)
            + &line("4: FLOCK", 1234, file.ino());
        assert_eq!(holder_in(&locks, &file, &["FLOCK"]), Some(1234));
        assert_eq!(holder_in(&locks, &file, &["POSIX", "FLOCK", "OFDLCK"]), Some(900));
        assert_eq!(holder_in(&locks, &file, &["OFDLCK"]), None);
        assert_eq!(holder_in("garbage\n\u{0}", &file, &["FLOCK"]), None);
    }

    #[test]
    fn a_held_lock_is_waited_for_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let resctrl = Resctrl::at(dir.path(), Path::new("/proc/locks"), "wk-");
        let reader = resctrl.lock_shared(Duration::ZERO).unwrap();
        let other = resctrl.lock_shared(Duration::ZERO).unwrap();
        let error = resctrl.lock_exclusive(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind, Kind::Locked);
        let me = format!("(pid {}) holds the lock; waited 0.0 s", std::process::id());
        assert!(error.to_string().contains(&me), "{error}");
        drop((reader, other));
        let _writer = resctrl.lock_exclusive(Duration::from_secs(20)).unwrap();
        assert_eq!(resctrl.lock_shared(Duration::ZERO).unwrap_err().kind, Kind::Locked);
    }
}
