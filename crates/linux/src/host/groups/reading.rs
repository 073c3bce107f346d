//! What resctrl says of the tenants: masks, occupancy, traffic. Believed only if it can be. Writes nothing.

use super::super::placement::Seat;
use super::{Class, Groups};
use crate::resctrl::{HeldCount, Schemata, Setting};
use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_units::WayMask;

impl Groups {
    pub(super) fn class(&self, seat: Seat) -> Option<&Class> {
        match seat {
            Seat::Root => Some(&self.default),
            Seat::Class(class) => self.classes.get(class)?.as_ref(),
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

    /// The managed domain's mask. With CDP it is the data half's: what devices and their readers share is data.
    pub(super) fn mask_in(&self, schemata: &Schemata) -> Result<WayMask, String> {
        let resource = self.resources.last().ok_or("no L3 is shared out here")?;
        let setting = schemata.get(resource, self.domain);
        let mask = setting.and_then(Setting::mask);
        let mask =
            mask.ok_or_else(|| format!("its schemata has no mask for {resource} in domain {}", self.domain))?;
        if mask.minus(self.ways).is_empty() {
            return Ok(mask);
        }
        Err(format!("the mask {mask} has ways that the cache has not ({})", self.ways))
    }

    /// Every tenant's mask; those that cannot be read have a line in `problems` instead.
    pub fn masks(&self, problems: &mut Vec<String>) -> BTreeMap<usize, WayMask> {
        let mut known: BTreeMap<Seat, Option<WayMask>> = BTreeMap::new();
        let mut masks = BTreeMap::new();
        for (tenant, seat) in self.placement.seats().iter().enumerate() {
            let mask = *known.entry(*seat).or_insert_with(|| {
                let mask = self.class(*seat).map(|class| self.mask(class))?;
                mask.map_err(|why| problems.push(why)).ok()
            });
            if let Some(mask) = mask {
                masks.insert(tenant, mask);
            }
        }
        masks
    }

    /// A tenant's occupancy, bytes.
    pub fn occupancy(&self, tenant: usize, problems: &mut Vec<String>) -> Reading<u64> {
        let member = self.members.get(tenant);
        problems.extend(member.and_then(|member| member.unwatched.clone()));
        match member.map(|member| &member.occupancy) {
            Some(Some(held)) => read(held, problems),
            _ if self.monitored[0] => Reading::Unavailable,
            _ => Reading::Unsupported,
        }
    }

    /// Bytes between L3 and memory of all classes, if that is counted (MBM). Devices' own traffic is not in it.
    pub fn traffic(&self, problems: &mut Vec<String>) -> Reading<u64> {
        let all = std::iter::once(&self.default).chain(self.classes.iter().flatten());
        let counts = all.filter_map(|class| class.traffic.as_ref()).map(|held| read(held, problems));
        counts.reduce(|sum, count| sum.zip_with(count, u64::wrapping_add)).unwrap_or(Reading::Unsupported)
    }
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
