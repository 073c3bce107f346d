//! Creates a file atomically: it gets its name when it is complete, and nothing of it remains after a failure.
//!
//! Knows names and content; must not know the purpose of the file.

use crate::buffer::word;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use waykeeper_output_file::give_new_name;

/// Bytes that are written at a time.
const FILL_BYTES: usize = 1 << 20;
/// Bytes between two syncs; a stop request takes effect after each. A guess: what a slow disk writes in a second.
const SYNC_BYTES: u64 = 64 << 20;
/// The seed of a new file's content. It differs from the buffer's, so data from the file are recognised.
const SEED: u64 = 0x6D65_6D6C_6F61_6400;

/// Names of incomplete files, on file systems without O_TMPFILE.
static TEMP_NAMES: TempNames = TempNames(Mutex::new(Vec::new()));

#[derive(Debug)]
struct TempNames(Mutex<Vec<PathBuf>>);

impl TempNames {
    fn names(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the files. While the returned guard lives, no file can be begun or renamed.
    fn remove(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        let mut names = self.names();
        for name in names.drain(..) {
            let _ = rustix::fs::unlink(name);
        }
        names
    }
}

/// Removes incomplete files before the process exits. The caller must exit next: no file can be made afterwards.
pub fn abandon() {
    std::mem::forget(TEMP_NAMES.remove());
}

/// An incomplete file. Dropping it removes it.
#[derive(Debug)]
pub struct PendingFile {
    file: File,
    /// Its final name.
    path: PathBuf,
    /// Its temporary name, if it has one.
    temp_name: Option<PathBuf>,
    temp_names: &'static TempNames,
}

impl PendingFile {
    /// Begins a file with this final name.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn begin(path: &Path) -> io::Result<PendingFile> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::open(folder(path), flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => Ok(PendingFile {
                file: file.into(),
                path: path.to_owned(),
                temp_name: None,
                temp_names: &TEMP_NAMES,
            }),
            // Some file systems do not support O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => PendingFile::named(path, &TEMP_NAMES),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Begins the file under a temporary name.
    fn named(path: &Path, temp_names: &'static TempNames) -> io::Result<PendingFile> {
        let temp_name = folder(path).join(format!(".waykeeper-{:016x}", RandomState::new().hash_one(0)));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut names = temp_names.names();
        let file = rustix::fs::open(&temp_name, flags, Mode::from_raw_mode(0o600))?;
        names.push(temp_name.clone());
        Ok(PendingFile { file: file.into(), path: path.to_owned(), temp_name: Some(temp_name), temp_names })
    }

    /// A path that opens it before it has its name.
    pub fn place(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Opens it again.
    ///
    /// # Errors
    /// If the file system cannot open it through /proc.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::open(self.place(), flags | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Completes the file and gives it its name. All blocks are written, because no device serves reads of unwritten
    /// blocks. A full disk is reported now and not during the run.
    ///
    /// Returns false if `stop` became true before the file was complete.
    ///
    /// # Errors
    /// If there is no room, or another file has the name. The file is removed then, and also after a stop.
    pub fn finish(self, bytes: u64, stop: &dyn Fn() -> bool) -> io::Result<bool> {
        if !fill(&self.file, bytes, stop)? {
            return Ok(false);
        }
        let Some(temp_name) = &self.temp_name else {
            rustix::fs::linkat(CWD, self.place(), CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
            return Ok(true);
        };
        let mut names = self.temp_names.names();
        give_new_name(temp_name, &self.path)?;
        names.retain(|name| name != temp_name);
        Ok(true)
    }
}

/// A file that was created by us, identified by its inode. It stays open, so no other file can get its inode number.
#[derive(Clone, Debug)]
pub struct CreatedFile(Arc<OwnedFd>);

impl CreatedFile {
    /// Keeps the open file `file`.
    ///
    /// # Errors
    /// If no more files can be open.
    pub(crate) fn new(file: &OwnedFd) -> io::Result<CreatedFile> {
        Ok(CreatedFile(Arc::new(file.try_clone()?)))
    }

    /// True if the file has this inode on this device.
    pub(crate) fn is(&self, device: u64, inode: u64) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        let Some(temp_name) = &self.temp_name else { return };
        let mut names = self.temp_names.names();
        if names.contains(temp_name) {
            let _ = rustix::fs::unlink(temp_name);
            names.retain(|name| name != temp_name);
        }
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Fills the file with words that depend on their position, and syncs it; false if `stop` became true before the end.
fn fill(mut file: &File, bytes: u64, stop: &dyn Fn() -> bool) -> io::Result<bool> {
    let full = |why: io::Error| match why.raw_os_error() {
        Some(libc::ENOSPC) => {
            io::Error::new(io::ErrorKind::StorageFull, format!("no room for {bytes} B on this disk"))
        }
        _ => why,
    };
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Some file systems cannot reserve space; then a write fails if there is none.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(errno) => return Err(full(errno.into())),
    }
    let mut piece = Vec::with_capacity(FILL_BYTES);
    for from in (0..bytes).step_by(FILL_BYTES) {
        if stop() {
            return Ok(false);
        }
        if from > 0 && from.is_multiple_of(SYNC_BYTES) {
            file.sync_data().map_err(full)?;
        }
        piece.clear();
        let end = bytes.min(from + FILL_BYTES as u64);
        piece.extend((from / 8..end.div_ceil(8)).flat_map(|at| word(SEED, at).to_ne_bytes()));
        piece.truncate(usize::try_from(end - from).unwrap_or(FILL_BYTES));
        file.write_all(&piece).map_err(full)?;
    }
    file.sync_data().map_err(full)?;
    Ok(!stop())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Begins a file as on a file system without O_TMPFILE.
    fn begun(path: &Path) -> (PendingFile, &'static TempNames) {
        let temp_names: &'static TempNames = Box::leak(Box::new(TempNames(Mutex::default())));
        (PendingFile::named(path, temp_names).unwrap(), temp_names)
    }

    #[test]
    fn it_has_its_name_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        let (pending_file, temp_names) = begun(&path);
        assert!(names(folder.path())[0].starts_with(".waykeeper-"), "{:?}", names(folder.path()));
        assert!(pending_file.finish(3 << 20, &|| false).unwrap());
        assert_eq!((names(folder.path()), temp_names.names().len()), (vec!["file".to_owned()], 0));
        assert!(PendingFile::begin(&other).unwrap().finish(3 << 20, &|| false).unwrap());
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len(), 3 << 20);
        assert!(content == std::fs::read(&other).unwrap(), "either way it is the same file");
        assert_eq!(content[8..16], word(SEED, 1).to_ne_bytes());
    }

    #[test]
    fn nothing_of_it_stays_if_it_is_not_and_nothing_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        drop(begun(&path));
        drop(PendingFile::begin(&path).unwrap());
        assert_eq!(names(folder.path()), [""; 0]);
        let (pending_file, temp_names) = begun(&path);
        // Too large for any disk.
        assert!(pending_file.finish(1 << 60, &|| false).is_err());
        assert_eq!((names(folder.path()).len(), temp_names.names().len()), (0, 0));
        // Another program creates the file first.
        for pending_file in [begun(&path).0, PendingFile::begin(&path).unwrap()] {
            std::fs::write(&path, "theirs").unwrap();
            assert_eq!(
                pending_file.finish(4096, &|| false).unwrap_err().kind(),
                io::ErrorKind::AlreadyExists
            );
            assert_eq!(names(folder.path()), ["file"]);
            assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        }
    }

    /// Stops before the first piece is written, and after the last.
    #[test]
    fn who_says_stop_waits_for_a_piece_and_nothing_of_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for pending_file in [begun(&path).0, PendingFile::begin(&path).unwrap()] {
            let looks = std::cell::Cell::new(0);
            let third = || looks.replace(looks.get() + 1) == 2;
            assert!(!pending_file.finish(4 << 20, &third).unwrap());
            assert_eq!(names(folder.path()), [""; 0]);
        }
        let looks = std::cell::Cell::new(0);
        assert!(!begun(&path).0.finish(1 << 20, &|| looks.replace(looks.get() + 1) == 1).unwrap());
        assert_eq!((looks.get(), names(folder.path()).len()), (2, 0));
    }

    #[test]
    fn a_file_is_known_by_itself_and_not_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let made = |path: &Path| CreatedFile::new(&File::open(path).unwrap().into()).unwrap();
        let is = |made: &CreatedFile, path: &Path| {
            let stat = rustix::fs::stat(path).unwrap();
            made.is(stat.st_dev, stat.st_ino)
        };
        std::fs::write(&path, "ours").unwrap();
        let ours = made(&path);
        assert!(is(&ours, &path));
        // File systems reuse a free inode number for the next file, even one whose file is still open elsewhere as
        // `CreatedFile`.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        assert!(!is(&ours, &path));
    }

    #[test]
    fn who_must_end_at_once_removes_it_and_it_gets_no_name_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let (pending_file, temp_names) = begun(&folder.path().join("file"));
        drop(temp_names.remove());
        assert_eq!(names(folder.path()), [""; 0]);
        assert_eq!(pending_file.finish(4096, &|| false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(names(folder.path()), [""; 0]);
    }
}
