//! Access to the kernel's files under a root prefix: `/`, or a tree that offers the same files elsewhere.
//!
//! Reads are bounded because some kernel files never end. Errors name the path and the operation. A file that is read
//! every interval is held open as a [`Handle`]. Must not know what the files mean.

use crate::content::ContentError;
use crate::system::{self, DirEntry, FileReader, OpenFile, SharedSystem, System};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Most bytes read of one file. The longest text file is `/proc/cpuinfo` of a large server: 1024 CPUs at 1.5 KiB
/// each.
pub const MOST_BYTES: usize = 4 << 20;

/// The operation that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileOperation {
    /// Opening it.
    Open,
    /// Reading from it.
    Read,
    /// Writing to it.
    Write,
    /// Listing a directory.
    List,
    /// Making a directory.
    Make,
    /// Removing a directory.
    Remove,
    /// Following a link.
    Link,
}

impl std::fmt::Display for FileOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileOperation::Open => "open",
            FileOperation::Read => "read",
            FileOperation::Write => "write",
            FileOperation::List => "list",
            FileOperation::Make => "make",
            FileOperation::Remove => "remove",
            FileOperation::Link => "follow",
        })
    }
}

/// Why a file could not be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// The kernel returned an error.
    #[error("cannot {operation} {}: {}", path.display(), described(*errno))]
    Refused {
        /// The file, with the prefix.
        path: PathBuf,
        /// The operation.
        operation: FileOperation,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The kernel transferred fewer bytes than requested.
    #[error("cannot {operation} {}: only {done} of {wanted} bytes were transferred", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// The operation.
        operation: FileOperation,
        /// Bytes transferred.
        done: usize,
        /// Bytes requested.
        wanted: usize,
    },
    /// The file is longer than the limit.
    #[error("{} is longer than {most} bytes; a kernel's file of this kind is shorter", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        most: usize,
    },
    /// The content cannot be parsed.
    #[error(transparent)]
    Content(#[from] ContentError),
}

/// What ENOTCONN of a file means, and what to do: the file is on a FUSE mount, such as a virtual host's, without its
/// program.
pub const DEAD_MOUNT: &str =
    "the program that served this mount has ended; remove the mount with `umount -l`, then mount it again";

fn described(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    if errno == Errno::NOTCONN { format!("{text}; {DEAD_MOUNT}") } else { text }
}

impl FileError {
    fn from_io(path: &Path, operation: FileOperation, error: &io::Error) -> FileError {
        // The standard library returns an error without a number only from its own checks of the path's form.
        let errno = Errno::from_io_error(error).unwrap_or(Errno::INVAL);
        FileError::Refused { path: path.to_owned(), operation, errno }
    }

    /// The kernel's error number, if the kernel returned one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            FileError::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// True if the file does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOENT | Errno::NOTDIR))
    }
}

/// The directory that takes the place of `/`, and the system that has its files.
#[derive(Clone, Debug)]
pub struct Root {
    prefix: PathBuf,
    system: SharedSystem,
}

/// Two roots are equal if they have the same prefix: a process uses one system.
impl PartialEq for Root {
    fn eq(&self, other: &Root) -> bool {
        self.prefix == other.prefix
    }
}

impl Eq for Root {}

impl Root {
    /// The tree at `prefix` on this machine; `/` is the machine itself.
    pub fn at(prefix: impl Into<PathBuf>) -> Root {
        Root::on(system::real(), prefix)
    }

    /// The tree at `prefix` on a system.
    pub fn on(system: SharedSystem, prefix: impl Into<PathBuf>) -> Root {
        Root { prefix: prefix.into(), system }
    }

    /// The system that has the files, and the clocks of its machine.
    pub fn system(&self) -> &SharedSystem {
        &self.system
    }

    /// The prefix.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The path under the prefix; `path` is the kernel's path, with or without its leading slash.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.prefix.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What names this root to another command of ours, with a space before it; nothing for this machine.
    pub fn as_option(&self) -> String {
        if self.prefix == Path::new("/") {
            return String::new();
        }
        let prefix = self.prefix.to_string_lossy();
        // Without a NUL, which no path has, each word can be quoted.
        format!(" --root {}", shlex::try_quote(&prefix).unwrap_or_default())
    }

    /// Whether the path exists; false for a dangling link.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.system.exists(&self.path(path))
    }

    /// The whole file as text; bytes that are not UTF-8 become U+FFFD, which no parser accepts.
    ///
    /// # Errors
    /// The kernel's refusal, or a file that is longer than [`MOST_BYTES`].
    pub fn read_text(&self, path: impl AsRef<Path>) -> Result<String, FileError> {
        let bytes = self.read_bytes(path, MOST_BYTES)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// [`Root::read_text`], or `None` if there is no such file.
    ///
    /// # Errors
    /// Any other refusal.
    pub fn read_optional(&self, path: impl AsRef<Path>) -> Result<Option<String>, FileError> {
        match self.read_text(path) {
            Err(error) if error.is_absent() => Ok(None),
            other => other.map(Some),
        }
    }

    /// The whole file, if it is at most `most` bytes long.
    ///
    /// # Errors
    /// The kernel's refusal, or a longer file.
    pub fn read_bytes(&self, path: impl AsRef<Path>, most: usize) -> Result<Vec<u8>, FileError> {
        let path = self.path(path);
        let file = opened(self.system.as_ref(), &path, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        FileReader(file.as_ref())
            .take(most as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| FileError::from_io(&path, FileOperation::Read, &error))?;
        if bytes.len() > most { Err(FileError::TooLong { path, most }) } else { Ok(bytes) }
    }

    /// Names in a directory, sorted; names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>, FileError> {
        let path = self.path(path);
        let mut names = Vec::new();
        let mut visit = |entry: DirEntry| {
            names.extend(entry.name.into_string().ok());
            ControlFlow::Continue(())
        };
        self.system
            .list(&path, &mut visit)
            .map_err(|error| FileError::from_io(&path, FileOperation::List, &error))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Names of the directories in a directory, without links, sorted, at most `most`; and whether there are more
    /// entries. The kernel returns the type of an entry along with its name, so nothing else is read.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn folders(&self, path: impl AsRef<Path>, most: usize) -> Result<(Vec<String>, bool), FileError> {
        let path = self.path(path);
        let (mut names, mut more) = (Vec::new(), false);
        let mut visit = |entry: DirEntry| {
            if names.len() == most {
                more = true;
                return ControlFlow::Break(());
            }
            if entry.is_dir {
                names.extend(entry.name.into_string().ok());
            }
            ControlFlow::Continue(())
        };
        self.system
            .list(&path, &mut visit)
            .map_err(|error| FileError::from_io(&path, FileOperation::List, &error))?;
        names.sort_unstable();
        Ok((names, more))
    }

    /// Target of a symbolic link, as written in it.
    ///
    /// # Errors
    /// The kernel's refusal; `EINVAL` if it is not a link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        let path = self.path(path);
        self.system.read_link(&path).map_err(|error| FileError::from_io(&path, FileOperation::Link, &error))
    }

    /// Sends one command to a kernel file: one open, one write(2) of the whole text.
    ///
    /// # Errors
    /// The kernel's refusal, or a write that took only part of the text.
    pub fn write_once(&self, path: impl AsRef<Path>, text: &str) -> Result<(), FileError> {
        self.open(path, OFlags::WRONLY | OFlags::TRUNC)?.write_once(text.as_bytes())
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn make_dir(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = self.path(path);
        self.system
            .make_dir(&path, Mode::from_raw_mode(0o755))
            .map_err(|error| FileError::from_io(&path, FileOperation::Make, &error))
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = self.path(path);
        self.system
            .remove_dir(&path)
            .map_err(|error| FileError::from_io(&path, FileOperation::Remove, &error))
    }

    /// Opens a file for reading and keeps it open.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open_read(&self, path: impl AsRef<Path>) -> Result<Handle, FileError> {
        self.open(path, OFlags::RDONLY)
    }

    /// Opens a file for reading and writing and keeps it open.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn open_write(&self, path: impl AsRef<Path>) -> Result<Handle, FileError> {
        self.open(path, OFlags::RDWR)
    }

    fn open(&self, path: impl AsRef<Path>, flags: OFlags) -> Result<Handle, FileError> {
        let path = self.path(path);
        let file = opened(self.system.as_ref(), &path, flags)?;
        Ok(Handle { file, path })
    }
}

fn opened(system: &dyn System, path: &Path, flags: OFlags) -> Result<Box<dyn OpenFile>, FileError> {
    system
        .open(path, flags, Mode::empty())
        .map_err(|error| FileError::from_io(path, FileOperation::Open, &error))
}

/// A file that is kept open: one system call per read or write.
#[derive(Debug)]
pub struct Handle {
    file: Box<dyn OpenFile>,
    path: PathBuf,
}

impl Handle {
    /// The file, with the prefix.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length in bytes, as reported; 0 if it cannot be read.
    pub fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.size)
    }

    /// Reads up to `buffer.len()` bytes at `offset` with one system call; returns how many were read.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FileError> {
        self.file
            .read_at(buffer, offset)
            .map_err(|error| FileError::from_io(&self.path, FileOperation::Read, &error))
    }

    /// Fills `buffer` from `offset`: one system call.
    ///
    /// # Errors
    /// The kernel's refusal, or fewer bytes.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), FileError> {
        let wanted = buffer.len();
        match self.read_at(buffer, offset)? {
            done if done == wanted => Ok(()),
            done => Err(FileError::Short {
                path: self.path.clone(),
                operation: FileOperation::Read,
                done,
                wanted,
            }),
        }
    }

    /// Reads the file from its start as text, with one system call; for small files that hold a counter. A file that
    /// fills the buffer is refused, because its end was not seen.
    ///
    /// # Errors
    /// The kernel's refusal, a longer file, or bytes that are not text.
    pub fn read_text<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b str, FileError> {
        let most = buffer.len();
        let done = self.read_at(buffer, 0)?;
        if done == most {
            return Err(FileError::TooLong { path: self.path.clone(), most });
        }
        std::str::from_utf8(&buffer[..done]).map_err(|_| {
            let found = String::from_utf8_lossy(&buffer[..done]).into_owned();
            ContentError::new(&self.path, 0, &found, "text").into()
        })
    }

    /// Writes all of `bytes` at `offset`: one system call.
    ///
    /// # Errors
    /// The kernel's refusal, or fewer bytes.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), FileError> {
        let done = self
            .file
            .write_at(bytes, offset)
            .map_err(|error| FileError::from_io(&self.path, FileOperation::Write, &error))?;
        self.whole(done, bytes.len())
    }

    /// Writes all of `bytes` at the current file position: one system call, one command to the kernel.
    ///
    /// # Errors
    /// The kernel's refusal, or fewer bytes.
    pub fn write_once(&self, bytes: &[u8]) -> Result<(), FileError> {
        let done = self
            .file
            .write(bytes)
            .map_err(|error| FileError::from_io(&self.path, FileOperation::Write, &error))?;
        self.whole(done, bytes.len())
    }

    fn whole(&self, done: usize, wanted: usize) -> Result<(), FileError> {
        if done == wanted {
            return Ok(());
        }
        Err(FileError::Short { path: self.path.clone(), operation: FileOperation::Write, done, wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("sys/fs")).unwrap();
        std::fs::write(folder.path().join("sys/fs/a"), "12\n").unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn a_path_lies_under_the_prefix_with_or_without_its_slash() {
        let root = Root::at("/tree");
        assert_eq!(root.path("/sys/fs"), Path::new("/tree/sys/fs"));
        assert_eq!(root.path("sys/fs"), Path::new("/tree/sys/fs"));
        assert_eq!(Root::at("/").path("/sys"), Path::new("/sys"));
        assert_eq!((Root::at("/").as_option().as_str(), root.as_option().as_str()), ("", " --root /tree"));
        assert_eq!(Root::at("/a tree").as_option(), " --root '/a tree'");
    }

    #[test]
    fn reads_writes_and_lists() {
        let (_keep, root) = tree();
        assert_eq!(root.read_text("/sys/fs/a").unwrap(), "12\n");
        root.write_once("/sys/fs/a", "7").unwrap();
        assert_eq!(root.read_text("/sys/fs/a").unwrap(), "7");
        root.make_dir("/sys/fs/g").unwrap();
        assert_eq!(root.list("/sys/fs").unwrap(), ["a", "g"]);
        assert_eq!(root.folders("/sys/fs", 8).unwrap(), (vec!["g".to_owned()], false));
        root.remove_dir("/sys/fs/g").unwrap();
        assert!(!root.exists("/sys/fs/g"));
        assert_eq!(root.read_optional("/sys/fs/g").unwrap(), None);
    }

    #[test]
    fn a_refusal_names_path_and_operation() {
        let (_keep, root) = tree();
        let error = root.read_text("/sys/none").unwrap_err();
        assert!(error.is_absent());
        let path = root.path("/sys/none");
        assert_eq!(
            error.to_string(),
            format!("cannot open {}: No such file or directory (os error 2)", path.display())
        );
        assert_eq!(root.remove_dir("/sys/fs").unwrap_err().errno(), Some(Errno::NOTEMPTY));
        assert_eq!(root.read_text("/sys/fs").unwrap_err().errno(), Some(Errno::ISDIR));
    }

    #[test]
    fn a_file_without_end_is_cut_off() {
        let endless = Root::at("/").read_text("/dev/zero").unwrap_err();
        assert_eq!(endless, FileError::TooLong { path: "/dev/zero".into(), most: MOST_BYTES });
        let mut small = [0; 8];
        let error = Root::at("/").open_read("/dev/zero").unwrap().read_text(&mut small).unwrap_err();
        assert!(matches!(error, FileError::TooLong { most: 8, .. }));
    }

    #[test]
    fn a_handle_reads_again_from_the_start_and_tells_short_reads() {
        let (_keep, root) = tree();
        let handle = root.open_write("/sys/fs/a").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(handle.read_text(&mut buffer).unwrap(), "12\n");
        handle.write_at(b"345\n", 0).unwrap();
        assert_eq!(handle.read_text(&mut buffer).unwrap(), "345\n");
        let error = handle.read_exact_at(&mut [0; 8], 0).unwrap_err();
        assert!(matches!(error, FileError::Short { done: 4, wanted: 8, .. }), "{error}");
    }
}
