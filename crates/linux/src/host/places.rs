//! Where the tenants are in resctrl: in groups of ours, or in whatever groups there are, where a host is only looked at.
//!
//! One word for both, so that the host need not ask which. Must not know what a group is.

use super::groups::{Disturbance, Grouping, Groups, GroupsError, Passage, Turnover};
use super::look::{Looker, Sight};
use crate::journal::Journal;
use crate::resctrl::Resctrl;
use std::collections::BTreeMap;
use waykeeper_host::{KnobOutcome, Reading};
use waykeeper_units::{GroupId, WayMask};

/// Both ways.
#[derive(Debug)]
pub(super) enum Places {
    /// Groups of ours, and the journal of what was there before.
    Ours(Box<Groups>, Box<Journal>),
    /// Groups of others.
    Theirs(Box<Looker>),
}

impl Places {
    /// Classes that masks can have, the default group's included.
    pub fn classes(&self) -> u32 {
        match self {
            Places::Ours(groups, _) => groups.classes(),
            Places::Theirs(looker) => looker.classes(),
        }
    }

    /// What people should know since this was last asked.
    pub fn take_notes(&mut self) -> Vec<String> {
        match self {
            Places::Ours(groups, _) => groups.take_notes(),
            Places::Theirs(looker) => looker.take_notes(),
        }
    }

    /// The mount, if anything was made there.
    pub fn resctrl(&self) -> Option<&Resctrl> {
        match self {
            Places::Ours(groups, _) => Some(groups.resctrl()),
            Places::Theirs(_) => None,
        }
    }

    /// Before the end: the journal forgets what is somebody else's by now.
    pub fn forget_anothers(&mut self) {
        if let Places::Ours(groups, journal) = self {
            groups.forget_anothers(journal);
        }
    }

    /// The journal, if anything is ever turned.
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

    /// Bytes between L3 and memory, if that is counted.
    pub fn traffic(&mut self, problems: &mut Vec<String>) -> Reading<u64> {
        match self {
            Places::Ours(groups, _) => groups.traffic(problems),
            Places::Theirs(_) => Reading::Unsupported,
        }
    }

    /// Gives tenants masks, and says for each what came of it.
    pub fn apply(&mut self, wanted: &BTreeMap<GroupId, WayMask>) -> BTreeMap<GroupId, KnobOutcome> {
        match self {
            Places::Ours(groups, journal) => groups.apply(wanted, journal),
            Places::Theirs(_) => BTreeMap::new(),
        }
    }

    /// The way to everything below, once a step; `None` where nothing is in the way. `at_first` may take a moment.
    ///
    /// # Errors
    /// If another tool is at work.
    pub fn pass(&mut self, at_first: bool) -> Result<Option<Passage>, GroupsError> {
        match self {
            Places::Ours(groups, _) if at_first => Ok(Some(groups.pass_at_first()?)),
            Places::Ours(groups, _) => Ok(Some(groups.pass()?)),
            Places::Theirs(_) => Ok(None),
        }
    }

    /// Lets tenants go, change and come; the answer has those who were refused.
    ///
    /// # Errors
    /// If nobody could come.
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

    /// Gives free classes to those who wait, in this order.
    pub fn promote(&mut self, order: &[GroupId], passage: Option<&Passage>) {
        if let (Places::Ours(groups, journal), Some(passage)) = (self, passage) {
            groups.promote(order, journal, passage);
        }
    }

    /// Those who wait for a class, if one is free.
    pub fn waiting(&self) -> Vec<GroupId> {
        match self {
            Places::Ours(groups, _) => groups.waiting(),
            Places::Theirs(_) => Vec::new(),
        }
    }

    /// Who has no class of its own.
    pub fn groupings(&self) -> Vec<Grouping> {
        match self {
            Places::Ours(groups, _) => groups.groupings(),
            Places::Theirs(_) => Vec::new(),
        }
    }

    /// Whether a tenant has to be looked after although nothing was said of it.
    pub fn is_restless(&self, id: GroupId, pids: &[u32]) -> bool {
        matches!(self, Places::Ours(groups, _) if groups.is_restless(id, pids))
    }

    /// What others did to groups of ours, as of the last sample.
    pub fn disturbances(&self) -> Vec<Disturbance> {
        match self {
            Places::Ours(groups, _) => groups.disturbances().cloned().collect(),
            Places::Theirs(_) => Vec::new(),
        }
    }

    /// Whether others did what may be put right.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Places::Ours(groups, _) if groups.is_wrong())
    }

    /// Puts right what others did, a few times at most.
    pub fn correct(&mut self, passage: Option<&Passage>) {
        if let (Places::Ours(groups, journal), Some(passage)) = (self, passage) {
            groups.correct(journal, passage);
        }
    }

    /// Whether something is left to be removed.
    pub fn has_leftovers(&self) -> bool {
        matches!(self, Places::Ours(groups, _) if groups.has_leftovers())
    }
}
