//! One small file for one subject: its text, or why there is none.
//!
//! A file that cannot be read or makes no sense is an answer here and never the end of the examination.

use crate::content::ContentError;
use crate::root::Root;

/// What came of reading a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum File {
    /// Its text.
    Text(String),
    /// There is no such file.
    Absent,
    /// There is one, and it cannot be read or is no text; the reason names it.
    Wrong(String),
}

/// A file of one line, without white space around it.
pub(super) fn line(root: &Root, path: &str) -> File {
    match text(root, path) {
        File::Text(text) if text.trim().lines().count() > 1 => {
            File::Wrong(format!("{}: has more than one line; expected one line", root.path(path).display()))
        }
        File::Text(text) => File::Text(text.trim().to_owned()),
        other => other,
    }
}

/// A file of any number of lines.
pub(super) fn text(root: &Root, path: &str) -> File {
    match root.read_optional(path) {
        Ok(Some(text)) => File::Text(text),
        Ok(None) => File::Absent,
        Err(error) => File::Wrong(error.to_string()),
    }
}

/// The words for content that makes no sense, cut so that a log is not flooded.
pub(super) fn odd(root: &Root, path: &str, found: &str, accepted: &str) -> String {
    ContentError::new(&root.path(path), 0, found.trim(), accepted).to_string()
}
