//! Reads a kernel file and parses it in one step, so that every refusal names the file, what was found and what would
//! have been accepted.
//!
//! The parsers are in [`crate::content`]. Must not know what a value is used for.

use crate::content::{self, ContentError};
use crate::root::{FileError, Root};
use std::path::Path;
use waykeeper_units::CoreList;

impl Root {
    /// The content of a file, parsed.
    ///
    /// # Errors
    /// The kernel's refusal, or content that cannot be parsed.
    pub fn parsed<T>(
        &self,
        path: &str,
        parse: impl FnOnce(&Path, &str) -> Result<T, ContentError>,
    ) -> Result<T, FileError> {
        Ok(parse(&self.path(path), &self.read_text(path)?)?)
    }

    /// [`Root::parsed`], or `None` if there is no such file.
    ///
    /// # Errors
    /// As [`Root::parsed`].
    pub fn parsed_optional<T>(
        &self,
        path: &str,
        parse: impl FnOnce(&Path, &str) -> Result<T, ContentError>,
    ) -> Result<Option<T>, FileError> {
        let text = self.read_optional(path)?;
        Ok(text.map(|text| parse(&self.path(path), &text)).transpose()?)
    }

    /// A decimal number of at most `most`.
    ///
    /// # Errors
    /// As [`Root::parsed`].
    pub fn number(&self, path: &str, most: u64) -> Result<u64, FileError> {
        self.parsed(path, |path, text| content::decimal_up_to(path, text, most))
    }

    /// A list of CPUs; an empty file is the empty list.
    ///
    /// # Errors
    /// As [`Root::parsed`].
    pub fn cpu_list(&self, path: &str) -> Result<CoreList, FileError> {
        self.parsed(path, content::cpu_list)
    }

    /// Names in a directory, sorted; none if there is no such directory.
    ///
    /// # Errors
    /// Any other refusal of the kernel.
    pub fn list_existing(&self, path: &str) -> Result<Vec<String>, FileError> {
        match self.list(path) {
            Err(error) if error.is_absent() => Ok(Vec::new()),
            names => names,
        }
    }
}
