//! Names a group: the default one, a control group, or a monitoring group of either.
//!
//! A group's name is the name of its directory. It must not know what the directory contains.

use serde::{Deserialize, Deserializer, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Directories in the root of the mount that are not groups.
const RESERVED: [&str; 3] = ["info", "mon_groups", "mon_data"];
/// Longest file name (NAME_MAX).
const LONGEST: usize = 255;

/// The bytes of a directory's name that are no text are characters from here on, U+F7FF for 0xff. These characters are for
/// private use; where a name has one itself, its bytes are written so too.
const BYTES: u32 = 0xf700;

/// A directory's name as a group's name.
pub(super) fn as_text(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            match byte_of(letter) {
                None => text.push(letter),
                Some(_) => text.extend(letter.encode_utf8(&mut [0; 4]).bytes().filter_map(letter_of)),
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(letter_of));
    }
    text
}

/// The directory's name of a group's name.
fn as_file_name(text: &str) -> OsString {
    let mut bytes = Vec::new();
    for letter in text.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes)
}

fn letter_of(byte: u8) -> Option<char> {
    char::from_u32(BYTES + u32::from(byte))
}

fn byte_of(letter: char) -> Option<u8> {
    u32::from(letter).checked_sub(BYTES).and_then(|byte| u8::try_from(byte).ok())
}

/// A name for a message. Other programs choose their names freely: what a terminal would obey is escaped.
fn shown(name: &str) -> String {
    let letter = |letter: char| match byte_of(letter) {
        Some(byte) => format!("\\x{byte:02x}"),
        None => letter.to_string(),
    };
    waykeeper_units::one_line(&name.chars().map(letter).collect::<String>())
}

/// A group, named by its path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The control group; `None` is the default group.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "name")]
    control: Option<String>,
    /// The monitoring group in it; `None` is the control group itself.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "name")]
    monitor: Option<String>,
}

impl Group {
    /// The default group: CLOSID 0, always present.
    pub const DEFAULT: Group = Group { control: None, monitor: None };

    /// A control group of this name.
    ///
    /// # Errors
    /// If no directory of that name could be a group.
    pub fn control(name: &str) -> Result<Group, String> {
        Ok(Group { control: Some(check(name)?), monitor: None })
    }

    /// A monitoring group of this name in this group's control group.
    ///
    /// # Errors
    /// If no directory of that name could be a group.
    pub fn monitor(&self, name: &str) -> Result<Group, String> {
        Ok(Group { control: self.control.clone(), monitor: Some(check(name)?) })
    }

    /// True for the default group itself.
    pub fn is_default(&self) -> bool {
        *self == Group::DEFAULT
    }

    /// True for a monitoring group, which has no schemata of its own.
    pub fn is_monitor(&self) -> bool {
        self.monitor.is_some()
    }

    /// The control group that it is or belongs to.
    pub fn parent(&self) -> Group {
        Group { control: self.control.clone(), monitor: None }
    }

    /// Its own name; empty for the default group.
    pub fn name(&self) -> &str {
        self.monitor.as_deref().or(self.control.as_deref()).unwrap_or("")
    }

    /// Its directory below the mount.
    pub fn directory(&self, mount: &Path) -> PathBuf {
        let mut path = mount.to_path_buf();
        path.extend(self.control.as_deref().map(as_file_name));
        if let Some(name) = &self.monitor {
            path.push("mon_groups");
            path.push(as_file_name(name));
        }
        path
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.control.as_deref().map(shown), self.monitor.as_deref().map(shown)) {
            (None, None) => f.write_str("(default)"),
            (Some(control), None) => f.write_str(&control),
            (None, Some(monitor)) => write!(f, "mon_groups/{monitor}"),
            (Some(control), Some(monitor)) => write!(f, "{control}/mon_groups/{monitor}"),
        }
    }
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    name.map(|name| check(&name)).transpose().map_err(serde::de::Error::custom)
}

/// Checks a group's name. A damaged journal could contain any text, and a name with a slash would be another path.
fn check(name: &str) -> Result<String, String> {
    let plain = !name.is_empty() && as_file_name(name).len() <= LONGEST && !name.contains(['/', '\n', '\0']);
    if plain && name != "." && name != ".." && !RESERVED.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "`{}` cannot be the name of a group; a name has 1 to {LONGEST} bytes without `/` and newline, and is \
         not one of {}",
        super::error::shown(name),
        RESERVED.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_directory() {
        let at = |group: &Group| group.directory(Path::new("/m")).display().to_string();
        let control = Group::control("wk-a b").unwrap();
        assert_eq!(at(&Group::DEFAULT), "/m");
        assert_eq!(at(&control), "/m/wk-a b");
        assert_eq!(at(&control.monitor("m1").unwrap()), "/m/wk-a b/mon_groups/m1");
        assert_eq!(at(&Group::DEFAULT.monitor("m1").unwrap()), "/m/mon_groups/m1");
        assert_eq!(control.monitor("m1").unwrap().parent(), control);
        assert!(!Group::DEFAULT.monitor("m1").unwrap().is_default());
    }

    #[test]
    fn a_name_that_is_no_text_leads_to_its_directory_and_is_shown_escaped() {
        let names: [(&[u8], &str); 4] = [
            (b"bad\xff\xfename", r"bad\xff\xfename"),
            (b"\x1b[31mred", r"\u{1b}[31mred"),
            // A character of those that stand for bytes, which is valid text itself.
            ("\u{f7ff}x".as_bytes(), r"\xef\x9f\xbfx"),
            ("a b ä☃".as_bytes(), "a b ä☃"),
        ];
        for (name, wanted) in names {
            let name = OsStr::from_bytes(name);
            let group = Group::control(&as_text(name)).unwrap();
            assert_eq!(group.directory(Path::new("/m")), Path::new("/m").join(name));
            assert_eq!(group.to_string(), wanted);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", "a/b", "../x", "a\nb", "info", "mon_groups", "mon_data", &"x".repeat(256)]
        {
            assert!(Group::control(name).is_err(), "{name:?}");
        }
        assert!(Group::control(&"x".repeat(255)).is_ok());
    }
}
