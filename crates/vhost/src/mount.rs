//! The tree as a mounted file system: translates FUSE requests to calls of nodes.
//!
//! Mounted with mount(2), so root needs neither libfuse nor fusermount. All files are read and written directly, never
//! through the page cache: each system call reaches the file. One thread serves. This file must not know the meaning of
//! any file.

use crate::dynamic_tree::DynamicTree;
use crate::faults::{Fault, Faults, Operation};
use crate::inodes::{Fixed, Inodes, Target, locked};
use crate::node::{Access, Caller, Tree, slice};
use crate::resctrl::groups::DirOwner;
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How long the kernel may cache attributes of fixed nodes.
const FIXED_TTL: Duration = Duration::from_secs(3600);

/// How long it may cache attributes of resctrl. Changes through the mount invalidate what they affect; a second bounds
/// the error if a caller changes the state machine directly.
const RESCTRL_TTL: Duration = Duration::from_secs(1);

/// The kernel must not cache dynamic entries: it asks again each time and forgets unused ones.
const DYNAMIC_TTL: Duration = Duration::ZERO;

/// State of an open file or directory.
enum Handle {
    /// resctrl's files are generated at offset 0 and then read from that copy (linux fs/seq_file.c).
    Content { made: Vec<u8>, next: u64 },
    /// Entries as they were at opendir.
    Entries(Vec<(String, u64)>),
}

/// Changes by chmod and chown on a fixed node.
#[derive(Clone, Copy, Default)]
struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

/// A tree served through FUSE.
pub(crate) struct Served {
    inodes: Inodes,
    faults: Faults,
    handles: Mutex<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
    changes: Mutex<HashMap<u64, Change>>,
    mounted: SystemTime,
    uid: u32,
    gid: u32,
}

impl Served {
    pub fn new(tree: Tree, faults: Faults) -> Self {
        Served {
            inodes: Inodes::new(tree),
            faults,
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            changes: Mutex::default(),
            mounted: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    /// The user that runs the server is root on the virtual server.
    fn caller(&self, request: &Request) -> Caller {
        let uid = if request.uid() == self.uid { 0 } else { request.uid() };
        Caller { pid: request.pid(), uid }
    }

    fn target(&self, number: INodeNo) -> Result<Target<'_>, Errno> {
        self.inodes.target(number.0).ok_or(Errno::STALE)
    }

    fn keep(&self, handle: Handle) -> FileHandle {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        locked(&self.handles).insert(number, handle);
        FileHandle(number)
    }

    fn child_path(&self, parent: INodeNo, name: &str) -> String {
        format!("{}/{name}", self.inodes.path(parent.0).trim_end_matches('/'))
            .trim_start_matches('/')
            .to_owned()
    }

    fn attributes(&self, number: u64) -> Result<(Duration, FileAttr), Errno> {
        let (kind, mode, uid, gid, links, size, valid) = match self.target(INodeNo(number))? {
            Target::Place(shared, place) => {
                let it = locked(shared).attributes(place)?;
                let kind = if it.directory { FileType::Directory } else { FileType::RegularFile };
                let uid = if it.uid == 0 { self.uid } else { it.uid };
                let gid = if it.gid == 0 { self.gid } else { it.gid };
                (kind, it.mode, uid, gid, it.links, 0, RESCTRL_TTL)
            }
            Target::Dynamic(dynamic, inner) => {
                dynamic.present(inner)?;
                let (kind, mode, links) = match dynamic.is_directory(inner) {
                    true => (FileType::Directory, 0o555, 2 + directories(dynamic, inner)?),
                    false => (FileType::RegularFile, 0o444, 1),
                };
                (kind, mode, self.uid, self.gid, links, 0, DYNAMIC_TTL)
            }
            Target::Fixed(fixed) => {
                let (kind, mode, links, size) = match fixed {
                    Fixed::File(file) => (FileType::RegularFile, file.mode(), 1, file.size()),
                    Fixed::Link(target) => (FileType::Symlink, 0o777, 1, target.len() as u64),
                    Fixed::Directory(entries, dynamic) => {
                        let inner =
                            entries.values().filter(|entry| self.inodes.is_directory(**entry)).count();
                        let moving =
                            dynamic.map_or(Ok(0), |dynamic| directories(self.inodes.dynamic(dynamic), 0))?;
                        (FileType::Directory, 0o555, 2 + inner as u32 + moving, 0)
                    }
                    Fixed::Resctrl(_) => (FileType::Directory, 0o555, 2, 0),
                };
                let change = locked(&self.changes).get(&number).copied().unwrap_or_default();
                let (uid, gid) = (change.uid.unwrap_or(self.uid), change.gid.unwrap_or(self.gid));
                let moves = matches!(fixed, Fixed::Directory(_, Some(_)));
                let valid = if moves { DYNAMIC_TTL } else { FIXED_TTL };
                (kind, change.mode.unwrap_or(mode), uid, gid, links, size, valid)
            }
        };
        let time = self.mounted;
        let attributes = FileAttr {
            ino: INodeNo(number),
            size,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: links,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        Ok((valid, attributes))
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        let name = name.to_str().ok_or(Errno::NOENT)?;
        match self.target(parent)? {
            Target::Fixed(Fixed::Directory(entries, dynamic)) => match (entries.get(name), dynamic) {
                (Some(entry), _) => Ok(*entry),
                (None, Some(dynamic)) => {
                    let found = self.inodes.dynamic(*dynamic).lookup(0, name)?;
                    Ok(self.inodes.dynamic_number(parent.0, found.number))
                }
                (None, None) => Err(Errno::NOENT),
            },
            Target::Dynamic(dynamic, inner) => {
                Ok(self.inodes.dynamic_number(parent.0, dynamic.lookup(inner, name)?.number))
            }
            Target::Fixed(_) => Err(Errno::NOTDIR),
            Target::Place(shared, place) => {
                let found = locked(shared).lookup(place, name).ok_or(Errno::NOENT)?;
                Ok(self.inodes.place(parent.0, found))
            }
        }
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> Result<(Duration, FileAttr), Errno> {
        self.attributes(self.find(parent, name)?)
    }

    fn make_directory(
        &self,
        parent: INodeNo,
        name: &OsStr,
        owner: DirOwner,
    ) -> Result<(Duration, FileAttr), Errno> {
        // The kernel accepts any bytes; this tree has only UTF-8 names.
        let name = name.to_str().ok_or(Errno::INVAL)?;
        self.faults.refuse(&self.child_path(parent, name), Operation::MakeDirectory)?;
        match self.target(parent)? {
            Target::Fixed(_) | Target::Dynamic(..) => Err(Errno::PERM),
            Target::Place(shared, place) => {
                let made = locked(shared).mkdir(place, name, owner)?;
                self.attributes(self.inodes.place(parent.0, made))
            }
        }
    }

    fn remove_directory(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let name = name.to_str().ok_or(Errno::NOENT)?;
        self.faults.refuse(&self.child_path(parent, name), Operation::RemoveDirectory)?;
        match self.target(parent)? {
            Target::Fixed(_) | Target::Dynamic(..) => Err(Errno::PERM),
            Target::Place(shared, place) => locked(shared).rmdir(place, name),
        }
    }

    fn renamed(
        &self,
        from: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: bool,
    ) -> Result<(), Errno> {
        let name = name.to_str().ok_or(Errno::NOENT)?;
        let new_name = new_name.to_str().ok_or(Errno::INVAL)?;
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

    fn opened(&self, request: &Request, number: INodeNo, flags: OpenFlags) -> Result<FileHandle, Errno> {
        self.faults.refuse(&self.inodes.path(number.0), Operation::Open)?;
        let mode = flags.acc_mode();
        let access = Access { read: mode != OpenAccMode::O_WRONLY, write: mode != OpenAccMode::O_RDONLY };
        match self.target(number)? {
            Target::Place(shared, place) => {
                locked(shared).open(place, access)?;
                Ok(self.keep(Handle::Content { made: Vec::new(), next: 0 }))
            }
            Target::Fixed(Fixed::File(file)) => {
                let mode = self.attributes(number.0)?.1.perm;
                if access.write && mode & 0o222 == 0 {
                    return Err(Errno::ACCESS);
                }
                file.open(access, self.caller(request))?;
                Ok(FileHandle(0))
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

    fn content(
        &self,
        caller: Caller,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        let len = match self.faults.strike(&self.inodes.path(number.0), Operation::Read) {
            Some(Fault::Refuse(errno)) => return Err(errno),
            Some(Fault::Garbage(content)) => return Ok(slice(&content, offset, len)),
            Some(Fault::ShortRead(most)) => len.min(most),
            Some(Fault::ShortWrite(_)) | None => len,
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
        handle: FileHandle,
        offset: u64,
        len: usize,
        make: impl FnOnce() -> Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        let mut handles = locked(&self.handles);
        let Some(Handle::Content { made, next }) = handles.get_mut(&handle.0) else {
            return Err(Errno::BADF);
        };
        if offset == 0 || offset != *next {
            *made = make()?;
        }
        let part = slice(made, offset, len);
        *next = offset.saturating_add(part.len() as u64);
        Ok(part)
    }

    fn taken(&self, caller: Caller, number: INodeNo, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        match self.faults.strike(&self.inodes.path(number.0), Operation::Write) {
            Some(Fault::Refuse(errno)) => return Err(errno),
            Some(Fault::ShortWrite(most)) => return Ok(data.len().min(most)),
            Some(Fault::ShortRead(_) | Fault::Garbage(_)) | None => {}
        }
        match self.target(number)? {
            Target::Fixed(Fixed::File(file)) => file.write(offset, data, caller),
            Target::Fixed(_) => Err(Errno::ISDIR),
            Target::Dynamic(..) => Err(Errno::ACCESS),
            Target::Place(shared, place) => locked(shared).write(place, data, caller),
        }
    }

    fn entries(&self, number: INodeNo) -> Result<Vec<(String, u64)>, Errno> {
        self.faults.refuse(&self.inodes.path(number.0), Operation::List)?;
        let mut entries = vec![(".".to_owned(), number.0), ("..".to_owned(), number.0)];
        match self.target(number)? {
            Target::Fixed(Fixed::Directory(inner, dynamic)) => {
                entries.extend(inner.iter().map(|(name, entry)| (name.clone(), *entry)));
                if let Some(dynamic) = dynamic {
                    entries.extend(self.moving(self.inodes.dynamic(*dynamic), number, 0)?);
                }
            }
            Target::Dynamic(dynamic, inner) => entries.extend(self.moving(dynamic, number, inner)?),
            Target::Fixed(_) => return Err(Errno::NOTDIR),
            Target::Place(shared, place) => {
                let listed = locked(shared).list(place);
                entries.extend(listed.into_iter().map(|(name, it)| (name, self.inodes.place(number.0, it))));
            }
        }
        Ok(entries)
    }

    /// The entries of a directory in a dynamic subtree, with the inode numbers of the whole tree.
    fn moving(
        &self,
        dynamic: &dyn DynamicTree,
        number: INodeNo,
        inner: u64,
    ) -> Result<Vec<(String, u64)>, Errno> {
        let entry = |entry: crate::dynamic_tree::Entry| {
            (entry.name, self.inodes.dynamic_number(number.0, entry.number))
        };
        Ok(dynamic.list(inner)?.into_iter().map(entry).collect())
    }

    fn changed(&self, number: INodeNo, change: Change) -> Result<(Duration, FileAttr), Errno> {
        self.faults.refuse(&self.inodes.path(number.0), Operation::Change)?;
        match self.target(number)? {
            Target::Place(shared, place) => {
                locked(shared).change(place, change.mode, change.uid, change.gid)?
            }
            // Attributes of dynamic entries cannot be changed.
            Target::Dynamic(..) => return Err(Errno::PERM),
            Target::Fixed(_) => {
                let mut changes = locked(&self.changes);
                let held = changes.entry(number.0).or_default();
                held.mode = change.mode.or(held.mode);
                held.uid = change.uid.or(held.uid);
                held.gid = change.gid.or(held.gid);
            }
        }
        self.attributes(number.0)
    }

    /// The error of unlink, link, symlink and mknod.
    fn refused(&self, parent: INodeNo, name: &OsStr) -> Errno {
        match (self.target(parent), name.to_str()) {
            (Ok(Target::Place(shared, place)), Some(name)) => locked(shared).unlink(place, name),
            _ => Errno::PERM,
        }
    }
}

/// Number of directories in a directory.
fn directories(dynamic: &dyn DynamicTree, directory: u64) -> Result<u32, Errno> {
    Ok(dynamic.list(directory)?.iter().filter(|entry| entry.directory).count() as u32)
}

fn fuse_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Sends an outcome through one of fuser's replies.
macro_rules! answer {
    ($reply:ident, $outcome:expr, $value:pat => $sent:expr) => {
        match $outcome {
            Ok($value) => $sent,
            Err(errno) => $reply.error(fuse_errno(errno)),
        }
    };
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // O_TRUNC has no effect here; as a part of open it saves a request. An old kernel sends it separately.
        let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.entry(parent, name), (valid, it) => reply.entry(&valid, &it, Generation(0)));
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attributes(number.0), (valid, it) => reply.attr(&valid, &it));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        answer!(reply, self.changed(number, Change { mode, uid, gid }), (valid, it) => reply.attr(&valid, &it));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let outcome = self.faults.refuse(&self.inodes.path(number.0), Operation::ReadLink);
        let target = outcome.and_then(|()| match self.target(number)? {
            Target::Fixed(Fixed::Link(target)) => Ok(target),
            _ => Err(Errno::INVAL),
        });
        answer!(reply, target, target => reply.data(target.as_bytes()));
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        reply.error(fuser::Errno::EPERM);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner =
            DirOwner { mode: mode & !umask & 0o7777, uid: self.caller(request).uid, gid: request.gid() };
        let owner = DirOwner { gid: if owner.gid == self.gid { 0 } else { owner.gid }, ..owner };
        let outcome = self.make_directory(parent, name, owner);
        answer!(reply, outcome, (valid, it) => reply.entry(&valid, &it, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(fuse_errno(self.refused(parent, name)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove_directory(parent, name), () => reply.ok());
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        from: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.renamed(from, name, to, new_name, !flags.is_empty()), () => reply.ok());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn create(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let errno = match self.target(parent) {
            Ok(Target::Place(shared, place)) => locked(shared).create(place),
            Ok(Target::Fixed(_) | Target::Dynamic(..)) => Errno::ACCESS,
            Err(errno) => errno,
        };
        reply.error(fuse_errno(errno));
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        answer!(reply, self.opened(request, number, flags), handle => reply.opened(handle, direct));
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let outcome = self.content(self.caller(request), number, handle, offset, size as usize);
        answer!(reply, outcome, data => reply.data(&data));
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        answer!(reply, self.taken(self.caller(request), number, offset, data), taken => reply.written(taken as u32));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        locked(&self.handles).remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let outcome = self.entries(number).map(|entries| self.keep(Handle::Entries(entries)));
        answer!(reply, outcome, handle => reply.opened(handle, FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let handles = locked(&self.handles);
        let Some(Handle::Entries(entries)) = handles.get(&handle.0) else {
            return reply.error(fuser::Errno::EBADF);
        };
        for (place, (name, number)) in entries.iter().enumerate().skip(offset as usize) {
            let kind = match self.inodes.target(*number) {
                _ if self.inodes.is_directory(*number) => FileType::Directory,
                Some(Target::Fixed(Fixed::Link(_))) => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            if reply.add(INodeNo(*number), place as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        locked(&self.handles).remove(&handle.0);
        reply.ok();
    }
}
