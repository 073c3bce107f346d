//! The kernel of this machine as a [`System`].
//!
//! Must not know what files contain.

use super::{DirEntry, FileKind, Metadata, OpenFile, System};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RealSystem;

/// An open descriptor.
#[derive(Debug)]
struct RealFile(OwnedFd);

impl OpenFile for RealFile {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::read(&self.0, &mut *buffer))?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pread(&self.0, &mut *buffer, offset))?)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::write(&self.0, bytes))?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pwrite(&self.0, bytes, offset))?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fsync(&self.0))?)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.0, length))?)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fchmod(&self.0, Mode::from_raw_mode(mode)))?)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        let found = rustix::fs::fstat(&self.0)?;
        let seconds = Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or(0));
        let nanoseconds = Duration::from_nanos(found.st_mtime_nsec);
        let kind = match rustix::fs::FileType::from_raw_mode(found.st_mode) {
            rustix::fs::FileType::RegularFile => FileKind::File,
            rustix::fs::FileType::Directory => FileKind::Directory,
            rustix::fs::FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        };
        Ok(Metadata {
            kind,
            device: found.st_dev,
            inode: found.st_ino,
            uid: found.st_uid,
            gid: found.st_gid,
            mode: found.st_mode & 0o7777,
            size: u64::try_from(found.st_size).unwrap_or(0),
            modified: SystemTime::UNIX_EPOCH + seconds + nanoseconds,
        })
    }

    fn lock(&self, operation: FlockOperation) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::flock(&self.0, operation))?)
    }
}

impl From<&std::fs::Metadata> for Metadata {
    fn from(found: &std::fs::Metadata) -> Metadata {
        let kind = match found.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Directory,
            kind if kind.is_symlink() => FileKind::Link,
            _ => FileKind::Other,
        };
        Metadata {
            kind,
            device: found.dev(),
            inode: found.ino(),
            uid: found.uid(),
            gid: found.gid(),
            mode: found.permissions().mode() & 0o7777,
            size: found.len(),
            modified: found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }
}

impl System for RealSystem {
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<Box<dyn OpenFile>> {
        let fd = retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, mode))?;
        Ok(Box::new(RealFile(fd)))
    }

    fn list(&self, path: &Path, visit: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()> {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // The kernel returns the type along with the name, so nothing else is read.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if visit(DirEntry { name: entry.file_name(), is_dir }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        std::fs::metadata(path).map(|found| Metadata::from(&found))
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Metadata> {
        std::fs::symlink_metadata(path).map(|found| Metadata::from(&found))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn make_dir(&self, path: &Path, mode: Mode) -> io::Result<()> {
        Ok(rustix::fs::mkdir(path, mode)?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::rmdir(path)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::unlink(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(rustix::fs::rename(from, to)?)
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn process_id(&self) -> u32 {
        std::process::id()
    }

    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        // CLOCK_MONOTONIC is never negative.
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }

    fn wait_until(&self, deadline: Duration) -> io::Result<()> {
        let at = Timespec {
            tv_sec: i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: deadline.subsec_nanos().into(),
        };
        loop {
            match rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }

    fn run_beside(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
    }
}
