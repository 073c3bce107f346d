//! Observation of a host: the masks and occupancies that tenants have in other programs' groups. Writes nothing.
//!
//! A tenant has the mask of the control group that all its CPUs are in. Its occupancy is known if a group has exactly
//! its CPUs. Groups are listed anew at each sample, since other programs add and remove them. Must not know counters.

use super::groups::mask_in;
use crate::resctrl::{Event, Group, MonDomain, Resctrl, ResctrlError, Resource};
use crate::tenants::Tenant;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Reading;
use waykeeper_units::{CoreList, GroupId, WayMask};

#[derive(Debug)]
pub(super) struct ReadOnlyGroups {
    resctrl: Resctrl,
    domain: u32,
    resources: Vec<Resource>,
    ways: WayMask,
    classes: u32,
    counts_occupancy: bool,
    tenants: BTreeMap<GroupId, (String, CoreList)>,
    /// Tenants already reported as without a known occupancy.
    told: BTreeSet<String>,
    notes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct GroupReadings {
    pub masks: BTreeMap<GroupId, WayMask>,
    pub occupancies: BTreeMap<GroupId, Reading<u64>>,
}

impl ReadOnlyGroups {
    /// Opens resctrl; `most` is the number of classes of service that could be used besides the default group's.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(resctrl: Resctrl, domain: u32, most: Option<u32>) -> Result<ReadOnlyGroups, ResctrlError> {
        let info = resctrl.info()?;
        let events = info.monitoring.as_ref().map(|all| all.events.contains(&Event::LlcOccupancy));
        Ok(ReadOnlyGroups {
            domain,
            resources: info.l3_resources(),
            ways: info.l3().map_or(WayMask::EMPTY, |l3| l3.cbm_mask),
            classes: most.map_or(u32::MAX, |most| most.saturating_add(1)).min(info.limits().closids),
            counts_occupancy: events.unwrap_or_default(),
            tenants: BTreeMap::new(),
            told: BTreeSet::new(),
            notes: Vec::new(),
            resctrl,
        })
    }

    /// Number of classes of service that masks could use, including the default group's.
    pub fn classes(&self) -> u32 {
        self.classes
    }

    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Adds a tenant or replaces its description.
    pub fn set(&mut self, id: GroupId, tenant: &Tenant) {
        self.tenants.insert(id, (tenant.name.clone(), tenant.cores.clone()));
    }

    pub fn remove(&mut self, id: GroupId) {
        if let Some((name, _)) = self.tenants.remove(&id) {
            self.told.remove(&name);
        }
    }

    /// Mask and occupancy of every tenant now.
    pub fn read(&mut self, problems: &mut Vec<String>) -> GroupReadings {
        let groups = match self.groups() {
            Ok(groups) => groups,
            Err(error) => {
                problems.push(error.to_string());
                return GroupReadings::default();
            }
        };
        let mut readings = GroupReadings::default();
        let mut known: BTreeMap<&Group, Option<WayMask>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (id, (name, cores)) in &self.tenants {
            let inside = |cpus: &CoreList| cores.cores().iter().all(|core| cpus.cores().contains(core));
            let mut control = groups.iter().filter(|(group, _)| !group.is_monitor());
            match control.find(|(_, cpus)| !cores.is_empty() && inside(cpus)) {
                Some((group, _)) => {
                    let mask = *known
                        .entry(group)
                        .or_insert_with(|| self.mask(group).map_err(|why| problems.push(why)).ok());
                    readings.masks.extend(mask.map(|mask| (*id, mask)));
                }
                None if cores.is_empty() => {}
                None => problems
                    .push(format!("CPUs {cores} of tenant {name} are spread over several resctrl groups")),
            }
            let own = groups.iter().find(|(_, cpus)| !cores.is_empty() && cpus == cores);
            let reading = match own.filter(|_| self.counts_occupancy) {
                Some((group, _)) => self.occupancy(group, problems),
                None => {
                    unknown.push(name.clone());
                    Reading::Unsupported
                }
            };
            readings.occupancies.insert(*id, reading);
        }
        for name in unknown {
            if self.told.insert(name.clone()) {
                self.notes.push(format!(
                    "the LLC occupancy of {name} is not known: no resctrl group has exactly its CPUs, and \
                     Waykeeper makes none while it only observes"
                ));
            }
        }
        readings
    }

    /// All groups with their CPUs, each control group before its monitoring groups.
    fn groups(&self) -> Result<Vec<(Group, CoreList)>, ResctrlError> {
        let mut groups = Vec::new();
        let control = self.resctrl.control_groups()?;
        for parent in std::iter::once(Group::DEFAULT).chain(control) {
            let monitors = self.resctrl.monitor_groups(&parent);
            for group in std::iter::once(Ok(parent)).chain(
                monitors
                    .map_or_else(|error| vec![Err(error)], |monitors| monitors.into_iter().map(Ok).collect()),
            ) {
                match group.and_then(|group| Ok((self.resctrl.cpus(&group)?, group))) {
                    Ok((cpus, group)) => groups.push((group, cpus)),
                    // Its owner has just removed it.
                    Err(error) if error.is_gone() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(groups)
    }

    fn mask(&self, group: &Group) -> Result<WayMask, String> {
        let schemata = self.resctrl.schemata(group).map_err(|error| error.to_string())?;
        mask_in(&schemata, &self.resources, self.domain, self.ways)
            .map_err(|why| format!("resctrl group {group}: {why}"))
    }

    fn occupancy(&self, group: &Group, problems: &mut Vec<String>) -> Reading<u64> {
        let place = MonDomain { l3: self.domain, node: None };
        let held = self.resctrl.hold_count(group, place, &Event::LlcOccupancy);
        match held.map(|held| held.map(|held| held.read()).transpose()) {
            Ok(Ok(Some(count))) => count.reading(),
            Ok(Ok(None)) => Reading::Unsupported,
            Ok(Err(error)) | Err(error) => {
                problems.push(error.to_string());
                Reading::Unavailable
            }
        }
    }
}
