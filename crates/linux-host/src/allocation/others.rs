//! Other programs' groups: those that hold a tenant's CPUs or tasks, and monitoring groups that lose CPUs to ours.
//!
//! They are written only to return CPUs. Must not know masks.

use super::observe::unless_gone;
use super::state::Maker;
use super::{Allocation, GroupsError};
use std::collections::BTreeSet;
use waykeeper_kernel::journal::{Journal, Original};
use waykeeper_kernel::resctrl::{Group, ResctrlError};
use waykeeper_kernel::restore::put_back_cpus;
use waykeeper_units::{CoreList, WorkloadId};

impl Allocation {
    /// Other programs' control groups, then their monitoring groups of the default group.
    fn others(&self) -> impl Iterator<Item = &Group> {
        let others = self.state.groups.iter().filter(|(_, known)| known.maker == Maker::Other);
        let others: Vec<&Group> = others.map(|(group, _)| group).collect();
        let (monitors, control): (Vec<_>, Vec<_>) = others.into_iter().partition(|group| group.is_monitor());
        control.into_iter().chain(monitors)
    }

    /// Checks that no CPU or thread of these tenants is in another program's control group, and no thread in another
    /// program's monitoring group of the default group, which a move would take it out of. Call it after an
    /// observation, before tenants move.
    pub(super) fn check_not_foreign(&self, tenants: &[WorkloadId]) -> Result<(), GroupsError> {
        let mut asked = Vec::new();
        for tenant in tenants {
            let Some(member) = self.members.get(tenant) else { continue };
            asked.push((&member.tenant, self.threads(*tenant)?));
        }
        let any_thread = asked.iter().any(|(_, threads)| !threads.is_empty());
        for group in self.others() {
            let theirs = if group.is_monitor() { CoreList::default() } else { self.state.cpus(group) };
            // A group that its owner has removed since the observation has no tasks.
            let tasks = if any_thread { unless_gone(self.resctrl.tasks(group))? } else { None };
            let tasks = tasks.unwrap_or_default();
            for (tenant, threads) in &asked {
                let cpus = tenant.cores.common(&theirs);
                let what = match (cpus.is_empty(), threads.iter().find(|thread| tasks.contains(thread))) {
                    (false, _) => format!("CPUs {cpus}"),
                    (true, Some(thread)) => format!("tasks {thread}"),
                    (true, None) => continue,
                };
                let tenant = tenant.name.clone();
                return Err(GroupsError::Foreign { tenant, what, group: group.to_string() });
            }
        }
        Ok(())
    }

    /// Tasks in other programs' control groups, and in their monitoring groups of the default group.
    pub(super) fn others_tasks(&self) -> Result<BTreeSet<u32>, ResctrlError> {
        let (control, monitors) =
            (self.resctrl.control_groups()?, self.resctrl.monitor_groups(&Group::DEFAULT)?);
        let mut all = BTreeSet::new();
        for group in control.iter().chain(&monitors).filter(|group| !self.resctrl.is_ours(group)) {
            all.extend(unless_gone(self.resctrl.tasks(group))?.unwrap_or_default());
        }
        Ok(all)
    }

    /// Other programs' monitoring groups of the default group lose the CPUs that our tenants take out of it. The
    /// journal records these CPUs, so that a restore returns them. CPUs of tenants that were removed are returned at
    /// once.
    pub(super) fn keep_others_monitors(&mut self, journal: &mut Journal) -> Result<(), GroupsError> {
        // A tenant whose removed group is not made again has its CPUs in the default group.
        let members = self.members.values().filter(|member| member.left.is_none());
        let ours = members.fold(CoreList::default(), |all, member| all.with(&member.tenant.cores));
        let others: Vec<Group> = self.others().filter(|group| group.is_monitor()).cloned().collect();
        for group in others {
            let kept = journal.originals().iter().find_map(|original| match original {
                Original::Cpus { group: own, cpus } if *own == group => Some(cpus.clone()),
                _ => None,
            });
            let kept = kept.unwrap_or_default();
            let taken = ours.common(&self.state.cpus(&group));
            let (back, new) = (kept.without(&ours), !taken.without(&kept).is_empty());
            if back.is_empty() && !new {
                continue;
            }
            if !back.is_empty()
                && let Err(why) = put_back_cpus(&self.resctrl, &group, &back)
            {
                // The CPUs stay in the journal.
                self.notes.push(format!("CPUs {back} could not be moved back: {why}"));
                continue;
            }
            let cpus = kept.common(&ours).with(&taken);
            let original = Original::Cpus { group: group.clone(), cpus: cpus.clone() };
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
