//! Parsers for the content of kernel files, and the one error for content that cannot be parsed.
//!
//! Every parser takes the text and the path of its file, so that an error names the file, the line, what was found
//! and what would have been accepted. Must not open a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use waykeeper_units::CoreList;

/// The content of a file cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{}: found {found:?}; expected {accepted}", path.display(), at_line(*line))]
pub struct ContentError {
    /// The file, with the root prefix.
    pub path: PathBuf,
    /// Line, counted from 1; 0 for the whole file.
    pub line: usize,
    /// The text found, cut to [`FOUND_MOST`] characters.
    pub found: String,
    /// What would have been accepted.
    pub accepted: String,
}

/// Most characters of a file's content that an error repeats: a root process can be pointed at any path, and its
/// errors are written to logs.
pub const FOUND_MOST: usize = 40;

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

impl ContentError {
    /// An error about a line (0: about the whole file).
    pub fn new(path: &Path, line: usize, found: &str, accepted: &str) -> ContentError {
        let mut short: String = found.chars().take(FOUND_MOST).collect();
        if short.len() < found.len() {
            short.push('…');
        }
        ContentError { path: path.to_owned(), line, found: short, accepted: accepted.to_owned() }
    }
}

/// A decimal number, with white space around it at most.
///
/// # Errors
/// Anything else, and numbers beyond 64 bits.
pub fn decimal(path: &Path, text: &str) -> Result<u64, ContentError> {
    decimal_at(path, 0, text)
}

/// [`decimal`] of one line.
///
/// # Errors
/// As [`decimal`].
pub fn decimal_at(path: &Path, line: usize, text: &str) -> Result<u64, ContentError> {
    let digits = text.trim();
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
        .ok_or_else(|| ContentError::new(path, line, digits, "a decimal number"))
}

/// [`decimal`] of at most `most`.
///
/// # Errors
/// Anything else.
pub fn decimal_up_to(path: &Path, text: &str, most: u64) -> Result<u64, ContentError> {
    let bad = || ContentError::new(path, 0, text.trim(), &format!("a number up to {most}"));
    Some(decimal(path, text)?).filter(|number| *number <= most).ok_or_else(bad)
}

/// Hexadecimal digits, with or without `0x`, as the kernel prints masks.
///
/// # Errors
/// Anything else, and numbers beyond 64 bits.
pub fn hex(path: &Path, text: &str) -> Result<u64, ContentError> {
    let found = text.trim();
    let digits = found.strip_prefix("0x").or_else(|| found.strip_prefix("0X")).unwrap_or(found);
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
        .ok_or_else(|| ContentError::new(path, 0, found, "a hexadecimal number like 7ff or 0x7ff"))
}

/// [`hex`] of at most `most`.
///
/// # Errors
/// Anything else.
pub fn hex_up_to(path: &Path, text: &str, most: u64) -> Result<u64, ContentError> {
    let bad = || ContentError::new(path, 0, text.trim(), &format!("a number up to {most:#x}"));
    Some(hex(path, text)?).filter(|number| *number <= most).ok_or_else(bad)
}

/// A list of CPUs, `0-3,8`; an empty file is the empty list.
///
/// # Errors
/// Anything else.
pub fn cpu_list(path: &Path, text: &str) -> Result<CoreList, ContentError> {
    let list = text.trim();
    if list.is_empty() {
        return Ok(CoreList::default());
    }
    list.parse().map_err(|_| ContentError::new(path, 0, list, "a list of CPUs like 0-3,8"))
}

/// A CPU mask in the kernel's form: groups of up to eight hexadecimal digits, the highest CPUs first, `ff,00000003`.
///
/// # Errors
/// Anything else, and masks of more than 4096 CPUs.
pub fn cpu_mask(path: &Path, text: &str) -> Result<CoreList, ContentError> {
    let mask = text.trim();
    let bad = || ContentError::new(path, 0, mask, "a CPU mask like ff,00000003");
    let groups: Vec<&str> = mask.split(',').collect();
    if groups.len() > 128 {
        return Err(bad());
    }
    let mut cores = Vec::new();
    for (place, group) in groups.iter().rev().enumerate() {
        let plain = !group.is_empty() && group.len() <= 8 && group.bytes().all(|b| b.is_ascii_hexdigit());
        let word = plain.then(|| u32::from_str_radix(group, 16).ok()).flatten().ok_or_else(bad)?;
        let first = place as u16 * 32;
        cores.extend(
            (0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| waykeeper_units::CoreId(first + bit)),
        );
    }
    Ok(cores.into())
}

/// Lines `key : value` or `key: value`. If a key occurs again, the first value is kept. Empty lines are skipped.
///
/// # Errors
/// A line without a colon.
pub fn key_values(path: &Path, text: &str) -> Result<BTreeMap<String, String>, ContentError> {
    let mut values = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let (key, value) =
            line.split_once(':').ok_or_else(|| ContentError::new(path, index + 1, line, "key: value"))?;
        values.entry(key.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path() -> &'static Path {
        Path::new("/sys/x")
    }

    #[test]
    fn reads_what_kernels_write() {
        assert_eq!(decimal(path(), "16\n"), Ok(16));
        assert_eq!(hex(path(), "7ff\n"), Ok(0x7ff));
        assert_eq!(hex(path(), "0x600"), Ok(0x600));
        assert_eq!(cpu_list(path(), "0-1,4\n").unwrap().to_string(), "0-1,4");
        assert!(cpu_list(path(), "\n").unwrap().is_empty());
        assert_eq!(cpu_mask(path(), "ff,00000003\n").unwrap().to_string(), "0-1,32-39");
        let values = key_values(path(), "model\t: 85\n\nflags : a b\nmodel : 1\n").unwrap();
        assert_eq!((values["model"].as_str(), values["flags"].as_str()), ("85", "a b"));
    }

    #[test]
    fn a_refusal_names_file_line_found_and_accepted() {
        let error = key_values(path(), "a: 1\nnonsense\n").unwrap_err();
        assert_eq!(error.to_string(), "/sys/x, line 2: found \"nonsense\"; expected key: value");
        let error = decimal(path(), "-1").unwrap_err();
        assert_eq!(error.to_string(), "/sys/x: found \"-1\"; expected a decimal number");
        for bad in ["", "+1", "1 2", "0x1", "18446744073709551616", "é"] {
            assert!(decimal(path(), bad).is_err(), "{bad}");
        }
        for bad in ["", "0x", "+f", "fg", "10000000000000000"] {
            assert!(hex(path(), bad).is_err(), "{bad}");
        }
        for bad in ["", "fffffffff", "1,,1", "g"] {
            assert!(cpu_mask(path(), bad).is_err(), "{bad}");
        }
        let long = hex(path(), &"z".repeat(500)).unwrap_err();
        assert_eq!(long.found.chars().count(), FOUND_MOST + 1, "errors do not repeat whole files");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn no_content_makes_a_parser_panic(text in "\\PC*|[0-9a-fx,:\\- \n]*") {
            let _ = (decimal(path(), &text), hex(path(), &text), cpu_list(path(), &text));
            let _ = (cpu_mask(path(), &text), key_values(path(), &text));
        }

        #[test]
        fn a_mask_says_what_a_list_says(cores in proptest::collection::btree_set(0u16..130, 0..20)) {
            let mut words = [0u32; 5];
            for &core in &cores {
                words[usize::from(core) / 32] |= 1 << (core % 32);
            }
            let text = words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",");
            let list: CoreList = cores.into_iter().map(waykeeper_units::CoreId).collect::<Vec<_>>().into();
            prop_assert_eq!(cpu_mask(path(), &text).unwrap(), list);
        }
    }
}
