//! Reads a small text file that a person may have written or changed. The length is limited; an error is one line
//! that names the file, and the line where one is known.
//!
//! Must not know what the file contains.

use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use waykeeper_bounded_read as bounded_read;
use waykeeper_units::one_line;

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
pub enum TextFileError {
    /// It cannot be read or written.
    #[error("{}: {why}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// The content is wrong.
    #[error("{}:{line}: {}", file.display(), one_line(.why))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be accepted.
        why: String,
    },
}

impl TextFileError {
    /// The system's error.
    pub fn io(file: &Path, why: io::Error) -> TextFileError {
        TextFileError::Io { file: file.to_owned(), why }
    }

    /// An error at byte `at` of the file's text.
    pub fn wrong(file: &Path, text: &str, at: usize, why: impl Into<String>) -> TextFileError {
        TextFileError::Wrong { file: file.to_owned(), line: line_of(text, at), why: why.into() }
    }
}

/// The text of a file of at most [`bounded_read::TEXT_MOST`] bytes; `what` names the kind of file in the message about
/// one that is too long. Neither opening nor reading waits for the writer of a pipe: the daemon's control thread reads
/// files too.
///
/// # Errors
/// A file that cannot be read, is too long or is not UTF-8 text.
pub fn read(file: &Path, what: &str) -> Result<String, TextFileError> {
    let failed = |why| TextFileError::io(file, why);
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(file).map_err(failed)?;
    let bytes = bounded_read::bytes(opened, what, bounded_read::TEXT_MOST);
    bytes.and_then(bounded_read::utf8).map_err(failed)
}

/// The line, from 1, of byte `at` of a text.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_within_bounds_and_errors_name_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let said = || read(&file, "a list").unwrap_err().to_string();
        assert!(said().ends_with("/f: No such file or directory (os error 2)"));
        std::fs::write(&file, vec![b'\n'; (1 << 20) + 1]).unwrap();
        assert!(said().ends_with("/f: a list has at most 1048576 bytes, this file has more"));
        std::fs::write(&file, [0xff]).unwrap();
        assert!(said().ends_with("/f: not UTF-8 text from byte 0 on"));
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(&file, "a list").unwrap(), "text");
        let wrong = TextFileError::wrong(Path::new("p"), "a\nb\nc", 2, "no b");
        assert_eq!(wrong.to_string(), "p:2: no b");
        assert_eq!(line_of("a\n", 99), 2);
    }
}
