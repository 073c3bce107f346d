//! System calls about mounts, answered as a kernel with resctrl answers them.
//!
//! A FUSE file system cannot say that it is resctrl: its type is fixed in mountinfo and in statfs(2), and mount(2) asks
//! the kernel. So `waykeeper vhost enter --mount-calls` lets the kernel hand such calls of its command and of all
//! descendants to the virtual host (seccomp_unotify(2)). Calls for anything else continue in the kernel. This folder
//! must not know which program calls.

mod caller;
mod listener;
mod mount_table;
mod switch;

pub use listener::install;
pub use switch::MountSwitch;

use crate::dynamic_tree;
use crate::inodes::{FIRST_PLACE, locked};
use crate::node::{Caller, File, slice};
use crate::resctrl::SharedResctrl;
use caller::CallingTask;
use listener::{Call, CallAnswer, CallListener};
use mount_table::TreeMount;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where resctrl is mounted.
const MOUNT_POINT: &str = "/sys/fs/resctrl";

/// The type of resctrl in statfs(2) (linux include/uapi/linux/magic.h: RDTGROUP_SUPER_MAGIC).
const RESCTRL_MAGIC: u64 = 0x765_5821;

/// Longest announcement: two numbers of 10 digits, two of 20, and the spaces between them.
const ANNOUNCEMENT: usize = 2 * 10 + 2 * 20 + 3;

/// `waykeeper/calls`: a write of [`announcement`] by a process that has called [`install`] gives its calls to the virtual
/// host, from then on and for all its descendants. No kernel has this file.
pub struct MountCalls(SharedResctrl);

impl MountCalls {
    /// Answers for this resctrl.
    pub fn new(resctrl: SharedResctrl) -> MountCalls {
        MountCalls(resctrl)
    }
}

/// What the process writes: the descriptors of its listener and of the tree's [`MountSwitch`], opened for writing, and how
/// the files of resctrl are recognised. Formatted into a buffer because it is used between fork and exec.
pub fn announcement(listener: i32, switch: i32, files: &TreeFiles) -> ([u8; ANNOUNCEMENT], usize) {
    struct Fixed([u8; ANNOUNCEMENT], usize);
    impl Write for Fixed {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let end = self.1 + text.len();
            self.0.get_mut(self.1..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
            self.1 = end;
            Ok(())
        }
    }
    let mut text = Fixed([0; ANNOUNCEMENT], 0);
    let _ = write!(text, "{listener} {switch} {} {}", files.device, files.root);
    (text.0, text.1)
}

/// How the files of a tree's resctrl are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFiles {
    /// The tree's device, as in stat(2).
    pub device: u64,
    /// The inode of the root of resctrl.
    pub root: u64,
}

impl TreeFiles {
    /// Those of the tree mounted at `tree`.
    ///
    /// # Errors
    /// Without resctrl in the tree.
    pub fn of(tree: &Path) -> std::io::Result<TreeFiles> {
        let found = tree.join("sys/fs/resctrl").metadata()?;
        Ok(TreeFiles { device: found.dev(), root: found.ino() })
    }

    /// Of an announcement, after its two descriptors.
    fn parse(text: &[u8]) -> Option<([i32; 2], TreeFiles)> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let descriptors = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        let files = TreeFiles { device: words.next()?.parse().ok()?, root: words.next()?.parse().ok()? };
        words.next().is_none().then_some((descriptors, files))
    }

    /// Whether this is a file or directory of resctrl.
    fn has(&self, device: u64, inode: u64) -> bool {
        device == self.device && (inode == self.root || (FIRST_PLACE..dynamic_tree::END).contains(&inode))
    }
}

impl File for MountCalls {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        Ok(slice(b"", offset, len))
    }

    fn write(&self, _: u64, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        if !caller.is_privileged() {
            return Err(Errno::PERM);
        }
        let ([listener, switch], files) = TreeFiles::parse(data).ok_or(Errno::INVAL)?;
        let pid = i32::try_from(caller.pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let file = |number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
        let listener = CallListener::new(file(listener)?);
        let server = Server { resctrl: self.0.clone(), switch: file(switch)?, files };
        std::thread::spawn(move || server.serve(&listener));
        Ok(data.len())
    }

    fn mode(&self) -> u32 {
        0o600
    }
}

/// Answers the calls of one command and its descendants.
struct Server {
    resctrl: SharedResctrl,
    switch: OwnedFd,
    files: TreeFiles,
}

impl Server {
    /// Until the last process is gone.
    fn serve(&self, listener: &CallListener) {
        while let Some(call) = listener.next() {
            listener.answer(call.id, self.answer(&call).unwrap_or(CallAnswer::Continue));
        }
    }

    /// `None` where the kernel is to answer.
    fn answer(&self, call: &Call) -> Option<CallAnswer> {
        let task = CallingTask::new(call.pid);
        let argument = |index: usize| call.arguments[index];
        match call.number {
            libc::SYS_open => self.open(&task, libc::AT_FDCWD, argument(0), argument(1)),
            libc::SYS_openat => self.open(&task, argument(0) as i32, argument(1), argument(2)),
            libc::SYS_openat2 => {
                // The first word of `struct open_how` is the flags.
                let flags = u64::from_ne_bytes(task.bytes(argument(2), 8)?.try_into().ok()?);
                self.open(&task, argument(0) as i32, argument(1), flags)
            }
            libc::SYS_statfs => {
                let path = task.absolute(libc::AT_FDCWD, &task.text(argument(0))?)?;
                self.type_of(&task, &path, argument(1))
            }
            libc::SYS_fstatfs => {
                let path = task.open_file(argument(0) as i32)?;
                self.type_of(&task, &path, argument(1))
            }
            libc::SYS_mount => {
                let resctrl = task.text(argument(2))? == "resctrl" && mounts_anew(argument(3));
                let target = task.absolute(libc::AT_FDCWD, &task.text(argument(1))?)?;
                (resctrl && self.is_mount_point(&task, &target)).then(|| {
                    let options = task.text(argument(4)).unwrap_or_default();
                    CallAnswer::from(self.switch(&task, &format!("mount {options}")))
                })
            }
            libc::SYS_umount2 => {
                let target = task.absolute(libc::AT_FDCWD, &task.text(argument(0))?)?;
                (self.mounted() && self.is_mount_point(&task, &target))
                    .then(|| CallAnswer::from(self.switch(&task, "umount")))
            }
            _ => None,
        }
    }

    fn mounted(&self) -> bool {
        locked(&self.resctrl).is_mounted()
    }

    fn is_mount_point(&self, task: &CallingTask, path: &str) -> bool {
        path == MOUNT_POINT
            && task.identity(path).is_some_and(|found| found == (self.files.device, self.files.root))
    }

    /// A table of mounts is opened: it shows resctrl wherever the tree's `/sys` is mounted.
    fn open(&self, task: &CallingTask, directory: i32, path: u64, flags: u64) -> Option<CallAnswer> {
        let flags = flags as i32;
        let path = task.text(path)?;
        let plain = flags & (libc::O_ACCMODE | libc::O_PATH | libc::O_DIRECTORY) == libc::O_RDONLY;
        if !plain || !mount_table::may_be(&path) || !self.mounted() {
            return None;
        }
        let (format, real) = task.mount_table(&task.absolute(directory, &path)?)?;
        let options = locked(&self.resctrl).mount_options().shown();
        let text = std::fs::read_to_string(&real).ok()?;
        // `mounts` does not name devices, `mountinfo` of the same task does.
        let info = std::fs::read_to_string(real.with_file_name("mountinfo")).ok()?;
        let tree = TreeMount { device: self.files.device, options };
        let shown = mount_table::with_resctrl(format, &text, &info, &tree)?;
        Some(CallAnswer::File { content: shown.into_bytes(), close_on_exec: flags & libc::O_CLOEXEC != 0 })
    }

    /// statfs(2) of a file of resctrl, like linux fs/libfs.c (`simple_statfs`).
    fn type_of(&self, task: &CallingTask, path: &str, buffer: u64) -> Option<CallAnswer> {
        let below = path == MOUNT_POINT || path.starts_with("/sys/fs/resctrl/");
        if !below || !self.mounted() {
            return None;
        }
        let (device, inode) = task.identity(path)?;
        if !self.files.has(device, inode) {
            return None;
        }
        // struct statfs: type, block size, five counts, id, longest name, fragment size, flags (ST_VALID, ST_RELATIME),
        // four words that are not used.
        let words = [RESCTRL_MAGIC, 4096, 0, 0, 0, 0, 0, device, 255, 4096, 0x1020, 0, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Some(CallAnswer::from(task.put(buffer, &bytes)))
    }

    /// Through the tree, so that this machine's cache of names forgets those that are gone.
    fn switch(&self, task: &CallingTask, command: &str) -> Result<(), Errno> {
        if !task.may_mount() {
            return Err(Errno::PERM);
        }
        rustix::io::write(&self.switch, command.as_bytes()).map(drop)
    }
}

/// Whether mount(2) is asked for a new mount and not for a change.
fn mounts_anew(flags: u64) -> bool {
    let changes = libc::MS_BIND
        | libc::MS_MOVE
        | libc::MS_REMOUNT
        | libc::MS_SHARED
        | libc::MS_PRIVATE
        | libc::MS_SLAVE
        | libc::MS_UNBINDABLE;
    flags & changes == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_as_it_was_written() {
        let files = TreeFiles { device: u64::MAX, root: u64::MAX };
        let (text, length) = announcement(i32::MAX, 7, &files);
        assert_eq!(TreeFiles::parse(&text[..length]), Some(([i32::MAX, 7], files)));
        for bad in ["", "1 2 3", "1 2 3 4 5", "a 2 3 4"] {
            assert_eq!(TreeFiles::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn files_of_resctrl_are_known_by_their_inodes() {
        let files = TreeFiles { device: 45, root: 700 };
        assert!(files.has(45, 700) && files.has(45, FIRST_PLACE + 9));
        assert!(!files.has(44, 700) && !files.has(45, 701) && !files.has(45, dynamic_tree::END + 1));
    }
}
