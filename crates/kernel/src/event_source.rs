//! `/sys/bus/event_source/devices`: the counter units that the kernel drives, and how their events are encoded.
//!
//! The bits of an event's term are read from the unit's `format/` files, never assumed (hardware.md 3.5). Must not
//! open a counter.

use crate::content::{self, ContentError};
use crate::root::{FileError, Root};
use std::collections::BTreeMap;
use std::path::Path;
use waykeeper_generations::{Terms, TermsError};
use waykeeper_units::CoreList;

const DEVICES: &str = "/sys/bus/event_source/devices";

/// The words of an event, as `format/` files name them.
const WORDS: [&str; 3] = ["config", "config1", "config2"];

/// The bits of a term: a word and ranges of bits in it, the value's low bits first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TermFormat {
    /// The word: index into [`EncodedEvent::config`].
    pub word: usize,
    /// First and last bit of each range.
    pub bits: Vec<(u8, u8)>,
}

impl TermFormat {
    /// Reads `config:0-7,32-35`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(path: &Path, text: &str) -> Result<TermFormat, ContentError> {
        let found = text.trim();
        let bad = || ContentError::new(path, 0, found, "a word and bits like config:0-7,32-35");
        let (word, pieces) = found.split_once(':').ok_or_else(bad)?;
        let word = WORDS.iter().position(|known| *known == word).ok_or_else(bad)?;
        let mut bits = Vec::new();
        for piece in pieces.split(',') {
            let (low, high) = piece.split_once('-').unwrap_or((piece, piece));
            let number = |digits: &str| digits.parse::<u8>().ok().filter(|_| !digits.starts_with('+'));
            match (number(low), number(high)) {
                (Some(low), Some(high)) if low <= high && high < 64 => bits.push((low, high)),
                _ => return Err(bad()),
            }
        }
        let width: u32 = bits.iter().map(|(low, high)| u32::from(high - low) + 1).sum();
        if width > 64 { Err(bad()) } else { Ok(TermFormat { word, bits }) }
    }

    /// `value` moved to the term's bits; `None` if it does not fit.
    pub fn place(&self, value: u64) -> Option<u64> {
        let mut rest = u128::from(value);
        let mut word = 0u64;
        for &(low, high) in &self.bits {
            let width = u32::from(high - low) + 1;
            word |= ((rest & ((1 << width) - 1)) as u64) << low;
            rest >>= width;
        }
        (rest == 0).then_some(word)
    }
}

/// An event in the kernel's form: the PMU's number and three words of configuration (perf_event_attr).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EncodedEvent {
    /// `type` of the PMU (sysfs), or one of the kernel's own types.
    pub pmu: u32,
    /// `config`, `config1`, `config2`.
    pub config: [u64; 3],
}

/// Why an event cannot be encoded for a unit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The unit has no such term.
    #[error("{unit} has no term `{term}`; it has {known}")]
    NoTerm {
        /// The unit.
        unit: String,
        /// The term.
        term: String,
        /// The terms that it has.
        known: String,
    },
    /// The value has more bits than the term.
    #[error("{value:#x} does not fit the term `{term}` of {unit}")]
    TooWide {
        /// The unit.
        unit: String,
        /// The term.
        term: String,
        /// The value.
        value: u64,
    },
}

/// An event that the kernel offers by name.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedEvent {
    /// The terms in perf's notation.
    pub terms: Terms,
    /// The value of one count, in [`NamedEvent::unit`].
    pub scale: Option<f64>,
    /// The unit of the scaled count, for example `MiB`.
    pub unit: Option<String>,
}

/// One counter unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterUnit {
    /// Its name, for example `uncore_cha_3`.
    pub name: String,
    /// Its number for perf_event_open (`type`).
    pub kind: u32,
    /// CPUs through which the unit is opened, one per domain; `None` if the kernel lists none (core units).
    pub cpumask: Option<CoreList>,
    /// The bits of each term.
    pub formats: BTreeMap<String, TermFormat>,
}

impl CounterUnit {
    /// Reads one unit; `None` if the kernel has none of this name.
    ///
    /// # Errors
    /// The kernel's refusal, or content that cannot be parsed.
    pub fn read(root: &Root, name: &str) -> Result<Option<CounterUnit>, FileError> {
        let folder = format!("{DEVICES}/{name}");
        let kind = root.parsed_optional(&format!("{folder}/type"), |path, text| {
            let number = u32::try_from(content::decimal(path, text)?);
            number.map_err(|_| ContentError::new(path, 0, text.trim(), "a number of 32 bits"))
        })?;
        let Some(kind) = kind else { return Ok(None) };
        let cpumask = root.parsed_optional(&format!("{folder}/cpumask"), content::cpu_list)?;
        let mut formats = BTreeMap::new();
        for term in root.list_existing(&format!("{folder}/format"))? {
            let format = root.parsed(&format!("{folder}/format/{term}"), TermFormat::parse)?;
            formats.insert(term, format);
        }
        Ok(Some(CounterUnit { name: name.to_owned(), kind, cpumask, formats }))
    }

    /// Encodes an event in the kernel's form.
    ///
    /// # Errors
    /// A term that the unit does not have, or a value that does not fit.
    pub fn encode(&self, event: &Terms) -> Result<EncodedEvent, EncodeError> {
        let mut encoded = EncodedEvent { pmu: self.kind, ..EncodedEvent::default() };
        for (term, value) in event.iter() {
            let unit = || self.name.clone();
            let format = self.formats.get(term).ok_or_else(|| EncodeError::NoTerm {
                unit: unit(),
                term: term.to_owned(),
                known: self.formats.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            })?;
            let word = format.place(value).ok_or_else(|| EncodeError::TooWide {
                unit: unit(),
                term: term.to_owned(),
                value,
            })?;
            encoded.config[format.word] |= word;
        }
        Ok(encoded)
    }

    /// An event by its kernel name; `None` if there is none.
    ///
    /// # Errors
    /// The kernel's refusal, or content that cannot be parsed.
    pub fn event(&self, root: &Root, name: &str) -> Result<Option<NamedEvent>, FileError> {
        let file = format!("{DEVICES}/{}/events/{name}", self.name);
        let terms = root.parsed_optional(&file, |path, text| {
            text.trim().parse().map_err(|error: TermsError| {
                ContentError::new(path, 0, text.trim(), &format!("an event like event=0x4: {error}"))
            })
        })?;
        let Some(terms) = terms else { return Ok(None) };
        let scale = root.parsed_optional(&format!("{file}.scale"), scale)?;
        let unit = root.read_optional(format!("{file}.unit"))?.map(|unit| unit.trim().to_owned());
        Ok(Some(NamedEvent { terms, scale, unit }))
    }

    /// Root buses of an IIO unit: PCI domain and bus by die, from its `dieN` files (hardware.md 4.4); empty if the
    /// kernel has no such files.
    ///
    /// # Errors
    /// The kernel's refusal, or content that cannot be parsed.
    pub fn die_buses(&self, root: &Root) -> Result<BTreeMap<u16, (u32, u8)>, FileError> {
        let folder = format!("{DEVICES}/{}", self.name);
        let mut buses = BTreeMap::new();
        for name in root.list_existing(&folder)? {
            let Some(die) = name.strip_prefix("die").and_then(|number| number.parse().ok()) else { continue };
            buses.insert(die, root.parsed(&format!("{folder}/{name}"), die_bus)?);
        }
        Ok(buses)
    }
}

/// Names of all units, sorted.
///
/// # Errors
/// The kernel's refusal. A missing directory is an empty list.
pub fn names(root: &Root) -> Result<Vec<String>, FileError> {
    root.list_existing(DEVICES)
}

/// Every unit of a kind: `uncore_cha` alone or `uncore_cha_N`, in the order of N.
///
/// # Errors
/// As [`CounterUnit::read`].
pub fn units(root: &Root, kind: &str) -> Result<Vec<CounterUnit>, FileError> {
    let mut numbered: Vec<(u32, String)> = Vec::new();
    for name in names(root)? {
        match name.strip_prefix(kind) {
            Some("") => numbered.push((0, name)),
            Some(rest) => {
                let number = rest.strip_prefix('_').and_then(|digits| digits.parse().ok());
                numbered.extend(number.map(|number| (number, name)));
            }
            None => {}
        }
    }
    numbered.sort();
    let mut units = Vec::new();
    for (_, name) in numbered {
        units.extend(CounterUnit::read(root, &name)?);
    }
    Ok(units)
}

fn scale(path: &Path, text: &str) -> Result<f64, ContentError> {
    let found = text.trim();
    let number = found.parse().ok().filter(|scale: &f64| scale.is_finite() && *scale > 0.0);
    number.ok_or_else(|| ContentError::new(path, 0, found, "a positive number like 6.103515625e-5"))
}

/// `0000:16`, a PCI domain and a bus.
fn die_bus(path: &Path, text: &str) -> Result<(u32, u8), ContentError> {
    let found = text.trim();
    let parsed = found.split_once(':').and_then(|(domain, bus)| {
        let hex = |digits: &str| u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        Some((hex(domain)?, u8::try_from(hex(bus)?).ok()?))
    });
    parsed.ok_or_else(|| ContentError::new(path, 0, found, "a PCI domain and bus like 0000:16"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path() -> &'static Path {
        Path::new("/x")
    }

    #[test]
    fn a_format_places_a_value_piece_by_piece() {
        let umask = TermFormat::parse(path(), "config:8-15,32-57\n").unwrap();
        // hardware.md 3.2: umask=0xcc43fe04 is raw 0x00CC43FE_00000435 with event 0x35.
        assert_eq!(umask.place(0xcc43_fe04), Some(0x00cc_43fe_0000_0400));
        assert_eq!(umask.place(1 << 34), None);
        let opcode = TermFormat::parse(path(), "config1:41-50").unwrap();
        assert_eq!((opcode.word, opcode.place(0x248)), (1, Some(0x248 << 41)));
        let whole = TermFormat::parse(path(), "config2:0-63").unwrap();
        assert_eq!(whole.place(u64::MAX), Some(u64::MAX));
        for bad in
            ["", "config", "config:", "config:8-7", "config:64", "config9:1", "config:+1", "config:0-63,1"]
        {
            assert!(TermFormat::parse(path(), bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn scales_and_buses_are_checked() {
        assert_eq!(scale(path(), "6.103515625e-5\n"), Ok(6.103515625e-5));
        for bad in ["", "nan", "inf", "-1", "0", "1 2"] {
            assert!(scale(path(), bad).is_err(), "{bad}");
        }
        assert_eq!(die_bus(path(), "0000:17\n"), Ok((0, 0x17)));
        assert_eq!(die_bus(path(), "10001:e2"), Ok((0x10001, 0xe2)));
        for bad in ["", "17", "0000:", "0000:100", "0000:5d:00", "0000:xx", "zz:17", "0:+1"] {
            assert!(die_bus(path(), bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn no_content_makes_a_parser_panic(text in "\\PC*|config[0-9]?:[0-9,\\-]{0,12}", value: u64) {
            if let Ok(format) = TermFormat::parse(path(), &text) {
                let _ = format.place(value);
            }
            let _ = (scale(path(), &text), die_bus(path(), &text));
        }
    }
}
