//! Reads a small file for one check: its text, or why there is none.
//!
//! A file that cannot be read or parsed is a result here; it does not end the examination. Must not know what the
//! text means.

use crate::content::ContentError;
use crate::root::Root;

/// The result of reading a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum File {
    /// Its text.
    Text(String),
    /// The file does not exist.
    Absent,
    /// The file cannot be read or has the wrong form; the reason names it.
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

/// The message about content that cannot be parsed; a long text is cut.
pub(super) fn odd(root: &Root, path: &str, found: &str, accepted: &str) -> String {
    ContentError::new(&root.path(path), 0, found.trim(), accepted).to_string()
}
