//! Parser for values of a job file: amounts with fio's units, times, flags. An error names the accepted values.
//!
//! Must not know which key a value belongs to.

/// Meaning of the unit `k`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    /// `k` is 1024 and `kib` 1000: fio's default.
    Binary,
    /// `k` is 1000 and `kib` 1024: the SI and IEC units.
    Decimal,
}

impl Base {
    /// The value of `kb_base`.
    pub(super) fn parse(text: &str) -> Result<Base, String> {
        match text {
            "1024" => Ok(Base::Binary),
            "1000" => Ok(Base::Decimal),
            _ => Err("1024 or 1000".to_owned()),
        }
    }
}

/// Letters of the units, each a power above the one before it.
const LETTERS: &str = "kmgtp";

/// An amount of bytes. Fio ignores unknown text after a number; here an unknown unit is an error.
pub(super) fn bytes(text: &str, base: Base, least: u64, most: u64) -> Result<u64, String> {
    let wanted = || {
        let upper = if most == u64::MAX { String::new() } else { format!(" to {most}") };
        format!("a number of bytes from {least}{upper}, like 4096, 4k, 64m, 1g or 0x1000")
    };
    let (number, unit) = split(text).ok_or_else(wanted)?;
    let (k, kib) = match base {
        Base::Binary => (1024, 1000),
        Base::Decimal => (1000, 1024),
    };
    let mut letters = unit.chars();
    let factor = match (letters.next(), letters.as_str()) {
        (None, _) | (Some('b'), "") => 1,
        (Some(letter), "i") if LETTERS.contains(letter) => {
            return Err(format!(
                "written as {number}{letter}, {number}{letter}b or {number}{letter}ib: fio's manual and fio \
                 itself differ on the meaning of `{unit}`"
            ));
        }
        (Some(letter), rest) => {
            let power = LETTERS.find(letter).ok_or_else(wanted)? as u32 + 1;
            match rest {
                "" | "b" => u64::pow(k, power),
                "ib" => u64::pow(kib, power),
                _ => return Err(wanted()),
            }
        }
    };
    number.checked_mul(factor).filter(|bytes| (least..=most).contains(bytes)).ok_or_else(wanted)
}

/// A plain number. Fio accepts units here too, with the same base.
pub(super) fn count(text: &str, base: Base, least: u64, most: u64) -> Result<u64, String> {
    let wanted = || {
        let upper = if most == u64::MAX { String::new() } else { format!(" to {most}") };
        format!("a whole number from {least}{upper}")
    };
    bytes(text, base, least, most).map_err(|_| wanted())
}

/// A time, us; without a unit it is seconds.
pub(super) fn time_us(text: &str) -> Result<u64, String> {
    let wanted = || "a time of at least 1us, like 10 (seconds), 500ms, 5m or 1h".to_owned();
    let (number, unit) = split(text).ok_or_else(wanted)?;
    let us = match unit.as_str() {
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "" | "s" | "sec" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wanted()),
    };
    number.checked_mul(us).filter(|us| *us > 0).ok_or_else(wanted)
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("1 or 0".to_owned()),
    }
}

/// Splits a number, decimal or hexadecimal, from its unit in lower case.
fn split(text: &str) -> Option<(u64, String)> {
    let text = text.to_ascii_lowercase();
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text.as_str(), 10),
    };
    let end = digits.find(|letter: char| !letter.is_digit(radix)).unwrap_or(digits.len());
    let (number, unit) = digits.split_at(end);
    Some((u64::from_str_radix(number, radix).ok()?, unit.to_owned()))
}
