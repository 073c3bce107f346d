//! A state of resctrl as far as allocation needs it: groups with their CPUs and masks, and the groups of tenants'
//! processes. A [`AllocationStep`] changes it as the kernel changes its groups.
//!
//! Values only. Must not know tenants, nor why a step is taken.

use super::tasks::TenantProcess;
use std::collections::BTreeMap;
use waykeeper_kernel::resctrl::Group;
use waykeeper_units::{CoreList, WayMask, WorkloadId};

/// Which program made a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maker {
    /// Waykeeper. The directory's inode distinguishes it from a later group of its name, if it could be read.
    Waykeeper(Option<u64>),
    /// Another program.
    Other,
    /// Unknown: it has a name of ours, but we did not make it. The kernel made the default group.
    Unknown,
}

/// What is known of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    pub maker: Maker,
    /// `None` if a write failed since they were read.
    pub cpus: Option<CoreList>,
    pub mask: Option<WayMask>,
    /// It has the default group's shares of all other resources. False if a failed step left it half made.
    pub is_whole: bool,
}

impl Known {
    /// A group as it was read.
    pub fn read(maker: Maker, cpus: CoreList) -> Known {
        Known { maker, cpus: Some(cpus), mask: None, is_whole: true }
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.maker, Maker::Waykeeper(_))
    }
}

/// One change of resctrl.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllocationStep {
    /// Removes one of our groups. Its CPUs and tasks return to its parent.
    Remove(Group),
    /// Makes a group, empty, with the default group's shares.
    Make(Group),
    /// Writes a group's mask.
    Mask(Group, WayMask),
    /// Writes a group's CPUs.
    Cpus(Group, CoreList),
    /// Moves processes, with the tenant that has them.
    Move(Group, Option<WorkloadId>, Vec<TenantProcess>),
}

impl AllocationStep {
    pub fn group(&self) -> &Group {
        match self {
            AllocationStep::Remove(group)
            | AllocationStep::Make(group)
            | AllocationStep::Mask(group, _)
            | AllocationStep::Cpus(group, _)
            | AllocationStep::Move(group, ..) => group,
        }
    }
}

/// The groups, and the processes that were moved into them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllocationState {
    /// All control groups, the default one included, our monitoring groups, and the default group's others.
    pub groups: BTreeMap<Group, Known>,
    /// `None` if a move failed half-way. A process that is not listed is in the default group.
    pub processes: BTreeMap<TenantProcess, Option<Group>>,
}

impl AllocationState {
    /// A group's CPUs; empty if they are unknown or it does not exist.
    pub fn cpus(&self, group: &Group) -> CoreList {
        self.groups.get(group).and_then(|known| known.cpus.clone()).unwrap_or_default()
    }

    /// The group of a process; `None` if a move failed half-way.
    pub fn place(&self, process: &TenantProcess) -> Option<Group> {
        self.processes.get(process).map_or(Some(Group::DEFAULT), Clone::clone)
    }

    /// True if the group is one that we made.
    pub fn has_ours(&self, group: &Group) -> bool {
        self.groups.get(group).is_some_and(Known::is_ours)
    }

    /// CPUs in control groups that another program made.
    pub fn others_cpus(&self) -> CoreList {
        let others = self.groups.iter().filter(|(group, known)| {
            known.maker == Maker::Other && !group.is_monitor() && !group.is_default()
        });
        others.fold(CoreList::default(), |all, (group, _)| all.with(&self.cpus(group)))
    }

    /// The state after a successful step.
    pub fn advance(&mut self, step: &AllocationStep) {
        match step {
            AllocationStep::Remove(group) => self.remove(group),
            AllocationStep::Make(group) => {
                let maker = self.groups.get(group).map_or(Maker::Waykeeper(None), |known| known.maker);
                self.groups.insert(group.clone(), Known::read(maker, CoreList::default()));
            }
            AllocationStep::Mask(group, mask) => {
                if let Some(known) = self.groups.get_mut(group) {
                    known.mask = Some(*mask);
                }
            }
            AllocationStep::Cpus(group, cpus) => self.set_cpus(group, cpus),
            AllocationStep::Move(group, _, processes) => {
                for process in processes {
                    match group.is_default() {
                        true => drop(self.processes.remove(process)),
                        false => drop(self.processes.insert(*process, Some(group.clone()))),
                    }
                }
            }
        }
    }

    /// The state without a group: its CPUs and processes are in its parent.
    pub fn remove(&mut self, group: &Group) {
        let cpus = self.cpus(group);
        self.groups.remove(group);
        if !group.is_monitor() {
            self.groups.retain(|other, _| other.parent() != *group);
            self.give(&Group::DEFAULT, &cpus);
        }
        let parent = if group.is_monitor() { group.parent() } else { Group::DEFAULT };
        let is_inside = |place: &Group| place == group || (!group.is_monitor() && place.parent() == *group);
        for place in self.processes.values_mut().filter(|place| place.as_ref().is_some_and(is_inside)) {
            *place = Some(parent.clone());
        }
        self.processes.retain(|_, place| *place != Some(Group::DEFAULT));
    }

    fn set_cpus(&mut self, group: &Group, cpus: &CoreList) {
        let before = self.cpus(group);
        let gained = cpus.without(&before);
        let loses = |other: &Group| match group.is_monitor() {
            // A CPU is in one monitoring group of a control group.
            true => other.is_monitor() && other.parent() == group.parent(),
            // A CPU is in one control group, and in monitoring groups of that one only.
            false => other.parent() != *group,
        };
        let losers: Vec<Group> =
            self.groups.keys().filter(|other| *other != group && loses(other)).cloned().collect();
        losers.iter().for_each(|other| self.take(other, &gained));
        if !group.is_monitor() {
            let lost = before.without(cpus);
            let inside: Vec<Group> = self
                .groups
                .keys()
                .filter(|other| *other != group && other.parent() == *group)
                .cloned()
                .collect();
            // The kernel empties them at each write, also of CPUs that stay (linux rdtgroup.c, cpus_ctrl_write).
            for monitor in inside {
                let all = self.cpus(&monitor);
                self.take(&monitor, &all);
            }
            self.give(&Group::DEFAULT, &lost);
        }
        if let Some(known) = self.groups.get_mut(group) {
            known.cpus = Some(cpus.clone());
        }
    }

    fn take(&mut self, group: &Group, cpus: &CoreList) {
        if let Some(own) = self.groups.get_mut(group).and_then(|known| known.cpus.as_mut()) {
            *own = own.without(cpus);
        }
    }

    fn give(&mut self, group: &Group, cpus: &CoreList) {
        if let Some(own) = self.groups.get_mut(group).and_then(|known| known.cpus.as_mut()) {
            *own = own.with(cpus);
        }
    }
}
