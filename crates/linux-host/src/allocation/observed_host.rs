//! Observation of a host: the masks and occupancies that tenants have in other programs' groups. Writes nothing.
//!
//! As the kernel does it (resctrl.rst, "resource allocation rules"): a task in a control group has that group's mask; a task
//! of the default group has the mask of the group of its CPU. A tenant's occupancy is known if a group has exactly its CPUs
//! or exactly its tasks. Groups are listed anew at each sample, since other programs add and remove them. Must not know
//! counters.

use super::{Allocation, AllocationReadings};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Reading;
use waykeeper_kernel::resctrl::{Group, ResctrlError};
use waykeeper_tenants::Tenant;
use waykeeper_units::{CoreList, WayMask, WorkloadId, few};

/// A group as it was read.
struct ObservedGroup {
    group: Group,
    cpus: CoreList,
    /// Its tasks, with those of its monitoring groups. Those of the default group, which are most tasks, are not listed.
    tasks: BTreeSet<u32>,
}

/// All groups that could be read.
#[derive(Default)]
struct ObservedGroups {
    groups: Vec<ObservedGroup>,
    /// A control group could not be read: a task that no other lists may be in it.
    lacks_control: bool,
    /// Some group could not be read.
    lacks_some: bool,
}

/// A tenant's threads.
#[derive(Default)]
struct ObservedThreads {
    /// They were there before and after the groups were read.
    lasting: BTreeSet<u32>,
    /// These, and those that were there before or after.
    all: BTreeSet<u32>,
}

impl ObservedThreads {
    /// Whether any of them is in the group.
    fn are_in(&self, group: &ObservedGroup) -> bool {
        self.lasting.iter().any(|thread| group.tasks.contains(thread))
    }

    /// Whether the group has exactly them.
    fn are_all_of(&self, group: &ObservedGroup) -> bool {
        !self.lasting.is_empty() && self.lasting.is_subset(&group.tasks) && group.tasks.is_subset(&self.all)
    }
}

impl Allocation {
    /// Mask and occupancy of every tenant now.
    pub(super) fn read_others(&mut self, problems: &mut Vec<String>) -> AllocationReadings {
        if !self.chip.is_mounted {
            let unsupported = |id: &WorkloadId| (*id, Reading::Unsupported);
            let occupancies = self.members.keys().map(unsupported).collect();
            return AllocationReadings { occupancies, ..AllocationReadings::default() };
        }
        // `None`: they could not be read.
        let mut threads: BTreeMap<WorkloadId, Option<ObservedThreads>> = BTreeMap::new();
        for (id, before) in self.all_threads(problems) {
            let own = before.map(|before| ObservedThreads { lasting: before.clone(), all: before });
            threads.insert(id, own);
        }
        let groups = match self.all_groups(!threads.is_empty(), problems) {
            Ok(groups) => groups,
            Err(error) => {
                problems.push(error.to_string());
                return AllocationReadings::default();
            }
        };
        for (id, after) in self.all_threads(&mut Vec::new()) {
            let own = threads.remove(&id).flatten().zip(after).map(|(mut own, after)| {
                own.lasting.retain(|thread| after.contains(thread));
                own.all.extend(after);
                own
            });
            threads.insert(id, own);
        }
        let mut readings = AllocationReadings::default();
        let mut known: BTreeMap<&Group, Option<WayMask>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for (id, tenant) in self.tenants() {
            let Some(own) = threads.remove(&id).unwrap_or_else(|| Some(ObservedThreads::default())) else {
                readings.occupancies.insert(id, Reading::Unavailable);
                continue;
            };
            match control_group_of(tenant, &own, &groups) {
                // The kernel may offer groups without masks of the L3.
                Ok(Some(group)) if !self.chip.resources.is_empty() => {
                    let mask = *known
                        .entry(group)
                        .or_insert_with(|| self.mask_of_other(group).map_err(|why| problems.push(why)).ok());
                    readings.masks.extend(mask.map(|mask| (id, mask)));
                }
                Ok(_) => {}
                Err(why) => problems.push(why),
            }
            let counted = counting_group_of(tenant, &own, &groups);
            let reading = match counted.filter(|_| self.chip.counts_occupancy) {
                Some(group) => self.occupancy_of_other(group, problems),
                None if groups.lacks_some && self.chip.counts_occupancy => Reading::Unavailable,
                None => {
                    unknown.push(tenant.name.clone());
                    Reading::Unsupported
                }
            };
            readings.occupancies.insert(id, reading);
        }
        for name in unknown {
            if self.reported.insert(name.clone()) {
                self.notes.push(format!(
                    "the LLC occupancy of {name} is not known: no resctrl group has exactly its CPUs or tasks, \
                     and Waykeeper makes none while it only observes"
                ));
            }
        }
        readings
    }

    /// The threads of each tenant that has processes. `None`: they cannot be read, which is added to `problems`.
    fn all_threads(&self, problems: &mut Vec<String>) -> Vec<(WorkloadId, Option<BTreeSet<u32>>)> {
        let all = self.members.iter().filter(|(_, member)| !member.processes.is_empty());
        all.map(|(id, member)| {
            let threads =
                self.threads_of(&member.processes).map_err(|error| problems.push(error.to_string()));
            (*id, threads.ok().map(|threads| threads.into_iter().collect()))
        })
        .collect()
    }

    /// All groups, each control group before its monitoring groups; their tasks are read only if they matter. A group that
    /// cannot be read is left out and added to `problems`.
    fn all_groups(
        &self,
        with_tasks: bool,
        problems: &mut Vec<String>,
    ) -> Result<ObservedGroups, ResctrlError> {
        let read = |group: Group| {
            let cpus = self.resctrl.cpus(&group)?;
            let tasks = match with_tasks && !group.is_default() {
                true => self.resctrl.tasks(&group)?.into_iter().collect(),
                false => BTreeSet::new(),
            };
            Ok(ObservedGroup { group, cpus, tasks })
        };
        let mut all = ObservedGroups::default();
        let control = self.resctrl.control_groups()?;
        for parent in std::iter::once(Group::DEFAULT).chain(control) {
            let monitors = self.resctrl.monitor_groups(&parent);
            let own = std::iter::once(Ok(parent)).chain(
                monitors
                    .map_or_else(|error| vec![Err(error)], |monitors| monitors.into_iter().map(Ok).collect()),
            );
            for (number, group) in own.enumerate() {
                match group.and_then(read) {
                    Ok(group) => all.groups.push(group),
                    // Its owner has just removed it.
                    Err(error) if error.is_gone() => {}
                    Err(error) => {
                        all.lacks_some = true;
                        all.lacks_control |= number == 0;
                        problems.push(error.to_string());
                    }
                }
            }
        }
        Ok(all)
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

/// The control group whose mask a tenant has: that of its tasks; for tasks of the default group, and for a tenant without
/// tasks, that of its CPUs. `None` if its CPUs are not known either, or if it may have that of a group that could not be
/// read.
///
/// # Errors
/// If several groups hold for it.
fn control_group_of<'a>(
    tenant: &Tenant,
    threads: &ObservedThreads,
    all: &'a ObservedGroups,
) -> Result<Option<&'a Group>, String> {
    let Tenant { name, cores, .. } = tenant;
    let control = || all.groups.iter().filter(|own| !own.group.is_monitor());
    let mut holding: Vec<&Group> =
        control().filter(|own| threads.are_in(own)).map(|own| &own.group).collect();
    let is_placed = |thread: &u32| control().any(|own| own.tasks.contains(thread));
    if threads.lasting.is_empty() || !threads.lasting.iter().all(is_placed) {
        if all.lacks_control && !threads.lasting.is_empty() {
            return Ok(None);
        }
        let by_cpus = match cores.is_empty() {
            false => control().find(|own| cores.without(&own.cpus).is_empty()),
            // They may run anywhere.
            true => control().find(|own| own.group.is_default()).filter(|_| {
                !threads.lasting.is_empty()
                    && control().all(|own| own.group.is_default() || own.cpus.is_empty())
            }),
        };
        match by_cpus {
            Some(own) if holding.contains(&&own.group) => {}
            Some(own) => holding.push(&own.group),
            None if cores.is_empty() || all.lacks_control => return Ok(None),
            None => {
                return Err(format!("CPUs {cores} of tenant {name} are spread over several resctrl groups"));
            }
        }
    }
    match holding[..] {
        [] => Ok(None),
        [group] => Ok(Some(group)),
        _ => {
            let names: Vec<String> = holding.iter().map(ToString::to_string).collect();
            Err(format!("tasks of tenant {name} are spread over several resctrl groups: {}", few(&names)))
        }
    }
}

/// The group that counts a tenant's lines and no other lines, if one that could be read does.
fn counting_group_of<'a>(
    tenant: &Tenant,
    threads: &ObservedThreads,
    all: &'a ObservedGroups,
) -> Option<&'a Group> {
    let cores = &tenant.cores;
    let has_only_its = |own: &&ObservedGroup| own.cpus.without(cores).is_empty() && threads.are_all_of(own);
    let found = match all.groups.iter().any(|own| threads.are_in(own)) {
        true => all.groups.iter().find(has_only_its),
        // They may be in one that could not be read.
        false if all.lacks_some && !threads.lasting.is_empty() => None,
        false => all.groups.iter().find(|own| !cores.is_empty() && own.cpus == *cores),
    };
    found.map(|own| &own.group)
}
