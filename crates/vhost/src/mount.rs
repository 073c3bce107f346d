//! The tree as a mounted file system: translates FUSE requests to calls of nodes.
//!
//! Mounted with mount(2), so root needs neither libfuse nor fusermount. All files are read and written directly, never
//! through the page cache: each system call reaches the file. One thread serves. This file must not know the meaning of
//! any file.

use crate::faults::Faults;
use crate::file_tree::{AttributeChange, EntryAttributes, EntryKind, FileTree, Lifetime};
use crate::node::{Caller, OpenAccess, Tree};
use crate::resctrl::groups::DirOwner;
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, Notifier, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// How long the kernel may cache attributes of fixed nodes.
const FIXED_TTL: Duration = Duration::from_secs(3600);

/// How long it may cache attributes of resctrl. Changes through the mount invalidate what they affect; a second bounds
/// the error if a caller changes the state machine directly.
const RESCTRL_TTL: Duration = Duration::from_secs(1);

/// The kernel must not cache dynamic entries: it asks again each time and forgets unused ones.
const DYNAMIC_TTL: Duration = Duration::ZERO;

/// A tree served through FUSE.
pub(crate) struct Served {
    files: FileTree,
    /// The way to the kernel's cache of names, once the tree is mounted.
    notifier: Arc<OnceLock<Notifier>>,
    mounted: SystemTime,
    uid: u32,
    gid: u32,
}

impl Served {
    pub fn new(tree: Tree, faults: Faults) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let files = FileTree::new(tree, faults, uid, gid);
        Served { files, notifier: Arc::default(), mounted: SystemTime::now(), uid, gid }
    }

    /// Where to put the notifier of the mount.
    pub fn notifier(&self) -> Arc<OnceLock<Notifier>> {
        self.notifier.clone()
    }

    /// The user that runs the server is root on the virtual server.
    fn caller(&self, request: &Request) -> Caller {
        let uid = if request.uid() == self.uid { 0 } else { request.uid() };
        Caller { pid: request.pid(), uid }
    }

    fn attributes(&self, found: EntryAttributes) -> (Duration, FileAttr) {
        let valid = match found.lifetime {
            Lifetime::Fixed => FIXED_TTL,
            Lifetime::Resctrl => RESCTRL_TTL,
            Lifetime::Dynamic => DYNAMIC_TTL,
        };
        let time = self.mounted;
        let attributes = FileAttr {
            ino: INodeNo(found.number),
            size: found.size,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(found.kind),
            perm: (found.mode & 0o7777) as u16,
            nlink: found.links,
            uid: found.uid,
            gid: found.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        (valid, attributes)
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> Result<(Duration, FileAttr), Errno> {
        let found = self.files.find(parent.0, name.to_str().ok_or(Errno::NOENT)?)?;
        Ok(self.attributes(self.files.attributes(found)?))
    }

    fn make_directory(
        &self,
        parent: INodeNo,
        name: &OsStr,
        owner: DirOwner,
    ) -> Result<(Duration, FileAttr), Errno> {
        // The kernel accepts any bytes; this tree has only UTF-8 names.
        let made = self.files.make_directory(parent.0, name.to_str().ok_or(Errno::INVAL)?, owner)?;
        Ok(self.attributes(made))
    }

    fn remove_directory(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        self.files.remove_directory(parent.0, name.to_str().ok_or(Errno::NOENT)?)
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
        self.files.rename(from.0, name, to.0, new_name, flags)
    }

    fn opened(&self, request: &Request, number: INodeNo, flags: OpenFlags) -> Result<FileHandle, Errno> {
        let mode = flags.acc_mode();
        let access = OpenAccess { read: mode != OpenAccMode::O_WRONLY, write: mode != OpenAccMode::O_RDONLY };
        self.files.open(number.0, access, self.caller(request)).map(FileHandle)
    }
}

fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Link => FileType::Symlink,
    }
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
        let found = self.files.attributes(number.0).map(|found| self.attributes(found));
        answer!(reply, found, (valid, it) => reply.attr(&valid, &it));
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
        let changed = self.files.change(number.0, AttributeChange { mode, uid, gid });
        let changed = changed.map(|found| self.attributes(found));
        answer!(reply, changed, (valid, it) => reply.attr(&valid, &it));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        answer!(reply, self.files.read_link(number.0), target => reply.data(target.as_bytes()));
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
        reply.error(fuse_errno(self.files.refused(parent.0, name.to_str())));
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
        reply.error(fuse_errno(self.files.creation_refused(parent.0)));
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
        let caller = self.caller(request);
        let outcome = self.files.read(number.0, handle.0, offset, size as usize, caller);
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
        let outcome = self.files.write(number.0, offset, data, self.caller(request));
        let unlisted = self.files.take_unlisted();
        let (Some(notifier), false) = (self.notifier.get().cloned(), unlisted.is_empty()) else {
            answer!(reply, outcome, taken => reply.written(taken as u32));
            return;
        };
        // From a thread of its own: the kernel waits here for callers that hold the directory, and they wait for this
        // thread's answers.
        std::thread::spawn(move || {
            for (directory, name) in unlisted {
                // Fails for a name that the kernel has not cached.
                let _ = notifier.inval_entry(INodeNo(directory), OsStr::new(&name));
            }
            answer!(reply, outcome, taken => reply.written(taken as u32));
        });
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
        self.files.release(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.files.open_directory(number.0), handle => reply.opened(FileHandle(handle), FopenFlags::empty()));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let visit = |place: usize, name: &str, number: u64| {
            reply.add(INodeNo(number), place as u64 + 1, file_type(self.files.kind(number)), name)
        };
        match self.files.read_directory(handle.0, offset as usize, visit) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.files.release(handle.0);
        reply.ok();
    }
}
