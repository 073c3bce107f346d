//! The tenants' resctrl groups: our own on a managed host, other programs' on an observed one.
//!
//! One type for both, so that the host need not distinguish them. Must not know how groups work.

use super::groups::{Disturbance, Grouping, Groups, GroupsError, Passage, Turnover};
use super::look::{Looker, Sight};
use crate::journal::Journal;
use crate::resctrl::Resctrl;
use std::collections::BTreeMap;
use waykeeper_host::{KnobOutcome, Reading};
use waykeeper_units::{GroupId, WayMask};

#[derive(Debug)]
pub(super) enum Places {
    /// Our groups, and the journal of originals.
    Ours(Box<Groups>, Box<Journal>),
    /// Other programs' groups.
    Theirs(Box<Looker>),
}

impl Places {
    /// Number of classes for masks, including the default group's.
    pub fn classes(&self) -> u32 {
        match self {
            Places::Ours(groups, _) => groups.classes(),
            Places::Theirs(looker) => looker.classes(),
        }
    }

    pub fn take_notes(&mut self) -> Vec<String> {
        match self {
            Places::Ours(groups, _) => groups.take_notes(),
            Places::Theirs(looker) => looker.take_notes(),
        }
    }

    /// The mount; `None` on an observed host.
    pub fn resctrl(&self) -> Option<&Resctrl> {
        match self {
            Places::Ours(groups, _) => Some(groups.resctrl()),
            Places::Theirs(_) => None,
        }
    }

    /// Before closing: removes from the journal the groups that another program has replaced.
    pub fn forget_anothers(&mut self) {
        if let Places::Ours(groups, journal) = self {
            groups.forget_anothers(journal);
        }
    }

    /// The journal; `None` on an observed host.
    pub fn journal(&mut self) -> Option<&mut Journal> {
        match self {
            Places::Ours(_, journal) => Some(journal),
            Places::Theirs(_) => None,
        }
    }

    /// Masks and occupancies now.
    pub fn look(&mut self, problems: &mut Vec<String>) -> Sight {
        match self {
            Places::Ours(groups, journal) => {
                let occupancies = groups.occupancies(problems);
                let masks = groups.masks(problems);
                groups.look_for_others(journal, problems);
                Sight { masks, occupancies }
            }
            Places::Theirs(looker) => looker.look(problems),
        }
    }

    /// Mask of the default group; `None` if it cannot be read, or if the host is only observed.
    pub fn root_mask(&self) -> Option<WayMask> {
        match self {
            Places::Ours(groups, _) => groups.root_mask(),
            Places::Theirs(_) => None,
        }
    }

    /// Bytes between L3 and memory, if counted.
    pub fn traffic(&mut self, problems: &mut Vec<String>) -> Reading<u64> {
        match self {
            Places::Ours(groups, _) => groups.traffic(problems),
            Places::Theirs(_) => Reading::Unsupported,
        }
    }

    /// Sets tenants' masks, and returns the outcome for each.
    pub fn apply(&mut self, wanted: &BTreeMap<GroupId, WayMask>) -> BTreeMap<GroupId, KnobOutcome> {
        match self {
            Places::Ours(groups, journal) => groups.apply(wanted, journal),
            Places::Theirs(_) => BTreeMap::new(),
        }
    }

    /// Takes resctrl's lock for the changes of one step; `None` on an observed host. With `at_first` it may wait.
    ///
    /// # Errors
    /// If another tool holds the lock.
    pub fn pass(&mut self, at_first: bool) -> Result<Option<Passage>, GroupsError> {
        match self {
            Places::Ours(groups, _) if at_first => Ok(Some(groups.pass_at_first()?)),
            Places::Ours(groups, _) => Ok(Some(groups.pass()?)),
            Places::Theirs(_) => Ok(None),
        }
    }

    /// Removes, changes and adds tenants; returns those that were refused.
    ///
    /// # Errors
    /// If no tenant could be added.
    pub fn turn_over(
        &mut self,
        turnover: &Turnover,
        passage: Option<&Passage>,
    ) -> Result<BTreeMap<GroupId, GroupsError>, GroupsError> {
        match (self, passage) {
            (Places::Ours(groups, journal), Some(passage)) => groups.turn_over(turnover, journal, passage),
            (Places::Ours(..), None) => Err(GroupsError::Beside("the lock was not taken".to_owned())),
            (Places::Theirs(looker), _) => {
                turnover.going.iter().for_each(|id| looker.remove(*id));
                let all = turnover.changing.iter().chain(&turnover.coming);
                all.for_each(|(id, tenant)| looker.set(*id, tenant));
                Ok(BTreeMap::new())
            }
        }
    }

    /// Gives free classes to waiting tenants, in this order.
    pub fn promote(&mut self, order: &[GroupId], passage: Option<&Passage>) {
        if let (Places::Ours(groups, journal), Some(passage)) = (self, passage) {
            groups.promote(order, journal, passage);
        }
    }

    /// The tenants that wait for a class; empty if no class is free.
    pub fn waiting(&self) -> Vec<GroupId> {
        match self {
            Places::Ours(groups, _) => groups.waiting(),
            Places::Theirs(_) => Vec::new(),
        }
    }

    pub fn groupings(&self) -> Vec<Grouping> {
        match self {
            Places::Ours(groups, _) => groups.groupings(),
            Places::Theirs(_) => Vec::new(),
        }
    }

    /// Whether a tenant needs work although its description is unchanged.
    pub fn is_restless(&self, id: GroupId, pids: &[u32]) -> bool {
        matches!(self, Places::Ours(groups, _) if groups.is_restless(id, pids))
    }

    pub fn disturbances(&self) -> Vec<Disturbance> {
        match self {
            Places::Ours(groups, _) => groups.disturbances().cloned().collect(),
            Places::Theirs(_) => Vec::new(),
        }
    }

    /// Whether other programs made changes that may be corrected.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Places::Ours(groups, _) if groups.is_wrong())
    }

    /// Corrects changes by other programs, each group a few times at most.
    pub fn correct(&mut self, passage: Option<&Passage>) {
        if let (Places::Ours(groups, journal), Some(passage)) = (self, passage) {
            groups.correct(journal, passage);
        }
    }

    pub fn has_leftovers(&self) -> bool {
        matches!(self, Places::Ours(groups, _) if groups.has_leftovers())
    }
}
