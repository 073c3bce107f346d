//! Reads the groups there are: at each interval the held files of our classes, and before steps everything that the
//! plan depends on. Groups of ours that another program removed are dropped from the record. Must not write to resctrl.

use super::state::{Known, Maker};
use super::{Allocation, AllocationReadings, GroupsError, Pass};
use std::collections::BTreeMap;
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::resctrl::{Group, ResctrlError};

impl Allocation {
    /// Masks and occupancies now, and external changes since the last step. They are added to `problems`.
    pub fn read(
        &mut self,
        mut journal: Option<&mut Journal>,
        problems: &mut Vec<String>,
    ) -> AllocationReadings {
        let is_suspect = journal.is_none() || self.is_thorough();
        if let Err(error) = self.follow_mount(is_suspect, journal.as_deref_mut()) {
            problems.push(error.to_string());
        }
        let Some(journal) = journal else {
            problems.extend(self.mount_change(false).map(|change| change.to_string()));
            return self.read_others(problems);
        };
        self.find_lost_tasks(problems);
        let occupancies = self.occupancies(problems);
        let masks = self.masks(problems);
        self.detect_external_changes(journal, problems);
        AllocationReadings { masks, occupancies }
    }

    /// Reads all groups that matter to a plan: control groups, our monitoring groups, and the default group's others.
    /// Our groups that another program removed are not made again before a sample has reported it.
    pub(super) fn observe(&mut self, pass: &mut Pass) -> Result<(), GroupsError> {
        self.resctrl.check_mounted()?;
        self.look_at_cpus();
        let mut groups = BTreeMap::new();
        groups.insert(Group::DEFAULT, Known::read(Maker::Unknown, self.resctrl.cpus(&Group::DEFAULT)?));
        let control = self.resctrl.control_groups()?;
        let monitors = self.resctrl.monitor_groups(&Group::DEFAULT)?;
        let mut gone = Vec::new();
        for (group, known) in self.state.groups.iter().filter(|(_, known)| known.is_ours()) {
            let cpus = match self.resctrl.cpus(group) {
                // The error alone does not prove that the group is gone.
                Err(error) if error.is_gone() && !self.resctrl.has(group) => None,
                cpus => Some(cpus?),
            };
            match cpus {
                Some(cpus) if !self.was_replaced(group) => {
                    groups.insert(group.clone(), Known { cpus: Some(cpus), ..known.clone() });
                }
                _ => gone.push(group.clone()),
            }
        }
        let others = monitors.into_iter().filter(|monitor| !self.resctrl.is_ours(monitor));
        for group in control.into_iter().chain(others) {
            if groups.contains_key(&group) {
                continue;
            }
            let maker = if self.resctrl.is_ours(&group) { Maker::Unknown } else { Maker::Other };
            if let Some(cpus) = unless_gone(self.resctrl.cpus(&group))? {
                groups.insert(group, Known::read(maker, cpus));
            }
        }
        for group in gone {
            if self.was_replaced(&group) {
                self.notes.push(format!(
                    "another program removed resctrl group {group} and made a new one of that \
                     name: Waykeeper leaves it alone"
                ));
            }
            self.lose(&group, pass.journal);
            pass.barred.extend((!group.is_monitor()).then_some(group));
        }
        self.state.groups = groups;
        pass.is_observed = true;
        Ok(())
    }

    /// Drops one of our groups that is gone, with our monitoring groups in it.
    pub(super) fn lose(&mut self, group: &Group, journal: &mut Journal) {
        let is_inside = |other: &&Group| *other == group || (other.is_monitor() && other.parent() == *group);
        let inside: Vec<Group> = self.state.groups.keys().filter(is_inside).cloned().collect();
        for own in inside.iter().filter(|own| self.state.has_ours(own)).cloned().collect::<Vec<_>>() {
            self.forget(&own, journal);
        }
        if !group.is_monitor() {
            self.traffic.ends(group, None);
        }
        self.state.remove(group);
        self.held.retain(|own, _| own != group && own.parent() != *group);
    }
}

/// The value that was read; `None` if the group's owner has just removed it.
pub(super) fn unless_gone<T>(found: Result<T, ResctrlError>) -> Result<Option<T>, ResctrlError> {
    match found {
        Err(error) if error.is_gone() => Ok(None),
        other => other.map(Some),
    }
}
