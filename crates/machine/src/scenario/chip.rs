//! The chip that a name means: a built-in one, or the file at that path. Must not know any other key of a scenario.

use super::error::{ScenarioError, hint};
use std::borrow::Cow;
use std::path::Path;
use waykeeper_silicon::{ChipSpec, SpecError};

/// A chip with the file that describes it.
#[derive(Clone, Debug)]
pub struct ChipFile {
    /// The chip.
    pub spec: ChipSpec,
    /// The text of its file.
    pub text: Cow<'static, str>,
}

impl ChipFile {
    /// The built-in chip of this name, or the chip of the file at this path if it has a slash or ends in `.toml`;
    /// a path is relative to `folder`, or without one to the current directory.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be read or is not a chip.
    pub fn open(name: &str, folder: Option<&Path>) -> Result<ChipFile, ScenarioError> {
        if !(name.ends_with(".toml") || name.contains('/')) {
            let spec = ChipSpec::built_in(name)?;
            let text = ChipSpec::built_in_text(name).unwrap_or_default();
            return Ok(ChipFile { spec, text: Cow::Borrowed(text) });
        }
        let path = folder.map_or_else(|| Path::new(name).to_owned(), |folder| folder.join(name));
        ChipFile::read(&path)
    }

    /// The chip of the file at this path.
    ///
    /// # Errors
    /// A file that cannot be read or is not a chip.
    pub fn read(path: &Path) -> Result<ChipFile, ScenarioError> {
        let text = waykeeper_bounded_read::text(path, "a chip file")
            .map_err(|why| ScenarioError::unreadable(path, why))?;
        let spec = ChipSpec::parse(&path.display().to_string(), &text)?;
        Ok(ChipFile { spec, text: Cow::Owned(text) })
    }
}

/// What the key `chip` may be, for the message about `name`; none if the error is not about the name.
pub(super) fn wanted(error: &ScenarioError, name: &str) -> Option<String> {
    let ScenarioError::Chip(SpecError::Unknown { known, .. }) = error else { return None };
    let near = hint(name, ChipSpec::built_in_names());
    Some(format!("one of {known}, or the path of a chip file (*.toml){near}"))
}
