//! Other programs' groups: those that hold a tenant's CPUs or tasks, and monitoring groups that lose CPUs to ours.
//!
//! They are checked under the lock before each move. They are written only to return CPUs. Must not know masks.

use super::{Groups, GroupsError, both};
use crate::journal::{Journal, Original};
use crate::resctrl::{Group, ResctrlError};
use crate::restore::put_back_cpus;
use std::collections::BTreeSet;
use waykeeper_units::{CoreId, CoreList, GroupId};

impl Groups {
    /// Checks that no CPU or thread of these tenants is in another program's control group, and no thread in another
    /// program's monitoring group of the default group, which a move would take it out of. Call it under the lock
    /// before each move.
    pub(super) fn check_not_foreign(&self, tenants: impl Fn(GroupId) -> bool) -> Result<(), GroupsError> {
        let foreign = |group: &Group| !self.resctrl.is_ours(group);
        let control = self.resctrl.control_groups()?;
        let monitors = self.resctrl.monitor_groups(&Group::DEFAULT)?;
        let mut asked = Vec::new();
        for (tenant, member) in self.members.iter().filter(|(tenant, _)| tenants(**tenant)) {
            asked.push((member, self.threads(*tenant)?));
        }
        let any_thread = asked.iter().any(|(_, threads)| !threads.is_empty());
        for group in control.iter().chain(&monitors).filter(|group| foreign(group)) {
            let theirs = if group.is_monitor() { CoreList::default() } else { self.resctrl.cpus(group)? };
            let tasks = if any_thread { self.resctrl.tasks(group)? } else { Vec::new() };
            for (member, threads) in &asked {
                let cpus = both(&member.cpus, &theirs);
                let what = match (cpus.is_empty(), threads.iter().find(|thread| tasks.contains(thread))) {
                    (false, _) => format!("CPUs {cpus}"),
                    (true, Some(thread)) => format!("tasks {thread}"),
                    (true, None) => continue,
                };
                return Err(GroupsError::Foreign {
                    tenant: member.name.clone(),
                    what,
                    group: group.to_string(),
                });
            }
        }
        Ok(())
    }

    /// CPUs in control groups that are not ours.
    pub(super) fn others_cpus(&self) -> Result<CoreList, ResctrlError> {
        let mut all: Vec<CoreId> = Vec::new();
        for group in self.resctrl.control_groups()?.iter().filter(|group| !self.resctrl.is_ours(group)) {
            all.extend(there(self.resctrl.cpus(group))?.unwrap_or_default().cores());
        }
        Ok(all.into())
    }

    /// Tasks in other programs' control groups, and in their monitoring groups of the default group.
    pub(super) fn others_tasks(&self) -> Result<BTreeSet<u32>, ResctrlError> {
        let (control, monitors) =
            (self.resctrl.control_groups()?, self.resctrl.monitor_groups(&Group::DEFAULT)?);
        let mut all = BTreeSet::new();
        for group in control.iter().chain(&monitors).filter(|group| !self.resctrl.is_ours(group)) {
            all.extend(there(self.resctrl.tasks(group))?.unwrap_or_default());
        }
        Ok(all)
    }

    /// Other programs' monitoring groups of the default group lose the CPUs that our tenants take out of it. The
    /// journal records these CPUs, so that a restore returns them. CPUs of tenants that were removed are returned at
    /// once.
    pub(super) fn keep_others_monitors(&mut self, journal: &mut Journal) -> Result<(), GroupsError> {
        // A tenant whose removed group is not made again has its CPUs in the default group.
        let members = self.members.values().filter(|member| member.left.is_none());
        let ours: Vec<CoreId> = members.flat_map(|member| member.cpus.cores().to_vec()).collect();
        let ours = CoreList::from(ours);
        for group in self.resctrl.monitor_groups(&Group::DEFAULT)? {
            if self.resctrl.is_ours(&group) {
                continue;
            }
            let kept = journal.originals().iter().find_map(|original| match original {
                Original::Cpus { group: own, cpus } if *own == group => Some(cpus.clone()),
                _ => None,
            });
            let there = self.resctrl.cpus(&group)?;
            let taken = both(&ours, &there);
            let kept = kept.unwrap_or_default();
            let back: Vec<CoreId> =
                kept.cores().iter().filter(|cpu| !ours.cores().contains(cpu)).copied().collect();
            let new = taken.cores().iter().any(|cpu| !kept.cores().contains(cpu));
            if back.is_empty() && !new {
                continue;
            }
            let back = CoreList::from(back);
            if !back.is_empty()
                && let Err(why) = put_back_cpus(&self.resctrl, &group, &back)
            {
                // The CPUs stay in the journal.
                self.notes.push(format!("CPUs {back} could not be moved back: {why}"));
                continue;
            }
            let still = kept.cores().iter().filter(|cpu| ours.cores().contains(cpu));
            let cpus: Vec<CoreId> = still.chain(taken.cores()).copied().collect();
            let original = Original::Cpus { group: group.clone(), cpus: CoreList::from(cpus.clone()) };
            match cpus.is_empty() {
                true => journal.forget(&original)?,
                false => journal.replace(&original)?,
            }
            if new {
                self.notes.push(format!(
                    "the monitoring group {group} of another tool loses its CPUs while Waykeeper manages them"
                ));
            }
        }
        Ok(())
    }
}

/// The value that was read; `None` if the group's owner has just removed it.
fn there<T>(found: Result<T, ResctrlError>) -> Result<Option<T>, ResctrlError> {
    match found {
        Err(error) if error.is_gone() => Ok(None),
        other => other.map(Some),
    }
}
