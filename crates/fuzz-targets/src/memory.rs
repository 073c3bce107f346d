//! A [`System`] whose files are in memory: directories, files and symbolic links, one process, a clock that only waiting
//! advances.
//!
//! Every file belongs to root. Cloning costs little: contents are shared until one is written. Must not know what a file
//! means.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use waykeeper_kernel::system::{DirEntry, FileKind, Metadata, OpenFile, System};

/// Most symbolic links on one path, as in the kernel (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// A directory, a file or a link.
#[derive(Clone, Debug)]
enum Node {
    Directory,
    File(Arc<Vec<u8>>),
    Link(Arc<str>),
}

/// All nodes by their absolute path; the root is the empty text.
type Nodes = BTreeMap<Arc<str>, Node>;

/// The system. Clones of it have files of their own.
#[derive(Debug, Default)]
pub struct MemorySystem {
    nodes: Arc<Mutex<Nodes>>,
    now_ns: AtomicU64,
}

impl Clone for MemorySystem {
    fn clone(&self) -> MemorySystem {
        let nodes = Arc::new(Mutex::new(self.nodes().clone()));
        MemorySystem { nodes, now_ns: AtomicU64::new(self.now_ns.load(Ordering::Relaxed)) }
    }
}

impl MemorySystem {
    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file, with the directories above it, in place of what is there.
    pub fn put_file(&self, path: &str, content: &[u8]) {
        put(&mut self.nodes(), path, Node::File(Arc::new(content.to_vec())));
    }

    /// Puts a symbolic link.
    pub fn put_link(&self, path: &str, target: &str) {
        put(&mut self.nodes(), path, Node::Link(target.into()));
    }

    /// Puts a directory.
    pub fn put_directory(&self, path: &str) {
        put(&mut self.nodes(), path, Node::Directory);
    }

    /// Removes a file, or a directory with everything below it.
    pub fn remove(&self, path: &str) {
        let Some(path) = plain(path) else { return };
        let below = format!("{path}/");
        self.nodes().retain(|name, _| **name != *path && !name.starts_with(&below));
    }

    /// The content of a file.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        match self.nodes().get(plain(path)?.as_str()) {
            Some(Node::File(content)) => Some(content.to_vec()),
            _ => None,
        }
    }
}

/// An absolute path without `.`, `..`, double slashes and a slash at its end; `None` for the root and for relative paths.
fn plain(path: &str) -> Option<String> {
    let mut out = String::new();
    for part in path.strip_prefix('/')?.split('/') {
        match part {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            part => {
                out.push('/');
                out.push_str(part);
            }
        }
    }
    (!out.is_empty()).then_some(out)
}

/// All paths from this one on.
fn from(path: &str) -> (Bound<&str>, Bound<&str>) {
    (Bound::Included(path), Bound::Unbounded)
}

/// Adds a node; a file or link in the place of a directory above it gives way.
fn put(nodes: &mut Nodes, path: &str, node: Node) {
    let Some(path) = plain(path) else { return };
    let below = format!("{path}/");
    let covered: Vec<Arc<str>> = nodes
        .range::<str, _>(from(&below))
        .map(|(name, _)| name.clone())
        .take_while(|name| name.starts_with(&below))
        .collect();
    if !matches!(node, Node::Directory) {
        covered.iter().for_each(|name| drop(nodes.remove(name)));
    }
    for (end, _) in path.match_indices('/').skip(1) {
        if !matches!(nodes.get(&path[..end]), Some(Node::Directory)) {
            nodes.insert(path[..end].into(), Node::Directory);
        }
    }
    nodes.insert(path.into(), node);
}

/// A path with its NUL byte is no longer (linux include/uapi/linux/limits.h, PATH_MAX).
const MOST_PATH_BYTES: usize = 4096;

/// The path without links; its last component may be missing.
fn resolve(nodes: &Nodes, path: &Path, follow_last: bool, links: &mut u32) -> Result<String, Errno> {
    if path.as_os_str().len() >= MOST_PATH_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    // The name of a node has neither links nor dots in it. Without this, each part of a path would be a search.
    if let Some(name) = path.to_str()
        && let Some((above, last)) = name.rsplit_once('/')
    {
        match nodes.get(name) {
            Some(Node::Link(_)) if follow_last => {}
            Some(_) => return Ok(name.to_owned()),
            None if matches!(last, "" | "." | "..") => {}
            None if matches!(nodes.get(above), Some(Node::Directory)) => return Ok(name.to_owned()),
            None => {}
        }
    }
    let mut at = String::new();
    let parts: Vec<Component<'_>> = path.components().collect();
    for (index, part) in parts.iter().enumerate() {
        match part {
            Component::RootDir | Component::Prefix(_) | Component::CurDir => {}
            Component::ParentDir => at.truncate(at.rfind('/').unwrap_or(0)),
            Component::Normal(name) => {
                let last = index + 1 == parts.len();
                let above = at.clone();
                at.push('/');
                at.push_str(name.to_str().ok_or(Errno::INVAL)?);
                match nodes.get(at.as_str()) {
                    Some(Node::Link(target)) if follow_last || !last => {
                        *links += 1;
                        if *links > MOST_LINKS {
                            return Err(Errno::LOOP);
                        }
                        at = resolve(nodes, &Path::new(&format!("{above}/")).join(&**target), true, links)?;
                        if !last && !at.is_empty() && !nodes.contains_key(at.as_str()) {
                            return Err(Errno::NOENT);
                        }
                    }
                    Some(Node::File(_)) if !last => return Err(Errno::NOTDIR),
                    Some(_) => {}
                    None if last => {}
                    None => return Err(Errno::NOENT),
                }
            }
        }
    }
    Ok(at)
}

fn found(nodes: &Nodes, path: &Path, follow_last: bool) -> Result<(String, Node), Errno> {
    let at = resolve(nodes, path, follow_last, &mut 0)?;
    let node = if at.is_empty() { Some(&Node::Directory) } else { nodes.get(at.as_str()) };
    node.cloned().map(|node| (at, node)).ok_or(Errno::NOENT)
}

fn attributes(path: &str, node: &Node) -> Metadata {
    let (kind, mode, size) = match node {
        Node::Directory => (FileKind::Directory, 0o755, 0),
        Node::File(content) => (FileKind::File, 0o600, content.len() as u64),
        Node::Link(target) => (FileKind::Link, 0o777, target.len() as u64),
    };
    let inode = u64::from(crc32fast::hash(path.as_bytes()));
    let modified = SystemTime::UNIX_EPOCH;
    Metadata { kind, device: 1, inode, uid: 0, gid: 0, mode, size, modified }
}

/// An open file or directory.
#[derive(Debug)]
struct MemoryFile {
    nodes: Arc<Mutex<Nodes>>,
    path: String,
    position: AtomicU64,
}

impl MemoryFile {
    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        match self.nodes().get_mut(self.path.as_str()) {
            Some(Node::File(content)) => Ok(change(Arc::make_mut(content))),
            Some(_) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }
}

impl OpenFile for MemoryFile {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = self.read_at(buffer, self.position.load(Ordering::Relaxed))?;
        self.position.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.nodes().get(self.path.as_str()) {
            Some(Node::File(content)) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                let done = buffer.len().min(content.len() - from);
                buffer[..done].copy_from_slice(&content[from..from + done]);
                Ok(done)
            }
            Some(_) => Err(Errno::ISDIR.into()),
            None if self.path.is_empty() => Err(Errno::ISDIR.into()),
            None => Err(Errno::NODEV.into()),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.write_at(bytes, self.position.load(Ordering::Relaxed))?;
        self.position.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // Registers are at offsets of up to 32 bits; files of that length would be sparse in a kernel.
        let from = usize::try_from(offset).ok().filter(|from| *from <= 1 << 20).ok_or(Errno::FBIG)?;
        self.change(|content| {
            content.resize(content.len().max(from + bytes.len()), 0);
            content[from..from + bytes.len()].copy_from_slice(bytes);
            bytes.len()
        })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).ok().filter(|length| *length <= 1 << 24).ok_or(Errno::FBIG)?;
        self.change(|content| content.resize(length, 0))
    }

    fn set_mode(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn metadata(&self) -> io::Result<Metadata> {
        let nodes = self.nodes();
        let node = if self.path.is_empty() { Some(&Node::Directory) } else { nodes.get(self.path.as_str()) };
        node.map(|node| attributes(&self.path, node)).ok_or(Errno::NOENT.into())
    }

    fn lock(&self, _: FlockOperation) -> io::Result<()> {
        Ok(())
    }
}

impl System for MemorySystem {
    fn open(&self, path: &Path, flags: OFlags, _: Mode) -> io::Result<Box<dyn OpenFile>> {
        let mut nodes = self.nodes();
        let at = resolve(&nodes, path, !flags.contains(OFlags::NOFOLLOW), &mut 0)?;
        match if at.is_empty() { Some(&Node::Directory) } else { nodes.get(at.as_str()) } {
            None if flags.contains(OFlags::CREATE) => put(&mut nodes, &at, Node::File(Arc::default())),
            None => return Err(Errno::NOENT.into()),
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST.into()),
            Some(Node::Link(_)) => return Err(Errno::LOOP.into()),
            Some(Node::Directory) if flags.intersects(OFlags::WRONLY | OFlags::RDWR) => {
                return Err(Errno::ISDIR.into());
            }
            Some(Node::File(_)) if flags.contains(OFlags::TRUNC) => {
                put(&mut nodes, &at, Node::File(Arc::default()));
            }
            Some(_) => {}
        }
        Ok(Box::new(MemoryFile { nodes: self.nodes.clone(), path: at, position: AtomicU64::new(0) }))
    }

    fn list(&self, path: &Path, visit: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()> {
        let nodes = self.nodes();
        let (at, node) = found(&nodes, path, true)?;
        if !matches!(node, Node::Directory) {
            return Err(Errno::NOTDIR.into());
        }
        let below = format!("{at}/");
        let mut entries = Vec::new();
        let mut start = below.clone();
        // From one entry to the next, past everything below it: `0` is the character after `/`.
        while let Some((name, node)) = nodes.range::<str, _>(from(&start)).next() {
            let Some(rest) = name.strip_prefix(&below) else { break };
            let end = rest.find('/').unwrap_or(rest.len());
            let entry = &rest[..end];
            let is_dir = matches!(node, Node::Directory) || end < rest.len();
            if end == rest.len() {
                entries.push(DirEntry { name: entry.into(), is_dir });
                start = format!("{name}\0");
            } else {
                start = format!("{below}{entry}0");
            }
        }
        drop(nodes);
        for entry in entries {
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let (at, node) = found(&self.nodes(), path, true)?;
        Ok(attributes(&at, &node))
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Metadata> {
        let (at, node) = found(&self.nodes(), path, false)?;
        Ok(attributes(&at, &node))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        match found(&self.nodes(), path, false)? {
            (_, Node::Link(target)) => Ok(PathBuf::from(&*target)),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let (at, _) = found(&self.nodes(), path, true)?;
        Ok(PathBuf::from(if at.is_empty() { "/" } else { &at }))
    }

    fn make_dir(&self, path: &Path, _: Mode) -> io::Result<()> {
        let mut nodes = self.nodes();
        let at = resolve(&nodes, path, true, &mut 0)?;
        if at.is_empty() || nodes.contains_key(at.as_str()) {
            return Err(Errno::EXIST.into());
        }
        put(&mut nodes, &at, Node::Directory);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut nodes = self.nodes();
        let (at, node) = found(&nodes, path, false)?;
        if !matches!(node, Node::Directory) {
            return Err(Errno::NOTDIR.into());
        }
        // The kernel removes a group of resctrl with its files; other directories with entries are not removed here.
        let below = format!("{at}/");
        nodes.retain(|name, _| **name != *at && !name.starts_with(&below));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut nodes = self.nodes();
        match found(&nodes, path, false)? {
            (_, Node::Directory) => Err(Errno::ISDIR.into()),
            (at, _) => {
                nodes.remove(at.as_str());
                Ok(())
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = self.nodes();
        let (at, node) = found(&nodes, from, false)?;
        let to = resolve(&nodes, to, false, &mut 0)?;
        nodes.remove(at.as_str());
        put(&mut nodes, &to, node);
        Ok(())
    }

    fn user(&self) -> u32 {
        0
    }

    fn process_id(&self) -> u32 {
        1000
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.now()
    }

    fn wait_until(&self, deadline: Duration) -> io::Result<()> {
        self.now_ns.fetch_max(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(())
    }

    fn run_beside(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(io::Error::from(Errno::AGAIN))
    }
}
