//! Groups: created, removed, renamed, and their classes (CLOSIDs) and RMIDs.
//!
//! Like linux rdtgroup.c (`rdtgroup_mkdir`, `rdtgroup_rmdir`, `rdtgroup_rename`). It must not know the files of a
//! group.

use super::VirtualResctrl;
use super::cpus::Cpus;
use super::description::Kernel;
use super::places::Place;
use rustix::io::Errno;

/// Longest name of a directory (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// A group's id, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(super) u64);

impl GroupId {
    /// The default group, which always exists.
    pub const DEFAULT: GroupId = GroupId(0);
}

/// Owner and mode of a new directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOwner {
    /// Permission bits after the umask.
    pub mode: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Shareable,
    Exclusive,
}

/// A control group, or a monitoring group under one.
pub(super) struct Group {
    pub name: String,
    /// The control group of a monitoring group.
    pub parent: Option<GroupId>,
    pub closid: u32,
    pub rmid: u32,
    pub mode: Mode,
    pub cpus: Cpus,
    pub owner: DirOwner,
}

impl VirtualResctrl {
    /// A group that must exist.
    pub(super) fn group_mut(&mut self, group: GroupId) -> &mut Group {
        self.groups.get_mut(&group).expect("ids of groups are only kept while the groups are there")
    }

    /// The monitoring groups under a control group, oldest first.
    pub(super) fn children(&self, group: GroupId) -> Vec<GroupId> {
        self.groups.iter().filter(|(_, child)| child.parent == Some(group)).map(|(id, _)| *id).collect()
    }

    /// The control group that holds a class.
    pub(super) fn control_group_of(&self, closid: u32) -> Option<&Group> {
        self.groups.values().find(|group| group.parent.is_none() && group.closid == closid)
    }

    /// mkdir(2) in `folder`.
    pub fn mkdir(&mut self, folder: Place, name: &str, owner: DirOwner) -> Result<Place, Errno> {
        self.present(folder)?;
        if name.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG);
        }
        if self.lookup(folder, name).is_some() {
            return Err(Errno::EXIST);
        }
        if name.contains('\n') {
            return Err(Errno::INVAL);
        }
        let group = match folder {
            _ if !self.mounted => return Err(Errno::PERM),
            Place::Group(GroupId::DEFAULT) if self.can_allocate() => {
                let (closid, rmid) = self.take_class_and_rmid()?;
                if let Err(error) = self.new_class(closid) {
                    self.classes[closid as usize] = false;
                    self.release_rmid(rmid);
                    return Err(error);
                }
                Group {
                    name: name.to_owned(),
                    parent: None,
                    closid,
                    rmid,
                    mode: Mode::Shareable,
                    cpus: Cpus::new(),
                    owner,
                }
            }
            Place::MonGroups(parent) if name != "mon_groups" => {
                let rmid = self.take_rmid()?;
                let closid = self.groups[&parent].closid;
                let mode = Mode::Shareable;
                Group {
                    name: name.to_owned(),
                    parent: Some(parent),
                    closid,
                    rmid,
                    mode,
                    cpus: Cpus::new(),
                    owner,
                }
            }
            _ => return Err(Errno::PERM),
        };
        self.next_group += 1;
        let id = GroupId(self.next_group);
        self.count_from_here(group.rmid);
        self.groups.insert(id, group);
        Ok(Place::Group(id))
    }

    /// rmdir(2) of `name` in `folder`.
    pub fn rmdir(&mut self, folder: Place, name: &str) -> Result<(), Errno> {
        self.present(folder)?;
        let place = self.lookup(folder, name).ok_or(Errno::NOENT)?;
        if !place.is_directory() {
            return Err(Errno::NOTDIR);
        }
        match place {
            Place::Group(id) if id != GroupId::DEFAULT => {
                self.remove(id);
                Ok(())
            }
            _ => Err(Errno::PERM),
        }
    }

    pub(super) fn remove(&mut self, id: GroupId) {
        let children = self.children(id);
        let group = &self.groups[&id];
        let (closid, rmid, parent, cpus) = (group.closid, group.rmid, group.parent, group.cpus.clone());
        let heir = parent.unwrap_or(GroupId::DEFAULT);
        let to = (self.groups[&heir].closid, self.groups[&heir].rmid);
        let leaves = |task: (u32, u32)| task.0 == closid && (parent.is_none() || task.1 == rmid);
        // If no task had the class, none can have inherited it.
        if self.tasks.any(leaves) {
            self.tasks.update(self.hardware.as_mut());
            self.tasks.reassign(self.hardware.as_mut(), leaves, to);
        }
        self.assign_cpus(&cpus, heir);
        self.group_mut(heir).cpus.extend(&cpus);
        for gone in children.into_iter().chain([id]) {
            self.release_rmid(self.groups[&gone].rmid);
            self.groups.remove(&gone);
            self.changes.retain(|place, _| place.group() != Some(gone));
        }
        if parent.is_none() {
            self.classes[closid as usize] = false;
        }
    }

    /// rename(2): monitoring groups can get another name or another parent, from [`Kernel::RENAMES`] on.
    pub fn rename(&mut self, from: Place, name: &str, to: Place, new_name: &str) -> Result<(), Errno> {
        self.present(from)?;
        self.present(to)?;
        let source = self.lookup(from, name).ok_or(Errno::NOENT)?;
        let target = self.lookup(to, new_name);
        if new_name.len() > LONGEST_NAME {
            return Err(Errno::NAMETOOLONG);
        }
        match target {
            // The VFS decides these before it calls the file system (linux fs/namei.c: vfs_rename, may_delete).
            Some(target) if target == source => return Ok(()),
            Some(target) if source.is_directory() && !target.is_directory() => return Err(Errno::NOTDIR),
            Some(target) if !source.is_directory() && target.is_directory() => return Err(Errno::ISDIR),
            _ => {}
        }
        if self.host.kernel < Kernel::RENAMES {
            return Err(Errno::PERM);
        }
        // Neither `info` nor its entries belong to a group.
        if source.group().is_none() || to.group().is_none() {
            return Err(Errno::NOENT);
        }
        self.status.clear();
        if !source.is_directory() {
            self.status.puts("Source and destination must be directories");
            return Err(Errno::PERM);
        }
        let group = match source {
            Place::Group(id) if self.groups[&id].parent.is_some() => id,
            _ => {
                self.status.puts("Source must be a MON group\n");
                return Err(Errno::PERM);
            }
        };
        let parent = match to {
            Place::MonGroups(parent) if new_name != "mon_groups" => parent,
            _ => {
                self.status.puts("Destination must be a mon_groups subdirectory\n");
                return Err(Errno::PERM);
            }
        };
        let moves = self.groups[&group].parent != Some(parent);
        if moves && !self.groups[&group].cpus.is_empty() {
            self.status.puts("Cannot move a MON group that monitors CPUs\n");
            return Err(Errno::PERM);
        }
        if target.is_some() {
            return Err(Errno::EXIST);
        }
        self.group_mut(group).name = new_name.to_owned();
        if moves {
            let (closid, rmid) = (self.groups[&group].closid, self.groups[&group].rmid);
            let new_closid = self.groups[&parent].closid;
            self.tasks.update(self.hardware.as_mut());
            self.tasks.reassign(self.hardware.as_mut(), |task| task == (closid, rmid), (new_closid, rmid));
            let moved = self.group_mut(group);
            (moved.parent, moved.closid) = (Some(parent), new_closid);
        }
        Ok(())
    }

    /// A free class and RMID, in the order in which the kernel allocates them.
    fn take_class_and_rmid(&mut self) -> Result<(u32, u32), Errno> {
        if self.host.kernel >= Kernel::CLOSID_FIRST {
            let closid = self.take_class()?;
            let rmid = self.take_rmid().inspect_err(|_| self.classes[closid as usize] = false)?;
            return Ok((closid, rmid));
        }
        let rmid = self.take_rmid()?;
        match self.take_class() {
            Ok(closid) => Ok((closid, rmid)),
            Err(error) => {
                self.release_rmid(rmid);
                Err(error)
            }
        }
    }

    fn take_class(&mut self) -> Result<u32, Errno> {
        let Some(closid) = self.classes.iter().position(|taken| !taken) else {
            self.status.puts("Out of CLOSIDs\n");
            return Err(Errno::NOSPC);
        };
        self.classes[closid] = true;
        Ok(closid as u32)
    }
}
