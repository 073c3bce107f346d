//! mount(2) and umount(2) of resctrl, as calls.
//!
//! Like linux rdtgroup.c (`rdt_get_tree`, `rdt_kill_sb`). It must not know who mounts, nor where.

use super::groups::{GroupId, Mode};
use super::{VirtualResctrl, schemata};
use rustix::io::Errno;

impl VirtualResctrl {
    /// Whether resctrl is mounted. Where it is not, its mount point is an empty directory.
    pub fn is_mounted(&self) -> bool {
        self.mounted
    }

    /// Mounts resctrl. EBUSY if it is mounted: the kernel has one instance.
    ///
    /// # Errors
    /// EBUSY.
    pub fn mount(&mut self) -> Result<(), Errno> {
        if self.mounted {
            return Err(Errno::BUSY);
        }
        self.mounted = true;
        Ok(())
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
        let groups: Vec<GroupId> = self.groups.keys().copied().filter(|id| *id != GroupId::DEFAULT).collect();
        for group in groups {
            // The monitoring groups of a control group are removed with it.
            if self.groups.contains_key(&group) {
                self.remove(group);
            }
        }
        self.group_mut(GroupId::DEFAULT).mode = Mode::Shareable;
        self.schemas = schemata::schemas(&self.host);
        self.changes.clear();
        self.reset_hardware();
        self.mounted = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(host.mount(), Err(Errno::BUSY));

        host.unmount().unwrap();
        assert_eq!(host.unmount(), Err(Errno::INVAL));
        assert_eq!(host.list(Place::ROOT), []);
        assert_eq!(host.present(Place::ROOT), Ok(()), "the mount point remains");
        assert_eq!(host.read(schemata), Err(Errno::NODEV));
        assert_eq!(host.mkdir(Place::ROOT, "b", OWNER), Err(Errno::PERM));

        host.mount().unwrap();
        assert_eq!(host.lookup(Place::ROOT, "a"), None);
        assert_eq!(host.read(schemata).unwrap(), before);
        // Eight classes, one of them the root's: all seven are free again.
        for name in 0..7 {
            host.mkdir(Place::ROOT, &name.to_string(), OWNER).unwrap();
        }
        assert_eq!(host.mkdir(Place::ROOT, "8", OWNER), Err(Errno::NOSPC));
    }
}
