//! Other programs' groups: those that hold a tenant's CPUs or tasks, and monitoring groups that lose CPUs to ours or by
//! a write of ours.
//!
//! They are written only to return CPUs. Must not know masks.

use super::observe::unless_gone;
use super::state::Maker;
use super::{Allocation, GroupsError};
use std::collections::BTreeSet;
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::resctrl::{Group, ResctrlError};
use waykeeper_kernel::restore::{keep_cpus, kept_cpus, put_back_cpus};
use waykeeper_units::{CoreList, WorkloadId};

/// Another program's monitoring group before a write that takes CPUs from it.
#[derive(Debug)]
struct WatchedCpus {
    monitor: Group,
    cpus: CoreList,
    /// Where a restore finds it.
    later: Group,
    /// CPUs that it lost earlier, as the journal has them for that place.
    kept: CoreList,
}

impl WatchedCpus {
    fn all(&self) -> CoreList {
        self.cpus.with(&self.kept)
    }
}

impl Allocation {
    /// Other programs' control groups, then their monitoring groups of the default group.
    pub(super) fn others(&self) -> impl Iterator<Item = &Group> {
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
            let kept = kept_cpus(journal, &group);
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
            keep_cpus(journal, &group, &kept.common(&ours).with(&taken))?;
            if new {
                self.note_lost(&group);
            }
        }
        Ok(())
    }

    fn note_lost(&mut self, group: &Group) {
        self.notes.push(format!(
            "the monitoring group {group} of another tool loses its CPUs while Waykeeper manages them"
        ));
    }

    /// Writes the CPUs of a group. Other programs' monitoring groups keep theirs as far as their control group has them;
    /// the rest is in the journal until they get it back.
    pub(super) fn write_cpus(
        &mut self,
        group: &Group,
        cpus: &CoreList,
        journal: &mut Journal,
    ) -> Result<(), GroupsError> {
        match group.is_monitor() {
            // `keep_others_monitors` has recorded those of the default group.
            true if group.parent().is_default() => Ok(self.resctrl.set_cpus(group, cpus)?),
            true => self.write_monitor_cpus(group, cpus, journal),
            false => self.write_control_cpus(group, cpus, journal),
        }
    }

    /// At each write of a control group's CPUs the kernel takes all CPUs of the monitoring groups in it (linux
    /// rdtgroup.c, cpus_ctrl_write).
    fn write_control_cpus(
        &mut self,
        group: &Group,
        cpus: &CoreList,
        journal: &mut Journal,
    ) -> Result<(), GroupsError> {
        let watched = self.watched_in(group, journal)?;
        for own in &watched {
            keep_cpus(journal, &own.later, &own.all())?;
            if own.later != own.monitor {
                keep_cpus(journal, &own.monitor, &own.cpus)?;
            }
        }
        if let Err(why) = self.resctrl.set_cpus(group, cpus) {
            // Nothing has changed. An entry that cannot be dropped is restored later, without effect.
            for own in &watched {
                let _ = keep_cpus(journal, &own.monitor, &CoreList::default());
                let _ = keep_cpus(journal, &own.later, &own.kept);
            }
            return Err(why.into());
        }
        for own in watched {
            let wanted = match group.is_default() {
                true => own.cpus.clone(),
                false => own.all().common(cpus),
            };
            if !self.returns_cpus(&own.monitor, &wanted) {
                continue;
            }
            let lost = own.all().without(&wanted);
            if !lost.without(&own.kept).is_empty() {
                self.note_lost(&own.monitor);
            }
            if own.later != own.monitor {
                keep_cpus(journal, &own.monitor, &CoreList::default())?;
            }
            keep_cpus(journal, &own.later, &lost)?;
        }
        Ok(())
    }

    /// A CPU that one monitoring group gets leaves the one beside it.
    fn write_monitor_cpus(
        &mut self,
        group: &Group,
        cpus: &CoreList,
        journal: &mut Journal,
    ) -> Result<(), GroupsError> {
        let mut losers = self.watched_in(&group.parent(), journal)?;
        losers.retain(|own| !own.cpus.common(cpus).is_empty());
        for own in &losers {
            keep_cpus(journal, &own.later, &own.kept.with(&own.cpus.common(cpus)))?;
        }
        if let Err(why) = self.resctrl.set_cpus(group, cpus) {
            for own in &losers {
                let _ = keep_cpus(journal, &own.later, &own.kept);
            }
            return Err(why.into());
        }
        losers.iter().for_each(|own| self.note_lost(&own.monitor));
        Ok(())
    }

    /// Other programs' monitoring groups in a control group that have CPUs.
    fn watched_in(&self, parent: &Group, journal: &Journal) -> Result<Vec<WatchedCpus>, GroupsError> {
        let mut watched = Vec::new();
        for monitor in self.resctrl.others_monitors(parent)? {
            let cpus = unless_gone(self.resctrl.cpus(&monitor))?.unwrap_or_default();
            if cpus.is_empty() {
                continue;
            }
            // When our group is removed, the monitoring group moves to the default group, unless its name is taken there.
            let later = Group::DEFAULT.monitor(monitor.name()).ok().filter(|later| !self.resctrl.has(later));
            let later = later.unwrap_or_else(|| monitor.clone());
            let kept = kept_cpus(journal, &later);
            watched.push(WatchedCpus { monitor, cpus, later, kept });
        }
        Ok(watched)
    }

    /// Gives a monitoring group its CPUs again after a write. False if it could not get them; the journal keeps them.
    fn returns_cpus(&mut self, monitor: &Group, wanted: &CoreList) -> bool {
        let now = match self.resctrl.cpus(monitor) {
            Err(why) if why.is_gone() => return true,
            now => now,
        };
        let done = now.and_then(|now| match now == *wanted {
            true => Ok(()),
            false => self.resctrl.set_cpus(monitor, wanted),
        });
        if let Err(why) = &done {
            self.notes.push(format!("CPUs {wanted} could not be moved back: {why}"));
        }
        done.is_ok()
    }
}
