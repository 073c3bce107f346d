//! What has a name before we write there: nothing yet, a regular file, or what we must write through.

use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most links that lead to a file, as of the kernel (path_resolution(7)).
const LINKS_MOST: usize = 40;

/// What has a name.
pub enum Destination {
    /// Nothing: the path that a new file gets, with links followed.
    New(PathBuf),
    /// A regular file: its path without links.
    Regular(PathBuf),
    /// A pipe or a character device.
    Node(PathBuf),
    /// Standard output or standard error of this process, whatever that is.
    Through(File),
}

impl Destination {
    /// What is at the end of a path.
    ///
    /// # Errors
    /// The system's error, or that it is a directory, a block device or a socket.
    pub fn of(path: &Path) -> io::Result<Destination> {
        let end = end_of(path)?;
        match own_descriptor(&end) {
            Some(1) => return Ok(Destination::Through(io::stdout().as_fd().try_clone_to_owned()?.into())),
            Some(2) => return Ok(Destination::Through(io::stderr().as_fd().try_clone_to_owned()?.into())),
            _ => {}
        }
        let found = match fs::metadata(&end) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Destination::New(end)),
            found => found?,
        };
        let refuse = |kind, what: &str| Err(io::Error::new(kind, format!("it is {what}; name a file")));
        match found.file_type() {
            kind if kind.is_file() => Ok(Destination::Regular(fs::canonicalize(&end)?)),
            kind if kind.is_fifo() || kind.is_char_device() => Ok(Destination::Node(end)),
            kind if kind.is_dir() => refuse(ErrorKind::IsADirectory, "a directory"),
            // Its content, perhaps a file system, would be lost.
            kind if kind.is_block_device() => refuse(ErrorKind::InvalidInput, "a block device"),
            _ => refuse(ErrorKind::InvalidInput, "a socket"),
        }
    }
}

/// The word of a command line that means standard output; a file of that name is `./-`.
const STDOUT: &str = "-";

/// The path at the end of the links from `path`, which need not exist. The links of /proc/PID/fd are not followed: what
/// they name may have no path.
///
/// # Errors
/// The system's error, or that it ends as only a directory does.
pub fn end_of(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is empty; name a file"));
    }
    let mut at = if path.as_os_str() == STDOUT { PathBuf::from("/proc/self/fd/1") } else { path.to_owned() };
    for _ in 0..LINKS_MOST {
        let Some(name) = at.file_name().filter(|_| !ends_as_folder(&at)) else {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory; name a file"));
        };
        let folder = fs::canonicalize(folder_of(&at))?;
        let whole = folder.join(name);
        if is_descriptors(&folder) {
            return Ok(whole);
        }
        match fs::read_link(&whole) {
            Ok(target) => at = folder.join(target),
            // It is no link, or it is not there.
            Err(_) => return Ok(whole),
        }
    }
    Err(Errno::LOOP.into())
}

/// True for `a/` and `a/.`, which only a directory can be.
fn ends_as_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

fn is_descriptors(folder: &Path) -> bool {
    folder.starts_with("/proc") && folder.ends_with("fd")
}

/// The number of a descriptor of this process, for its path in /proc.
pub fn own_descriptor(path: &Path) -> Option<u32> {
    let own = format!("/proc/{}/fd", std::process::id());
    path.strip_prefix(own).ok()?.to_str()?.parse().ok()
}

/// The folder that a path is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        // Of a name alone, and of the root.
        _ if path.has_root() => Path::new("/"),
        _ => Path::new("."),
    }
}

/// Checks that this user may write what has this path.
///
/// # Errors
/// The system's error.
pub fn may_write(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}

/// Opens a pipe or a device for writing. Does not wait: a pipe that no process reads is refused.
///
/// # Errors
/// The system's error.
pub fn open_node(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = File::options().write(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|why| {
        let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        match why.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NXIO) if is_pipe => {
                io::Error::new(ErrorKind::InvalidInput, "it is a pipe that no process reads")
            }
            _ => why,
        }
    })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}
