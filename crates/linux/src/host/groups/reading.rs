//! What resctrl says of the tenants: masks, occupancy, traffic. Believed only if it can be. Writes nothing.

use super::super::placement::Seat;
use super::{Class, Groups};
use crate::resctrl::{Group, HeldCount, Resource, Schemata, Setting};
use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_units::{GroupId, WayMask};

impl Groups {
    /// The groups that tenants sit in, by name, the default one as resctrl's tools call it, and who sits there.
    pub fn sitting(&self) -> Vec<(String, Vec<GroupId>)> {
        let own = self.classes.iter().map(|(number, class)| (Seat::Class(*number), &class.group));
        let all = std::iter::once((Seat::Root, &self.default.group)).chain(own);
        let sitting = all.map(|(seat, group)| {
            let name = if group.is_default() { "default" } else { group.name() };
            (name.to_owned(), self.placement.sitting(seat).collect::<Vec<_>>())
        });
        sitting.filter(|(_, tenants)| !tenants.is_empty()).collect()
    }
}

/// Bytes between L3 and memory of all classes, as a count that only rises. What a group counted goes with it, so it is read
/// once more right before, and a tenant that moves to another group takes nothing with it. (Lines that are still a removed
/// group's are written back on nobody's account.)
#[derive(Debug, Default)]
pub(super) struct Traffic {
    total: u64,
    /// What each showed last. A monitoring group's bytes are in its control group's count, which falls when it goes: what is
    /// compared with may be below zero then.
    last: BTreeMap<Group, i128>,
    anew: bool,
}

impl Traffic {
    /// Somebody else removed a group: what moved since the last reading is not known.
    pub fn starts_anew(&mut self) {
        self.anew = true;
    }

    /// A control group was made.
    pub fn begins(&mut self, group: &Group, shows: Option<u64>) {
        // Before the first reading of all nothing is compared.
        if self.last.is_empty() {
            return;
        }
        let Some(shows) = shows else { return self.starts_anew() };
        if self.last.insert(group.clone(), shows.into()).is_some() {
            // Another one of its name, whose last bytes nobody read.
            self.starts_anew();
        }
    }

    /// A control group goes.
    pub fn ends(&mut self, group: &Group, shows: Option<u64>) {
        let Some(last) = self.last.remove(group) else { return };
        match shows.and_then(|shows| moved(last, shows)) {
            Some(moved) => self.total = self.total.wrapping_add(moved),
            None => self.starts_anew(),
        }
    }

    /// A monitoring group of this control group has gone.
    pub fn shrinks(&mut self, parent: &Group, showed: Option<u64>) {
        match (self.last.get_mut(parent), showed) {
            (Some(last), Some(showed)) => *last -= i128::from(showed),
            (Some(_), None) => self.starts_anew(),
            (None, _) => {}
        }
    }

    /// Takes in what all classes show now.
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
            // The next reading of all of them covers the gap.
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

/// What a group counted since; `None` if it fell, for somebody else removed a monitoring group in it.
fn moved(last: i128, now: u64) -> Option<u64> {
    u64::try_from(i128::from(now) - last).ok()
}

impl Groups {
    pub(super) fn class(&self, seat: Seat) -> Option<&Class> {
        match seat {
            Seat::Root => Some(&self.default),
            Seat::Class(class) => self.classes.get(&class),
        }
    }

    /// The mask of a group as it reads now; a mask that cannot be is a complaint.
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

    /// Every tenant's mask; those that cannot be read have a line in `problems` instead.
    pub fn masks(&self, problems: &mut Vec<String>) -> BTreeMap<GroupId, WayMask> {
        let mut known: BTreeMap<Seat, Option<WayMask>> = BTreeMap::new();
        let mut masks = BTreeMap::new();
        for (tenant, seat) in self.placement.seats() {
            let mask = *known.entry(seat).or_insert_with(|| {
                let mask = self.class(seat).map(|class| self.mask(class))?;
                mask.map_err(|why| problems.push(why)).ok()
            });
            if let Some(mask) = mask {
                masks.insert(tenant, mask);
            }
        }
        masks
    }

    /// Every tenant's occupancy, bytes. A class's own count has those in it who were let in later and are watched apart.
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
        for (tenant, seat) in self.placement.seats() {
            let alone = self.members.get(&tenant).is_some_and(|member| member.monitor.is_none());
            if seat == Seat::Root || !alone {
                continue;
            }
            let others = self.placement.sitting(seat).filter(|other| *other != tenant);
            let guests = others.filter_map(|other| all.get(&other).copied());
            let guests = guests.fold(Reading::Value(0), |sum, own| sum.zip_with(own, u64::saturating_add));
            if let Some(own) = all.get_mut(&tenant) {
                *own = own.zip_with(guests, u64::saturating_sub);
            }
        }
        all
    }

    /// Bytes between L3 and memory of all classes, if that is counted (MBM). Devices' own traffic is not in it.
    pub fn traffic(&mut self, problems: &mut Vec<String>) -> Reading<u64> {
        let all = std::iter::once(&self.default).chain(self.classes.values());
        let counts = all.filter_map(|class| Some((class.group.clone(), class.traffic.as_ref()?)));
        let counts = counts.map(|(group, held)| (group, read(held, problems))).collect();
        self.traffic.advance(counts)
    }

    /// The bytes that a group shows now, if it shows any.
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
        // b is made, and a goes after 50 more.
        traffic.begins(&b, Some(0));
        traffic.ends(&a, Some(150));
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 1010), (&b, 7)])), Reading::Value(50 + 10 + 7));
        // Of b's 30 a monitoring group in it had 25, which goes; 3 more after that.
        traffic.shrinks(&b, Some(25));
        assert_eq!(
            traffic.advance(now(&[(&Group::DEFAULT, 1010), (&b, 5 + 3)])),
            Reading::Value(67 + 23 + 3)
        );
        // Somebody else removes one: a count falls, and once nothing is known.
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 10), (&b, 8)])), Reading::Unavailable);
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 11), (&b, 8)])), Reading::Value(94));
        // What cannot be read when it goes is not known either.
        traffic.ends(&b, None);
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 12)])), Reading::Unavailable);
        assert_eq!(traffic.advance(now(&[(&Group::DEFAULT, 13)])), Reading::Value(95));
    }
}
