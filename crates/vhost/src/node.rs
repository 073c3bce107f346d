//! What a file of the virtual server is, and the tree of all files.
//!
//! Files answer like the kernel's: one call, one answer or one error number. This file must not know how the tree is
//! mounted (`mount`), nor the meaning of any file.

use crate::dynamic_tree::DynamicTree;
use crate::resctrl::SharedResctrl;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The task that makes a system call, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Thread that made the call, in the namespace of the server.
    pub pid: u32,
    /// Its file system user id; 0 is privileged.
    pub uid: u32,
}

impl Caller {
    /// Root, or the user that runs the server.
    pub fn is_privileged(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

/// The access that an open requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAccess {
    /// `O_RDONLY` or `O_RDWR`.
    pub read: bool,
    /// `O_WRONLY` or `O_RDWR`.
    pub write: bool,
}

/// A file of the tree. Calls are independent; the file has its own locks.
pub trait File: Send + Sync {
    /// At most `len` bytes from `offset` on; empty at the end.
    fn read(&self, offset: u64, len: usize, caller: Caller) -> Result<Vec<u8>, Errno>;

    /// Number of bytes accepted from `data`. Read-only files use this default.
    fn write(&self, offset: u64, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        let _ = (offset, data, caller);
        Err(Errno::ACCESS)
    }

    /// Refuses an open beyond the file's mode (an offline CPU's msr: ENXIO).
    fn open(&self, access: OpenAccess, caller: Caller) -> Result<(), Errno> {
        let _ = (access, caller);
        Ok(())
    }

    /// `st_size` in bytes: 0 where the kernel reports 0 (resctrl, msr, cpuid).
    fn size(&self) -> u64 {
        0
    }

    /// Permission bits. A file without a write bit cannot be opened for writing, not even by root (EACCES).
    fn mode(&self) -> u32 {
        0o444
    }

    /// Whether its size changes.
    fn changes(&self) -> bool {
        false
    }
}

/// When a temporary part of the tree is there: a directory with its entries.
pub trait Appearance: Send + Sync {
    /// How often it was made before, modulo 2¹⁶; `None` while it is not there. With another number its entries are other
    /// entries, with other inodes.
    fn now(&self) -> Option<u64>;

    /// The error for an open file of it while it is not there, or after it was made anew.
    fn gone(&self) -> Errno;
}

/// Several paths can share a file.
impl<F: File + ?Sized> File for Arc<F> {
    fn read(&self, offset: u64, len: usize, caller: Caller) -> Result<Vec<u8>, Errno> {
        (**self).read(offset, len, caller)
    }

    fn write(&self, offset: u64, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        (**self).write(offset, data, caller)
    }

    fn open(&self, access: OpenAccess, caller: Caller) -> Result<(), Errno> {
        (**self).open(access, caller)
    }

    fn size(&self) -> u64 {
        (**self).size()
    }

    fn mode(&self) -> u32 {
        (**self).mode()
    }

    fn changes(&self) -> bool {
        (**self).changes()
    }
}

/// The part of `content` that a read of `len` bytes at `offset` returns: short at the end, empty past it.
pub fn slice(content: &[u8], offset: u64, len: usize) -> Vec<u8> {
    let start = usize::try_from(offset).map_or(content.len(), |offset| offset.min(content.len()));
    content[start..start.saturating_add(len).min(content.len())].to_vec()
}

/// A file with a fixed content, readable by all (0444).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.as_bytes().to_vec())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(text.into_bytes())
    }
}

impl File for Text {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        Ok(slice(&self.0, offset, len))
    }

    /// sysfs reports 4096 for every attribute (fs/sysfs/file.c: PAGE_SIZE), procfs 0; readers must not rely on either.
    /// `cp` and `less` need the true length.
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
}

/// One entry of the tree.
pub enum Node {
    /// A directory (0555): entries by name.
    Directory(BTreeMap<String, Node>),
    /// A file.
    File(Box<dyn File>),
    /// A symbolic link and its target.
    Link(String),
    /// The root of the resctrl file system.
    Resctrl(SharedResctrl),
}

/// The files of one virtual server by path. The tree is fixed once mounted, except for resctrl's directories,
/// [`DynamicTree`] subtrees and directories with an [`Appearance`].
#[derive(Default)]
pub struct Tree {
    root: BTreeMap<String, Node>,
    dynamic_trees: BTreeMap<String, Arc<dyn DynamicTree>>,
    appearances: BTreeMap<String, Arc<dyn Appearance>>,
}

/// The top entries of a tree, and by path what changes in it.
pub(crate) struct TreeParts {
    pub root: BTreeMap<String, Node>,
    pub dynamic_trees: BTreeMap<String, Arc<dyn DynamicTree>>,
    pub appearances: BTreeMap<String, Arc<dyn Appearance>>,
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Tree::default()
    }

    /// Puts `node` at `path` (`sys/devices/system/cpu/online`, no leading slash) and creates missing directories.
    ///
    /// # Panics
    /// When the path is empty, taken, or leads through a file: the tree is built by code, never from input.
    pub fn add(&mut self, path: &str, node: Node) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        assert!(!name.is_empty(), "{path:?} names nothing");
        let entry = self.folder(folder).entry(name.to_owned());
        assert!(matches!(entry, std::collections::btree_map::Entry::Vacant(_)), "{path} is defined twice");
        entry.or_insert(node);
    }

    /// A file at `path`. See [`Tree::add`].
    pub fn file(&mut self, path: &str, file: impl File + 'static) {
        self.add(path, Node::File(Box::new(file)));
    }

    /// A file with a fixed content at `path`. See [`Tree::add`].
    pub fn text(&mut self, path: &str, content: impl Into<Text>) {
        self.file(path, content.into());
    }

    /// A symbolic link at `path`. See [`Tree::add`].
    pub fn link(&mut self, path: &str, target: impl Into<String>) {
        self.add(path, Node::Link(target.into()));
    }

    /// Creates a directory at `path` if it is missing. See [`Tree::add`].
    pub fn directory(&mut self, path: &str) {
        self.folder(path);
    }

    /// Adds dynamic entries to the directory at `path`, beside its fixed ones.
    pub fn add_dynamic(&mut self, path: &str, dynamic: impl DynamicTree + 'static) {
        self.folder(path);
        self.dynamic_trees.insert(path.to_owned(), Arc::new(dynamic));
    }

    /// The directory at `path` is there only while `appearance` says so.
    pub fn appears(&mut self, path: &str, appearance: impl Appearance + 'static) {
        self.folder(path);
        self.appearances.insert(path.to_owned(), Arc::new(appearance));
    }

    /// The node at `path`; does not go into resctrl or follow links.
    pub fn get(&self, path: &str) -> Option<&Node> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut entries = &self.root;
        for part in folder.split('/').filter(|part| !part.is_empty()) {
            let Some(Node::Directory(inner)) = entries.get(part) else { return None };
            entries = inner;
        }
        entries.get(name)
    }

    /// The dynamic subtrees, by the paths of their directories.
    pub fn dynamic_trees(&self) -> &BTreeMap<String, Arc<dyn DynamicTree>> {
        &self.dynamic_trees
    }

    /// Its parts.
    pub(crate) fn into_parts(self) -> TreeParts {
        TreeParts { root: self.root, dynamic_trees: self.dynamic_trees, appearances: self.appearances }
    }

    fn folder(&mut self, path: &str) -> &mut BTreeMap<String, Node> {
        let mut entries = &mut self.root;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let node = entries.entry(part.to_owned()).or_insert_with(|| Node::Directory(BTreeMap::new()));
            let Node::Directory(inner) = node else {
                panic!("{path} leads through {part}, which is not a directory")
            };
            entries = inner;
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Caller = Caller { pid: 1, uid: 0 };

    #[test]
    fn a_tree_is_walked_by_path_and_reads_are_short_at_the_end() {
        let mut tree = Tree::new();
        tree.text("sys/devices/system/cpu/online", "0-3\n");
        tree.link("sys/bus/cpu/devices/cpu0", "../../../devices/system/cpu/cpu0");
        tree.directory("sys/devices/system/cpu/cpu0");
        let Some(Node::File(online)) = tree.get("sys/devices/system/cpu/online") else { panic!("no file") };
        assert_eq!(online.read(0, 4096, ROOT).unwrap(), b"0-3\n");
        assert_eq!(online.read(2, 1, ROOT).unwrap(), b"3");
        assert_eq!(online.read(3, 4096, ROOT).unwrap(), b"\n");
        assert_eq!(online.read(4, 4096, ROOT).unwrap(), b"");
        assert_eq!(online.read(u64::MAX, usize::MAX, ROOT).unwrap(), b"");
        assert_eq!(online.write(0, b"0", ROOT), Err(Errno::ACCESS));
        assert_eq!((online.size(), online.mode()), (4, 0o444));
        assert!(
            matches!(tree.get("sys/bus/cpu/devices/cpu0"), Some(Node::Link(target)) if target.starts_with("../"))
        );
        assert!(matches!(tree.get("sys/devices/system/cpu/cpu0"), Some(Node::Directory(_))));
        assert!(tree.get("sys/devices/system/cpu/online/x").is_none() && tree.get("proc").is_none());
    }

    #[test]
    #[should_panic(expected = "is defined twice")]
    fn nothing_is_put_where_something_is() {
        let mut tree = Tree::new();
        tree.text("proc/cpuinfo", "a");
        tree.text("proc/cpuinfo", "b");
    }
}
