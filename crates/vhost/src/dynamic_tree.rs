//! Parts of the tree whose entries change by themselves: processes and control groups.
//!
//! An implementation gives every entry a number that is never reused, so no table is kept for entries that are gone.
//! This file must not know what the entries are.

use rustix::io::Errno;

/// All numbers of entries are below this.
pub const END: u64 = 1 << 56;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

impl DirectoryEntry {
    /// A file.
    pub fn file(name: impl Into<String>, number: u64) -> DirectoryEntry {
        DirectoryEntry { name: name.into(), number, directory: false }
    }

    /// A directory.
    pub fn directory(name: impl Into<String>, number: u64) -> DirectoryEntry {
        DirectoryEntry { name: name.into(), number, directory: true }
    }
}

/// A subtree whose entries have numbers below [`END`]. Its own directory is 0. Files are 0444, directories 0555:
/// nothing can be written or created (EACCES at open, EPERM for mkdir, as for all fixed files of the tree).
pub trait DynamicTree: Send + Sync {
    /// The present entries of a directory.
    ///
    /// # Errors
    /// ENOENT if it is gone, ENOTDIR for a file.
    fn list(&self, directory: u64) -> Result<Vec<DirectoryEntry>, Errno>;

    /// The present entry `name` of a directory.
    ///
    /// # Errors
    /// ENOENT if there is none.
    fn lookup(&self, directory: u64, name: &str) -> Result<DirectoryEntry, Errno> {
        self.list(directory)?.into_iter().find(|entry| entry.name == name).ok_or(Errno::NOENT)
    }

    /// Whether a number is that of a directory, even if it is gone.
    fn is_directory(&self, number: u64) -> bool;

    /// Checks that an entry still exists.
    ///
    /// # Errors
    /// ENOENT if not.
    fn present(&self, number: u64) -> Result<(), Errno>;

    /// The present content of a file.
    ///
    /// # Errors
    /// The kernel's error if what the file describes is gone; EISDIR for a directory.
    fn read(&self, number: u64) -> Result<Vec<u8>, Errno>;

    /// The path of an entry below the subtree's directory; empty for the directory itself and for a removed entry.
    fn path(&self, number: u64) -> String;
}
