//! Reads and writes resctrl's files: bounded reads, one write(2) per command, handles held open.
//!
//! kernfs returns a whole file to a read that is large enough and takes one command per write (virtual-host.md 3.3); a
//! served tree may return less at a time. It must not know what a file contains.

use super::error::{Action, ResctrlError};
use crate::root::{FileError, Handle, Root};
use crate::system::{FileReader, OpenFile, SharedSystem, System};
use rustix::fs::{Mode, OFlags};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of any file but `tasks`: schemata of 32 resources in 1024 domains stay far below.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// Most bytes of `tasks`: 2^22 pids (the kernel's PID_MAX_LIMIT) of up to 7 digits and a newline.
pub(super) const MOST_TASK_BYTES: usize = 8 << 22;

/// Reads a text file of at most `most` bytes.
pub(super) fn read(system: &dyn System, path: &Path, most: usize) -> Result<String, ResctrlError> {
    let failed = |error: io::Error| ResctrlError::system(path, Action::Read, &error);
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let file = system.open(path, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
    FileReader(file.as_ref()).take(limit).read_to_end(&mut bytes).map_err(failed)?;
    text(path, bytes, most)
}

/// As [`read`]; `None` if the file does not exist. The caller checks whether its group exists.
pub(super) fn read_if_there(system: &dyn System, path: &Path) -> Result<Option<String>, ResctrlError> {
    match read(system, path, MOST_BYTES) {
        Err(error) if error.errno == Some(libc::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

fn text(path: &Path, bytes: Vec<u8>, most: usize) -> Result<String, ResctrlError> {
    if bytes.len() > most {
        return Err(ResctrlError::malformed(path, format!("it is longer than {most} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| ResctrlError::malformed(path, "it is not UTF-8 text"))
}

/// Opens a file for commands. `O_TRUNC` and `O_CREAT` have no effect on these files and are left out.
pub(super) fn open_for_commands(system: &dyn System, path: &Path) -> io::Result<Box<dyn OpenFile>> {
    system.open(path, OFlags::WRONLY, Mode::empty())
}

/// Writes one command to an open file with one write(2); the kernel takes all of it or none.
pub(super) fn command(file: &dyn OpenFile, text: &str) -> io::Result<()> {
    match file.write(text.as_bytes())? {
        taken if taken == text.len() => Ok(()),
        taken => Err(io::Error::other(format!("the kernel took only {taken} of {} bytes", text.len()))),
    }
}

/// A file that is read at every interval: a [`Handle`] with resctrl's errors. After its group is removed a read fails
/// with ENODEV, which is [`super::error::ResctrlErrorKind::Gone`].
#[derive(Debug)]
pub struct HeldFile(Handle);

impl HeldFile {
    /// Opens a file for repeated reads.
    pub(super) fn open(system: &SharedSystem, path: PathBuf) -> Result<HeldFile, ResctrlError> {
        Root::on(system.clone(), "/").open_read(&path).map(HeldFile).map_err(|error| reported(&path, &error))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the single line of a counter. One system call unless the file is returned in pieces.
    pub(super) fn read_line<'a>(&self, buffer: &'a mut [u8; 64]) -> Result<&'a str, ResctrlError> {
        let mut filled = 0;
        while filled < buffer.len() && !buffer[..filled].contains(&b'\n') {
            match self.pread(&mut buffer[filled..], filled)? {
                0 => break,
                more => filled += more,
            }
        }
        std::str::from_utf8(&buffer[..filled])
            .map_err(|_| ResctrlError::malformed(self.path(), "it is not UTF-8 text"))
    }

    /// Reads the whole file.
    pub(super) fn read_all(&self) -> Result<String, ResctrlError> {
        // kernfs returns at most one page at a time.
        let mut bytes = vec![0; 4096];
        let mut filled = 0;
        loop {
            let room = bytes.len() - filled;
            let more = self.pread(&mut bytes[filled..], filled)?;
            filled += more;
            // kernfs fills the buffer as long as there is text. A short read that ends with a newline was the last one;
            // this saves a system call per group and interval.
            let is_last = more < room && bytes[..filled].last() == Some(&b'\n');
            if more == 0 || is_last || filled > MOST_BYTES {
                break;
            }
            if filled == bytes.len() {
                bytes.resize(filled * 2, 0);
            }
        }
        bytes.truncate(filled);
        text(self.path(), bytes, MOST_BYTES)
    }

    fn pread(&self, buffer: &mut [u8], offset: usize) -> Result<usize, ResctrlError> {
        self.0.read_at(buffer, offset as u64).map_err(|error| reported(self.path(), &error))
    }
}

fn reported(path: &Path, error: &FileError) -> ResctrlError {
    let cause = error.errno().map_or_else(|| io::Error::other(error.to_string()), io::Error::from);
    ResctrlError::system(path, Action::Read, &cause)
}

#[cfg(test)]
mod tests {
    use super::super::error::ResctrlErrorKind;
    use super::*;
    use crate::system;

    #[test]
    fn files_without_end_and_without_text_are_reported() {
        let endless = read(&*system::real(), Path::new("/dev/zero"), 64).unwrap_err();
        assert_eq!(endless.kind, ResctrlErrorKind::Malformed);
        assert!(endless.to_string().contains("longer than 64 bytes"), "{endless}");
        let held = HeldFile::open(&system::real(), "/dev/zero".into()).unwrap();
        assert_eq!(held.read_all().unwrap_err().kind, ResctrlErrorKind::Malformed);
        assert_eq!(held.read_line(&mut [0; 64]).unwrap(), "\0".repeat(64));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert!(read(&*system::real(), &path, 64).unwrap_err().to_string().contains("not UTF-8 text"));
        assert_eq!(read_if_there(&*system::real(), &dir.path().join("y")), Ok(None));
    }

    #[test]
    fn a_held_file_shows_the_present_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "1\n").unwrap();
        let held = HeldFile::open(&system::real(), path.clone()).unwrap();
        assert_eq!(held.read_line(&mut [0; 64]).unwrap(), "1\n");
        std::fs::write(&path, "25\n".repeat(3000)).unwrap();
        assert_eq!(held.read_all().unwrap().len(), 9000);
    }
}
