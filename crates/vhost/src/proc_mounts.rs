//! `proc/mounts` of the tree: the reader's own mounts, then those of the tree (control groups and resctrl).
//!
//! Tools look there for a file system before they look for its files. This file must not know the rest of the tree.

use crate::inodes::locked;
use crate::node::{Caller, File, slice};
use crate::resctrl::SharedResctrl;
use crate::resctrl::mounting::MountOptions;
use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;

/// How the kernel shows a mounted resctrl (virtual-host.md 1).
fn resctrl_line(options: MountOptions) -> String {
    let options = options.shown();
    format!("resctrl /sys/fs/resctrl resctrl rw,relatime{options} 0 0\n")
}

/// How systemd mounts cgroup v2.
const CGROUP: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n";

/// The file. Each read returns the mounts of the reading task, or the server's where those cannot be read; without a
/// procfs only those of the tree.
pub struct ProcMounts {
    proc: Option<PathBuf>,
    resctrl: Option<SharedResctrl>,
}

impl ProcMounts {
    /// With the mounts of the procfs at `proc`, usually `/proc`, and resctrl while it is mounted; `None` for a chip
    /// without resctrl.
    pub fn new(proc: Option<PathBuf>, resctrl: Option<SharedResctrl>) -> Self {
        ProcMounts { proc, resctrl }
    }

    /// The mounts of the reading task.
    fn own(&self, caller: Caller) -> Result<Vec<u8>, Errno> {
        let Some(proc) = &self.proc else { return Ok(Vec::new()) };
        let of = |task: &str| fs::read(proc.join(task).join("mounts"));
        of(&caller.pid.to_string())
            .or_else(|_| of("self"))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl File for ProcMounts {
    fn read(&self, offset: u64, len: usize, caller: Caller) -> Result<Vec<u8>, Errno> {
        let mut content = self.own(caller)?;
        if !has_own_cgroups(&String::from_utf8_lossy(&content)) {
            content.extend(CGROUP.as_bytes());
        }
        if let Some(resctrl) =
            self.resctrl.as_ref().map(|it| locked(it)).filter(|resctrl| resctrl.is_mounted())
        {
            content.extend(resctrl_line(resctrl.mount_options()).as_bytes());
        }
        Ok(slice(&content, offset, len))
    }
}

/// Whether control groups are mounted over those of the tree: after the last mount on `/sys`, if that is the tree's.
fn has_own_cgroups(mounts: &str) -> bool {
    let mounts: Vec<(&str, &str)> = mounts
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(source, rest)| Some((source, rest.split(' ').next()?)))
        .collect();
    let sys = mounts.iter().rposition(|(_, point)| *point == "/sys");
    sys.is_some_and(|sys| {
        mounts[sys].0 == "waykeeper" && mounts[sys..].iter().any(|(_, point)| *point == "/sys/fs/cgroup")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::fixture::resctrl;

    #[test]
    fn resctrl_is_the_last_of_the_readers_mounts_while_it_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        for (task, text) in [("7", "a /a ext4 rw 0 0\n"), ("self", "b /b ext4 rw 0 0\n")] {
            fs::create_dir(folder.path().join(task)).unwrap();
            fs::write(folder.path().join(task).join("mounts"), text).unwrap();
        }
        let shared = resctrl();
        let file = ProcMounts::new(Some(folder.path().into()), Some(shared.clone()));
        let read = |pid, offset| {
            String::from_utf8(file.read(offset, 4096, Caller { pid, uid: 0 }).unwrap()).unwrap()
        };
        let resctrl = "resctrl /sys/fs/resctrl resctrl rw,relatime 0 0\n";
        assert_eq!(resctrl_line(MountOptions { cdp: true }), resctrl.replace("relatime", "relatime,cdp"));
        assert_eq!(read(7, 0), format!("a /a ext4 rw 0 0\n{CGROUP}{resctrl}"));
        assert_eq!(read(8, 0), format!("b /b ext4 rw 0 0\n{CGROUP}{resctrl}"));
        assert_eq!(read(7, 17), format!("{CGROUP}{resctrl}"));
        shared.lock().unwrap().unmount().unwrap();
        assert_eq!(read(7, 17), CGROUP);
        let none = ProcMounts::new(Some(folder.path().into()), None);
        let none = none.read(0, 4096, Caller { pid: 7, uid: 0 }).unwrap();
        assert_eq!(String::from_utf8(none).unwrap(), format!("a /a ext4 rw 0 0\n{CGROUP}"));
        assert_eq!(
            ProcMounts::new(Some("/nonexistent".into()), None).read(0, 1, Caller { pid: 1, uid: 0 }),
            Err(Errno::NOENT)
        );
    }

    #[test]
    fn control_groups_that_are_mounted_over_those_of_the_tree_hide_them() {
        let old = "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let tree = "waykeeper /sys fuse rw 0 0\n";
        let own = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n";
        assert!(!has_own_cgroups(&format!("{old}{tree}")));
        assert!(has_own_cgroups(&format!("{old}{tree}{own}")));
        assert!(!has_own_cgroups(old), "outside of the tree's namespace");
        assert!(!has_own_cgroups(""));
    }
}
