//! Counted reads of files that may disappear at any time.
//!
//! A missing file is `None`, not an error: processes end, cgroups are removed and devices are unplugged during a look.
//! Must not know what files mean.

use rustix::io::Errno;
use std::path::PathBuf;
use waykeeper_kernel::root::{FileError, Root};

/// A root, and the number of reads.
#[derive(Debug)]
pub(super) struct Reader<'r> {
    root: &'r Root,
    reads: usize,
}

/// Whether an error means that the file does not exist (any more): a path (`ENOENT`), a process (`ESRCH`), a cgroup or
/// a device behind an open file (`ENODEV`, `ENXIO`).
fn is_gone(error: &FileError) -> bool {
    error.is_absent() || matches!(error.errno(), Some(Errno::SRCH | Errno::NODEV | Errno::NXIO))
}

fn unless_gone<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Err(error) if is_gone(&error) => Ok(None),
        other => other.map(Some),
    }
}

impl<'r> Reader<'r> {
    /// Starts with no reads.
    pub fn new(root: &'r Root) -> Reader<'r> {
        Reader { root, reads: 0 }
    }

    pub fn root(&self) -> &'r Root {
        self.root
    }

    /// Number of files read and directories listed.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// A file of at most `most` bytes; invalid UTF-8 becomes U+FFFD.
    pub fn text(&mut self, path: &str, most: usize) -> Result<Option<String>, FileError> {
        self.reads += 1;
        let bytes = unless_gone(self.root.read_bytes(path, most))?;
        Ok(bytes.map(|bytes| {
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
        }))
    }

    /// Directories in a directory; true if there are more than `most`.
    pub fn folders(&mut self, path: &str, most: usize) -> Result<Option<(Vec<String>, bool)>, FileError> {
        self.reads += 1;
        unless_gone(self.root.folders(path, most))
    }

    /// Names in a directory, sorted; none if it cannot be listed.
    pub fn names(&mut self, path: &str) -> Vec<String> {
        self.reads += 1;
        self.root.list(path).unwrap_or_default()
    }

    pub fn link(&mut self, path: &str) -> Result<Option<PathBuf>, FileError> {
        self.reads += 1;
        unless_gone(self.root.read_link(path))
    }

    pub fn exists(&mut self, path: &str) -> bool {
        self.reads += 1;
        self.root.exists(path)
    }
}
