//! What a calling task means: its memory, its paths, its rights.
//!
//! Paths are taken as they are written, without following symbolic links, so that no answer waits for another file
//! system. This file must not know what is answered.

use super::mount_table::{self, TableFormat};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Longest path (linux include/uapi/linux/limits.h: PATH_MAX).
const LONGEST_PATH: usize = 4096;

/// Bytes that are read at once: a page, so that a text near the end of a mapping is read.
const PAGE: u64 = 4096;

/// CAP_SYS_ADMIN (linux include/uapi/linux/capability.h).
const SYS_ADMIN: u32 = 21;

/// A thread that made a call.
pub struct CallingTask {
    proc: String,
}

impl CallingTask {
    /// By its id in this process's pid namespace.
    pub fn new(id: u32) -> CallingTask {
        CallingTask { proc: format!("/proc/{id}") }
    }

    /// Bytes of its memory.
    pub fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        let memory = File::open(format!("{}/mem", self.proc)).ok()?;
        memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// A text in its memory, up to the first NUL.
    pub fn text(&self, address: u64) -> Option<String> {
        let memory = File::open(format!("{}/mem", self.proc)).ok()?;
        let mut text = Vec::new();
        while text.len() < LONGEST_PATH {
            let at = address.checked_add(text.len() as u64)?;
            let mut part = vec![0; (PAGE - at % PAGE) as usize];
            let count = memory.read_at(&mut part, at).ok()?;
            if let Some(end) = part[..count].iter().position(|byte| *byte == 0) {
                text.extend(&part[..end]);
                return String::from_utf8(text).ok();
            }
            if count == 0 {
                return None;
            }
            text.extend(&part[..count]);
        }
        None
    }

    /// Writes to its memory.
    ///
    /// # Errors
    /// EFAULT, as the kernel has it.
    pub fn put(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let memory = OpenOptions::new().write(true).open(format!("{}/mem", self.proc));
        memory.and_then(|memory| memory.write_all_at(bytes, address)).map_err(|_| Errno::FAULT)
    }

    /// A path from the root, without `.` and `..`; `directory` is a descriptor or AT_FDCWD.
    pub fn absolute(&self, directory: i32, path: &str) -> Option<String> {
        if path.starts_with('/') {
            return Some(normal(path));
        }
        let base = if directory == libc::AT_FDCWD { self.link("cwd")? } else { self.open_file(directory)? };
        base.starts_with('/').then(|| normal(&format!("{base}/{path}")))
    }

    /// The path of an open file.
    pub fn open_file(&self, descriptor: i32) -> Option<String> {
        self.link(&format!("fd/{descriptor}"))
    }

    fn link(&self, name: &str) -> Option<String> {
        fs::read_link(format!("{}/{name}", self.proc)).ok()?.into_os_string().into_string().ok()
    }

    /// Device and inode of a file, as the task sees it.
    pub fn identity(&self, path: &str) -> Option<(u64, u64)> {
        let found = self.handle(path)?.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }

    fn handle(&self, path: &str) -> Option<File> {
        let root = File::open(format!("{}/root", self.proc)).ok()?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        Some(File::from(file))
    }

    /// If a path is a task's table of mounts: its format, and the path by which this process reads it.
    pub fn mount_table(&self, path: &str) -> Option<(TableFormat, PathBuf)> {
        let (owner, format) = mount_table::parse_path(path)?;
        let id = |field: &str| {
            let status = fs::read_to_string(format!("{}/status", self.proc)).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            Some(line.trim().to_owned())
        };
        let folder = match owner.as_str() {
            "self" => format!("/proc/{}", id("Tgid:")?),
            "thread-self" => self.proc.clone(),
            // The pid is one of the caller's namespace, whose procfs knows it.
            owner => format!("{}/root/proc/{owner}", self.proc),
        };
        Some((format, PathBuf::from(folder).join(format.file_name())))
    }

    /// Whether it has CAP_SYS_ADMIN.
    pub fn may_mount(&self) -> bool {
        let status = fs::read_to_string(format!("{}/status", self.proc)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok())
            .is_some_and(|capabilities| capabilities >> SYS_ADMIN & 1 == 1)
    }
}

/// A path without empty parts, `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn own() -> CallingTask {
        CallingTask::new(rustix::thread::gettid().as_raw_nonzero().get() as u32)
    }

    #[test]
    fn memory_paths_and_rights_are_those_of_the_task() {
        let task = own();
        let text = c"/proc/self/mountinfo";
        assert_eq!(task.text(text.as_ptr() as u64).as_deref(), Some("/proc/self/mountinfo"));
        assert_eq!(task.text(0), None);
        let mut target = [1_u8; 3];
        let address = target.as_mut_ptr() as u64;
        assert_eq!(task.put(address, &[7, 8]), Ok(()));
        assert_eq!(task.bytes(address, 3), Some(vec![7, 8, 1]));
        assert_eq!(std::hint::black_box(target), [7, 8, 1]);
        assert_eq!(task.put(0, &[1]), Err(Errno::FAULT));
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        let name = folder.path().to_str().unwrap().to_owned();
        assert_eq!(task.absolute(file.as_raw_fd(), "a/../b/./c"), Some(format!("{name}/b/c")));
        assert_eq!(task.absolute(libc::AT_FDCWD, "//proc/.././sys/"), Some("/sys".into()));
        let found = folder.path().metadata().unwrap();
        assert_eq!(task.identity(&name), Some((found.dev(), found.ino())));
        assert_eq!(task.identity("/nonexistent"), None);
        assert_eq!(task.may_mount(), rustix::process::geteuid().is_root());
    }

    #[test]
    fn tables_of_mounts_are_read_where_the_task_would_read_them() {
        let task = own();
        let table = |path: &str| task.mount_table(path).map(|(_, path)| path.display().to_string());
        let (process, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero());
        assert_eq!(table("/proc/self/mountinfo"), Some(format!("/proc/{process}/mountinfo")));
        assert_eq!(table("/proc/thread-self/mounts"), Some(format!("/proc/{thread}/mounts")));
        assert_eq!(table("/proc/1/mounts"), Some(format!("/proc/{thread}/root/proc/1/mounts")));
        assert_eq!(table("/proc/mounts"), None);
    }
}
