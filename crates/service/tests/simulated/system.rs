//! The simulated machine as the daemon's system.
//!
//! Must not know what files contain, except that a write to a knob must be in the durable journal.

use crate::checks;
use crate::world::{CALLER, DISK_DEVICE, OBSERVER, PREFIX, State, TREE_DEVICE, Target, World};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use waykeeper_kernel::system::{DirEntry, FileKind, Metadata, OpenFile, System};
use waykeeper_vhost::faults::{FileFault, Operation};
use waykeeper_vhost::file_tree::EntryKind;
use waykeeper_vhost::node::{OpenAccess, slice};
use waykeeper_vhost::resctrl::groups::DirOwner;

/// What a process does after each wait.
pub type AfterWait = Box<dyn FnMut() + Send>;

/// The system as one process sees it.
#[derive(Clone)]
pub struct Simulated {
    world: World,
    process: u32,
    /// When the machine booted on which it runs: a process that a reboot ends sees no clock that goes back.
    booted_ns: u64,
    after_wait: Arc<Mutex<Option<AfterWait>>>,
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Simulated {
    /// The system of a process.
    pub fn new(world: &World, process: u32) -> Simulated {
        let booted_ns = world.lock().booted_ns;
        Simulated { world: world.clone(), process, booted_ns, after_wait: Arc::default() }
    }

    /// The system of the observer.
    pub fn observer(world: &World) -> Simulated {
        Simulated::new(world, OBSERVER)
    }

    /// Sets what happens after each wait.
    pub fn after_wait(&self, act: AfterWait) {
        *self.after_wait.lock().unwrap_or_else(PoisonError::into_inner) = Some(act);
    }

    fn call<T>(
        &self,
        operation: Operation,
        path: &Path,
        act: impl FnOnce(&mut State, &str, Option<FileFault>) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let path = path.to_str().ok_or(Errno::INVAL)?;
        Ok(self.world.call(self.process, operation, path, |state, fault| act(state, path, fault))?)
    }

    /// A look at attributes, which the kernel never refuses for an entry that is there.
    fn look<T>(&self, path: &Path, act: impl FnOnce(&State, &str) -> Result<T, Errno>) -> io::Result<T> {
        let path = path.to_str().ok_or(Errno::INVAL)?;
        let state = self.world.lock();
        if self.process != OBSERVER && !state.is_process(self.process) {
            return Err(Errno::IO.into());
        }
        Ok(act(&state, path)?)
    }

    fn attributes(&self, path: &Path, follow: bool) -> io::Result<Metadata> {
        self.look(path, |state, path| {
            let target = state.resolve(path, follow)?;
            metadata(state, &target)
        })
    }

    fn is_watched(&self) -> bool {
        self.process != OBSERVER
    }
}

fn metadata(state: &State, target: &Target) -> Result<Metadata, Errno> {
    let plain = Metadata {
        kind: FileKind::File,
        device: DISK_DEVICE,
        inode: 0,
        uid: 0,
        gid: 0,
        mode: 0o600,
        size: 0,
        modified: state.wall_clock(),
    };
    Ok(match target {
        Target::Text(text) => Metadata { size: text.len() as u64, ..plain },
        Target::Disk(number) if state.is_disk_directory(*number) => {
            Metadata { kind: FileKind::Directory, inode: *number, mode: 0o755, ..plain }
        }
        Target::Disk(number) => {
            let size = state.disk.read(*number, 0, usize::MAX)?.len() as u64;
            Metadata { inode: *number, size, ..plain }
        }
        Target::Tree(number) => {
            let found = state.files.attributes(*number)?;
            let kind = match found.kind {
                EntryKind::File => FileKind::File,
                EntryKind::Directory => FileKind::Directory,
                EntryKind::Link => FileKind::Link,
            };
            Metadata {
                kind,
                device: TREE_DEVICE,
                inode: *number,
                uid: found.uid,
                gid: found.gid,
                mode: found.mode,
                size: found.size,
                ..plain
            }
        }
    })
}

/// The directory and the name of a path of the tree.
fn split<'p>(state: &State, path: &'p str) -> Result<(u64, &'p str), Errno> {
    let inner = path.strip_prefix(PREFIX).ok_or(Errno::PERM)?;
    let (above, name) = inner.rsplit_once('/').ok_or(Errno::PERM)?;
    Ok((state.files.walk(above, true)?, name))
}

fn is_of_tree(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'))
}

/// An open file of a process.
#[derive(Debug)]
struct SimulatedFile {
    system: Simulated,
    descriptor: u64,
    path: PathBuf,
    position: AtomicU64,
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.system.world.lock().close(self.descriptor);
    }
}

impl SimulatedFile {
    fn call<T>(
        &self,
        operation: Operation,
        act: impl FnOnce(&mut State, Target, u64, Option<FileFault>) -> Result<T, Errno>,
    ) -> io::Result<T> {
        self.system.call(operation, &self.path, |state, _, fault| {
            let (target, handle) = state.target(self.descriptor)?;
            act(state, target, handle, fault)
        })
    }
}

impl OpenFile for SimulatedFile {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.read_at(buffer, self.position.load(Ordering::Relaxed))?;
        self.position.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.call(Operation::Read, |state, target, handle, fault| {
            let len = match fault {
                Some(FileFault::Garbage(text)) => {
                    state.mark("fault-garbage");
                    return Ok(slice(&text, offset, buffer.len()));
                }
                Some(FileFault::ShortRead(most)) => {
                    state.mark("fault-short-read");
                    buffer.len().min(most)
                }
                _ => buffer.len(),
            };
            let bytes = match target {
                Target::Text(text) => slice(&text, offset, len),
                Target::Disk(number) => state.disk.read(number, offset, len)?,
                Target::Tree(number) => state.files.read(number, handle, offset, len, CALLER)?,
            };
            Ok(bytes)
        })?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.write_at(bytes, self.position.load(Ordering::Relaxed))?;
        self.position.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.call(Operation::Write, |state, target, _, fault| {
            let most = match fault {
                Some(FileFault::ShortWrite(most)) => {
                    state.mark("fault-short-write");
                    most.min(bytes.len())
                }
                _ => bytes.len(),
            };
            match target {
                Target::Text(_) => Err(Errno::ACCESS),
                Target::Disk(number) => state.disk.write(number, offset, &bytes[..most]).map(|()| most),
                Target::Tree(_) if most < bytes.len() => Ok(most),
                Target::Tree(number) => {
                    checks::before_write(state, number, offset, bytes);
                    state.files.write(number, offset, bytes, CALLER)
                }
            }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Operation::Change, |state, target, _, _| match target {
            Target::Disk(number) => {
                state.disk.sync(number)?;
                state.note_journal();
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.call(Operation::Change, |state, target, _, _| match target {
            Target::Disk(number) => state.disk.set_len(number, length),
            _ => Err(Errno::INVAL),
        })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.call(Operation::Change, |state, target, _, _| match target {
            Target::Disk(number) => state.disk.set_mode(number, mode),
            _ => Err(Errno::PERM),
        })
    }

    fn metadata(&self) -> io::Result<Metadata> {
        self.system.look(&self.path, |state, _| {
            let (target, _) = state.target(self.descriptor)?;
            metadata(state, &target)
        })
    }

    fn lock(&self, operation: FlockOperation) -> io::Result<()> {
        self.call(Operation::Change, |state, _, _, _| state.flock(self.descriptor, operation))
    }
}

impl System for Simulated {
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<Box<dyn OpenFile>> {
        let access = OpenAccess {
            read: !flags.contains(OFlags::WRONLY),
            write: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
        };
        let process = self.process;
        let descriptor = self.call(Operation::Open, path, |state, path, _| {
            let (target, handle) = match state.resolve(path, !flags.contains(OFlags::NOFOLLOW)) {
                Err(Errno::NOENT) if flags.contains(OFlags::CREATE) && !is_of_tree(path) => {
                    (Target::Disk(state.disk.make_file(path, mode.as_raw_mode())?), 0)
                }
                Ok(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST),
                Ok(Target::Tree(number)) => {
                    let handle = match state.files.kind(number) {
                        EntryKind::Directory if access.write => return Err(Errno::ISDIR),
                        EntryKind::Directory => 0,
                        _ => state.files.open(number, access, CALLER)?,
                    };
                    (Target::Tree(number), handle)
                }
                Ok(target) => {
                    if let (Target::Disk(number), true) = (&target, flags.contains(OFlags::TRUNC)) {
                        state.disk.set_len(*number, 0)?;
                    }
                    (target, 0)
                }
                Err(why) => return Err(why),
            };
            Ok(state.keep(process, target, handle))
        })?;
        let position = AtomicU64::new(0);
        Ok(Box::new(SimulatedFile { system: self.clone(), descriptor, path: path.to_owned(), position }))
    }

    fn list(&self, path: &Path, visit: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()> {
        let entries =
            self.call(Operation::List, path, |state, path, _| match state.resolve(path, true)? {
                Target::Tree(number) => {
                    let entries = state.files.entries(number)?.into_iter().skip(2);
                    let is_dir = |number| state.files.kind(number) == EntryKind::Directory;
                    Ok(entries.map(|(name, number)| (name, is_dir(number))).collect::<Vec<_>>())
                }
                Target::Disk(number) => {
                    let names = state.disk.names(number)?;
                    Ok(names
                        .into_iter()
                        .map(|(name, inner)| (name, state.is_disk_directory(inner)))
                        .collect())
                }
                Target::Text(_) => Err(Errno::NOTDIR),
            })?;
        for (name, is_dir) in entries {
            if visit(DirEntry { name: name.into(), is_dir }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.attributes(path, true)
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.attributes(path, false)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.call(Operation::ReadLink, path, |state, path, _| match state.resolve(path, false)? {
            Target::Tree(number) => state.files.read_link(number).map(PathBuf::from),
            _ => Err(Errno::INVAL),
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.look(path, |state, path| match state.resolve(path, true)? {
            Target::Tree(number) => Ok(Path::new(PREFIX).join(state.files.path(number))),
            _ => Ok(PathBuf::from(path)),
        })
    }

    fn make_dir(&self, path: &Path, mode: Mode) -> io::Result<()> {
        let watched = self.is_watched();
        self.call(Operation::MakeDirectory, path, |state, path, _| {
            if !is_of_tree(path) {
                return state.disk.make_dir(path);
            }
            let (above, name) = split(state, path)?;
            if watched {
                checks::before_directory(state, path, "make");
            }
            let owner = DirOwner { mode: mode.as_raw_mode(), uid: 0, gid: 0 };
            state.files.make_directory(above, name, owner).map(drop)
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::RemoveDirectory, path, |state, path, _| {
            let (above, name) = split(state, path)?;
            checks::before_directory(state, path, "remove");
            state.files.remove_directory(above, name)
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::RemoveDirectory, path, |state, path, _| {
            state.disk.remove(path)?;
            state.note_journal();
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let to = to.to_str().ok_or(Errno::INVAL)?;
        self.call(Operation::Rename, from, |state, from, _| {
            if !is_of_tree(from) {
                state.disk.rename(from, to)?;
                state.note_journal();
                return Ok(());
            }
            let (above, name) = split(state, from)?;
            let (target, new_name) = split(state, to)?;
            state.files.rename(above, name, target, new_name, false)
        })
    }

    fn user(&self) -> u32 {
        0
    }

    fn process_id(&self) -> u32 {
        1000 + self.process
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.lock().uptime_ns(self.booted_ns))
    }

    fn wall_clock(&self) -> SystemTime {
        self.world.lock().wall_clock()
    }

    fn wait_until(&self, deadline: Duration) -> io::Result<()> {
        self.world.wait(self.process, deadline.as_nanos() as u64)?;
        let act = self.after_wait.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut act) = act {
            act();
            self.after_wait(act);
        }
        Ok(())
    }

    fn time_left(&self, _: Duration) -> Duration {
        Duration::ZERO
    }

    fn run_beside(&self, _: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        work();
        Ok(())
    }
}
