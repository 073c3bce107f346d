//! Bytes between L3 and memory of all groups, from MBM's counts of the single groups. Arithmetic only; must not read
//! files.

use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_kernel::resctrl::Group;

/// Bytes between L3 and memory of all classes, as a count that only rises. A group's count ends with the group, so it
/// is read once more just before the removal. (Lines tagged with a removed group's RMID are written back uncounted.)
#[derive(Debug, Default)]
pub(super) struct Traffic {
    total: u64,
    /// The last reading per group. A control group's count includes its monitoring groups and falls when one is
    /// removed; the value to compare with may then be negative.
    last: BTreeMap<Group, i128>,
    anew: bool,
}

impl Traffic {
    /// The bytes since the last reading are unknown, for example because another program removed a group.
    pub fn starts_anew(&mut self) {
        self.anew = true;
    }

    /// A control group was made and reads `shows`.
    pub fn begins(&mut self, group: &Group, shows: Option<u64>) {
        // Before the first reading there is nothing to compare with.
        if self.last.is_empty() {
            return;
        }
        let Some(shows) = shows else { return self.starts_anew() };
        if self.last.insert(group.clone(), shows.into()).is_some() {
            // A group of this name existed before, and its last bytes were not read.
            self.starts_anew();
        }
    }

    /// A control group is to be removed and reads `shows`.
    pub fn ends(&mut self, group: &Group, shows: Option<u64>) {
        let Some(last) = self.last.remove(group) else { return };
        match shows.and_then(|shows| moved(last, shows)) {
            Some(moved) => self.total = self.total.wrapping_add(moved),
            None => self.starts_anew(),
        }
    }

    /// A monitoring group of this control group was removed; its last reading was `showed`.
    pub fn shrinks(&mut self, parent: &Group, showed: Option<u64>) {
        match (self.last.get_mut(parent), showed) {
            (Some(last), Some(showed)) => *last -= i128::from(showed),
            (Some(_), None) => self.starts_anew(),
            (None, _) => {}
        }
    }

    /// Adds the bytes since the last call, given the present readings.
    pub fn advance(&mut self, now: BTreeMap<Group, Reading<u64>>) -> Reading<u64> {
        if now.is_empty() {
            return Reading::Unsupported;
        }
        let mut missing = None;
        let mut values = BTreeMap::new();
        for (group, reading) in now {
            match reading {
                Reading::Value(value) => {
                    values.insert(group, value);
                }
                other => missing = missing.or(Some(other)),
            }
        }
        let known = |group: &Group, value: &u64| moved(*self.last.get(group)?, *value);
        let moved: Option<Vec<u64>> = values.iter().map(|(group, value)| known(group, value)).collect();
        if let Some(missing) = missing {
            // The next complete reading includes these bytes.
            return missing;
        }
        let first = self.last.is_empty();
        self.last = values.into_iter().map(|(group, value)| (group, value.into())).collect();
        match moved {
            Some(moved) if !std::mem::take(&mut self.anew) => {
                self.total = moved.into_iter().fold(self.total, u64::wrapping_add);
                Reading::Value(self.total)
            }
            _ if first => {
                self.anew = false;
                Reading::Value(self.total)
            }
            _ => {
                self.anew = false;
                Reading::Unavailable
            }
        }
    }
}

/// Bytes since the last reading; `None` if the count fell because another program removed a monitoring group in it.
fn moved(last: i128, now: u64) -> Option<u64> {
    u64::try_from(i128::from(now) - last).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_groups_counted_that_come_and_go_is_in_the_sum() {
        let group = |name: &str| Group::control(name).unwrap();
        let (a, b) = (group("a"), group("b"));
        let now = |counts: &[(&Group, u64)]| {
            counts.iter().map(|(group, count)| ((*group).clone(), Reading::Value(*count))).collect()
        };
        let mut traffic = Traffic::default();
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 1000), (&a, 100)])), Reading::Value(0));
        // b is made, and a is removed after 50 more.
        traffic.begins(&b, Some(0));
        traffic.ends(&a, Some(150));
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 1010), (&b, 7)])), Reading::Value(50 + 10 + 7));
        // Of b's 30 bytes its monitoring group counted 25. It is removed; then b counts 3 more.
        traffic.shrinks(&b, Some(25));
        assert_eq!(
            traffic.advance(now(&[(&Group::DEFAULT, 1010), (&b, 5 + 3)])),
            Reading::Value(67 + 23 + 3)
        );
        // Another program removes a group: the count falls, so one reading is unavailable.
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 10), (&b, 8)])), Reading::Unavailable);
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 11), (&b, 8)])), Reading::Value(94));
        // The same if the last bytes of a removed group cannot be read.
        traffic.ends(&b, None);
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 12)])), Reading::Unavailable);
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 13)])), Reading::Value(95));
    }
}
