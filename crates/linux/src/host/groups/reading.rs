//! Reads the tenants' masks, occupancy and traffic from resctrl, and rejects impossible masks. Must not write.

use super::super::placement::Slot;
use super::{Class, Groups};
use crate::resctrl::{Group, HeldCount, Resource, Schemata, Setting};
use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_units::{GroupId, WayMask};

impl Groups {
    /// The groups that have tenants, by name, with their tenants. The default group is named as resctrl's tools name
    /// it.
    pub fn classes_with_tenants(&self) -> Vec<(String, Vec<GroupId>)> {
        let own = self.classes.iter().map(|(number, class)| (Slot::Class(*number), &class.group));
        let all = std::iter::once((Slot::Default, &self.default.group)).chain(own);
        let occupants = all.map(|(slot, group)| {
            let name = if group.is_default() { "default" } else { group.name() };
            (name.to_owned(), self.placement.tenants_in(slot).collect::<Vec<_>>())
        });
        occupants.filter(|(_, tenants)| !tenants.is_empty()).collect()
    }
}

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
    fn advance(&mut self, now: BTreeMap<Group, Reading<u64>>) -> Reading<u64> {
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

impl Groups {
    pub(super) fn class(&self, slot: Slot) -> Option<&Class> {
        match slot {
            Slot::Default => Some(&self.default),
            Slot::Class(class) => self.classes.get(&class),
        }
    }

    /// The present mask of a group; an impossible mask is an error.
    /// The default group's mask; `None` if it cannot be read.
    pub fn root_mask(&self) -> Option<WayMask> {
        self.mask(&self.default).ok()
    }

    pub(super) fn mask(&self, class: &Class) -> Result<WayMask, String> {
        let place = || format!("resctrl group {}", class.group);
        let schemata = match class.held.read() {
            Err(error) => return Err(error.to_string()),
            Ok(None) => return Err(format!("{} is gone: another program removed it", place())),
            Ok(Some(schemata)) => schemata,
        };
        self.mask_in(&schemata).map_err(|why| format!("{}: {why}", place()))
    }

    pub(super) fn mask_in(&self, schemata: &Schemata) -> Result<WayMask, String> {
        mask_in(schemata, &self.resources, self.domain, self.ways)
    }

    /// Every tenant's mask. One that cannot be read is reported in `problems` instead.
    pub fn masks(&self, problems: &mut Vec<String>) -> BTreeMap<GroupId, WayMask> {
        let mut known: BTreeMap<Slot, Option<WayMask>> = BTreeMap::new();
        let mut masks = BTreeMap::new();
        for (tenant, slot) in self.placement.slots() {
            let mask = *known.entry(slot).or_insert_with(|| {
                let mask = self.class(slot).map(|class| self.mask(class))?;
                mask.map_err(|why| problems.push(why)).ok()
            });
            if let Some(mask) = mask {
                masks.insert(tenant, mask);
            }
        }
        masks
    }

    /// Every tenant's occupancy in bytes. A class's own count includes its monitoring groups, which are subtracted.
    pub fn occupancies(&self, problems: &mut Vec<String>) -> BTreeMap<GroupId, Reading<u64>> {
        let mut all = BTreeMap::new();
        for (tenant, member) in &self.members {
            problems.extend(member.unwatched.clone());
            let reading = match &member.occupancy {
                Some(held) => read(held, problems),
                None if self.monitored[0] => Reading::Unavailable,
                None => Reading::Unsupported,
            };
            all.insert(*tenant, reading);
        }
        for (tenant, slot) in self.placement.slots() {
            let alone = self.members.get(&tenant).is_some_and(|member| member.monitor.is_none());
            if slot == Slot::Default || !alone {
                continue;
            }
            let others = self.placement.tenants_in(slot).filter(|other| *other != tenant);
            let guests = others.filter_map(|other| all.get(&other).copied());
            let guests = guests.fold(Reading::Value(0), |sum, own| sum.zip_with(own, u64::saturating_add));
            if let Some(own) = all.get_mut(&tenant) {
                *own = own.zip_with(guests, u64::saturating_sub);
            }
        }
        all
    }

    /// Bytes between L3 and memory of all classes, if MBM counts them, without devices' traffic.
    pub fn traffic(&mut self, problems: &mut Vec<String>) -> Reading<u64> {
        let all = std::iter::once(&self.default).chain(self.classes.values());
        let counts = all.filter_map(|class| Some((class.group.clone(), class.traffic.as_ref()?)));
        let counts = counts.map(|(group, held)| (group, read(held, problems))).collect();
        self.traffic.advance(counts)
    }

    /// A group's present byte count, if it can be read.
    pub(super) fn shown(&self, group: &Group) -> Option<u64> {
        let held = self.hold(group, 1).ok().flatten()?;
        held.read().ok().and_then(|count| count.reading().value())
    }
}

/// A domain's mask. With CDP it is the data half's: what devices and their readers share is data.
pub fn mask_in(
    schemata: &Schemata,
    resources: &[Resource],
    domain: u32,
    ways: WayMask,
) -> Result<WayMask, String> {
    let resource = resources.last().ok_or("resctrl offers no L3 allocation here")?;
    let mask = schemata.get(resource, domain).and_then(Setting::mask);
    let mask = mask.ok_or_else(|| format!("its schemata has no mask for {resource} in domain {domain}"))?;
    if mask.minus(ways).is_empty() {
        return Ok(mask);
    }
    Err(format!("the mask {mask} has ways beyond those of the cache ({ways})"))
}

fn read(held: &HeldCount, problems: &mut Vec<String>) -> Reading<u64> {
    match held.read() {
        Ok(count) => count.reading(),
        Err(error) => {
            problems.push(error.to_string());
            Reading::Unavailable
        }
    }
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
