//! Lists of cores as the kernel writes them: `0-3,8`.

use crate::{CoreId, shown};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Cores, ascending, each once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CoreList(Vec<CoreId>);

/// Why a core list was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreListError {
    /// Not of the form `0-3,8`.
    #[error("`{0}` is not a core list; write cores like 0-3,8")]
    Syntax(String),
    /// A core named twice.
    #[error("core {1} is given twice in `{0}`")]
    Twice(String, u16),
}

impl CoreList {
    /// The cores, ascending.
    pub fn cores(&self) -> &[CoreId] {
        &self.0
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the core is in the list.
    pub fn contains(&self, core: CoreId) -> bool {
        self.0.binary_search(&core).is_ok()
    }

    /// The cores that are in both lists.
    #[must_use]
    pub fn common(&self, other: &CoreList) -> CoreList {
        CoreList(self.0.iter().copied().filter(|core| other.contains(*core)).collect())
    }

    /// The cores that are not in the other list.
    #[must_use]
    pub fn without(&self, other: &CoreList) -> CoreList {
        CoreList(self.0.iter().copied().filter(|core| !other.contains(*core)).collect())
    }

    /// The cores of both lists.
    #[must_use]
    pub fn with(&self, other: &CoreList) -> CoreList {
        CoreList::from([self.cores(), other.cores()].concat())
    }
}

impl From<Vec<CoreId>> for CoreList {
    fn from(mut cores: Vec<CoreId>) -> CoreList {
        cores.sort_unstable();
        cores.dedup();
        CoreList(cores)
    }
}

/// Cores are numbered below this: no machine that this runs on has more. The bound keeps a typo from filling memory.
const CORES_LIMIT: u16 = 4096;

impl FromStr for CoreList {
    type Err = CoreListError;

    fn from_str(text: &str) -> Result<CoreList, CoreListError> {
        let bad = || CoreListError::Syntax(shown(text));
        let mut cores = Vec::new();
        // A repeated core is refused when it is read: `0-4095` is 6 bytes, and a file may repeat it a million times.
        let mut given = [0u64; CORES_LIMIT as usize / 64];
        for part in text.split(',') {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: u16 = low.trim().parse().map_err(|_| bad())?;
            let high: u16 = high.trim().parse().map_err(|_| bad())?;
            if low > high || high >= CORES_LIMIT {
                return Err(bad());
            }
            for core in low..=high {
                let (word, bit) = (&mut given[usize::from(core / 64)], 1 << (core % 64));
                if *word & bit != 0 {
                    return Err(CoreListError::Twice(shown(text), core));
                }
                *word |= bit;
                cores.push(CoreId(core));
            }
        }
        cores.sort_unstable();
        Ok(CoreList(cores))
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut first = true;
        while let Some(&start) = rest.first() {
            let run =
                rest.iter().enumerate().take_while(|(i, core)| usize::from(core.0 - start.0) == *i).count();
            if !first {
                f.write_str(",")?;
            }
            first = false;
            match run {
                1 => write!(f, "{}", start.0)?,
                _ => write!(f, "{}-{}", start.0, rest[run - 1].0)?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

impl Serialize for CoreList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CoreList {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<CoreList, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_the_kernels_form() {
        let list: CoreList = "8,0-3".parse().unwrap();
        assert_eq!(list.cores().iter().map(|c| c.0).collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(list.to_string(), "0-3,8");
        assert_eq!("5".parse::<CoreList>().unwrap().to_string(), "5");
    }

    #[test]
    fn lists_are_compared_core_by_core() {
        let list = |text: &str| text.parse::<CoreList>().unwrap();
        let (a, b) = (list("0-3,8"), list("2-5"));
        assert_eq!((a.common(&b), a.without(&b), a.with(&b)), (list("2-3"), list("0-1,8"), list("0-5,8")));
        assert!(a.contains(CoreId(8)) && !a.contains(CoreId(4)));
    }

    #[test]
    fn refuses_what_is_not_a_list() {
        for bad in ["", "a", "3-1", "0-3,2", "1,,2", "-1", "0-99999"] {
            assert!(bad.parse::<CoreList>().is_err(), "{bad} should be refused");
        }
    }

    /// 3,000,000 times `0-4095` is 20 MiB of text; a list of all these cores would take 23 GiB.
    #[test]
    fn a_list_that_repeats_cores_is_refused_before_it_fills_memory_and_not_repeated_in_the_error() {
        let text = "0-4095,".repeat(3_000_000) + "0";
        let error = text.parse::<CoreList>().unwrap_err();
        assert_eq!(error, CoreListError::Twice("0-4095,".repeat(9)[..60].to_owned() + "…", 0));
        assert_eq!("1,5,2-5".parse::<CoreList>(), Err(CoreListError::Twice("1,5,2-5".to_owned(), 5)));
        assert!(
            matches!("x".repeat(100).parse::<CoreList>(), Err(CoreListError::Syntax(text)) if text.len() == 63)
        );
    }
}
