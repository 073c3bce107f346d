//! Parts of the tree whose entries come and go by themselves: processes and control groups.
//!
//! Whoever implements one gives every entry a number that never means anything else, so nothing has to be kept here for
//! entries that are gone. This file must not know what the entries are.

use rustix::io::Errno;

/// Numbers of entries end here.
pub const END: u64 = 1 << 56;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

impl Entry {
    /// A file.
    pub fn file(name: impl Into<String>, number: u64) -> Entry {
        Entry { name: name.into(), number, directory: false }
    }

    /// A directory.
    pub fn directory(name: impl Into<String>, number: u64) -> Entry {
        Entry { name: name.into(), number, directory: true }
    }
}

/// A subtree, named by numbers below [`END`]. Its own directory is 0. Files are 0444, directories 0555: nothing can be
/// written or made (EACCES at open, EPERM for mkdir, as for all fixed files of the tree).
pub trait Live: Send + Sync {
    /// The entries of a directory now.
    ///
    /// # Errors
    /// ENOENT for one that is gone, ENOTDIR for a file.
    fn list(&self, directory: u64) -> Result<Vec<Entry>, Errno>;

    /// What is called `name` in a directory now.
    ///
    /// # Errors
    /// ENOENT.
    fn lookup(&self, directory: u64, name: &str) -> Result<Entry, Errno> {
        self.list(directory)?.into_iter().find(|entry| entry.name == name).ok_or(Errno::NOENT)
    }

    /// Whether a number is that of a directory, also when it is gone.
    fn is_directory(&self, number: u64) -> bool;

    /// Whether it is still there.
    ///
    /// # Errors
    /// ENOENT if not.
    fn present(&self, number: u64) -> Result<(), Errno>;

    /// The whole content of a file now.
    ///
    /// # Errors
    /// What the kernel says when what the file was about is gone; EISDIR.
    fn read(&self, number: u64) -> Result<Vec<u8>, Errno>;

    /// The path of an entry below the subtree's directory; empty for the directory itself and for what is gone.
    fn path(&self, number: u64) -> String;
}
