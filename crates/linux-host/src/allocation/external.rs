//! External changes to our groups: removed groups, CPUs and tasks taken out, CPUs added, monitoring groups made in them; and
//! what `rewrite` finds.
//!
//! They are detected at each sample and left as they are. If configured they are corrected, but only a few times: two
//! managers would undo each other's changes. A removed group that is not corrected is not made again: its tenants are
//! in the default group until they are removed. The control loop checks masks, since it knows the requested ones. Must
//! not know policies.

use super::lost_tasks::{LostTasks, pid_runs};
use super::placement::Slot;
use super::state::Maker;
use super::{Allocation, Pass};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_kernel::journal::Journal;
use waykeeper_kernel::resctrl::{Group, ResctrlError, unmounted};
use waykeeper_units::{CoreList, WayMask, WorkloadId};

/// An external change to one of our groups, or to a tenant's CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum ExternalChange {
    /// A group was removed.
    GroupGone {
        /// The group.
        group: String,
        /// Its tenants.
        tenants: Vec<String>,
    },
    /// CPUs of tenants are not in their group.
    CpusLost {
        /// The group that should have them; the default group is `(default)`.
        group: String,
        /// The tenants that have these CPUs.
        tenants: Vec<String>,
        /// The CPUs.
        cpus: CoreList,
        /// The group that has the first of them, if known.
        by: Option<String>,
    },
    /// Tasks of a tenant are not in its group.
    TasksLost {
        /// The group that should have them.
        group: String,
        /// The tenant.
        tenant: String,
        /// The tasks.
        tasks: Vec<u32>,
        /// The group that has the first of them; the default group is `(default)`.
        by: String,
    },
    /// CPUs that no tenant has were added to our group.
    CpusAdded {
        /// The group.
        group: String,
        /// The CPUs.
        cpus: CoreList,
    },
    /// Another program unmounted resctrl: no group can be read or changed, and the kernel may still have them.
    Unmounted,
    /// Another program unmounted resctrl and mounted it again: all groups are gone.
    Remounted {
        /// The options that it was made with, if they are known; empty if there were none.
        options: Option<String>,
        /// Those of the mount at the start, if they are known.
        had: Option<String>,
    },
    /// No register of the CPU has the mask that resctrl shows for a group.
    MaskBehind {
        /// The group; the default group is `(default)`.
        group: String,
        /// The mask that resctrl shows.
        mask: WayMask,
    },
    /// Another program changed our group's shares of what no policy sets: memory bandwidth, other caches.
    SharesChanged {
        /// The group.
        group: String,
        /// The lines of its schemata that another program wrote, with the changed domains.
        found: String,
        /// What it had.
        had: String,
    },
    /// Another program changed our group's mode: other groups can no longer have its ways.
    ModeChanged {
        /// The group.
        group: String,
        /// The mode, by the kernel's name.
        mode: &'static str,
    },
    /// Another program made a monitoring group in our group. It stays, and moves to the default group when ours is
    /// removed.
    MonitorInside {
        /// Our group.
        group: String,
        /// The other program's group.
        monitor: String,
    },
}

impl std::fmt::Display for ExternalChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExternalChange::GroupGone { group, .. } => {
                write!(f, "resctrl group {group} is gone: another program removed it")
            }
            ExternalChange::CpusLost { group, tenants, cpus, by } => {
                let by = by.as_ref().map_or_else(String::new, |by| format!("; they are in {by}"));
                write!(f, "CPUs {cpus} of {} are no longer in resctrl group {group}{by}", tenants.join(", "))
            }
            ExternalChange::TasksLost { group, tenant, tasks, by } => {
                let tasks = pid_runs(tasks);
                write!(
                    f,
                    "tasks {tasks} of {tenant} are no longer in resctrl group {group}; they are in {by}"
                )
            }
            ExternalChange::CpusAdded { group, cpus } => {
                write!(f, "another program put CPUs {cpus} into resctrl group {group}")
            }
            ExternalChange::Unmounted => f.write_str(&unmounted()),
            ExternalChange::Remounted { options, had } => {
                f.write_str("another program mounted resctrl anew, which removed all groups")?;
                match (options, had) {
                    (Some(options), Some(had)) if options != had => {
                        let named =
                            |own: &str| if own.is_empty() { "none".to_owned() } else { own.to_owned() };
                        write!(f, "; its options are {}, and were {}", named(options), named(had))
                    }
                    _ => Ok(()),
                }
            }
            ExternalChange::MaskBehind { group, mask } => write!(
                f,
                "resctrl shows mask {mask} for group {group}, but no register has it: another program wrote the \
                 masks past resctrl"
            ),
            ExternalChange::SharesChanged { group, found, had } => {
                write!(f, "another program set {found} in resctrl group {group}, which had {had}")
            }
            ExternalChange::ModeChanged { group, mode } => {
                write!(
                    f,
                    "another program made resctrl group {group} {mode}; no other group can have its ways"
                )
            }
            ExternalChange::MonitorInside { group, monitor } => {
                write!(f, "another program made the monitoring group {monitor} in resctrl group {group}")
            }
        }
    }
}

/// Corrections per group before it is left as it is. Assumption: an operator who changes it a fourth time intends it.
const CORRECTIONS: u32 = 3;
/// Every 16th sample is thorough: it lists a directory and opens a file of every group and process, and reads registers.
const THOROUGH_EVERY: u32 = 16;

/// External changes, and what was done about them.
#[derive(Debug)]
pub(super) struct ExternalChanges {
    /// Whether they are corrected, a few times each.
    corrects: bool,
    present: Vec<ExternalChange>,
    /// What only a thorough sample finds in resctrl: monitoring groups, modes, shares, the mount.
    pub seldom: Vec<ExternalChange>,
    /// Masks that no register has, as of the last thorough sample.
    pub masks_behind: Vec<ExternalChange>,
    pub lost_tasks: BTreeMap<WorkloadId, LostTasks>,
    /// Tasks that are moved back although another program's group has them, while groups are corrected.
    pub taken_back: BTreeSet<u32>,
    samples: u32,
    /// Number of corrections per group.
    corrected: BTreeMap<String, u32>,
}

impl ExternalChanges {
    pub fn new(corrects: bool) -> ExternalChanges {
        ExternalChanges {
            corrects,
            present: Vec::new(),
            seldom: Vec::new(),
            masks_behind: Vec::new(),
            lost_tasks: BTreeMap::new(),
            taken_back: BTreeSet::new(),
            samples: 0,
            corrected: BTreeMap::new(),
        }
    }

    /// Whether a group of this name may be corrected once more.
    pub fn may_correct(&self, group: &str) -> bool {
        let tried = self.corrected.get(group).copied().unwrap_or_default();
        self.corrects && tried < CORRECTIONS
    }
}

impl Allocation {
    /// Whether the next sample is a thorough one.
    pub fn is_thorough(&self) -> bool {
        self.external.samples.is_multiple_of(THOROUGH_EVERY)
    }

    /// External changes as of the last sample.
    pub fn external_changes(&self) -> impl Iterator<Item = &ExternalChange> {
        self.external.present.iter().chain(&self.external.seldom).chain(&self.external.masks_behind)
    }

    /// Looks for external changes. They are added to `problems`, except for removed groups, which
    /// [`Allocation::masks`] reports.
    pub(super) fn detect_external_changes(&mut self, journal: &mut Journal, problems: &mut Vec<String>) {
        let is_gone = |own: &ExternalChange| matches!(own, ExternalChange::GroupGone { .. });
        let had_gone = self.external.present.iter().any(is_gone);
        self.external.present.clear();
        let (mut lost, mut is_mounted) = (Vec::new(), true);
        for class in self.placement.in_use() {
            let Some(group) = self.classes.get(&class).map(|class| class.group.clone()) else { continue };
            let occupants: Vec<WorkloadId> = self.placement.tenants_in(Slot::Class(class)).collect();
            match self.held.get(&group).and_then(|held| held.cpus.as_ref()).map(|held| held.read()) {
                Some(Err(error)) => problems.push(error.to_string()),
                Some(Ok(Some(there))) => lost.extend(self.compare(&group, occupants, there)),
                // Without a mount every group looks gone, and the kernel may still have all of them (umount -l).
                Some(Ok(None)) | None if self.resctrl.check_mounted().is_err() => is_mounted = false,
                Some(Ok(None)) | None => {
                    if self.was_replaced(&group) || !self.resctrl.has(&group) {
                        self.lose(&group, journal);
                    }
                    self.class_is_gone(class, journal);
                }
            }
        }
        let gone = self.groups_gone();
        self.external.present.extend(gone);
        let has_gone = self.external.present.iter().any(is_gone);
        if has_gone && !had_gone {
            problems.extend(self.follow_mount(true, Some(journal)).err().map(|error| error.to_string()));
        }
        let mount = self.mount_change(has_gone);
        self.external.present.extend(mount);
        let lost_tasks = self.lost_task_changes();
        self.external.present.extend(lost_tasks);
        let rooted = self.rooted();
        if is_mounted && !self.cpus_of(&rooted).is_empty() {
            match self.held.get(&Group::DEFAULT).and_then(|held| held.cpus.as_ref()).map(|held| held.read()) {
                Some(Err(error)) => problems.push(error.to_string()),
                there => {
                    let there = there.and_then(Result::ok).flatten().unwrap_or_default();
                    lost.extend(self.compare(&Group::DEFAULT, rooted, there));
                }
            }
        }
        self.report_lost(lost);
        if self.is_thorough() {
            self.external.seldom = self.monitors_inside();
            self.external.seldom.extend(self.changed_modes());
            self.external.seldom.extend(self.changed_shares());
            is_mounted = is_mounted && self.resctrl.check_mounted().is_ok();
        }
        match is_mounted {
            true => self.external.seldom.retain(|own| *own != ExternalChange::Unmounted),
            false => {
                self.external.seldom = vec![ExternalChange::Unmounted];
                // Files that are open keep an unmounted resctrl alive (umount -l), and there is one at a time: the next
                // mount would be refused as busy (linux:fs/resctrl/rdtgroup.c, rdt_get_tree).
                self.held.clear();
                journal.leave_resctrl();
            }
        }
        self.external.samples = self.external.samples.wrapping_add(1);
        let reported = self.external_changes().filter(|own| !matches!(own, ExternalChange::GroupGone { .. }));
        problems.extend(reported.map(ToString::to_string).collect::<Vec<_>>());
    }

    /// Of CPUs that are missing in our groups, those that another program has moved are external changes. Those that are or
    /// were offline, and that no other group has, are not: they are put back.
    fn report_lost(&mut self, lost: Vec<(Group, Vec<WorkloadId>, CoreList)>) {
        // After the groups were read: a CPU that was switched off before is known now.
        let returned = self.look_at_cpus();
        self.doubt_monitors(&returned);
        let owners = if lost.is_empty() { Vec::new() } else { self.owners().unwrap_or_default() };
        let held = owners.iter().fold(CoreList::default(), |all, (_, cpus)| all.with(cpus));
        let missing = lost.iter().fold(CoreList::default(), |all, (.., cpus)| all.with(cpus));
        // One that was off after the reading is missing in the next.
        self.presence.are_missing(&missing.without(&held).with(&returned));
        let away = self.presence.away();
        for (group, tenants, cpus) in lost {
            let cpus = cpus.without(&away);
            if cpus.is_empty() {
                continue;
            }
            let by = owners.iter().find(|(_, theirs)| !theirs.common(&cpus).is_empty());
            let by = by.map(|(group, _)| group.to_string());
            let tenants = self.names(&tenants, Some(&cpus));
            let group = group.to_string();
            self.external.present.push(ExternalChange::CpusLost { group, tenants, cpus, by });
        }
    }

    /// The kernel has taken CPUs that were offline from our monitoring groups too, which are not read at each sample.
    fn doubt_monitors(&mut self, returned: &CoreList) {
        for (_, known) in self.state.groups.iter_mut().filter(|(group, _)| group.is_monitor()) {
            known.cpus.take_if(|cpus| known.maker != Maker::Other && !cpus.common(returned).is_empty());
        }
    }

    /// Compares a group's CPUs with its tenants'. Returns the missing ones.
    fn compare(
        &mut self,
        group: &Group,
        tenants: Vec<WorkloadId>,
        there: CoreList,
    ) -> Option<(Group, Vec<WorkloadId>, CoreList)> {
        let own = self.cpus_of(&tenants);
        let (gone, added) = (own.without(&there), there.without(&own));
        if let Some(known) = self.state.groups.get_mut(group) {
            known.cpus = Some(there);
        }
        if !added.is_empty() && !group.is_default() {
            self.external.present.push(ExternalChange::CpusAdded { group: group.to_string(), cpus: added });
        }
        (!gone.is_empty()).then(|| (group.clone(), tenants, gone))
    }

    /// Tenants of the default group, except those whose removed group is not made again.
    fn rooted(&self) -> Vec<WorkloadId> {
        let all = self.placement.tenants_in(Slot::Default);
        all.filter(|tenant| self.removed_group(*tenant).is_none()).collect()
    }

    /// A tenant's group that was removed and is not made again.
    pub(super) fn removed_group(&self, tenant: WorkloadId) -> Option<&Group> {
        self.members.get(&tenant)?.left.as_ref()
    }

    /// An external change for each of those groups that still has tenants.
    fn groups_gone(&self) -> Vec<ExternalChange> {
        let mut gone: BTreeMap<&Group, Vec<String>> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(group) = &member.left {
                gone.entry(group).or_default().push(member.tenant.name.clone());
            }
        }
        let reported =
            |(group, tenants): (&Group, _)| ExternalChange::GroupGone { group: group.to_string(), tenants };
        gone.into_iter().map(reported).collect()
    }

    /// The group of a class is gone. Unless it may be made again, its tenants move to the default group, and a later
    /// group of its name belongs to the program that makes it.
    fn class_is_gone(&mut self, class: usize, journal: &mut Journal) {
        let Some(group) = self.classes.get(&class).map(|class| class.group.clone()) else { return };
        let occupants: Vec<WorkloadId> = self.placement.tenants_in(Slot::Class(class)).collect();
        let name = group.to_string();
        if self.external.may_correct(&name) || self.state.has_ours(&group) {
            let tenants = self.names(&occupants, None);
            let change = ExternalChange::GroupGone { group: name, tenants };
            if !occupants.is_empty() && !self.external.present.contains(&change) {
                self.external.present.push(change);
            }
            return;
        }
        for tenant in occupants {
            self.place(tenant, Slot::Default);
            if let Some(member) = self.members.get_mut(&tenant) {
                member.left = Some(group.clone());
            }
        }
        self.classes.remove(&class);
        self.lose(&group, journal);
    }

    /// CPUs that another program took out of a group or added to it, and that stay as they are.
    pub(super) fn left_alone(&self, group: &Group) -> (CoreList, CoreList) {
        let name = group.to_string();
        let (mut lost, mut added) = (CoreList::default(), CoreList::default());
        let away = self.presence.away();
        if self.external.may_correct(&name) {
            return (lost, added);
        }
        for change in &self.external.present {
            match change {
                ExternalChange::CpusLost { group, cpus, .. } if *group == name => {
                    lost = cpus.without(&away);
                }
                ExternalChange::CpusAdded { group, cpus } if *group == name => added = cpus.clone(),
                _ => {}
            }
        }
        let tenants = self.members.keys().copied().collect::<Vec<_>>();
        // A CPU that a tenant has got since belongs there.
        (lost, added.without(&self.cpus_of(&tenants)))
    }

    fn monitors_inside(&self) -> Vec<ExternalChange> {
        let mut found = Vec::new();
        for class in self.classes.values() {
            // If a group cannot be listed, reading its files reports that.
            for monitor in self.resctrl.others_monitors(&class.group).unwrap_or_default() {
                let (group, monitor) = (class.group.to_string(), monitor.name().to_owned());
                found.push(ExternalChange::MonitorInside { group, monitor });
            }
        }
        found
    }

    fn owners(&self) -> Result<Vec<(Group, CoreList)>, ResctrlError> {
        let groups = self.resctrl.control_groups()?;
        groups.into_iter().map(|group| Ok((group.clone(), self.resctrl.cpus(&group)?))).collect()
    }

    /// The names of tenants; with `cpus`, only of tenants that have some of them.
    fn names(&self, tenants: &[WorkloadId], cpus: Option<&CoreList>) -> Vec<String> {
        let own = tenants.iter().filter_map(|tenant| self.tenant(*tenant));
        let own = own.filter(|own| cpus.is_none_or(|cpus| !own.cores.common(cpus).is_empty()));
        own.map(|own| own.name.clone()).collect()
    }

    /// Our groups with external changes that may be corrected; true if the group was removed.
    pub(super) fn wrong(&self) -> BTreeMap<Group, bool> {
        let mut wrong: BTreeMap<Group, bool> = BTreeMap::new();
        for group in self.classes.values().map(|class| &class.group).chain([&Group::DEFAULT]) {
            let name = group.to_string();
            for change in self.external_changes().filter(|_| self.external.may_correct(&name)) {
                match change {
                    ExternalChange::GroupGone { group: own, .. } if *own == name => {
                        wrong.insert(group.clone(), true);
                    }
                    ExternalChange::CpusLost { group: own, .. }
                    | ExternalChange::TasksLost { group: own, .. }
                    | ExternalChange::ModeChanged { group: own, .. }
                    | ExternalChange::SharesChanged { group: own, .. }
                    | ExternalChange::CpusAdded { group: own, .. }
                        if *own == name =>
                    {
                        wrong.entry(group.clone()).or_default();
                    }
                    // The default group's register is not ours.
                    ExternalChange::MaskBehind { group: own, .. } if *own == name && !group.is_default() => {
                        wrong.entry(group.clone()).or_default();
                    }
                    _ => {}
                }
            }
        }
        wrong
    }

    /// Corrects our groups, each a few times at most, and adds the results to the notes.
    pub(super) fn correct(&mut self, pass: &mut Pass) {
        for (group, is_gone) in self.wrong() {
            let tries = self.count_correction(&group);
            let result = match is_gone {
                true => self.remake(&group, pass),
                false => {
                    pass.corrected.insert(group.clone());
                    self.external.taken_back = self.tasks_to_take_back(&group);
                    let settled = self.rewrite(&group);
                    let settled = settled.and_then(|()| self.settle(pass).map_err(|(_, why)| why));
                    self.external.taken_back.clear();
                    settled
                }
            };
            self.notes.push(match result {
                Ok(()) => format!("resctrl group {group} was corrected, {tries} of {CORRECTIONS} times"),
                Err(why) => format!("resctrl group {group} could not be corrected: {why}"),
            });
        }
    }

    /// Whether a removed group may be made again; counts as a correction.
    pub(super) fn may_remake(&mut self, group: &Group) -> bool {
        let may = self.external.may_correct(&group.to_string());
        if may {
            self.count_correction(group);
        }
        may
    }

    fn count_correction(&mut self, group: &Group) -> u32 {
        let tries = self.external.corrected.entry(group.to_string()).or_default();
        *tries += 1;
        *tries
    }
}
