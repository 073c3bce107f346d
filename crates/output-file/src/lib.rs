//! Writes the files that a user names.
//!
//! A regular file gets its name when it is complete: it is written without a name, or under another one in the same
//! folder, and replaces what had its name in one step. A link is followed and stays. A pipe or a character device is
//! written through, and nothing takes its place. A directory, a block device and a socket are refused. An error is an
//! [`io::Error`]; the caller adds the file's name. Must not know what is written, nor the options of a command.

mod place;

pub use place::folder_of;

use place::Destination;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes that [`check`] writes and removes again, so that a full disk is noticed before the work (ours).
const TRIED: usize = 64 << 10;

/// The open files of this process.
const DESCRIPTORS: &str = "/proc/self/fd";
/// What the umask is applied to.
const NEW_MODE: Mode = Mode::from_raw_mode(0o666);

/// What becomes of a regular file that has the name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// It stays, and the new file is refused.
    Keep,
    /// The new file takes its place.
    Replace,
}

/// A file that is being written. Unless it is kept, nothing of it remains.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// None for what is written through.
    draft: Option<Draft>,
}

/// A regular file before it has its name.
#[derive(Debug)]
struct Draft {
    /// The name that it will have.
    path: PathBuf,
    /// The name that it has until then; without one, the system removes it when it is closed.
    name: Option<PathBuf>,
    existing: Existing,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A failure would hide why the file is not kept.
            let _ = fs::remove_file(name);
        }
    }
}

impl OutputFile {
    /// Begins a file. What had the name stays as it is until [`OutputFile::keep`].
    ///
    /// # Errors
    /// The system's error, or why the name cannot be written; [`ErrorKind::AlreadyExists`] for a regular file that is
    /// to stay.
    pub fn begin(path: &Path, existing: Existing) -> io::Result<OutputFile> {
        match Destination::of(path)? {
            Destination::Through(file) => Ok(OutputFile { file, draft: None }),
            Destination::Node(path) => Ok(OutputFile { file: place::open_node(&path)?, draft: None }),
            Destination::New(path) => OutputFile::draft(path, existing),
            Destination::Regular(_) if existing == Existing::Keep => Err(exists()),
            Destination::Regular(path) => {
                place::may_write(&path)?;
                let replaced = fs::metadata(&path)?;
                let output = OutputFile::draft(path, existing)?;
                // One of another user becomes ours, and gets the mode of a new one.
                if replaced.uid() == rustix::process::geteuid().as_raw() {
                    output.file.set_permissions(Permissions::from_mode(replaced.mode() & 0o777))?;
                }
                Ok(output)
            }
        }
    }

    fn draft(path: PathBuf, existing: Existing) -> io::Result<OutputFile> {
        // It gets its name through /proc.
        if !Path::new(DESCRIPTORS).exists() {
            return OutputFile::named_draft(path, existing);
        }
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::open(place::folder_of(&path), flags, NEW_MODE) {
            Ok(file) => {
                Ok(OutputFile { file: file.into(), draft: Some(Draft { path, name: None, existing }) })
            }
            // Some file systems have no files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => OutputFile::named_draft(path, existing),
            Err(why) => Err(why.into()),
        }
    }

    fn named_draft(path: PathBuf, existing: Existing) -> io::Result<OutputFile> {
        let name = free_name(place::folder_of(&path));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(&name, flags, NEW_MODE)?;
        Ok(OutputFile { file: file.into(), draft: Some(Draft { path, name: Some(name), existing }) })
    }

    /// The path of what has been written so far, in the folder where it will be; none for what is written through.
    ///
    /// # Errors
    /// The system's error.
    pub fn draft_path(&mut self) -> io::Result<Option<&Path>> {
        let Some(draft) = &mut self.draft else { return Ok(None) };
        if draft.name.is_none() {
            let name = free_name(place::folder_of(&draft.path));
            let content = format!("{DESCRIPTORS}/{}", self.file.as_raw_fd());
            if rustix::fs::linkat(CWD, &content, CWD, &name, AtFlags::SYMLINK_FOLLOW).is_err() {
                // A sandbox may forbid it. The result of long work must not be lost by that.
                let mut named = File::create_new(&name)?;
                draft.name = Some(name.clone());
                io::copy(&mut File::open(&content)?, &mut named)?;
                named.set_permissions(self.file.metadata()?.permissions())?;
                self.file = named;
            }
            draft.name = Some(name);
        }
        Ok(draft.name.as_deref())
    }

    /// Completes the file: it has its name when this returns.
    ///
    /// # Errors
    /// The system's error. If only the name could not be given, the complete file stays and the message names it.
    pub fn keep(mut self) -> io::Result<()> {
        if self.draft.is_none() {
            return self.file.flush();
        }
        self.draft_path()?;
        // Without this the name may reach the disk before the content does.
        self.file.sync_all()?;
        let Some(draft) = &mut self.draft else { return Ok(()) };
        let Some(name) = draft.name.take() else { return Ok(()) };
        let named = match draft.existing {
            Existing::Keep => give_new_name(&name, &draft.path),
            Existing::Replace => give_name(&name, &draft.path),
        };
        named.map_err(|why| {
            let what = format!("{why}; the complete file is still named {}", name.display());
            io::Error::new(why.kind(), what)
        })
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file at once.
///
/// # Errors
/// As [`OutputFile::begin`] and [`OutputFile::keep`]; what had the name then stays.
pub fn write(path: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let mut file = OutputFile::begin(path, existing)?;
    file.write_all(bytes)?;
    file.keep()
}

/// Checks before the work that a file can be written: its place exists, is not full and may be written. A pipe is not
/// opened, because its reader would take the closing for the end.
///
/// # Errors
/// As [`OutputFile::begin`].
pub fn check(path: &Path, existing: Existing) -> io::Result<()> {
    match Destination::of(path)? {
        Destination::Through(_) => Ok(()),
        Destination::Node(path) => place::may_write(&path),
        Destination::New(_) | Destination::Regular(_) => {
            let mut file = OutputFile::begin(path, existing)?;
            file.write_all(&[0; TRIED])?;
            file.file.sync_all()
        }
    }
}

/// Checks before the work that files can be written into a folder: it may be written and is not full.
///
/// # Errors
/// The system's error.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    check(&free_name(folder), Existing::Keep)
}

/// Whether a path was not found because its links lead to each other (ELOOP); [`io::ErrorKind`] has no stable name for it.
pub fn is_link_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// True if a path leads to standard output, as `-` and /dev/stdout do.
pub fn is_stdout(path: &Path) -> bool {
    place::end_of(path).is_ok_and(|end| place::own_descriptor(&end) == Some(1))
}

/// A name that no file in the folder has: commands on several machines may write one folder, with the same process number.
fn free_name(folder: &Path) -> PathBuf {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    folder.join(format!(".waykeeper-{}-{at}", std::process::id()))
}

fn exists() -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, "it exists already")
}

/// Renames a complete file; what has the name is replaced.
fn give_name(from: &Path, path: &Path) -> io::Result<()> {
    // What was a regular file may have become something else since.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(exists());
    }
    match fs::rename(from, path) {
        // A mount point, such as a file that a container was given, cannot be replaced.
        Err(why) if why.kind() == ErrorKind::ResourceBusy => {
            fs::copy(from, path)?;
            fs::remove_file(from)
        }
        renamed => renamed,
    }
}

/// Renames a complete file without replacing another.
///
/// # Errors
/// If the name is taken or cannot be given; the file keeps its name.
pub fn give_new_name(from: &Path, path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, path, RenameFlags::NOREPLACE) {
        // Network file systems lack RENAME_NOREPLACE, but link(2) does not replace files either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(CWD, from, CWD, path, AtFlags::empty())?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests;
