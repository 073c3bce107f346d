//! Every way in which this crate reaches the outside world: files, locks, clocks, threads.
//!
//! [`RealSystem`] is the kernel's. A simulation implements [`System`] over its own files and its own clock, and
//! everything above runs unchanged. Counters opened by perf_event_open(2) are the only exception: they exist on a real
//! kernel alone. Must not know what files contain, nor who waits.

mod real;

pub use real::RealSystem;

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A shared system.
pub type SharedSystem = Arc<dyn System>;

/// The kernel of this machine.
pub fn real() -> SharedSystem {
    Arc::new(RealSystem)
}

/// What a path or an open file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, if it was not followed.
    Link,
    /// A device, a pipe or a socket.
    Other,
}

/// The attributes of a file: stat(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// The device that has its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// The owner's user id.
    pub uid: u32,
    /// The owning group's id.
    pub gid: u32,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// Length in bytes, as reported.
    pub size: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

impl Metadata {
    /// Whether both are the same file.
    pub fn is_same_file(&self, other: &Metadata) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Its name.
    pub name: OsString,
    /// Whether it is a directory; false for a link to one, and if the entry was removed before its type was known.
    pub is_dir: bool,
}

/// An open file or directory. Closed when dropped.
///
/// Every method is one system call, retried if a signal interrupts it. Errors are the kernel's.
pub trait OpenFile: Debug + Send + Sync {
    /// Reads from the file position on: read(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads at an offset: pread(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes from the file position on: write(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Writes at an offset: pwrite(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Puts content and attributes on disk; of a directory, its entries: fsync(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn sync(&self) -> io::Result<()>;

    /// Sets the length in bytes: ftruncate(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Sets the permission bits: fchmod(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// The attributes: fstat(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Locks or unlocks: flock(2).
    ///
    /// # Errors
    /// `EWOULDBLOCK` if an operation that does not wait finds another holder; else the kernel's refusal.
    fn lock(&self, operation: FlockOperation) -> io::Result<()>;
}

/// The files, clocks and threads that this crate uses. Paths are absolute and have the root prefix.
pub trait System: Debug + Send + Sync {
    /// Opens a file or directory: open(2). The descriptor is closed on exec(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<Box<dyn OpenFile>>;

    /// Passes the entries of a directory to `visit`, in the kernel's order and without `.` and `..`, until it breaks.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn list(&self, path: &Path, visit: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()>;

    /// The attributes of a path: stat(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// The attributes of a path, of a link itself: lstat(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn link_metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// The target of a symbolic link, as written in it: readlink(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;

    /// The path without links, `.` and `..`: realpath(3).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Makes a directory: mkdir(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn make_dir(&self, path: &Path, mode: Mode) -> io::Result<()>;

    /// Removes a directory: rmdir(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file: unlink(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or directory: rename(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The effective user id of this process.
    fn user(&self) -> u32;

    /// The id of this process.
    fn process_id(&self) -> u32;

    /// Time since boot, without suspension: CLOCK_MONOTONIC.
    fn now(&self) -> Duration;

    /// The wall clock, which may jump.
    fn wall_clock(&self) -> SystemTime;

    /// Waits until [`System::now`] has reached `deadline`.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn wait_until(&self, deadline: Duration) -> io::Result<()>;

    /// How long a thread may wait for something else before it must wait for `deadline`. Zero where the clock advances
    /// only in [`System::wait_until`].
    fn time_left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.now())
    }

    /// Runs `work` on a thread of its own that has this name, and does not wait for it.
    ///
    /// # Errors
    /// If no thread can be started.
    fn run_beside(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Waits for a time.
    fn sleep(&self, time: Duration) {
        // A refused wait returns early, and callers check the clock.
        let _ = self.wait_until(self.now().saturating_add(time));
    }

    /// Whether a path exists; false for a dangling link.
    fn exists(&self, path: &Path) -> bool {
        self.metadata(path).is_ok()
    }

    /// Whether a path leads to a directory.
    fn is_dir(&self, path: &Path) -> bool {
        self.metadata(path).is_ok_and(|found| found.is_dir())
    }

    /// Makes a directory and all missing ones above it, as `mkdir -p`.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn make_dirs(&self, path: &Path, mode: Mode) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match self.make_dir(path, mode) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(_) if self.is_dir(path) => return Ok(()),
            made => return made,
        }
        if let Some(above) = path.parent() {
            self.make_dirs(above, mode)?;
        }
        match self.make_dir(path, mode) {
            Err(_) if self.is_dir(path) => Ok(()),
            made => made,
        }
    }
}

/// Reads an open file from its position on, for the adapters of the standard library.
#[derive(Debug)]
pub struct FileReader<'f>(pub &'f dyn OpenFile);

impl io::Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Writes to an open file from its position on, for the adapters of the standard library.
#[derive(Debug)]
pub struct FileWriter<'f>(pub &'f dyn OpenFile);

impl io::Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all of `bytes` at an offset, in as many calls as needed.
///
/// # Errors
/// The kernel's refusal, or a write that takes nothing.
pub fn write_all_at(file: &dyn OpenFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset)? {
            0 => return Err(io::Error::new(io::ErrorKind::WriteZero, "failed to write whole buffer")),
            taken => {
                bytes = &bytes[taken..];
                offset += taken as u64;
            }
        }
    }
    Ok(())
}
