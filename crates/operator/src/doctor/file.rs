//! Reads a small file for one check: its text, or why there is none.
//!
//! A file that cannot be read or parsed is a result here; it does not end the examination. Must not know what the
//! text means.

use waykeeper_kernel::content::ContentError;
use waykeeper_kernel::root::Root;

/// A file of one line, without white space around it; `None` if there is no such file.
///
/// # Errors
/// In words that name the file: it cannot be read, or has more than one line.
pub(super) fn line(root: &Root, path: &str) -> Result<Option<String>, String> {
    let text = text(root, path)?;
    if text.as_ref().is_some_and(|text| text.trim().lines().count() > 1) {
        return Err(format!("{}: has more than one line; expected one line", root.path(path).display()));
    }
    Ok(text.map(|text| text.trim().to_owned()))
}

/// A file of any number of lines; `None` if there is no such file.
///
/// # Errors
/// In words that name the file.
pub(super) fn text(root: &Root, path: &str) -> Result<Option<String>, String> {
    root.read_optional(path).map_err(|error| error.to_string())
}

/// The message about content that cannot be parsed; a long text is cut.
pub(super) fn odd(root: &Root, path: &str, found: &str, accepted: &str) -> String {
    ContentError::new(&root.path(path), 0, found.trim(), accepted).to_string()
}
