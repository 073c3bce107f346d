//! External changes to our groups: removed groups, CPUs taken out or added, monitoring groups made in them.
//!
//! They are detected at each sample and left as they are. If configured they are corrected, but only a few times: two
//! managers would undo each other's changes. A removed group that is not corrected is not made again: its tenants are
//! in the default group until they are removed. The control loop checks masks, since it knows the requested ones. Must
//! not know policies.

use super::super::placement::Slot;
use super::{Groups, ResctrlLock, both};
use crate::journal::Journal;
use crate::resctrl::{Group, ResctrlError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::mem;
use waykeeper_units::{CoreId, CoreList, GroupId};

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
    /// CPUs that no tenant has were added to our group.
    CpusAdded {
        /// The group.
        group: String,
        /// The CPUs.
        cpus: CoreList,
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
            ExternalChange::CpusAdded { group, cpus } => {
                write!(f, "another program put CPUs {cpus} into resctrl group {group}")
            }
            ExternalChange::MonitorInside { group, monitor } => {
                write!(f, "another program made the monitoring group {monitor} in resctrl group {group}")
            }
        }
    }
}

/// Corrections per group before it is left as it is. Assumption: an operator who changes it a fourth time intends it.
const CORRECTIONS: u32 = 3;
/// Other programs' monitoring groups are searched at every 16th sample: each search lists a directory of every group.
const MONITORS_EVERY: u32 = 16;

/// External changes, and what was done about them.
#[derive(Debug, Default)]
pub(super) struct ExternalChanges {
    present: Vec<ExternalChange>,
    monitors: Vec<ExternalChange>,
    samples: u32,
    /// Number of corrections per group.
    corrected: BTreeMap<String, u32>,
}

impl Groups {
    /// External changes as of the last sample.
    pub fn external_changes(&self) -> impl Iterator<Item = &ExternalChange> {
        self.external.present.iter().chain(&self.external.monitors)
    }

    /// Looks for external changes. They are added to `problems`, except for removed groups, which [`Groups::masks`]
    /// reports.
    pub fn detect_external_changes(&mut self, journal: &mut Journal, problems: &mut Vec<String>) {
        let mut found = Vec::new();
        let mut lost = Vec::new();
        let mut abandoned = Vec::new();
        for (class, held) in &self.classes {
            let slot = Slot::Class(*class);
            let occupants: Vec<GroupId> = self.placement.tenants_in(slot).collect();
            if occupants.is_empty() {
                continue;
            }
            let group = held.group.to_string();
            let own = self.cpus_of(&occupants);
            match held.cpus.read() {
                Err(error) => problems.push(error.to_string()),
                Ok(None) if !self.may_correct(&group) && !self.is_ours(&held.group) => abandoned.push(*class),
                Ok(None) => {
                    found.push(ExternalChange::GroupGone { group, tenants: self.names(&occupants, None) });
                }
                Ok(Some(there)) => {
                    let gone = minus(&own, &there);
                    let added = minus(&there, &own);
                    if !gone.is_empty() {
                        lost.push((group.clone(), occupants, gone));
                    }
                    if !added.is_empty() {
                        found.push(ExternalChange::CpusAdded { group, cpus: added });
                    }
                }
            }
        }
        for class in abandoned {
            self.abandon(class, journal);
        }
        found.extend(self.groups_gone());
        let rooted = self.rooted();
        let own = self.cpus_of(&rooted);
        if !own.is_empty() {
            match self.default.cpus.read() {
                Err(error) => problems.push(error.to_string()),
                Ok(there) => {
                    let gone = minus(&own, &there.unwrap_or_default());
                    if !gone.is_empty() {
                        lost.push((Group::DEFAULT.to_string(), rooted, gone));
                    }
                }
            }
        }
        self.members.values_mut().for_each(|member| member.lost = CoreList::default());
        if !lost.is_empty() {
            let owners = self.owners().unwrap_or_default();
            for (group, tenants, cpus) in lost {
                let by = owners.iter().find(|(_, theirs)| !both(theirs, &cpus).is_empty());
                let by = by.map(|(group, _)| group.to_string());
                let leaves = !self.may_correct(&group);
                for tenant in tenants.iter().filter(|_| leaves) {
                    if let Some(member) = self.members.get_mut(tenant) {
                        member.lost = both(&member.cpus, &cpus);
                    }
                }
                let tenants = self.names(&tenants, Some(&cpus));
                found.push(ExternalChange::CpusLost { group, tenants, cpus, by });
            }
        }
        if self.external.samples.is_multiple_of(MONITORS_EVERY) {
            self.external.monitors = self.monitors_inside();
        }
        self.external.samples = self.external.samples.wrapping_add(1);
        self.external.present = found;
        let told = self.external_changes().filter(|own| !matches!(own, ExternalChange::GroupGone { .. }));
        problems.extend(told.map(ToString::to_string).collect::<Vec<_>>());
    }

    /// Tenants of the default group, except those whose removed group is not made again.
    fn rooted(&self) -> Vec<GroupId> {
        let all = self.placement.tenants_in(Slot::Default);
        all.filter(|tenant| self.removed_group(*tenant).is_none()).collect()
    }

    /// A tenant's group that was removed and is not made again.
    pub(super) fn removed_group(&self, tenant: GroupId) -> Option<&Group> {
        self.members.get(&tenant)?.left.as_ref()
    }

    /// An external change for each of those groups that still has tenants.
    fn groups_gone(&self) -> Vec<ExternalChange> {
        let mut gone: BTreeMap<&Group, Vec<String>> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(group) = &member.left {
                gone.entry(group).or_default().push(member.name.clone());
            }
        }
        let told =
            |(group, tenants): (&Group, _)| ExternalChange::GroupGone { group: group.to_string(), tenants };
        gone.into_iter().map(told).collect()
    }

    /// Gives up a removed group: its tenants move to the default group, and a later group of its name belongs to the
    /// program that makes it.
    fn abandon(&mut self, class: usize, journal: &mut Journal) {
        let Some(held) = self.classes.remove(&class) else { return };
        self.traffic.ends(&held.group, None);
        let occupants: Vec<GroupId> = self.placement.tenants_in(Slot::Class(class)).collect();
        for tenant in occupants {
            self.placement.done_move(tenant, Slot::Default);
            let Some(member) = self.members.get_mut(&tenant) else { continue };
            member.left = Some(held.group.clone());
            (member.occupancy, member.unwatched) = (None, None);
            (member.retry, member.unplaced) = (false, false);
            // The kernel removed it with the group.
            if let Some(monitor) = mem::take(&mut member.monitor) {
                self.forget_group(monitor, journal);
            }
        }
        self.forget_group(held.group, journal);
    }

    /// Whether a group of this name may be corrected once more.
    fn may_correct(&self, group: &str) -> bool {
        let tried = self.external.corrected.get(group).copied().unwrap_or_default();
        self.corrects && tried < CORRECTIONS
    }

    /// Whether the removed group of a class may be made again; counts as a correction.
    pub(super) fn may_remake(&mut self, class: usize) -> bool {
        let name = self.classes.get(&class).map(|class| class.group.to_string()).unwrap_or_default();
        let may = self.may_correct(&name);
        if may {
            *self.external.corrected.entry(name).or_default() += 1;
        }
        may
    }

    /// CPUs that another program added to a group and that stay there.
    pub(super) fn added(&self, group: &Group) -> CoreList {
        let name = group.to_string();
        let of = |own: &ExternalChange| match own {
            ExternalChange::CpusAdded { group, cpus } if *group == name => Some(cpus.clone()),
            _ => None,
        };
        let left = self.external.present.iter().find_map(of).filter(|_| !self.may_correct(&name));
        let tenants = self.members.keys().copied().collect::<Vec<_>>();
        // A CPU that a tenant has got since belongs there.
        left.map(|cpus| minus(&cpus, &self.cpus_of(&tenants))).unwrap_or_default()
    }

    /// Writes exactly these tenants' CPUs into a group, whichever group has them.
    fn take_cpus(&self, group: &Group, tenants: &[GroupId]) -> Result<(), ResctrlError> {
        let cpus = self.cpus_of(tenants);
        if cpus == self.resctrl.cpus(group)? { Ok(()) } else { self.resctrl.set_cpus(group, &cpus) }
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

    fn cpus_of(&self, tenants: &[GroupId]) -> CoreList {
        let own = tenants.iter().filter_map(|tenant| self.members.get(tenant));
        own.flat_map(|member| member.cpus.cores().to_vec()).collect::<Vec<CoreId>>().into()
    }

    /// The names of tenants; with `cpus`, only of tenants that have some of them.
    fn names(&self, tenants: &[GroupId], cpus: Option<&CoreList>) -> Vec<String> {
        let own = tenants.iter().filter_map(|tenant| self.members.get(tenant));
        let own = own.filter(|member| cpus.is_none_or(|cpus| !both(&member.cpus, cpus).is_empty()));
        own.map(|member| member.name.clone()).collect()
    }

    /// Our groups with external changes that may be corrected; true if the group was removed.
    fn wrong(&self) -> BTreeMap<String, bool> {
        let mut wrong: BTreeMap<String, bool> = BTreeMap::new();
        for change in &self.external.present {
            match change {
                ExternalChange::GroupGone { group, .. } => drop(wrong.insert(group.clone(), true)),
                ExternalChange::CpusLost { group, .. } | ExternalChange::CpusAdded { group, .. } => {
                    wrong.entry(group.clone()).or_default();
                }
                ExternalChange::MonitorInside { .. } => continue,
            };
        }
        wrong.retain(|group, _| self.may_correct(group));
        wrong
    }

    pub fn is_wrong(&self) -> bool {
        !self.wrong().is_empty()
    }

    /// Corrects our groups, each a few times at most, and adds the results to the notes.
    pub fn correct(&mut self, journal: &mut Journal, _: &ResctrlLock) {
        for (name, is_gone) in self.wrong() {
            let tries = self.external.corrected.entry(name.clone()).or_default();
            *tries += 1;
            let tries = *tries;
            let class = self.classes.iter().find(|(_, class)| class.group.to_string() == name);
            let class = class.map(|(number, class)| (*number, class.group.clone()));
            let result = match &class {
                Some((number, _)) if is_gone => self.make_class(*number, journal),
                Some((number, group)) => {
                    let occupants: Vec<GroupId> = self.placement.tenants_in(Slot::Class(*number)).collect();
                    self.take_cpus(group, &occupants).map_err(Into::into)
                }
                None => {
                    let own = self.cpus_of(&self.rooted());
                    self.resctrl.cpus(&Group::DEFAULT).map_err(Into::into).and_then(|there| {
                        let all = CoreList::from([there.cores(), own.cores()].concat());
                        Ok(self.resctrl.set_cpus(&Group::DEFAULT, &all)?)
                    })
                }
            };
            self.notes.push(match result {
                Ok(()) => format!("resctrl group {name} was corrected, {tries} of {CORRECTIONS} times"),
                Err(why) => format!("resctrl group {name} could not be corrected: {why}"),
            });
        }
    }
}

fn minus(a: &CoreList, b: &CoreList) -> CoreList {
    a.cores().iter().filter(|core| !b.cores().contains(core)).copied().collect::<Vec<CoreId>>().into()
}
