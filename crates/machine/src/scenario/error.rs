//! Errors in a scenario: one message that names file, key, value and what is accepted. Must not read scenarios.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use waykeeper_units::{Likeness, nearest, one_line};

/// A scenario that cannot be run. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {why}", one_line(&path.display().to_string()))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's message.
        why: std::io::Error,
    },
    /// Not TOML.
    #[error("{file}:{at} not valid TOML: {}", one_line(.why))]
    Syntax {
        /// File or built-in name.
        file: String,
        /// Line and column, as `12:5:`; empty if unknown.
        at: String,
        /// The parser's message.
        why: String,
    },
    /// An unknown key.
    #[error("{file}:{at} `{}` is not a key here{nearest}; known are {known}", one_line(.key))]
    UnknownKey {
        /// File or built-in name.
        file: String,
        /// Line, as `12:`; empty if unknown.
        at: String,
        /// Dotted key.
        key: String,
        /// `, did you mean ...` or empty.
        nearest: String,
        /// What is accepted.
        known: String,
    },
    /// An invalid value.
    #[error("{file}:{at} `{}` is {}; it must be {}", one_line(.key), one_line(.value), one_line(.wanted))]
    Value {
        /// File or built-in name.
        file: String,
        /// Line, as `12:`; empty if unknown.
        at: String,
        /// Dotted key.
        key: String,
        /// The value in the file.
        value: String,
        /// Accepted values.
        wanted: String,
    },
    /// A required key is missing.
    #[error("{file}:{at} `{}` is missing{}; it must be {wanted}", one_line(.key), one_line(.misspelt))]
    Missing {
        /// File or built-in name.
        file: String,
        /// Line of the table, as `12:`; empty if unknown.
        at: String,
        /// Dotted key.
        key: String,
        /// A similar key of the same table, which is probably a misspelling of this one, in words; empty if there is
        /// none.
        misspelt: String,
        /// Accepted values.
        wanted: String,
    },
    /// A chip file or name.
    #[error(transparent)]
    Chip(#[from] waykeeper_silicon::SpecError),
    /// A fio job file that the scenario names.
    #[error(transparent)]
    Job(#[from] waykeeper_load::jobs::JobError),
    /// A key that was set although the scenario sweeps it.
    #[error(
        "{file}: `{}` is swept over {}, and the sweep would replace the value that was set; set `sweep` to [] to run one value",
        one_line(.key), one_line(.values)
    )]
    Swept {
        /// File or built-in name.
        file: String,
        /// The swept key.
        key: String,
        /// Its values.
        values: String,
    },
    /// A key to be changed that the scenario does not have.
    #[error("{file}: `{}`: {}", one_line(.key), one_line(.why))]
    Nowhere {
        /// File or built-in name.
        file: String,
        /// The key as it was given.
        key: String,
        /// Which part of it does not exist, and similar names.
        why: String,
    },
    /// An error of a capture or trace, in the words of its reader; `Keys::named` adds file and key.
    #[error("{}", one_line(.0))]
    Input(String),
    /// An error of a capture or trace that the scenario names.
    #[error("{file}:{at} `{}`: {}{}", one_line(.key), one_line(.why), one_line(.relative))]
    NamedInput {
        /// File or built-in name.
        file: String,
        /// Line, as `12:`; empty if unknown.
        at: String,
        /// Dotted key.
        key: String,
        /// The message of the capture's or trace's reader.
        why: String,
        /// What the path is relative to, in words; empty for an absolute one.
        relative: String,
    },
    /// Working sets that do not fit simulated memory.
    #[error("{file}: {}: {why}", one_line(.workload))]
    Memory {
        /// File or built-in name.
        file: String,
        /// The workload that needs too much.
        workload: String,
        /// The sizes.
        why: waykeeper_silicon::OutOfMemory,
    },
    /// The observer of a simulation ended it.
    #[error("stopped")]
    Stopped,
}

impl ScenarioError {
    /// A capture or trace that could not be read; the reader's message names file and offset.
    pub fn input(error: impl Display) -> ScenarioError {
        ScenarioError::Input(error.to_string())
    }

    pub(crate) fn unreadable(path: &Path, why: std::io::Error) -> ScenarioError {
        ScenarioError::Unreadable { path: path.to_owned(), why }
    }
}

/// `12:5:` for the start of a span of bytes in `text`; empty if it is not known.
pub(crate) fn place(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return String::new();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{line}:{column}:")
}

/// The parser's message on one line; its limit on nesting with the number.
pub(crate) fn syntax(message: &str) -> String {
    // `LIMIT` of the crate `toml`, which names it in no message.
    if message.contains("recurs") {
        return "nested deeper than 80 levels".to_owned();
    }
    message.trim().replace('\n', "; ")
}

/// Words for a table that people use elsewhere, and its name in a scenario.
const ELSEWHERE: [(&str, &str); 10] = [
    ("nvme", "storage"),
    ("ssd", "storage"),
    ("disk", "storage"),
    ("drive", "storage"),
    ("network", "nic"),
    ("ethernet", "nic"),
    ("tenant", "workload"),
    ("program", "workload"),
    ("process", "workload"),
    ("vm", "workload"),
];

/// `, did you mean `x`` if one of `known` is another word for `word`, or similar to it.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let elsewhere = ELSEWHERE.iter().find(|(other, own)| *other == word && known.contains(own));
    elsewhere
        .map(|(_, own)| *own)
        .or_else(|| nearest(word, known, Likeness::JaroWinkler))
        .map_or_else(String::new, |candidate| format!(", did you mean `{candidate}`"))
}

/// Hint for a line whose value is a text without quotes, like `cores = 0-3`; empty for any other line.
pub(crate) fn quotes_hint(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let line = span.and_then(|span| text.get(..span.start)).and_then(|before| {
        let index = before.matches('\n').count();
        // The parser's position may be after the line's end.
        [Some(index), index.checked_sub(1)]
            .into_iter()
            .flatten()
            .find_map(|at| bare_value(text.lines().nth(at)?))
    });
    line.map_or_else(String::new, |(key, value)| match leading_number(value) {
        Some(number) => format!("; a number has no unit: {key} = {number}"),
        None => format!("; put text in quotes: {key} = {}", Value::String(value.to_owned())),
    })
}

/// The number with which a value such as `40Gb/s` begins; none where no unit follows, as in `0-3`, or the unit of a size.
fn leading_number(value: &str) -> Option<&str> {
    let end = value.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(value.len());
    let (number, rest) = value.split_at(end);
    let unit = rest.trim_start();
    let is_size =
        ["k", "m", "g", "kb", "mb", "gb", "kib", "mib", "gib"].contains(&unit.to_ascii_lowercase().as_str());
    let is_unit = unit.starts_with(|char: char| char.is_ascii_alphabetic()) && !is_size;
    (is_unit && number.parse::<f64>().is_ok()).then_some(number)
}

/// Key and value of a line that would be valid TOML with quotes around its value.
fn bare_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let bare = !value.is_empty() && !value.contains(['"', '\'', '[', '{', '=']);
    let wrong = || format!("{key} = {value}").parse::<Table>().is_err();
    let right = || format!("{key} = \"{value}\"").parse::<Table>().is_ok();
    (bare && wrong() && right()).then_some((key.trim(), value))
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn a_word_from_elsewhere_is_named_before_one_that_looks_like_it() {
        let tables = ["name", "nic", "storage", "workload"];
        assert_eq!(hint("nvme", tables), ", did you mean `storage`");
        assert_eq!(hint("tenant", tables), ", did you mean `workload`");
        // The keys of a table have no such word.
        assert_eq!(hint("nvme", ["name", "size"]), ", did you mean `name`");
        assert_eq!(hint("worklod", tables), ", did you mean `workload`");
    }
}
