//! Reader for the keys of one table of a scenario: each key is read with its range, and unread keys are refused.
//!
//! Knows TOML values and error messages; must not know the meaning of any key.

use super::error::{ScenarioError, hint};
use super::inputs::InputFiles;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use waykeeper_silicon::Pages;
use waykeeper_units::{CoreList, Likeness, Unit, WayMask, most_alike, parse_size};

/// A key with a similarity above this to a missing key counts as a misspelling of it (ours; `hint` requires less,
/// because its key is known to be wrong).
const MISSPELT: f64 = 0.85;

/// Latest time that a scenario may name, seconds: a day (ours).
pub const LATEST_S: f64 = 86_400.0;
/// Shortest run, seconds of the server's clock: an interval of the shortest length.
pub const SHORTEST_RUN_S: f64 = 0.001;

/// The file of a table, for messages and for relative paths.
#[derive(Clone, Debug)]
pub(crate) struct Origin<'a> {
    pub file: &'a str,
    /// Text of the file, to find lines in.
    pub text: &'a str,
    /// The folder that paths in the scenario are relative to.
    pub folder: Option<&'a Path>,
    /// Captures and traces that were read.
    pub inputs: &'a InputFiles,
}

/// A table being read.
#[derive(Debug)]
pub struct Keys<'a> {
    origin: Origin<'a>,
    table: &'a Table,
    /// Dotted path of the table, with a trailing dot; empty at the top.
    path: String,
    /// First line of the table in the file, 1-based, if it was found.
    first_line: Option<usize>,
    asked: RefCell<BTreeSet<String>>,
    /// The last key that was read as a path, and its value.
    path_key: Option<(String, String)>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(
        origin: Origin<'a>,
        table: &'a Table,
        path: &str,
        first_line: Option<usize>,
    ) -> Keys<'a> {
        let path = if path.is_empty() { String::new() } else { format!("{path}.") };
        Keys { origin, table, path, first_line, asked: RefCell::default(), path_key: None }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.table.get(key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The value of a former key, which error messages do not list.
    pub(crate) fn former(&self, key: &str) -> Option<&'a Value> {
        self.table.get(key)
    }

    /// The error for an invalid value.
    pub fn refuse(&self, key: &str, value: &dyn Display, wanted: &str) -> ScenarioError {
        ScenarioError::Value {
            file: self.origin.file.to_owned(),
            at: self.line_of(key),
            key: format!("{}{key}", self.path),
            value: value.to_string(),
            wanted: wanted.to_owned(),
        }
    }

    pub(crate) fn missing(&self, key: &str, wanted: &str) -> ScenarioError {
        ScenarioError::Missing {
            file: self.origin.file.to_owned(),
            at: self.first_line.map_or_else(String::new, |line| format!("{line}:")),
            key: format!("{}{key}", self.path),
            misspelt: self.misspelt(key),
            wanted: wanted.to_owned(),
        }
    }

    /// A hint for a missing key: an unread key with a similar name.
    fn misspelt(&self, missing: &str) -> String {
        let asked = self.asked.borrow();
        let left = self.table.keys().map(String::as_str).filter(|key| !asked.contains(*key));
        let near =
            most_alike(missing, left, Likeness::JaroWinkler).filter(|(_, likeness)| *likeness > MISSPELT);
        near.map_or_else(String::new, |(key, _)| {
            format!(" (`{key}` is not a key here, did you mean `{missing}`?)")
        })
    }

    /// Adds file and key to an error of a capture's or trace's reader; returns any other error unchanged.
    pub(crate) fn named(&self, error: ScenarioError) -> ScenarioError {
        let (ScenarioError::Input(why), Some((key, path))) = (&error, &self.path_key) else { return error };
        // Without a folder, the path is relative to the current directory.
        let here = || std::env::current_dir().unwrap_or_default();
        let folder = self.origin.folder.map_or_else(here, |folder| here().join(folder));
        let relative = match Path::new(path).is_absolute() {
            true => String::new(),
            false => format!(" (`{path}` is relative to {})", folder.display()),
        };
        ScenarioError::NamedInput {
            file: self.origin.file.to_owned(),
            at: self.line_of(key),
            key: format!("{}{key}", self.path),
            why: why.clone(),
            relative,
        }
    }

    /// `12:`, the line that assigns `key`, between the table's header and the next header.
    pub(crate) fn line_of(&self, key: &str) -> String {
        let header = format!("[{}]", self.header_path().trim_end_matches('.'));
        let lines = || self.origin.text.lines().map(str::trim_start).enumerate();
        // If the table's line is unknown: from the table's header if the file has one, otherwise from the top.
        let after =
            self.first_line.or_else(|| Some(lines().find(|(_, line)| line.starts_with(&header))?.0 + 1));
        let mut inside = lines().skip(after.unwrap_or(0)).take_while(|(_, line)| !line.starts_with('['));
        let found = inside.find(|(_, line)| {
            let rest = line.strip_prefix(key).map(str::trim_start);
            rest.is_some_and(|rest| rest.starts_with('='))
        });
        // If the key is a table, the line of its header.
        let path = self.header_path();
        let heads = [format!("[{path}{key}]"), format!("[[{path}{key}]]")];
        let found =
            found.or_else(|| lines().find(|(_, line)| heads.iter().any(|head| line.starts_with(head))));
        found.map_or_else(String::new, |(index, _)| format!("{}:", index + 1))
    }

    /// A number in a range, or the default `usual`.
    ///
    /// # Errors
    /// Anything that is not a number in the range.
    pub fn number(
        &mut self,
        key: &str,
        range: RangeInclusive<f64>,
        usual: f64,
    ) -> Result<f64, ScenarioError> {
        Ok(self.optional_number(key, range)?.unwrap_or(usual))
    }

    /// A number in a range, if the key is there.
    ///
    /// # Errors
    /// Anything that is not a number in the range.
    pub fn optional_number(
        &mut self,
        key: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = match value {
            Value::Integer(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        };
        let wanted = || {
            let (least, most, unit) = (range.start(), range.end(), Unit::of_key(key));
            let meant =
                number.map(|number| unit.meant(number, |here| range.contains(&here))).unwrap_or_default();
            format!("a number from {least} to {most}{}{meant}", unit.after_number())
        };
        match number.filter(|n| range.contains(n)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(key, value, &wanted())),
        }
    }

    /// A whole number in a range, or the default `usual`.
    ///
    /// # Errors
    /// Anything that is not a whole number in the range.
    pub fn count(&mut self, key: &str, range: RangeInclusive<u32>, usual: u32) -> Result<u32, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(usual);
        };
        let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
        let wanted = || {
            let (least, most, unit) = (range.start(), range.end(), Unit::of_key(key));
            let whole =
                |here: f64| here.fract() == 0.0 && (f64::from(*least)..=f64::from(*most)).contains(&here);
            let given = value.as_integer().map(|given| given as f64).or(value.as_float());
            let meant = given.map(|given| unit.meant(given, whole)).unwrap_or_default();
            format!("a whole number from {least} to {most}{}{meant}", unit.after_number())
        };
        number.filter(|n| range.contains(n)).ok_or_else(|| self.refuse(key, value, &wanted()))
    }

    /// A size like `4 MiB` or a number of bytes, or the default `usual`.
    ///
    /// # Errors
    /// Anything that is not a size in the range.
    pub fn size(&mut self, key: &str, range: RangeInclusive<u64>, usual: u64) -> Result<u64, ScenarioError> {
        if self.has(key) { self.required_size(key, range) } else { Ok(usual) }
    }

    /// A required size.
    ///
    /// # Errors
    /// A missing key, or anything that is not a size in the range.
    pub fn required_size(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<u64, ScenarioError> {
        let wanted = || {
            let (least, most) = (size(*range.start()), size(*range.end()));
            format!("a size from {least} to {most}: bytes, or a number with KiB, MiB or GiB")
        };
        let value = self.get(key).ok_or_else(|| self.missing(key, &wanted()))?;
        let bytes = match value {
            Value::Integer(n) => u64::try_from(*n).ok(),
            Value::String(text) => parse_size(text).ok(),
            _ => None,
        };
        bytes.filter(|b| range.contains(b)).ok_or_else(|| self.refuse(key, value, &wanted()))
    }

    /// A text, if the key is there.
    ///
    /// # Errors
    /// Anything that is not a text.
    pub fn optional_text(&mut self, key: &str) -> Result<Option<String>, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let text = value.as_str().ok_or_else(|| self.refuse(key, value, "a text in quotes"))?;
        Ok(Some(text.to_owned()))
    }

    /// A required text, which is not blank.
    ///
    /// # Errors
    /// A missing key, or anything that is not a text.
    pub(crate) fn required_text(&mut self, key: &str, wanted: &str) -> Result<String, ScenarioError> {
        let text = self.optional_text(key)?.ok_or_else(|| self.missing(key, wanted))?;
        if text.trim().is_empty() {
            return Err(self.refuse(key, &format!("{text:?}"), wanted));
        }
        Ok(text)
    }

    /// One of `words`, or the default `usual`.
    ///
    /// # Errors
    /// Anything else.
    pub fn choice(&mut self, key: &str, words: &[&str], usual: &str) -> Result<String, ScenarioError> {
        if self.has(key) { self.required_choice(key, words) } else { Ok(usual.to_owned()) }
    }

    /// One of `words`; required.
    ///
    /// # Errors
    /// A missing key, or anything else.
    pub fn required_choice(&mut self, key: &str, words: &[&str]) -> Result<String, ScenarioError> {
        let wanted = format!("one of {}", words.join(", "));
        let text = self.required_text(key, &wanted)?;
        if words.contains(&text.as_str()) {
            return Ok(text);
        }
        let near = hint(&text, words.iter().copied());
        Err(self.refuse(key, &format!("`{text}`{near}"), &wanted))
    }

    /// `pages`: which physical memory a program or a device gets.
    ///
    /// # Errors
    /// Anything but the name of a kind.
    pub fn pages(&mut self) -> Result<Option<Pages>, ScenarioError> {
        if !self.has("pages") {
            return Ok(None);
        }
        let name = self.required_choice("pages", &Pages::NAMED.map(|(name, _)| name))?;
        Ok(Pages::NAMED.into_iter().find_map(|(named, pages)| (named == name).then_some(pages)))
    }

    /// A path, relative to the scenario's folder; required.
    ///
    /// # Errors
    /// A missing key, or anything that is not a text.
    pub fn required_path(&mut self, key: &str) -> Result<PathBuf, ScenarioError> {
        let text = self.required_text(key, "the path of a file")?;
        self.path_key = Some((key.to_owned(), text.clone()));
        Ok(match self.origin.folder {
            Some(folder) => folder.join(text),
            None => PathBuf::from(text),
        })
    }

    pub(crate) fn flag(&mut self, key: &str, usual: bool) -> Result<bool, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(usual);
        };
        value.as_bool().ok_or_else(|| self.refuse(key, value, "true or false"))
    }

    /// A valid way mask for a chip with `ways` ways and masks of at least `min_ways`, with holes if `may_have_holes`, if the
    /// key is there.
    pub(crate) fn mask(
        &mut self,
        key: &str,
        ways: u32,
        min_ways: u32,
        may_have_holes: bool,
    ) -> Result<Option<WayMask>, ScenarioError> {
        // TOML's own hex numbers are accepted as well.
        let text = match self.get(key) {
            Some(Value::Integer(bits)) => format!("{bits:#x}"),
            _ => match self.optional_text(key)? {
                Some(text) => text,
                None => return Ok(None),
            },
        };
        let mask = WayMask::parse(&text, ways);
        let mask = mask.and_then(|mask| mask.check_on(ways, min_ways, may_have_holes));
        mask.map(Some).map_err(|why| {
            let kind = if may_have_holes { "" } else { "contiguous " };
            let wanted = format!("{kind}ways of 0x{:x} ({why})", WayMask::full(ways).bits());
            self.refuse(key, &format!("`{text}`"), &wanted)
        })
    }

    pub(crate) fn cores(&mut self, key: &str, count: u32) -> Result<CoreList, ScenarioError> {
        let wanted = format!("cores of this chip like 0-3,8 (it has 0-{})", count - 1);
        let text = match self.get(key) {
            None => return Err(self.missing(key, &wanted)),
            Some(Value::Integer(core)) => core.to_string(),
            Some(value) => value.as_str().ok_or_else(|| self.refuse(key, value, &wanted))?.to_owned(),
        };
        let refuse = |why: String| self.refuse(key, &format!("`{text}`"), &format!("{wanted}{why}"));
        let list: CoreList = text.parse().map_err(|why| refuse(format!(" ({why})")))?;
        match list.cores().iter().find(|core| u32::from(core.0) >= count) {
            Some(core) => Err(refuse(format!("; there is no {core}"))),
            None => Ok(list),
        }
    }

    /// The tables of an array of tables, with the line of each header.
    pub(crate) fn tables(&mut self, key: &str) -> Result<Vec<(&'a Table, Option<usize>)>, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let wanted = format!("tables headed [[{}{key}]]", self.path);
        let list = value.as_array().ok_or_else(|| self.refuse(key, &value.type_str(), &wanted))?;
        let header = format!("[[{}{key}]]", self.header_path());
        let from = self.first_line.unwrap_or(1) - 1;
        let mut lines = self
            .origin
            .text
            .lines()
            .enumerate()
            .skip(from)
            .filter(|(_, line)| line.split('#').next().is_some_and(|l| l.trim() == header))
            .map(|(index, _)| index + 1);
        let tables = list.iter().map(|item| {
            let table = item.as_table().ok_or_else(|| self.refuse(key, &item.type_str(), &wanted))?;
            Ok((table, lines.next()))
        });
        tables.collect()
    }

    /// The path as in a table's header. The names of array elements are removed, because TOML has none.
    fn header_path(&self) -> String {
        let plain: Vec<&str> =
            self.path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect();
        plain.join(".")
    }

    /// A sub-table, if the key is there.
    pub(crate) fn table(&mut self, key: &str) -> Result<Option<&'a Table>, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wanted = format!("a table headed [{}{key}]", self.path);
        value.as_table().map(Some).ok_or_else(|| self.refuse(key, &value.type_str(), &wanted))
    }

    /// A list of values, if the key is there.
    pub(crate) fn list(&mut self, key: &str) -> Result<Option<&'a [Value]>, ScenarioError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let list = value.as_array().ok_or_else(|| self.refuse(key, value, "a list in square brackets"))?;
        Ok(Some(list))
    }

    /// Refuses all keys that were not read.
    pub(crate) fn finish(self) -> Result<(), ScenarioError> {
        let asked = self.asked.borrow();
        self.only(&asked.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Refuses a key that is not among `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ScenarioError> {
        match self.table.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(ScenarioError::UnknownKey {
                file: self.origin.file.to_owned(),
                at: self.line_of(key),
                key: format!("{}{key}", self.path),
                nearest: hint(key, known.iter().copied()),
                known: known.join(", "),
            }),
        }
    }

    pub(crate) fn origin(&self) -> Origin<'a> {
        self.origin.clone()
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}
