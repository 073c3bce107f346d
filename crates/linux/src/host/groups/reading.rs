//! What resctrl says of the tenants: masks, occupancy, traffic. Believed only if it can be. Writes nothing.

use super::super::placement::Seat;
use super::{Class, Groups};
use crate::resctrl::{HeldCount, Resource, Schemata, Setting};
use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_units::{GroupId, WayMask};

/// Bytes between L3 and memory of all classes, as a count that only rises. A class's count ends with the class, and falls
/// when a monitoring group in it ends, whose bytes are in it.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    total: u64,
    last: BTreeMap<Seat, u64>,
    anew: bool,
}

impl Traffic {
    /// A group was made or removed: what moved since the last reading is not known.
    pub fn starts_anew(&mut self) {
        self.anew = true;
    }

    /// Takes in what all classes show now.
    fn advance(&mut self, now: BTreeMap<Seat, Reading<u64>>) -> Reading<u64> {
        if now.is_empty() {
            return Reading::Unsupported;
        }
        let mut missing = None;
        let mut values = BTreeMap::new();
        for (seat, reading) in now {
            match reading {
                Reading::Value(value) => {
                    values.insert(seat, value);
                }
                other => missing = missing.or(Some(other)),
            }
        }
        let known = |seat: &Seat, value: &u64| Some(value.wrapping_sub(*self.last.get(seat)?));
        let moved: Option<Vec<u64>> = values.iter().map(|(seat, value)| known(seat, value)).collect();
        if let Some(missing) = missing {
            // The next reading of all of them covers the gap.
            return missing;
        }
        let first = self.last.is_empty();
        self.last = values;
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
            Ok(None) => return Err(format!("{} is gone: somebody removed it", place())),
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
        let classes = self.classes.iter().map(|(class, own)| (Seat::Class(*class), own));
        let all = std::iter::once((Seat::Root, &self.default)).chain(classes);
        let counts = all.filter_map(|(seat, class)| Some((seat, class.traffic.as_ref()?)));
        let counts = counts.map(|(seat, held)| (seat, read(held, problems))).collect();
        self.traffic.advance(counts)
    }
}

/// A domain's mask. With CDP it is the data half's: what devices and their readers share is data.
pub fn mask_in(
    schemata: &Schemata,
    resources: &[Resource],
    domain: u32,
    ways: WayMask,
) -> Result<WayMask, String> {
    let resource = resources.last().ok_or("no L3 is shared out here")?;
    let mask = schemata.get(resource, domain).and_then(Setting::mask);
    let mask = mask.ok_or_else(|| format!("its schemata has no mask for {resource} in domain {domain}"))?;
    if mask.minus(ways).is_empty() {
        return Ok(mask);
    }
    Err(format!("the mask {mask} has ways that the cache has not ({ways})"))
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
