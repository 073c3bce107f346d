//! Sets of CPUs as `cpus` and `cpus_list` show them.
//!
//! Two spellings of one value (hardware.md 7.4): hex words of 32 bits with commas, or ranges like `0-3,8`. It must
//! not know which CPUs exist.

use super::error::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use waykeeper_units::CoreId;

/// No kernel is built for more CPUs than this (NR_CPUS with MAXSMP is 8192).
const MOST_CPUS: u32 = 8192;

/// A set of CPUs. Unlike a `CoreList` it may be empty, which in these files is an empty line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u16>);

impl CpuSet {
    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CoreId> {
        self.0.iter().map(|cpu| CoreId(*cpu))
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if `cpu` is among them.
    pub fn contains(&self, cpu: CoreId) -> bool {
        self.0.contains(&cpu.0)
    }

    /// Those in both.
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }

    /// Those in either.
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.union(&other.0).copied().collect())
    }

    /// Those here and not there.
    pub fn minus(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.difference(&other.0).copied().collect())
    }

    /// Reads `cpus_list`: `0-3,8`, or nothing at all.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn parse_list(text: &str) -> Result<CpuSet, String> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let bad = || format!("expected CPUs like 0-3,8, not `{}`", shown(text));
        let mut cpus = BTreeSet::new();
        if text.is_empty() {
            return Ok(CpuSet(cpus));
        }
        for part in text.split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                if digits { text.parse::<u32>().ok() } else { None }
            };
            let (low, high) = number(low).zip(number(high)).ok_or_else(bad)?;
            if low > high || high >= MOST_CPUS {
                return Err(bad());
            }
            cpus.extend((low..=high).filter_map(|cpu| u16::try_from(cpu).ok()));
        }
        Ok(CpuSet(cpus))
    }

    /// Reads `cpus`: hex, in words of 32 bits with commas from the highest down, as `%*pb` prints.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn parse_mask(text: &str) -> Result<CpuSet, String> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let bad = || format!("expected CPUs in hex words like f or 3,ffffffff, not `{}`", shown(text));
        let words: Vec<&str> = text.split(',').collect();
        let mut cpus = BTreeSet::new();
        for (index, word) in words.iter().rev().enumerate() {
            let digits = (1..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let bits = if digits { u32::from_str_radix(word, 16).ok() } else { None }.ok_or_else(bad)?;
            let base = u32::try_from(index * 32).map_err(|_| bad())?;
            if base >= MOST_CPUS {
                return Err(bad());
            }
            let set = (0..32).filter(|bit| bits >> bit & 1 == 1);
            cpus.extend(set.filter_map(|bit| u16::try_from(base + bit).ok()));
        }
        Ok(CpuSet(cpus))
    }
}

impl FromIterator<CoreId> for CpuSet {
    fn from_iter<T: IntoIterator<Item = CoreId>>(cpus: T) -> CpuSet {
        CpuSet(cpus.into_iter().map(|cpu| cpu.0).collect())
    }
}

impl TryFrom<String> for CpuSet {
    type Error = String;

    fn try_from(text: String) -> Result<CpuSet, String> {
        CpuSet::parse_list(&text)
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> String {
        cpus.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut first = true;
        while let Some(low) = cpus.next() {
            let mut high = low;
            while let Some(next) = cpus.next_if(|next| *next == high + 1) {
                high = next;
            }
            let comma = if first { "" } else { "," };
            first = false;
            match high - low {
                0 => write!(f, "{comma}{low}")?,
                _ => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_both_spellings() {
        let list = |text| CpuSet::parse_list(text).unwrap().to_string();
        assert_eq!(list("0,2-3\n"), "0,2-3");
        assert_eq!(list("\n"), "");
        let mask = |text| CpuSet::parse_mask(text).unwrap().to_string();
        assert_eq!(mask("d\n"), "0,2-3");
        assert_eq!(mask("0\n"), "");
        // 72 CPUs: nine digits and more come in words of 32 bits.
        assert_eq!(mask("80,00000001,80000000\n"), "31-32,71");
    }

    #[test]
    fn refuses_what_is_neither() {
        for text in
            ["a", "3-1", "0-8192", "1,,2", ",", "1;2", "-1", "0-", "0 1", "+1", "99999999999", "1\n\n"]
        {
            assert!(CpuSet::parse_list(text).is_err(), "{text:?}");
        }
        for text in ["", "\n", "zz", "0x4", "1,,2", "123456789", "c,", "-1"] {
            assert!(CpuSet::parse_mask(text).is_err(), "{text:?}");
        }
        assert!(CpuSet::parse_mask(&["ffffffff"; 257].join(",")).is_err());
    }

    #[test]
    fn sets_behave_as_sets() {
        let set = |text| CpuSet::parse_list(text).unwrap();
        assert_eq!(set("0-3").minus(&set("1-2")), set("0,3"));
        assert_eq!(set("0-3").and(&set("3-9")), set("3"));
        assert_eq!(set("0").or(&set("2")), set("0,2"));
        assert!(set("5").contains(CoreId(5)) && !set("5").contains(CoreId(4)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_set_reads_back(cpus in proptest::collection::btree_set(0u16..8192, 0..40)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(CpuSet::parse_list(&format!("{set}\n")).unwrap(), set);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f,\\- \n\u{0}-\u{ff}]{0,40}") {
            let _ = CpuSet::parse_list(&text);
            let _ = CpuSet::parse_mask(&text);
        }
    }
}
