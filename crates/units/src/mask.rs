//! Capacity bit masks (CBM) over LLC ways.
//!
//! Bit 0 is the rightmost way, as CAT and resctrl number them. The papers count from the left (A4's way\[i\] on an
//! 11-way chip is bit 10-i); use [`WayMask::from_left`] where a paper is quoted, and nowhere else.

use crate::shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A set of LLC ways. May be empty or have holes as a value; [`WayMask::check`] tests whether a chip accepts it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WayMask(u32);

/// Why a mask was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// Not a number, a range or a percentage.
    #[error("`{}` is not a way mask; write hex bits like 0x030, a bit range like 4-5, or a share like 60%", shown(.0))]
    Syntax(String),
    /// No way at all.
    #[error("mask {0} has no way; at least {1} are needed")]
    TooNarrow(WayMask, u32),
    /// A bit beyond the chip's ways.
    #[error("mask {0} is wider than the chip: it has {1} ways, the widest mask is {2}")]
    TooWide(WayMask, u32, WayMask),
    /// Ways that are not next to each other.
    #[error("mask {0} has holes; the ways of a mask must be contiguous, for example {1}")]
    Holes(WayMask, WayMask),
}

impl WayMask {
    /// No way.
    pub const EMPTY: WayMask = WayMask(0);
    /// Most ways that a mask can name.
    pub const MOST: u32 = u32::BITS;

    /// The mask with exactly these bits.
    pub const fn from_bits(bits: u32) -> WayMask {
        WayMask(bits)
    }

    /// All ways of a chip with `ways` ways.
    ///
    /// # Panics
    /// If `ways` is over [`WayMask::MOST`].
    pub const fn full(ways: u32) -> WayMask {
        assert!(ways <= WayMask::MOST);
        WayMask(if ways == WayMask::MOST { u32::MAX } else { (1 << ways) - 1 })
    }

    /// `count` ways from bit `low` upwards.
    pub const fn span(low: u32, count: u32) -> WayMask {
        WayMask(WayMask::full(count).0 << low)
    }

    /// The papers' way\[first:last\], counted from the left on a chip of `ways` ways (A4 s2.1).
    ///
    /// # Panics
    /// If `first > last` or `last >= ways`.
    pub const fn from_left(first: u32, last: u32, ways: u32) -> WayMask {
        assert!(first <= last && last < ways);
        WayMask::span(ways - 1 - last, last - first + 1)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Number of ways.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// True if no way is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if bit `way` is in it.
    pub const fn contains(self, way: u32) -> bool {
        way < 32 && self.0 >> way & 1 == 1
    }

    /// Lowest (rightmost) way, if any.
    pub const fn lowest(self) -> Option<u32> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros()) }
    }

    /// Highest (leftmost) way, if any.
    pub const fn highest(self) -> Option<u32> {
        if self.0 == 0 { None } else { Some(31 - self.0.leading_zeros()) }
    }

    /// Ways in both.
    pub const fn and(self, other: WayMask) -> WayMask {
        WayMask(self.0 & other.0)
    }

    /// Ways in either.
    pub const fn or(self, other: WayMask) -> WayMask {
        WayMask(self.0 | other.0)
    }

    /// Ways in this mask but not in `other`.
    pub const fn minus(self, other: WayMask) -> WayMask {
        WayMask(self.0 & !other.0)
    }

    /// True if the two share a way.
    pub const fn overlaps(self, other: WayMask) -> bool {
        self.0 & other.0 != 0
    }

    /// True if its ways are next to each other (and there is one).
    pub const fn is_contiguous(self) -> bool {
        self.0 != 0
            && (self.0 >> self.0.trailing_zeros()).wrapping_add(1) & (self.0 >> self.0.trailing_zeros()) == 0
    }

    /// Checks that a chip with `ways` ways, which needs at least `min_ways` and contiguity (Intel CAT, hardware.md
    /// 7.3), accepts this mask.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn check(self, ways: u32, min_ways: u32) -> Result<WayMask, MaskError> {
        let full = WayMask::full(ways);
        if self.0 & !full.0 != 0 {
            return Err(MaskError::TooWide(self, ways, full));
        }
        if self.count() < min_ways.max(1) {
            return Err(MaskError::TooNarrow(self, min_ways.max(1)));
        }
        if !self.is_contiguous() {
            let low = self.0.trailing_zeros();
            let high = 31 - self.0.leading_zeros();
            return Err(MaskError::Holes(self, WayMask::span(low, high - low + 1)));
        }
        Ok(self)
    }

    /// The same on a chip whose masks may have holes, if `may_have_holes`.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn check_on(self, ways: u32, min_ways: u32, may_have_holes: bool) -> Result<WayMask, MaskError> {
        match self.check(ways, min_ways) {
            Err(MaskError::Holes(..)) if may_have_holes => Ok(self),
            checked => checked,
        }
    }

    /// Reads `0x30`, `0-3` (bit range) or `60%` (that share of `ways`, at least one way, from bit 0 up),
    /// as goresctrl does. A bare number without `0x` is refused: `10` could mean either.
    ///
    /// # Errors
    /// [`MaskError::Syntax`] for anything else. [`WayMask::check`] tests what a chip accepts.
    pub fn parse(text: &str, ways: u32) -> Result<WayMask, MaskError> {
        let bad = || MaskError::Syntax(text.to_owned());
        let t = text.trim();
        if let Some(percent) = t.strip_suffix('%') {
            let share: f64 = percent.trim().parse().map_err(|_| bad())?;
            if !(share > 0.0 && share <= 100.0) {
                return Err(bad());
            }
            let count = (share * f64::from(ways) / 100.0).ceil();
            return Ok(WayMask::full((count as u32).clamp(1, ways)));
        }
        if let Some((low, high)) = t.split_once('-') {
            let low: u32 = low.trim().parse().map_err(|_| bad())?;
            let high: u32 = high.trim().parse().map_err(|_| bad())?;
            if low > high || high > 31 {
                return Err(bad());
            }
            return Ok(WayMask::span(low, high - low + 1));
        }
        t.parse()
    }
}

impl FromStr for WayMask {
    type Err = MaskError;

    fn from_str(text: &str) -> Result<WayMask, MaskError> {
        let hex = text.trim();
        let digits = hex.strip_prefix("0x").or_else(|| hex.strip_prefix("0X"));
        let digits = digits.ok_or_else(|| MaskError::Syntax(text.to_owned()))?;
        u32::from_str_radix(digits, 16).map(WayMask).map_err(|_| MaskError::Syntax(text.to_owned()))
    }
}

impl fmt::Display for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#05x}", self.0)
    }
}

impl fmt::Debug for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for WayMask {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WayMask {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<WayMask, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_count_from_the_left() {
        // A4 s2.1 on 11 ways: DCA ways way[0:1] = 0x600, inclusive ways way[9:10] = 0x003, way[5:6] = 0x030.
        assert_eq!(WayMask::from_left(0, 1, 11).bits(), 0x600);
        assert_eq!(WayMask::from_left(9, 10, 11).bits(), 0x003);
        assert_eq!(WayMask::from_left(5, 6, 11).bits(), 0x030);
    }

    #[test]
    fn a_chip_refuses_holes_width_and_nothing() {
        let mask = |bits| WayMask::from_bits(bits);
        assert_eq!(mask(0x600).check(11, 1), Ok(mask(0x600)));
        assert_eq!(mask(0x605).check(11, 1), Err(MaskError::Holes(mask(0x605), mask(0x7ff))));
        assert_eq!(mask(0x800).check(11, 1), Err(MaskError::TooWide(mask(0x800), 11, mask(0x7ff))));
        assert_eq!(mask(0).check(11, 1), Err(MaskError::TooNarrow(mask(0), 1)));
        assert_eq!(mask(0x001).check(11, 2), Err(MaskError::TooNarrow(mask(1), 2)));
        assert!(!WayMask::EMPTY.is_contiguous());
        assert!(WayMask::full(32).is_contiguous());
    }

    #[test]
    fn reads_what_operators_write() {
        let parse = |text| WayMask::parse(text, 11);
        assert_eq!(parse("0x030"), Ok(WayMask::from_bits(0x30)));
        assert_eq!(parse("4-5"), Ok(WayMask::from_bits(0x30)));
        assert_eq!(parse("60%"), Ok(WayMask::full(7))); // 6.6 ways, rounded up
        assert_eq!(parse("100%"), Ok(WayMask::full(11)));
        for bad in ["", "30", "0xzz", "5-4", "0%", "101%", "0x1ffffffff", "nan%", "3-40"] {
            assert!(parse(bad).is_err(), "{bad} should be refused");
        }
        assert_eq!(WayMask::from_bits(0x30).to_string(), "0x030");
    }

    #[test]
    fn contiguity_is_what_a_plain_scan_says() {
        for bits in 0u32..1 << 12 {
            let text = format!("{bits:b}");
            let plain = bits != 0 && !text.trim_matches('0').contains('0');
            assert_eq!(WayMask::from_bits(bits).is_contiguous(), plain, "{text}");
        }
    }
}
