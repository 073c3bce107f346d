//! Reads the tenants' masks, occupancy and traffic from resctrl, and rejects impossible masks. Must not write.

use super::Allocation;
use super::placement::Slot;
use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_kernel::resctrl::{DomainSetting, Group, HeldCount, Resource, Schemata};
use waykeeper_units::{WayMask, WorkloadId};

/// The readings of one sample.
#[derive(Debug, Default)]
pub struct AllocationReadings {
    /// The mask of every tenant that has a known one.
    pub masks: BTreeMap<WorkloadId, WayMask>,
    /// Bytes of the LLC that every tenant's lines occupy.
    pub occupancies: BTreeMap<WorkloadId, Reading<u64>>,
}

impl Allocation {
    /// The default group's mask; `None` if it cannot be read, or if the host is only observed.
    pub fn root_mask(&self) -> Option<WayMask> {
        self.mask(&Group::DEFAULT).ok()
    }

    /// The present mask of a group; an impossible mask is an error.
    pub(super) fn mask(&self, group: &Group) -> Result<WayMask, String> {
        let place = || format!("resctrl group {group}");
        let held = self.held.get(group).and_then(|held| held.schemata.as_ref());
        let schemata = match held.map(|held| held.read()).transpose() {
            Err(error) => return Err(error.to_string()),
            Ok(schemata) => schemata.flatten(),
        };
        let schemata = schemata.ok_or_else(|| format!("{} is gone: another program removed it", place()))?;
        let ours = self.state.groups.get(group).and_then(|known| known.mask);
        self.mask_in(&schemata, ours).map_err(|why| format!("{}: {why}", place()))
    }

    /// The mask of the managed L3 in a group's schemata. `ours`: the mask that we wrote last, if we wrote one.
    pub(super) fn mask_in(&self, schemata: &Schemata, ours: Option<WayMask>) -> Result<WayMask, String> {
        mask_in(schemata, &self.chip.resources, (self.chip.domain, self.chip.ways), ours)
    }

    /// Every tenant's mask. One that cannot be read is reported in `problems` instead.
    pub(super) fn masks(&self, problems: &mut Vec<String>) -> BTreeMap<WorkloadId, WayMask> {
        let mut known: BTreeMap<Slot, Option<WayMask>> = BTreeMap::new();
        let mut masks = BTreeMap::new();
        for (tenant, slot) in self.placement.slots() {
            let mask = match self.strayed_to(tenant) {
                Some(other) => self.mask_of_other(other).map_err(|why| problems.push(why)).ok(),
                None => *known.entry(slot).or_insert_with(|| {
                    let mask = self.mask(self.group_of(slot)?);
                    mask.map_err(|why| problems.push(why)).ok()
                }),
            };
            if let Some(mask) = mask {
                masks.insert(tenant, mask);
            }
        }
        masks
    }

    /// The masks that resctrl shows for the default group, which comes first, and for ours. One that cannot be read is left
    /// out, but not the default group's: without it there are none.
    pub fn masks_of_groups(&self) -> Vec<(String, WayMask)> {
        let Ok(default) = self.mask(&Group::DEFAULT) else { return Vec::new() };
        let own = self
            .classes
            .values()
            .filter_map(|class| self.mask(&class.group).ok().map(|mask| (class.group.to_string(), mask)));
        std::iter::once((Group::DEFAULT.to_string(), default)).chain(own).collect()
    }

    /// Mask registers of all classes.
    pub fn mask_registers(&self) -> u32 {
        self.chip.registers
    }

    /// Every tenant's occupancy in bytes. A class's own count includes its monitoring groups, which are subtracted.
    pub(super) fn occupancies(&self, problems: &mut Vec<String>) -> BTreeMap<WorkloadId, Reading<u64>> {
        let mut all = BTreeMap::new();
        for (tenant, member) in &self.members {
            problems.extend(member.unwatched.as_ref().map(|unwatched| unwatched.why.clone()));
            let reading = match self.occupancy_of(*tenant) {
                Some(_) if self.is_counted_in_part(*tenant) => Reading::Unavailable,
                Some(held) => read(held, problems),
                None if self.chip.counts_occupancy => Reading::Unavailable,
                None => Reading::Unsupported,
            };
            all.insert(*tenant, reading);
        }
        for (number, class) in &self.classes {
            let Some(leader) = class.leader else { continue };
            let others = self.placement.tenants_in(Slot::Class(*number)).filter(|other| *other != leader);
            let guests = others.filter_map(|other| all.get(&other).copied());
            let guests = guests.fold(Reading::Value(0), |sum, own| sum.zip_with(own, u64::saturating_add));
            if let Some(own) = all.get_mut(&leader) {
                *own = own.zip_with(guests, u64::saturating_sub);
            }
        }
        all
    }

    /// The counter of a tenant's occupancy: its monitoring group's or its class's.
    fn occupancy_of(&self, tenant: WorkloadId) -> Option<&HeldCount> {
        if self.removed_group(tenant).is_some() {
            return None;
        }
        let monitor = self.monitor_of(tenant);
        let group = monitor.as_ref().or_else(|| self.group_of(self.placement.slot(tenant)))?;
        self.held.get(group)?.occupancy.as_ref()
    }

    /// Bytes between L3 and memory of all classes, if MBM counts them, without devices' traffic.
    pub fn traffic(&mut self, problems: &mut Vec<String>) -> Reading<u64> {
        let counts =
            self.held.iter().filter_map(|(group, held)| Some((group.clone(), held.traffic.as_ref()?)));
        let counts = counts.map(|(group, held)| (group, read(held, problems))).collect();
        self.traffic.advance(counts)
    }

    /// A group's present byte count, if it can be read.
    pub(super) fn shown(&self, group: &Group) -> Option<u64> {
        let held = self.hold_traffic(group).ok().flatten()?;
        held.read().ok().and_then(|count| count.reading().value())
    }
}

/// A domain's mask. With CDP it is the data half's: what devices and their readers share is data. We write both halves
/// alike, so a half that differs from `ours` is another program's, and is the answer.
fn mask_in(
    schemata: &Schemata,
    resources: &[Resource],
    (domain, ways): (u32, WayMask),
    ours: Option<WayMask>,
) -> Result<WayMask, String> {
    let half = |resource: &Resource| {
        let mask = schemata.get(resource, domain).and_then(DomainSetting::mask);
        let mask = mask.ok_or_else(|| {
            let why = schemata.trouble_with(resource).map(|why| format!(": {why}"));
            format!("its schemata has no mask for {resource} in domain {domain}{}", why.unwrap_or_default())
        })?;
        match mask.minus(ways).is_empty() {
            true => Ok(mask),
            false => Err(format!("the mask {mask} has ways beyond those of the cache ({ways})")),
        }
    };
    let halves = resources.iter().map(half).collect::<Result<Vec<WayMask>, String>>()?;
    let others = halves.iter().find(|mask| ours.is_some_and(|ours| **mask != ours));
    others.or(halves.last()).copied().ok_or_else(|| "resctrl offers no L3 allocation here".to_owned())
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

    /// 0x7f0 is what we wrote into both halves.
    #[test]
    fn with_cdp_the_half_that_another_program_changed_is_the_mask() {
        let resources = [Resource::L3Code, Resource::L3Data];
        let mask = |text: &str, ours: Option<u32>| {
            let schemata = Schemata::parse(text).unwrap();
            let chip = (0, WayMask::full(11));
            mask_in(&schemata, &resources, chip, ours.map(WayMask::from_bits)).map(WayMask::bits)
        };
        let alike = "L3CODE:0=7f0\nL3DATA:0=7f0\n";
        assert_eq!(mask(alike, Some(0x7f0)), Ok(0x7f0));
        assert_eq!(mask("L3CODE:0=00f\nL3DATA:0=7f0\n", Some(0x7f0)), Ok(0x00f));
        assert_eq!(mask("L3CODE:0=7f0\nL3DATA:0=00f\n", Some(0x7f0)), Ok(0x00f));
        // Where we wrote none, what devices and their readers share is data.
        assert_eq!(mask("L3CODE:0=00f\nL3DATA:0=7f0\n", None), Ok(0x7f0));
        assert!(mask("L3DATA:0=7f0\n", None).unwrap_err().contains("no mask for L3CODE in domain 0"));
        let strange = mask("L3DATA:0=7f0\nL3CODE:soft\n", None).unwrap_err();
        assert!(strange.contains("in domain 0: line 2, `L3CODE:soft`: expected DOMAIN=VALUE"), "{strange}");
        assert!(
            mask("L3CODE:0=fff\nL3DATA:0=7f0\n", None).unwrap_err().contains("beyond those of the cache")
        );
    }
}
