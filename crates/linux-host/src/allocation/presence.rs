//! Tenants' CPUs that are switched off and on while the host is managed.
//!
//! The kernel takes an offline CPU from its groups, and a CPU that returns is in the default group (linux rdtgroup.c,
//! resctrl_offline_cpu and resctrl_online_cpu). No other program took it, so it belongs to its tenant again. Must not
//! know groups.

use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Presence;
use waykeeper_units::{CoreId, CoreList};

/// The tenants' CPUs as they were seen last.
#[derive(Debug, Default)]
pub(super) struct CpuPresence {
    /// Identities of those that were online.
    seen: BTreeMap<CoreId, u64>,
    offline: CoreList,
    /// Those that returned and are not in their tenants' groups yet.
    returned: CoreList,
}

impl CpuPresence {
    /// Looks at these CPUs and forgets others. Returns those that were offline since the last look and are online again,
    /// however short that was.
    pub fn look(&mut self, root: &Root, cpus: &CoreList) -> CoreList {
        let (mut returned, mut offline) = (Vec::new(), Vec::new());
        for cpu in cpus.cores() {
            match identity(root, *cpu) {
                Some(now) => {
                    let before = self.seen.insert(*cpu, now);
                    if before.is_some_and(|before| before != now) {
                        returned.push(*cpu);
                    }
                }
                None if matches!(Presence::of(root, *cpu), Ok(Presence::Offline)) => offline.push(*cpu),
                None => {}
            }
        }
        let wanted: BTreeSet<&CoreId> = cpus.cores().iter().collect();
        self.seen.retain(|cpu, _| wanted.contains(cpu));
        self.offline = offline.into();
        let returned: CoreList = returned.into();
        self.returned = self.returned.with(&returned).common(cpus);
        returned
    }

    /// Those that no other program took, but that are missing in their groups: offline, or just back.
    pub fn away(&self) -> CoreList {
        self.offline.with(&self.returned)
    }

    /// Of those that returned, only these are not in their groups yet.
    pub fn are_missing(&mut self, cpus: &CoreList) {
        self.returned = self.returned.common(cpus);
    }

    /// Those that were offline at the last look.
    pub fn offline(&self) -> &CoreList {
        &self.offline
    }
}

/// The inode of the directory with a CPU's place in the machine; `None` if there is none. The kernel makes the directory
/// when the CPU is switched on and removes it when the CPU is switched off (linux drivers/base/topology.c,
/// topology_add_dev). An inode of sysfs is not used again soon (fs/kernfs/dir.c, __kernfs_new_node).
fn identity(root: &Root, cpu: CoreId) -> Option<u64> {
    let path = root.path(format!("/sys/devices/system/cpu/cpu{}/topology", cpu.0));
    root.system().metadata(&path).ok().map(|found| found.inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_cpu_that_was_away_is_known_even_if_no_look_saw_it_offline() {
        let folder = tempfile::tempdir().unwrap();
        let cpus = folder.path().join("sys/devices/system/cpu");
        let topology = |cpu: u16| cpus.join(format!("cpu{cpu}/topology"));
        (0..3).for_each(|cpu| fs::create_dir_all(topology(cpu)).unwrap());
        fs::write(cpus.join("present"), "0-2\n").unwrap();
        fs::write(cpus.join("online"), "0-2\n").unwrap();
        let root = Root::at(folder.path());
        let list = |text: &str| text.parse::<CoreList>().unwrap();
        let mut presence = CpuPresence::default();
        assert_eq!(presence.look(&root, &list("1-2")), CoreList::default());
        assert_eq!(presence.look(&root, &list("1-2")), CoreList::default());
        // CPU 1 is switched off. Its directory stays elsewhere: a file system of a disk would use its inode again.
        fs::rename(topology(1), cpus.join("was")).unwrap();
        fs::write(cpus.join("online"), "0,2\n").unwrap();
        assert_eq!(presence.look(&root, &list("1-2")), CoreList::default());
        assert_eq!(*presence.offline(), list("1"));
        // It returns, and CPU 2 is off and on between two looks.
        fs::create_dir(topology(1)).unwrap();
        fs::write(cpus.join("online"), "0-2\n").unwrap();
        fs::create_dir(cpus.join("new")).unwrap();
        fs::remove_dir(topology(2)).unwrap();
        fs::rename(cpus.join("new"), topology(2)).unwrap();
        assert_eq!(presence.look(&root, &list("1-2")), list("1-2"));
        assert_eq!(*presence.offline(), CoreList::default());
        assert_eq!(presence.look(&root, &list("1-2")), CoreList::default());
        assert_eq!(presence.away(), list("1-2"), "until they are in their groups");
        presence.are_missing(&list("2-5"));
        assert_eq!(presence.away(), list("2"));
    }
}
