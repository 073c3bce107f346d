//! Reads files that a user names: no more bytes than a bound, and no wait for a pipe without a writer.
//!
//! A file's size is no bound, since a pipe and a device report 0 and a file may grow, so the bound is on the bytes that
//! are read. An error is an [`io::Error`] that names the bound; the caller adds the file's name. docs/limits.md lists
//! the bounds of all readers. Must not know what a file contains.

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest text file that a person writes, bytes: scenarios, chips, job files, tenants, profiles. The longest that we
/// have, a list of a thousand tenants, has 200 KiB. Parsed TOML takes up to 150 bytes for each byte of text.
pub const TEXT_MOST: u64 = 1 << 20;

/// A file that was opened for reading.
#[derive(Debug)]
pub struct OpenedFile {
    /// The first byte of a pipe, which was read to see whether it has a writer.
    first: Cursor<Vec<u8>>,
    file: File,
    is_device: bool,
}

impl OpenedFile {
    /// True for a device, which may have no end.
    pub fn is_device(&self) -> bool {
        self.is_device
    }
}

impl Read for OpenedFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.first.read(into)? {
            0 => self.file.read(into),
            bytes => Ok(bytes),
        }
    }
}

/// Opens a file, device or pipe. Does not wait for a writer: a pipe that no process has open for writing is refused,
/// one with a slow writer is read to its end.
///
/// # Errors
/// The system's error; also for a directory, and for a pipe without a writer.
pub fn open(path: &Path) -> io::Result<OpenedFile> {
    let mut file =
        File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    let mut first = Vec::new();
    match kind {
        FileType::Directory => return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory")),
        FileType::Fifo => {
            let mut byte = [0];
            match file.read(&mut byte) {
                Ok(0) => return Err(io::Error::other("it is a pipe without a writer, or an empty one")),
                Ok(_) => first.extend(byte),
                // It has a writer, which has written nothing so far.
                Err(why) if why.kind() == ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
        }
        _ => {}
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
    Ok(OpenedFile { first: Cursor::new(first), file, is_device })
}

/// A reader that fails where its input is longer than a bound; for input that is read as a stream.
#[derive(Debug)]
pub struct UpTo<R> {
    reader: R,
    most: u64,
    left: u64,
}

impl<R> UpTo<R> {
    /// A reader of at most `most` bytes.
    pub fn new(reader: R, most: u64) -> UpTo<R> {
        UpTo { reader, most, left: most }
    }
}

impl<R: Read> Read for UpTo<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !into.is_empty() {
            return match self.reader.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(too_long("it", self.most)),
            };
        }
        let room = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let bytes = self.reader.read(&mut into[..room])?;
        self.left -= bytes as u64;
        Ok(bytes)
    }
}

fn too_long(what: &str, most: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("{what} has at most {most} bytes, this file has more"))
}

/// All bytes of a reader, if they are at most `most`; `what` names the kind of file in the message, as "a scenario".
///
/// # Errors
/// The reader's error, or that there are more bytes: the kind is [`ErrorKind::FileTooLarge`].
pub fn bytes(reader: impl Read, what: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(too_long(what, most));
    }
    Ok(bytes)
}

/// The text of a file of at most [`TEXT_MOST`] bytes; `what` names the kind of file in the message, as "a scenario".
///
/// # Errors
/// As [`open`] and [`bytes`]; also if it is not UTF-8 text.
pub fn text(path: &Path, what: &str) -> io::Result<String> {
    utf8(bytes(open(path)?, what, TEXT_MOST)?)
}

/// Bytes as text.
///
/// # Errors
/// The first byte that is not UTF-8 text.
pub fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|why| {
        let why = format!("not UTF-8 text from byte {} on", why.utf8_error().valid_up_to());
        io::Error::new(ErrorKind::InvalidData, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::io::Write;
    use std::path::PathBuf;

    fn reported(path: &Path) -> String {
        text(path, "a list").unwrap_err().to_string()
    }

    fn pipe(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("pipe");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        path
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![b'\n'; TEXT_MOST as usize]).unwrap();
        assert_eq!(text(file.path(), "a list").unwrap().len() as u64, TEXT_MOST);
        std::fs::write(file.path(), vec![b'\n'; TEXT_MOST as usize + 1]).unwrap();
        assert_eq!(reported(file.path()), "a list has at most 1048576 bytes, this file has more");
        assert_eq!(reported(Path::new("/dev/zero")), "a list has at most 1048576 bytes, this file has more");
        std::fs::write(file.path(), [b'a', 0xff]).unwrap();
        assert_eq!(reported(file.path()), "not UTF-8 text from byte 1 on");
        assert_eq!(reported(Path::new("/")), "it is a directory");
    }

    /// A reader that never ends, as a file that grows while it is read.
    #[test]
    fn a_reader_without_an_end_is_read_to_the_bound_and_no_further() {
        let mut read = 0;
        let endless = |into: &mut [u8]| {
            into.fill(b'a');
            read += into.len();
            Ok(into.len())
        };
        struct Endless<F>(F);
        impl<F: FnMut(&mut [u8]) -> io::Result<usize>> Read for Endless<F> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                (self.0)(into)
            }
        }
        let error = bytes(Endless(endless), "a list", 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(read, 101);
    }

    #[test]
    fn a_stream_ends_at_its_bound_with_an_error_and_before_it_without() {
        let read = |most| {
            let mut text = String::new();
            UpTo::new("abc".as_bytes(), most).read_to_string(&mut text).map(|_| text)
        };
        assert_eq!((read(3).unwrap(), read(4).unwrap()), ("abc".to_owned(), "abc".to_owned()));
        let error = read(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has at most 2 bytes, this file has more");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_not_waited_for_without_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(&folder);
        assert_eq!(reported(&path), "it is a pipe without a writer, or an empty one");
        // The writer opens the pipe at once and writes later than the reader reads.
        let mut writer = File::options().read(true).write(true).open(&path).unwrap();
        let opened = open(&path).unwrap();
        assert!(!opened.is_device());
        let reader = std::thread::spawn(move || bytes(opened, "a list", 100).unwrap());
        writer.write_all(b"late").unwrap();
        drop(writer);
        assert_eq!(reader.join().unwrap(), b"late");
        // What the writer wrote before the pipe was opened is not lost.
        let mut writer = File::options().read(true).write(true).open(&path).unwrap();
        writer.write_all(b"early").unwrap();
        let opened = open(&path).unwrap();
        drop(writer);
        assert_eq!(bytes(opened, "a list", 100).unwrap(), b"early");
    }

    #[test]
    fn a_device_says_that_it_is_one() {
        assert!(open(Path::new("/dev/zero")).unwrap().is_device());
        assert!(!open(Path::new("/proc/self/status")).unwrap().is_device());
    }
}
