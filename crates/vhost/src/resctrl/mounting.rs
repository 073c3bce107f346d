//! mount(2) and umount(2) of resctrl, as calls.
//!
//! Like linux rdtgroup.c (`rdt_get_tree`, `rdt_kill_sb`). It must not know who mounts, nor where.

use super::description::Cdp;
use super::groups::{GroupId, Mode};
use super::places::Place;
use super::{VirtualResctrl, schemata};
use rustix::io::Errno;
use std::str::FromStr;

/// Options of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Separate masks for code and data: `L3CODE` and `L3DATA`, half as many classes.
    pub cdp: bool,
}

impl MountOptions {
    /// The options as the kernel shows them, each after a comma (linux rdtgroup.c: `rdtgroup_show_options`).
    pub fn shown(self) -> &'static str {
        if self.cdp { ",cdp" } else { "" }
    }
}

impl FromStr for MountOptions {
    type Err = Errno;

    /// Names with commas between them, as in mount(2). EINVAL for all but `cdp`: no L2 here has masks, and the kernel's
    /// controller of bandwidth in MB/s (`mba_MBps`) and its debug files are not part of the model.
    fn from_str(text: &str) -> Result<Self, Errno> {
        let mut options = MountOptions::default();
        for name in text.split(',').filter(|name| !name.is_empty()) {
            match name {
                "cdp" => options.cdp = true,
                _ => return Err(Errno::INVAL),
            }
        }
        Ok(options)
    }
}

impl VirtualResctrl {
    /// Whether resctrl is mounted. Where it is not, its mount point is an empty directory.
    pub fn is_mounted(&self) -> bool {
        self.mounted
    }

    /// The options of the present mount.
    pub fn mount_options(&self) -> MountOptions {
        MountOptions { cdp: self.cdp() }
    }

    /// Mounts resctrl.
    ///
    /// # Errors
    /// EBUSY if it is mounted, since the kernel has one instance; EINVAL for an option that the chip lacks.
    pub fn mount(&mut self, options: MountOptions) -> Result<(), Errno> {
        if self.mounted {
            return Err(Errno::BUSY);
        }
        if options.cdp && self.host.l3.is_none_or(|cache| cache.cdp == Cdp::Absent) {
            return Err(Errno::INVAL);
        }
        self.set_cdp(options.cdp);
        self.mounted = true;
        Ok(())
    }

    /// Code and data with separate masks or one, and all masks as after power-on. There is no group but the default one.
    fn set_cdp(&mut self, on: bool) {
        if let Some(cache) = self.host.l3.as_mut().filter(|cache| cache.cdp != Cdp::Absent) {
            cache.cdp = if on { Cdp::On } else { Cdp::Off };
        }
        self.schemas = schemata::schemas(&self.host);
        self.classes = schemata::classes(&self.schemas);
        self.reset_hardware();
    }

    /// Unmounts resctrl: all groups are removed and all masks and limits are as after power-on. What belongs to the
    /// hardware and not to the mount remains: the threshold of occupancy, and RMIDs whose lines are still cached.
    ///
    /// # Errors
    /// EINVAL if it is not mounted.
    pub fn unmount(&mut self) -> Result<(), Errno> {
        if !self.mounted {
            return Err(Errno::INVAL);
        }
        self.unlisted = self.list(Place::ROOT).into_iter().map(|(name, _)| name).collect();
        let groups: Vec<GroupId> = self.groups.keys().copied().filter(|id| *id != GroupId::DEFAULT).collect();
        for group in groups {
            // The monitoring groups of a control group are removed with it.
            if self.groups.contains_key(&group) {
                self.remove(group);
            }
        }
        self.group_mut(GroupId::DEFAULT).mode = Mode::Shareable;
        self.changes.clear();
        self.set_cdp(false);
        self.mounted = false;
        Ok(())
    }

    /// The names that the last unmount removed from the root directory, once: a cache of names must forget them.
    pub fn take_unlisted(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::MountOptions;
    use crate::resctrl::fixture::resctrl;
    use crate::resctrl::groups::DirOwner;
    use crate::resctrl::places::Place;
    use rustix::io::Errno;

    const OWNER: DirOwner = DirOwner { mode: 0o755, uid: 0, gid: 0 };

    #[test]
    fn an_unmount_removes_groups_and_limits_and_leaves_an_empty_directory() {
        let shared = resctrl();
        let mut host = shared.lock().unwrap();
        let caller = crate::node::Caller { pid: 1, uid: 0 };
        let schemata = host.lookup(Place::ROOT, "schemata").unwrap();
        let before = host.read(schemata).unwrap();
        host.mkdir(Place::ROOT, "a", OWNER).unwrap();
        host.write(schemata, b"MB:0=50\n", caller).unwrap();
        assert_ne!(host.read(schemata).unwrap(), before);
        assert_eq!(host.mount(MountOptions::default()), Err(Errno::BUSY));

        let named = host.list(Place::ROOT).len();
        host.unmount().unwrap();
        assert_eq!(host.unmount(), Err(Errno::INVAL));
        assert_eq!((host.take_unlisted().len(), host.take_unlisted().len()), (named, 0));
        assert_eq!(host.list(Place::ROOT), []);
        assert_eq!(host.present(Place::ROOT), Ok(()), "the mount point remains");
        assert_eq!(host.read(schemata), Err(Errno::NODEV));
        assert_eq!(host.mkdir(Place::ROOT, "b", OWNER), Err(Errno::PERM));

        host.mount(MountOptions::default()).unwrap();
        assert_eq!(host.lookup(Place::ROOT, "a"), None);
        assert_eq!(host.read(schemata).unwrap(), before);
        // Eight classes, one of them the root's: all seven are free again.
        for name in 0..7 {
            host.mkdir(Place::ROOT, &name.to_string(), OWNER).unwrap();
        }
        assert_eq!(host.mkdir(Place::ROOT, "8", OWNER), Err(Errno::NOSPC));
    }

    #[test]
    fn a_mount_refuses_options_that_the_chip_lacks() {
        for (text, options) in
            [("", Ok(false)), ("cdp", Ok(true)), ("cdp,", Ok(true)), ("cdp,cdpl2", Err(Errno::INVAL))]
        {
            assert_eq!(text.parse(), options.map(|cdp| MountOptions { cdp }), "{text}");
        }
        let shared = resctrl();
        let mut host = shared.lock().unwrap();
        host.unmount().unwrap();
        assert_eq!(host.mount(MountOptions { cdp: true }), Err(Errno::INVAL), "this chip has no masks");
        assert!(!host.is_mounted());
        host.mount(MountOptions::default()).unwrap();
    }
}
