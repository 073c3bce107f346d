//! The file of a policy: which names on a command line mean one, and its text. Must not know Python.

use crate::PolicyFileError;
use crate::process::{Described, OWN_POLICY, PROGRAM};
use std::path::{Path, PathBuf};
use waykeeper_bounded_read as bounded_read;

/// A policy's file, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyFile {
    /// The file, as the user wrote it: messages begin with it.
    pub path: PathBuf,
    /// The class in it; `None` is its only one.
    pub class: Option<String>,
    /// Its text.
    pub text: String,
}

impl PolicyFile {
    /// Whether the name of a policy means a file: it has a `/` or ends in `.py`, without a class behind it.
    pub fn is_meant(name: &str) -> bool {
        name.contains('/') || PolicyFile::split(name).0.ends_with(".py")
    }

    /// `FILE.py:CLASS` as the file and the class, and any other text as a file.
    pub fn split(name: &str) -> (&str, Option<&str>) {
        let is_class = |class: &str| class.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        match name.rsplit_once(':') {
            Some((path, class)) if path.ends_with(".py") && !class.is_empty() && is_class(class) => {
                (path, Some(class))
            }
            _ => (name, None),
        }
    }

    /// Reads the file that such a name means.
    ///
    /// # Errors
    /// A file that cannot be read, is too long or is not text.
    pub fn read(name: &str) -> Result<PolicyFile, PolicyFileError> {
        let (path, class) = PolicyFile::split(name);
        let path = Path::new(path);
        let text = bounded_read::text(path, "a policy")
            .map_err(|why| PolicyFileError::Read { path: path.to_owned(), why })?;
        Ok(PolicyFile { path: path.to_owned(), class: class.map(str::to_owned), text })
    }

    /// What determines its decisions, as one text; `None` if it imported more than Python's and installed modules.
    pub fn identity(&self, described: &Described) -> Option<String> {
        let class = self.class.as_deref().unwrap_or_default();
        let texts = [PROGRAM, OWN_POLICY, class, &self.text];
        // With their lengths, so that the border between two texts counts.
        let texts = texts.map(|text| format!("{} {text}", text.len()));
        (!described.imports_beside).then(|| texts.concat())
    }

    /// Its name for messages.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slash_or_the_ending_py_means_a_file() {
        for (name, meant) in [
            ("a4", false),
            ("mine", false),
            ("mine.py", true),
            ("./mine", true),
            ("mine.py:Corner", true),
            ("mine.py:", false),
            ("/etc/waykeeper/mine.py", true),
        ] {
            assert_eq!(PolicyFile::is_meant(name), meant, "{name}");
        }
    }

    #[test]
    fn a_class_follows_a_colon() {
        assert_eq!(PolicyFile::split("a/mine.py:Corner"), ("a/mine.py", Some("Corner")));
        assert_eq!(PolicyFile::split("a:b/mine.py"), ("a:b/mine.py", None));
        assert_eq!(PolicyFile::split("a/b:c"), ("a/b:c", None));
        assert_eq!(PolicyFile::split("mine.py:not a class"), ("mine.py:not a class", None));
    }
}
