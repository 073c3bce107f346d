//! The tree as a file system without a mount: paths, open files, faults; one call, one answer or one error number.
//!
//! `mount` serves it through FUSE; a simulation calls it directly. This file must not know FUSE, nor the meaning of any
//! file.

use crate::dynamic_tree::DynamicTree;
use crate::faults::{Faults, FileFault, Operation};
use crate::inodes::{Fixed, Inodes, ROOT, Target, locked};
use crate::node::{Caller, OpenAccess, Tree, slice};
use crate::resctrl::groups::DirOwner;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// How long attributes stay true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// As long as the tree is served.
    Fixed,
    /// Until a change of resctrl.
    Resctrl,
    /// Not at all.
    Dynamic,
}

/// The attributes of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryAttributes {
    /// Its number; it is not reused.
    pub number: u64,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owning group's id.
    pub gid: u32,
    /// Number of links.
    pub links: u32,
    /// Length in bytes, as reported.
    pub size: u64,
    /// How long they stay true.
    pub lifetime: Lifetime,
}

/// Attributes to set; `None` keeps the value.
#[derive(Clone, Copy, Default, Debug)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner's user id.
    pub uid: Option<u32>,
    /// The owning group's id.
    pub gid: Option<u32>,
}

/// State of an open file or directory.
enum Handle {
    /// resctrl's files are generated at offset 0 and then read from that copy (linux fs/seq_file.c).
    Content { made: Vec<u8>, next: u64 },
    /// Entries as they were at opendir.
    Entries(Vec<(String, u64)>),
}

/// A tree with its open files.
pub struct FileTree {
    inodes: Inodes,
    faults: Faults,
    handles: Mutex<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
    changes: Mutex<HashMap<u64, AttributeChange>>,
    uid: u32,
    gid: u32,
}

impl FileTree {
    /// Serves a tree. `uid` and `gid` own its fixed entries, and whatever root owns in resctrl.
    pub fn new(tree: Tree, faults: Faults, uid: u32, gid: u32) -> Self {
        FileTree {
            inodes: Inodes::new(tree),
            faults,
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            changes: Mutex::default(),
            uid,
            gid,
        }
    }

    fn target(&self, number: u64) -> Result<Target<'_>, Errno> {
        match self.inodes.gone(number) {
            Some(errno) => Err(errno),
            None => self.inodes.target(number).ok_or(Errno::STALE),
        }
    }

    fn keep(&self, handle: Handle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        locked(&self.handles).insert(number, handle);
        number
    }

    /// Closes an open file or directory.
    pub fn release(&self, handle: u64) {
        locked(&self.handles).remove(&handle);
    }

    /// The path of an entry below the root; for a removed place, that of its resctrl.
    pub fn path(&self, number: u64) -> String {
        self.inodes.path(number)
    }

    fn child_path(&self, parent: u64, name: &str) -> String {
        format!("{}/{name}", self.inodes.path(parent).trim_end_matches('/'))
            .trim_start_matches('/')
            .to_owned()
    }

    /// What a number is, without reading it.
    pub fn kind(&self, number: u64) -> EntryKind {
        match self.inodes.target(number) {
            _ if self.inodes.is_directory(number) => EntryKind::Directory,
            Some(Target::Fixed(Fixed::Link(_))) => EntryKind::Link,
            _ => EntryKind::File,
        }
    }

    /// The number of a path below the root, which has no leading slash. Links are followed, except at its end if
    /// `follow` is false.
    ///
    /// # Errors
    /// ENOENT or ENOTDIR; ELOOP after 40 links.
    pub fn walk(&self, path: &str, follow: bool) -> Result<u64, Errno> {
        /// As in the kernel (path_resolution(7)).
        const MOST_LINKS: u32 = 40;
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut above, mut at, mut links) = (Vec::new(), ROOT, 0);
        while let Some(name) = left.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    at = above.pop().unwrap_or(ROOT);
                    continue;
                }
                _ => {}
            }
            let entry = self.find(at, &name)?;
            if let Ok(Target::Fixed(Fixed::Link(target))) = self.target(entry)
                && (follow || left.iter().any(|name| !name.is_empty()))
            {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP);
                }
                left.extend(target.split('/').rev().map(str::to_owned));
                continue;
            }
            above.push(at);
            at = entry;
        }
        Ok(at)
    }

    /// The attributes of an entry.
    ///
    /// # Errors
    /// ESTALE or ENOENT if it is gone.
    pub fn attributes(&self, number: u64) -> Result<EntryAttributes, Errno> {
        Ok(match self.target(number)? {
            Target::Place(shared, place) => {
                let it = locked(shared).attributes(place)?;
                EntryAttributes {
                    number,
                    kind: if it.directory { EntryKind::Directory } else { EntryKind::File },
                    mode: it.mode,
                    uid: if it.uid == 0 { self.uid } else { it.uid },
                    gid: if it.gid == 0 { self.gid } else { it.gid },
                    links: it.links,
                    size: 0,
                    lifetime: Lifetime::Resctrl,
                }
            }
            Target::Dynamic(dynamic, inner) => {
                dynamic.present(inner)?;
                let (kind, mode, links) = match dynamic.is_directory(inner) {
                    true => (EntryKind::Directory, 0o555, 2 + directories(dynamic, inner)?),
                    false => (EntryKind::File, 0o444, 1),
                };
                let (uid, gid, lifetime) = (self.uid, self.gid, Lifetime::Dynamic);
                EntryAttributes { number, kind, mode, uid, gid, links, size: 0, lifetime }
            }
            Target::Fixed(fixed) => {
                let mut moves = self.inodes.is_temporary(number);
                let (kind, mode, links, size) = match fixed {
                    Fixed::File(file) => {
                        moves |= file.changes();
                        (EntryKind::File, file.mode(), 1, file.size())
                    }
                    Fixed::Link(target) => (EntryKind::Link, 0o777, 1, target.len() as u64),
                    Fixed::Directory(entries, dynamic) => {
                        moves |= dynamic.is_some()
                            || entries.values().any(|entry| self.inodes.is_temporary(*entry));
                        let is_there = |entry: &&u64| {
                            self.inodes.is_directory(**entry) && self.inodes.entry(**entry).is_some()
                        };
                        let inner = entries.values().filter(is_there).count();
                        let moving =
                            dynamic.map_or(Ok(0), |dynamic| directories(self.inodes.dynamic(dynamic), 0))?;
                        (EntryKind::Directory, 0o555, 2 + inner as u32 + moving, 0)
                    }
                    Fixed::Resctrl(_) => (EntryKind::Directory, 0o555, 2, 0),
                };
                let change = locked(&self.changes).get(&number).copied().unwrap_or_default();
                EntryAttributes {
                    number,
                    kind,
                    mode: change.mode.unwrap_or(mode),
                    uid: change.uid.unwrap_or(self.uid),
                    gid: change.gid.unwrap_or(self.gid),
                    links,
                    size,
                    lifetime: if moves { Lifetime::Dynamic } else { Lifetime::Fixed },
                }
            }
        })
    }

    /// The number of an entry of a directory.
    ///
    /// # Errors
    /// ENOENT or ENOTDIR.
    pub fn find(&self, parent: u64, name: &str) -> Result<u64, Errno> {
        match self.target(parent)? {
            Target::Fixed(Fixed::Directory(entries, dynamic)) => match (entries.get(name), dynamic) {
                (Some(entry), _) => self.inodes.entry(*entry).ok_or(Errno::NOENT),
                (None, Some(dynamic)) => {
                    let found = self.inodes.dynamic(*dynamic).lookup(0, name)?;
                    Ok(self.inodes.dynamic_number(parent, found.number))
                }
                (None, None) => Err(Errno::NOENT),
            },
            Target::Dynamic(dynamic, inner) => {
                Ok(self.inodes.dynamic_number(parent, dynamic.lookup(inner, name)?.number))
            }
            Target::Fixed(_) => Err(Errno::NOTDIR),
            Target::Place(shared, place) => {
                let found = locked(shared).lookup(place, name).ok_or(Errno::NOENT)?;
                Ok(self.inodes.place(parent, found))
            }
        }
    }

    /// Makes a directory: mkdir(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn make_directory(&self, parent: u64, name: &str, owner: DirOwner) -> Result<EntryAttributes, Errno> {
        self.faults.refuse(&self.child_path(parent, name), Operation::MakeDirectory)?;
        match self.target(parent)? {
            Target::Fixed(_) | Target::Dynamic(..) => Err(Errno::PERM),
            Target::Place(shared, place) => {
                let made = locked(shared).mkdir(place, name, owner)?;
                self.attributes(self.inodes.place(parent, made))
            }
        }
    }

    /// Removes a directory: rmdir(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove_directory(&self, parent: u64, name: &str) -> Result<(), Errno> {
        self.faults.refuse(&self.child_path(parent, name), Operation::RemoveDirectory)?;
        match self.target(parent)? {
            Target::Fixed(_) | Target::Dynamic(..) => Err(Errno::PERM),
            Target::Place(shared, place) => locked(shared).rmdir(place, name),
        }
    }

    /// Renames a directory; `flags`: the call has flags as RENAME_EXCHANGE.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn rename(&self, from: u64, name: &str, to: u64, new_name: &str, flags: bool) -> Result<(), Errno> {
        self.faults.refuse(&self.child_path(from, name), Operation::Rename)?;
        match (self.target(from)?, self.target(to)?) {
            // kernfs does not support RENAME_EXCHANGE and similar flags.
            (Target::Place(..), Target::Place(..)) if flags => Err(Errno::INVAL),
            (Target::Place(shared, place), Target::Place(_, target)) => {
                locked(shared).rename(place, name, target, new_name)
            }
            _ => Err(Errno::PERM),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL for anything else.
    pub fn read_link(&self, number: u64) -> Result<String, Errno> {
        self.faults.refuse(&self.inodes.path(number), Operation::ReadLink)?;
        match self.target(number)? {
            Target::Fixed(Fixed::Link(target)) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Opens a file. The handle of a file without state is 0.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open(&self, number: u64, access: OpenAccess, caller: Caller) -> Result<u64, Errno> {
        self.faults.refuse(&self.inodes.path(number), Operation::Open)?;
        match self.target(number)? {
            Target::Place(shared, place) => {
                locked(shared).open(place, access)?;
                Ok(self.keep(Handle::Content { made: Vec::new(), next: 0 }))
            }
            Target::Fixed(Fixed::File(file)) => {
                let mode = self.attributes(number)?.mode;
                if access.write && mode & 0o222 == 0 {
                    return Err(Errno::ACCESS);
                }
                file.open(access, caller)?;
                Ok(0)
            }
            Target::Fixed(_) => Err(Errno::ISDIR),
            Target::Dynamic(dynamic, inner) => {
                dynamic.present(inner)?;
                if access.write {
                    return Err(Errno::ACCESS);
                }
                Ok(self.keep(Handle::Content { made: Vec::new(), next: 0 }))
            }
        }
    }

    /// Reads at most `len` bytes at `offset`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read(
        &self,
        number: u64,
        handle: u64,
        offset: u64,
        len: usize,
        caller: Caller,
    ) -> Result<Vec<u8>, Errno> {
        let len = match self.faults.strike(&self.inodes.path(number), Operation::Read) {
            Some(FileFault::Refuse(errno)) => return Err(errno),
            Some(FileFault::Garbage(content)) => return Ok(slice(&content, offset, len)),
            Some(FileFault::ShortRead(most)) => len.min(most),
            Some(FileFault::ShortWrite(_)) | None => len,
        };
        match self.target(number)? {
            Target::Fixed(Fixed::File(file)) => file.read(offset, len, caller),
            Target::Fixed(_) => Err(Errno::ISDIR),
            Target::Place(shared, place) => {
                let mut resctrl = locked(shared);
                resctrl.present(place)?;
                self.sequence(handle, offset, len, || resctrl.read(place))
            }
            Target::Dynamic(dynamic, inner) => self.sequence(handle, offset, len, || dynamic.read(inner)),
        }
    }

    /// A part of a file that is generated at offset 0 and then read from that copy.
    fn sequence(
        &self,
        handle: u64,
        offset: u64,
        len: usize,
        make: impl FnOnce() -> Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        let mut handles = locked(&self.handles);
        let Some(Handle::Content { made, next }) = handles.get_mut(&handle) else {
            return Err(Errno::BADF);
        };
        if offset == 0 || offset != *next {
            *made = make()?;
        }
        let part = slice(made, offset, len);
        *next = offset.saturating_add(part.len() as u64);
        Ok(part)
    }

    /// Writes `data` at `offset`; returns the number of bytes taken.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn write(&self, number: u64, offset: u64, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        match self.faults.strike(&self.inodes.path(number), Operation::Write) {
            Some(FileFault::Refuse(errno)) => return Err(errno),
            Some(FileFault::ShortWrite(most)) => return Ok(data.len().min(most)),
            Some(FileFault::ShortRead(_) | FileFault::Garbage(_)) | None => {}
        }
        match self.target(number)? {
            Target::Fixed(Fixed::File(file)) => file.write(offset, data, caller),
            Target::Fixed(_) => Err(Errno::ISDIR),
            Target::Dynamic(..) => Err(Errno::ACCESS),
            Target::Place(shared, place) => locked(shared).write(place, data, caller),
        }
    }

    /// The names that unmounts of resctrl have removed, each with its directory, once.
    pub fn take_unlisted(&self) -> Vec<(u64, String)> {
        self.inodes.take_unlisted()
    }

    /// The entries of a directory, `.` and `..` first, with their numbers.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn entries(&self, number: u64) -> Result<Vec<(String, u64)>, Errno> {
        self.faults.refuse(&self.inodes.path(number), Operation::List)?;
        let mut entries = vec![(".".to_owned(), number), ("..".to_owned(), number)];
        match self.target(number)? {
            Target::Fixed(Fixed::Directory(inner, dynamic)) => {
                let there = |(name, entry): (&String, &u64)| Some((name.clone(), self.inodes.entry(*entry)?));
                entries.extend(inner.iter().filter_map(there));
                if let Some(dynamic) = dynamic {
                    entries.extend(self.moving(self.inodes.dynamic(*dynamic), number, 0)?);
                }
            }
            Target::Dynamic(dynamic, inner) => entries.extend(self.moving(dynamic, number, inner)?),
            Target::Fixed(_) => return Err(Errno::NOTDIR),
            Target::Place(shared, place) => {
                let listed = locked(shared).list(place);
                entries.extend(listed.into_iter().map(|(name, it)| (name, self.inodes.place(number, it))));
            }
        }
        Ok(entries)
    }

    /// Opens a directory: its entries stay as they are now.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn open_directory(&self, number: u64) -> Result<u64, Errno> {
        self.entries(number).map(|entries| self.keep(Handle::Entries(entries)))
    }

    /// Passes the entries of an open directory from `offset` on to `visit` until it returns true.
    ///
    /// # Errors
    /// EBADF if it is not open.
    pub(crate) fn read_directory(
        &self,
        handle: u64,
        offset: usize,
        mut visit: impl FnMut(usize, &str, u64) -> bool,
    ) -> Result<(), Errno> {
        let handles = locked(&self.handles);
        let Some(Handle::Entries(entries)) = handles.get(&handle) else { return Err(Errno::BADF) };
        for (place, (name, number)) in entries.iter().enumerate().skip(offset) {
            if visit(place, name, *number) {
                break;
            }
        }
        Ok(())
    }

    /// The entries of a directory in a dynamic subtree, with the inode numbers of the whole tree.
    fn moving(
        &self,
        dynamic: &dyn DynamicTree,
        number: u64,
        inner: u64,
    ) -> Result<Vec<(String, u64)>, Errno> {
        let entry = |entry: crate::dynamic_tree::DirectoryEntry| {
            (entry.name, self.inodes.dynamic_number(number, entry.number))
        };
        Ok(dynamic.list(inner)?.into_iter().map(entry).collect())
    }

    /// Sets attributes: chmod(2), chown(2).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn change(&self, number: u64, change: AttributeChange) -> Result<EntryAttributes, Errno> {
        self.faults.refuse(&self.inodes.path(number), Operation::Change)?;
        match self.target(number)? {
            Target::Place(shared, place) => {
                locked(shared).change(place, change.mode, change.uid, change.gid)?
            }
            // Attributes of dynamic entries cannot be changed.
            Target::Dynamic(..) => return Err(Errno::PERM),
            Target::Fixed(_) => {
                let mut changes = locked(&self.changes);
                let held = changes.entry(number).or_default();
                held.mode = change.mode.or(held.mode);
                held.uid = change.uid.or(held.uid);
                held.gid = change.gid.or(held.gid);
            }
        }
        self.attributes(number)
    }

    /// The error of unlink, link, symlink and mknod.
    pub fn refused(&self, parent: u64, name: Option<&str>) -> Errno {
        match (self.target(parent), name) {
            (Ok(Target::Place(shared, place)), Some(name)) => locked(shared).unlink(place, name),
            _ => Errno::PERM,
        }
    }

    /// The error of creating a file.
    pub fn creation_refused(&self, parent: u64) -> Errno {
        match self.target(parent) {
            Ok(Target::Place(shared, place)) => locked(shared).create(place),
            Ok(Target::Fixed(_) | Target::Dynamic(..)) => Errno::ACCESS,
            Err(errno) => errno,
        }
    }
}

/// Number of directories in a directory.
fn directories(dynamic: &dyn DynamicTree, directory: u64) -> Result<u32, Errno> {
    Ok(dynamic.list(directory)?.iter().filter(|entry| entry.directory).count() as u32)
}
