//! The tenants' resctrl groups: our own on a managed host, other programs' on an observed one.
//!
//! One type for both, so that the host need not distinguish them. Must not know how groups work.

use super::groups::{ExternalChange, Grouping, Groups, GroupsError, ResctrlLock, TenantChanges};
use super::read_only_groups::{GroupReadings, ReadOnlyGroups};
use crate::journal::Journal;
use crate::resctrl::Resctrl;
use std::collections::BTreeMap;
use waykeeper_host::{KnobOutcome, Reading};
use waykeeper_units::{GroupId, WayMask};

#[derive(Debug)]
pub(super) enum GroupBackend {
    /// Our groups, and the journal of originals.
    Managed(Box<Groups>, Box<Journal>),
    /// Other programs' groups.
    Observed(Box<ReadOnlyGroups>),
}

impl GroupBackend {
    /// Number of classes for masks, including the default group's.
    pub fn classes(&self) -> u32 {
        match self {
            GroupBackend::Managed(groups, _) => groups.classes(),
            GroupBackend::Observed(groups) => groups.classes(),
        }
    }

    pub fn take_notes(&mut self) -> Vec<String> {
        match self {
            GroupBackend::Managed(groups, _) => groups.take_notes(),
            GroupBackend::Observed(groups) => groups.take_notes(),
        }
    }

    /// The mount; `None` on an observed host.
    pub fn resctrl(&self) -> Option<&Resctrl> {
        match self {
            GroupBackend::Managed(groups, _) => Some(groups.resctrl()),
            GroupBackend::Observed(_) => None,
        }
    }

    /// Before closing: removes from the journal the groups that another program has replaced.
    pub fn forget_replaced(&mut self) {
        if let GroupBackend::Managed(groups, journal) = self {
            groups.forget_replaced(journal);
        }
    }

    /// The journal; `None` on an observed host.
    pub fn journal(&mut self) -> Option<&mut Journal> {
        match self {
            GroupBackend::Managed(_, journal) => Some(journal),
            GroupBackend::Observed(_) => None,
        }
    }

    /// Masks and occupancies now.
    pub fn read(&mut self, problems: &mut Vec<String>) -> GroupReadings {
        match self {
            GroupBackend::Managed(groups, journal) => {
                let occupancies = groups.occupancies(problems);
                let masks = groups.masks(problems);
                groups.detect_external_changes(journal, problems);
                GroupReadings { masks, occupancies }
            }
            GroupBackend::Observed(groups) => groups.read(problems),
        }
    }

    /// Mask of the default group; `None` if it cannot be read, or if the host is only observed.
    pub fn root_mask(&self) -> Option<WayMask> {
        match self {
            GroupBackend::Managed(groups, _) => groups.root_mask(),
            GroupBackend::Observed(_) => None,
        }
    }

    /// Bytes between L3 and memory, if counted.
    pub fn traffic(&mut self, problems: &mut Vec<String>) -> Reading<u64> {
        match self {
            GroupBackend::Managed(groups, _) => groups.traffic(problems),
            GroupBackend::Observed(_) => Reading::Unsupported,
        }
    }

    /// Sets tenants' masks, and returns the outcome for each.
    pub fn apply(&mut self, wanted: &BTreeMap<GroupId, WayMask>) -> BTreeMap<GroupId, KnobOutcome> {
        match self {
            GroupBackend::Managed(groups, journal) => groups.apply(wanted, journal),
            GroupBackend::Observed(_) => BTreeMap::new(),
        }
    }

    /// Takes resctrl's lock for the changes of one step; `None` on an observed host. With `at_start` it may wait.
    ///
    /// # Errors
    /// If another tool holds the lock.
    pub fn take_lock(&mut self, at_start: bool) -> Result<Option<ResctrlLock>, GroupsError> {
        match self {
            GroupBackend::Managed(groups, _) if at_start => Ok(Some(groups.take_lock_at_start()?)),
            GroupBackend::Managed(groups, _) => Ok(Some(groups.take_lock()?)),
            GroupBackend::Observed(_) => Ok(None),
        }
    }

    /// Removes, changes and adds tenants; returns those that were refused.
    ///
    /// # Errors
    /// If no tenant could be added.
    pub fn apply_changes(
        &mut self,
        changes: &TenantChanges,
        lock: Option<&ResctrlLock>,
    ) -> Result<BTreeMap<GroupId, GroupsError>, GroupsError> {
        match (self, lock) {
            (GroupBackend::Managed(groups, journal), Some(lock)) => {
                groups.apply_changes(changes, journal, lock)
            }
            (GroupBackend::Managed(..), None) => {
                Err(GroupsError::Beside("the lock was not taken".to_owned()))
            }
            (GroupBackend::Observed(groups), _) => {
                changes.removed.iter().for_each(|id| groups.remove(*id));
                let all = changes.changed.iter().chain(&changes.added);
                all.for_each(|(id, tenant)| groups.set(*id, tenant));
                Ok(BTreeMap::new())
            }
        }
    }

    /// Gives free classes to waiting tenants, in this order.
    pub fn promote(&mut self, order: &[GroupId], lock: Option<&ResctrlLock>) {
        if let (GroupBackend::Managed(groups, journal), Some(lock)) = (self, lock) {
            groups.promote(order, journal, lock);
        }
    }

    /// The tenants that wait for a class; empty if no class is free.
    pub fn waiting(&self) -> Vec<GroupId> {
        match self {
            GroupBackend::Managed(groups, _) => groups.waiting(),
            GroupBackend::Observed(_) => Vec::new(),
        }
    }

    pub fn groupings(&self) -> Vec<Grouping> {
        match self {
            GroupBackend::Managed(groups, _) => groups.groupings(),
            GroupBackend::Observed(_) => Vec::new(),
        }
    }

    /// Whether a tenant needs work although its description is unchanged.
    pub fn needs_retry(&self, id: GroupId, pids: &[u32]) -> bool {
        matches!(self, GroupBackend::Managed(groups, _) if groups.needs_retry(id, pids))
    }

    pub fn external_changes(&self) -> Vec<ExternalChange> {
        match self {
            GroupBackend::Managed(groups, _) => groups.external_changes().cloned().collect(),
            GroupBackend::Observed(_) => Vec::new(),
        }
    }

    /// Whether other programs made changes that may be corrected.
    pub fn is_wrong(&self) -> bool {
        matches!(self, GroupBackend::Managed(groups, _) if groups.is_wrong())
    }

    /// Corrects changes by other programs, each group a few times at most.
    pub fn correct(&mut self, lock: Option<&ResctrlLock>) {
        if let (GroupBackend::Managed(groups, journal), Some(lock)) = (self, lock) {
            groups.correct(journal, lock);
        }
    }

    pub fn has_leftovers(&self) -> bool {
        matches!(self, GroupBackend::Managed(groups, _) if groups.has_leftovers())
    }
}
