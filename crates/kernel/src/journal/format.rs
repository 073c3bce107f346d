//! The text of a journal: how a line is written, and what a whole file says, intact or damaged.
//!
//! A line has a checksum, its number and an entry as JSON. The checksum covers number and entry, so each line can be
//! checked alone, a line that is missing leaves a gap in the numbers, and lines in another order or twice do no harm.
//! The first line names the host and is there twice. Formats 1 to 3 have no numbers in their lines: a line's place is
//! its number, and a journal that was cut between two lines looks whole. Must not know files.

use super::{HandOver, JournalDamage, Original};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// The format's version: 2 added the bits of an MSR and how to recognise a later change by others, 3 the distinction
/// of groups made and groups about to be made, 4 the numbers in the lines and the seal.
pub(super) const VERSION: u32 = 4;
/// The oldest version that is read: version 1 has whole MSRs only, and any value of them counts as ours.
pub(super) const OLDEST: u32 = 1;
/// The first version with numbers in its lines, and a seal.
const NUMBERED: u32 = 4;
/// In an unnumbered journal a line is found at most so many lines from its place: damage can join or split a few lines.
const NEAR: u64 = 8;
/// Most characters of a damaged line that are shown.
const SHOWN: usize = 300;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Entry {
    /// The first line: the host that the originals belong to.
    Host(HostLine),
    /// The original value of a knob that is about to be set. It takes the place of an earlier line about the knob.
    Original(Original),
    /// The knob was not set after all, or restored: earlier lines about it no longer apply.
    Forget(Original),
    /// The knob stays as set until its original is requested explicitly.
    Keep(Original),
}

/// The host, and what the lines after it are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HostLine {
    pub version: u32,
    /// The root prefix.
    pub root: String,
    /// The kernel's boot id, if there is one.
    pub boot: Option<String>,
    /// The number of the first entry.
    #[serde(default)]
    pub first: u64,
    /// The number of the last entry that was in the file before it got its name: a file that lacks it was cut.
    #[serde(default)]
    pub complete_to: u64,
    /// A daemon ended and left the knobs to the next one. Versions that do not know this key ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<HandOver>,
}

/// The originals after all lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Knobs {
    /// Knobs set by this run, or by one that crashed.
    pub originals: Vec<Original>,
    /// Knobs that stay as set for now.
    pub kept: Vec<Original>,
}

impl Knobs {
    pub fn forget(&mut self, forgotten: &Original) {
        self.originals.retain(|own| !own.is_same_knob(forgotten));
    }

    pub fn keep(&mut self, kept: &Original) {
        self.forget(kept);
        // The older value is the original.
        if !self.kept.iter().any(|own| own.is_same_knob(kept)) {
            self.kept.push(kept.clone());
        }
    }

    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Host(_) => {}
            Entry::Original(original) => {
                self.forget(&original);
                self.originals.push(original);
            }
            Entry::Forget(original) => self.forget(&original),
            Entry::Keep(original) => self.keep(&original),
        }
    }
}

/// What a journal's file says.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The host; `None` if no line names it.
    pub host: Option<HostLine>,
    pub knobs: Knobs,
    /// What cannot be known any more.
    pub damage: Vec<JournalDamage>,
    /// Number of lines that are intact.
    pub intact: usize,
    /// The highest number of an entry.
    pub last: u64,
    /// The file's length in bytes up to which it is as it was written, if only worthless text follows. `None` if it
    /// must be written anew before a line is added.
    pub appendable: Option<u64>,
}

/// A line of the file, with its newline.
pub(super) fn line(number: u64, entry: &Entry) -> io::Result<String> {
    let text = format!("{number} {}", serde_json::to_string(entry)?);
    Ok(format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes())))
}

/// The first lines of a file: the host twice, with an empty line between, so that no damaged byte hits both.
pub(super) fn head(host: &HostLine) -> io::Result<String> {
    let line = line(0, &Entry::Host(host.clone()))?;
    Ok(format!("{line}\n{line}"))
}

/// Number of lines of a [`head`].
pub(super) const HEAD_LINES: u64 = 3;

/// Reads a file's bytes. `sealed` is the number of the last entry that was on disk before a knob was set, if a seal
/// says so.
pub(super) fn read(bytes: &[u8], sealed: Option<u64>) -> Content {
    let mut reader = Reader { sealed, ..Reader::default() };
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        reader.take(index + 1, text);
    }
    reader.finish()
}

#[derive(Debug, Default)]
struct Reader {
    sealed: Option<u64>,
    host: Option<HostLine>,
    /// How often the host's line was read.
    hosts: usize,
    entries: BTreeMap<u64, Entry>,
    bad: Vec<JournalDamage>,
    intact: usize,
    /// Bytes so far, and bytes up to which every line is as it was written.
    bytes: u64,
    tidy: u64,
    /// An intact line is not where it was written.
    is_displaced: bool,
}

impl Reader {
    fn take(&mut self, place: usize, text: &[u8]) {
        let is_tidy = self.tidy == self.bytes && text.ends_with(b"\n");
        self.bytes += text.len() as u64;
        if text == b"\n" && self.hosts == 1 && self.entries.is_empty() {
            self.tidy = if is_tidy { self.bytes } else { self.tidy };
            return;
        }
        let is_in_place = match parse(place as u64, text).and_then(|(number, entry)| self.sort(number, entry))
        {
            Ok(is_in_place) => {
                self.intact += 1;
                self.is_displaced |= !(is_in_place && is_tidy);
                is_in_place
            }
            Err(why) => {
                let whole = String::from_utf8_lossy(text);
                let text = whole.trim_end_matches('\n').chars().take(SHOWN).collect::<String>();
                let text = text.escape_debug().to_string();
                // Text after the last newline of an unnumbered journal is a line that a power failure cut off.
                if self.is_numbered() || whole.ends_with('\n') {
                    self.bad.push(JournalDamage::Line { line: place, why, text });
                }
                false
            }
        };
        if is_tidy && is_in_place {
            self.tidy = self.bytes;
        }
    }

    /// Without a host's line so far it is taken for a numbered one.
    fn is_numbered(&self) -> bool {
        self.host.as_ref().is_none_or(|host| host.version >= NUMBERED)
    }

    /// Takes an intact line. True if it is the next one in the order of writing.
    fn sort(&mut self, number: u64, entry: Entry) -> Result<bool, String> {
        if let Entry::Host(host) = entry {
            let place = if host.version >= NUMBERED { 0 } else { 1 };
            if number != place || self.host.as_ref().is_some_and(|known| *known != host) {
                return Err("it names a host, and is not the first line".to_owned());
            }
            let is_next = self.entries.is_empty();
            self.hosts += 1;
            self.host = Some(host);
            return Ok(is_next);
        }
        if number == 0 {
            return Err("it has the number of the first line".to_owned());
        }
        let first = self.host.as_ref().map_or(1, |host| host.first.max(1));
        let next = self.entries.last_key_value().map_or(first, |(last, _)| last.saturating_add(1));
        match self.entries.get(&number) {
            Some(known) if *known == entry => Ok(false),
            Some(_) => Err(format!("another line has its number, {number}")),
            None => {
                self.entries.insert(number, entry);
                Ok(number == next && self.hosts == 2)
            }
        }
    }

    fn finish(self) -> Content {
        let last = self.entries.last_key_value().map_or(0, |(last, _)| *last);
        let is_numbered = self.is_numbered();
        let (first, complete_to) = match &self.host {
            Some(host) if is_numbered => (host.first.max(1), host.complete_to),
            Some(_) => (2, 0),
            None => (1, 0),
        };
        // Without a seal, what is there says which numbers must be there.
        let asked = self.sealed.filter(|_| is_numbered).unwrap_or(last).max(complete_to);
        let end = asked.saturating_add(1);
        let mut damage = self.bad;
        let mut expected = first;
        for number in self.entries.keys().copied().chain([end]) {
            let until = number.min(end);
            if until > expected {
                damage.push(JournalDamage::Missing { first: expected, last: until - 1 });
            }
            expected = expected.max(number.saturating_add(1));
        }
        let is_missing = damage.iter().any(|own| matches!(own, JournalDamage::Missing { .. }));
        let is_unsealed = is_numbered && self.sealed.is_none();
        let mut knobs = Knobs::default();
        self.entries.into_values().for_each(|entry| knobs.apply(entry));
        let nothing_was_set = self.sealed == Some(0) && complete_to == 0;
        if self.host.is_none() {
            let not_restored = knobs.kept.drain(..).chain(knobs.originals.drain(..));
            let not_restored: Vec<JournalDamage> = not_restored.map(JournalDamage::NotRestored).collect();
            damage.insert(0, JournalDamage::Host);
            damage.extend(not_restored);
        } else if is_unsealed {
            damage.push(JournalDamage::NoSeal);
        } else if is_numbered && !is_missing {
            // Every entry is there: a damaged line is a copy, or was never on disk when a knob was set.
            damage.clear();
        }
        if nothing_was_set && self.host.is_none() {
            damage.clear();
        }
        let appendable =
            (is_numbered && !self.is_displaced && damage.is_empty()).then_some(match self.hosts {
                2 => self.tidy,
                _ => 0,
            });
        let last = last.max(asked);
        Content { host: self.host, knobs, damage, intact: self.intact, last, appendable }
    }
}

/// The number and the entry of a line.
fn parse(place: u64, bytes: &[u8]) -> Result<(u64, Entry), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (sum, rest) = text.split_once(' ').ok_or("there is no checksum before the text")?;
    // Written in one way only: another spelling is damage.
    let number = u32::from_str_radix(sum, 16).ok().filter(|number| format!("{number:08x}") == sum);
    let sum = number.ok_or("its checksum is not a hex number of 8 digits")?;
    let (number, json) = if rest.starts_with('{') {
        let of = |number: &u64| crc32fast::hash(format!("{number} {rest}").as_bytes()) == sum;
        let near = (place.saturating_sub(NEAR)..=place + NEAR).filter(|number| *number != place);
        let number = std::iter::once(place).chain(near).find(of).ok_or("its checksum is another one")?;
        (number, rest)
    } else {
        let found = crc32fast::hash(rest.as_bytes());
        if found != sum {
            return Err(format!("its checksum is {found:08x}, not {sum:08x}"));
        }
        let (number, json) = rest.split_once(' ').ok_or("there is no number before the entry")?;
        (number.parse().map_err(|_| format!("`{number}` is not a number"))?, json)
    };
    let entry: Entry = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Ok((number, entry))
}
