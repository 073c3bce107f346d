//! Tasks of tenants that another program has moved out of our groups: found at each sample, and what holds for a tenant
//! whose tasks are elsewhere.
//!
//! The kernel moves a task at one write into another group's `tasks` (`pqos -I -a pid:N=M` does nothing else). The task
//! then has that group's mask, unless that is the default group: then the group of its CPU decides (resctrl.rst,
//! "resource allocation rules"). Must not know masks, nor write.

use super::external::ExternalChange;
use super::tasks::TenantProcess;
use super::{Allocation, GroupsError};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::resctrl::{Group, ResctrlError};
use waykeeper_units::{WorkloadId, few};

/// A tenant's tasks that are not in its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LostTasks {
    /// The group that should have them.
    group: Group,
    tasks: Vec<u32>,
    /// The control group that has the first of them.
    pub by: Group,
    /// The tenant has no other task.
    pub all: bool,
}

impl Allocation {
    /// Looks for tasks that another program has moved. What cannot be read is added to `problems`.
    pub(super) fn find_lost_tasks(&mut self, problems: &mut Vec<String>) {
        // A thorough sample compares all threads, the others the first thread of each process.
        let by_threads = self.is_thorough();
        let mut found = BTreeMap::new();
        let mut tasks_of: BTreeMap<Group, BTreeSet<u32>> = BTreeMap::new();
        for id in self.members.keys().copied().collect::<Vec<_>>() {
            match self.lost_tasks_of(id, by_threads, &mut tasks_of) {
                Ok(lost) => found.extend(lost.map(|lost| (id, lost))),
                // A group that is gone is reported as such.
                Err(GroupsError::Resctrl(why)) if why.is_gone() => {}
                Err(why) => problems.push(why.to_string()),
            }
        }
        // What was found thread by thread is looked for again in the samples between.
        if !by_threads {
            for (id, before) in std::mem::take(&mut self.external.lost_tasks) {
                if !found.contains_key(&id) && self.is_still_lost(&before) {
                    found.insert(id, before);
                }
            }
        }
        for (id, lost) in &found {
            // They are not in their group: the next plan moves them.
            if self.external.may_correct(&lost.group.to_string()) {
                self.doubt_places(*id, lost);
            }
        }
        self.external.lost_tasks = found;
    }

    fn lost_tasks_of(
        &self,
        id: WorkloadId,
        by_threads: bool,
        tasks_of: &mut BTreeMap<Group, BTreeSet<u32>>,
    ) -> Result<Option<LostTasks>, GroupsError> {
        let Some(member) = self.members.get(&id).filter(|member| member.left.is_none()) else {
            return Ok(None);
        };
        let place = |process: &TenantProcess| self.state.processes.get(process).cloned().flatten();
        let Some(group) = member.processes.iter().find_map(place) else { return Ok(None) };
        let placed: Vec<TenantProcess> =
            member.processes.iter().filter(|own| place(own).as_ref() == Some(&group)).copied().collect();
        if !tasks_of.contains_key(&group) {
            tasks_of.insert(group.clone(), self.resctrl.tasks(&group)?.into_iter().collect());
        }
        let inside = |pid: u32| tasks_of.get(&group).is_some_and(|tasks| tasks.contains(&pid));
        let suspects: Vec<TenantProcess> =
            placed.iter().filter(|own| by_threads || !inside(own.pid)).copied().collect();
        if suspects.is_empty() {
            return Ok(None);
        }
        // A thread that was there before and after its group was read, and that the group does not have, is elsewhere: it
        // has neither ended nor begun meanwhile.
        let before = self.threads_of(&suspects)?;
        let tasks: BTreeSet<u32> = self.resctrl.tasks(&group)?.into_iter().collect();
        let after: BTreeSet<u32> = self.threads_of(&suspects)?.into_iter().collect();
        let is_lost = |thread: &u32| after.contains(thread) && !tasks.contains(thread);
        let lost: Vec<u32> = before.into_iter().filter(is_lost).collect();
        let Some(first) = lost.first().copied() else { return Ok(None) };
        let stay = self.threads_of(&placed)?.iter().any(|thread| tasks.contains(thread));
        let by = self.control_group_of(first, &group)?;
        Ok(Some(LostTasks { group, tasks: lost, by, all: !stay }))
    }

    /// The control group that has a task now, other than `except`; the default group if no other has it.
    fn control_group_of(&self, task: u32, except: &Group) -> Result<Group, ResctrlError> {
        for group in self.resctrl.control_groups()?.into_iter().filter(|group| group != except) {
            match self.resctrl.tasks(&group) {
                Ok(tasks) if tasks.contains(&task) => return Ok(group),
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        Ok(Group::DEFAULT)
    }

    fn is_still_lost(&self, lost: &LostTasks) -> bool {
        self.resctrl.tasks(&lost.by).is_ok_and(|tasks| lost.tasks.iter().any(|own| tasks.contains(own)))
    }

    fn doubt_places(&mut self, id: WorkloadId, lost: &LostTasks) {
        let Some(member) = self.members.get(&id) else { return };
        for process in &member.processes {
            let has_lost = || {
                process.threads(&self.root).is_ok_and(|own| own.iter().any(|own| lost.tasks.contains(own)))
            };
            if self.state.place(process).as_ref() == Some(&lost.group) && has_lost() {
                self.state.processes.insert(*process, None);
            }
        }
    }

    /// The lost tasks as external changes.
    pub(super) fn lost_task_changes(&self) -> Vec<ExternalChange> {
        let change = |(id, lost): (&WorkloadId, &LostTasks)| ExternalChange::TasksLost {
            group: lost.group.to_string(),
            tenant: self.name(*id).to_owned(),
            tasks: lost.tasks.clone(),
            by: lost.by.to_string(),
        };
        self.external.lost_tasks.iter().map(change).collect()
    }

    /// Where the tasks of a tenant are, if a mask and counts of another group hold for them: all have been moved, and the
    /// group of the tenant's CPUs does not decide.
    pub(super) fn strayed_to(&self, id: WorkloadId) -> Option<&Group> {
        let lost = self.external.lost_tasks.get(&id).filter(|lost| lost.all)?;
        let cpus_decide = lost.by.is_default() && self.tenant(id).is_some_and(|own| !own.cores.is_empty());
        (!cpus_decide).then_some(&lost.by)
    }

    /// True if some of a tenant's lines are not counted by its group, since some tasks are elsewhere.
    pub(super) fn is_counted_in_part(&self, id: WorkloadId) -> bool {
        let lost = self.external.lost_tasks.get(&id);
        lost.is_some_and(|lost| {
            !lost.by.is_default() || self.tenant(id).is_none_or(|own| own.cores.is_empty())
        })
    }

    /// The tasks of a group that a correction moves back, although another program's group has them.
    pub(super) fn tasks_to_take_back(&self, group: &Group) -> BTreeSet<u32> {
        let own = self.external.lost_tasks.values().filter(|lost| lost.group == *group);
        own.flat_map(|lost| lost.tasks.iter().copied()).collect()
    }
}

/// Pids in one line: runs, and the first few of many.
pub(super) fn pid_runs(pids: &[u32]) -> String {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for pid in pids {
        match runs.last_mut() {
            Some((_, last)) if pid <= last.saturating_add(1) => *last = pid,
            _ => runs.push((pid, pid)),
        }
    }
    let shown =
        |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    few(&runs.into_iter().map(shown).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::pid_runs;

    #[test]
    fn pids_are_shown_as_runs() {
        assert_eq!(pid_runs(&[5_000_000, 5_000_001, 5_000_003, 5_000_002]), "5000000-5000003");
        assert_eq!(pid_runs(&[7]), "7");
        assert_eq!(pid_runs(&[1, 3, 5, 7, 9, 11, 13, 14]), "1, 3, 5, 7, 9, 11 and 1 more");
    }
}
