//! Observation of a host: the masks and occupancies that tenants have in other programs' groups. Writes nothing.
//!
//! A tenant has the mask of the control group that all its CPUs are in. Its occupancy is known if a group has exactly
//! its CPUs. Groups are listed anew at each sample, since other programs add and remove them. Must not know counters.

use super::{Allocation, AllocationReadings};
use std::collections::BTreeMap;
use waykeeper_host::Reading;
use waykeeper_kernel::resctrl::{Group, ResctrlError};
use waykeeper_units::{CoreList, WayMask, WorkloadId};

impl Allocation {
    /// Mask and occupancy of every tenant now.
    pub(super) fn read_others(&mut self, problems: &mut Vec<String>) -> AllocationReadings {
        if !self.chip.is_mounted {
            let unsupported = |id: &WorkloadId| (*id, Reading::Unsupported);
            let occupancies = self.members.keys().map(unsupported).collect();
            return AllocationReadings { occupancies, ..AllocationReadings::default() };
        }
        let groups = match self.all_groups(problems) {
            Ok(groups) => groups,
            Err(error) => {
                problems.push(error.to_string());
                return AllocationReadings::default();
            }
        };
        let mut readings = AllocationReadings::default();
        let mut known: BTreeMap<&Group, Option<WayMask>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (id, tenant) in self.tenants() {
            let (name, cores) = (&tenant.name, &tenant.cores);
            let inside = |cpus: &CoreList| cores.without(cpus).is_empty();
            let mut control = groups.iter().filter(|(group, _)| !group.is_monitor());
            match control.find(|(_, cpus)| !cores.is_empty() && inside(cpus)) {
                // The kernel may offer groups without masks of the L3.
                Some(_) if self.chip.resources.is_empty() => {}
                Some((group, _)) => {
                    let mask = *known
                        .entry(group)
                        .or_insert_with(|| self.mask_of_other(group).map_err(|why| problems.push(why)).ok());
                    readings.masks.extend(mask.map(|mask| (id, mask)));
                }
                None if cores.is_empty() => {}
                None => problems
                    .push(format!("CPUs {cores} of tenant {name} are spread over several resctrl groups")),
            }
            let own = groups.iter().find(|(_, cpus)| !cores.is_empty() && cpus == cores);
            let reading = match own.filter(|_| self.chip.counts_occupancy) {
                Some((group, _)) => self.occupancy_of_other(group, problems),
                None => {
                    unknown.push(name.clone());
                    Reading::Unsupported
                }
            };
            readings.occupancies.insert(id, reading);
        }
        for name in unknown {
            if self.reported.insert(name.clone()) {
                self.notes.push(format!(
                    "the LLC occupancy of {name} is not known: no resctrl group has exactly its CPUs, and \
                     Waykeeper makes none while it only observes"
                ));
            }
        }
        readings
    }

    /// All groups with their CPUs, each control group before its monitoring groups. One that cannot be read is left out and
    /// added to `problems`.
    fn all_groups(&self, problems: &mut Vec<String>) -> Result<Vec<(Group, CoreList)>, ResctrlError> {
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
                    Err(error) => problems.push(error.to_string()),
                }
            }
        }
        Ok(groups)
    }

    pub(super) fn mask_of_other(&self, group: &Group) -> Result<WayMask, String> {
        let schemata = self.resctrl.schemata(group).map_err(|error| error.to_string())?;
        self.mask_in(&schemata, None).map_err(|why| format!("resctrl group {group}: {why}"))
    }

    fn occupancy_of_other(&self, group: &Group, problems: &mut Vec<String>) -> Reading<u64> {
        match self.hold_occupancy(group).map(|held| held.map(|held| held.read()).transpose()) {
            Ok(Ok(Some(count))) => count.reading(),
            Ok(Ok(None)) => Reading::Unsupported,
            Ok(Err(error)) | Err(error) => {
                problems.push(error.to_string());
                Reading::Unavailable
            }
        }
    }
}
