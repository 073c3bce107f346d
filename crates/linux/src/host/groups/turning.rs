//! Giving tenants masks: classes get them, and tenants move to the class that has theirs. Each change is read back. Must
//! not know why a mask is wanted.

use super::super::placement::Seat;
use super::super::wording;
use super::{Groups, GroupsError, LOCK_WAIT};
use crate::journal::{Journal, Original};
use crate::resctrl::{Action, Group, Line, ResctrlError, Schemata, Setting};
use std::collections::BTreeMap;
use waykeeper_host::KnobOutcome;
use waykeeper_units::{CoreId, CoreList, WayMask};

impl Groups {
    /// Gives tenants masks, and says for each what came of it.
    pub fn apply(
        &mut self,
        wanted: &BTreeMap<usize, WayMask>,
        journal: &mut Journal,
    ) -> BTreeMap<usize, KnobOutcome> {
        let all = |outcome: KnobOutcome| wanted.keys().map(|tenant| (*tenant, outcome.clone())).collect();
        let lock = match self.resctrl.lock_exclusive(LOCK_WAIT) {
            Err(error) => return all(wording::refusal(&error)),
            Ok(lock) => lock,
        };
        let standing = self.masks(&mut Vec::new());
        let default = self.mask(&self.default).ok();
        let change = match self.placement.change(wanted, &standing, default) {
            Err(why) => return all(KnobOutcome::Refused(why.to_string())),
            Ok(change) => change,
        };
        let mut failed: BTreeMap<Seat, KnobOutcome> = BTreeMap::new();
        for (class, mask) in change.masks {
            match self.set(class, mask, journal) {
                Ok(()) => self.placement.done_mask(class, mask),
                Err(why) => {
                    failed.insert(Seat::Class(class), why);
                }
            }
        }
        let mut stuck = BTreeMap::new();
        for (tenant, seat) in change.moves {
            if failed.contains_key(&seat) {
                stuck.insert(tenant, failed[&seat].clone());
                continue;
            }
            match self.relocate(tenant, seat, journal) {
                Ok(()) => self.placement.done_move(tenant, seat),
                Err(why) => {
                    stuck.insert(tenant, wording::groups_refusal(&why));
                }
            }
        }
        drop(lock);
        let outcome = |tenant: &usize| {
            let own = stuck.get(tenant).or_else(|| failed.get(&self.placement.seat(*tenant)));
            (*tenant, own.cloned().unwrap_or(KnobOutcome::Applied))
        };
        wanted.keys().map(outcome).collect()
    }

    /// Gives a class a mask, in both halves with CDP. A class that somebody removed, or that was never needed before, is
    /// made.
    fn set(&mut self, class: usize, mask: WayMask, journal: &mut Journal) -> Result<(), KnobOutcome> {
        let lines: Vec<Line> = self
            .resources
            .iter()
            .map(|resource| Line::new(resource.clone(), vec![(self.domain, Setting::Mask(mask))]))
            .collect();
        if self.classes.get(class).is_none_or(Option::is_none) {
            self.make_class(class, journal).map_err(|why| wording::groups_refusal(&why))?;
        }
        let mut found = self.write(class, &lines);
        if found.as_ref().is_err_and(ResctrlError::is_gone) {
            self.make_class(class, journal).map_err(|why| wording::groups_refusal(&why))?;
            found = self.write(class, &lines);
        }
        let found = found.map_err(|error| match error.action {
            // Written it is; what then stands there nobody can tell.
            Action::Read => KnobOutcome::ReadsBack(error.to_string()),
            _ => wording::refusal(&error),
        })?;
        match self.mask_in(&found) {
            Ok(now) if now == mask => Ok(()),
            Ok(now) => Err(KnobOutcome::ReadsBack(now.to_string())),
            Err(why) => Err(KnobOutcome::ReadsBack(why)),
        }
    }

    fn write(&self, class: usize, lines: &[Line]) -> Result<Schemata, ResctrlError> {
        match self.classes.get(class) {
            Some(Some(class)) => self.resctrl.set_schemata(&class.group, lines),
            _ => Ok(Schemata::default()),
        }
    }

    /// Makes the group of a class, anew if it was removed, with those in it who sit there.
    fn make_class(&mut self, class: usize, journal: &mut Journal) -> Result<(), GroupsError> {
        let own = self.placement.is_own().then(|| self.members.get(class)).flatten();
        let name = own.map_or_else(|| format!("class{class}"), |member| member.name.clone());
        let group = self.resctrl.own(&name)?;
        self.nobody_elses(|tenant| self.placement.seat(tenant) == Seat::Class(class))?;
        let made = self.make(group.clone(), journal)?;
        if let Some(slot) = self.classes.get_mut(class) {
            *slot = Some(made);
        }
        for tenant in 0..self.members.len() {
            if self.placement.seat(tenant) == Seat::Class(class) {
                self.enter(tenant, class)?;
                if self.placement.is_own() {
                    self.members[tenant].occupancy = self.hold_of(tenant)?;
                } else {
                    self.monitor(tenant, &group, journal)?;
                }
            }
        }
        Ok(())
    }

    /// Moves a tenant to another seat. Its lines keep their old RMID, so its occupancy starts anew there.
    fn relocate(&mut self, tenant: usize, seat: Seat, journal: &mut Journal) -> Result<(), GroupsError> {
        let old = self.placement.seat(tenant);
        self.nobody_elses(|other| other == tenant || [old, seat].contains(&self.placement.seat(other)))?;
        self.members[tenant].occupancy = None;
        if let Some(monitor) = self.members[tenant].monitor.take() {
            match self.resctrl.remove(&monitor) {
                // An error alone does not prove that it is gone; the journal must not forget what is there.
                Err(error) if !error.is_gone() || self.resctrl.has(&monitor) => {
                    self.members[tenant].monitor = Some(monitor);
                    return Err(error.into());
                }
                _ => journal.forget(&Original::NoGroup { group: monitor })?,
            }
        }
        let group = match seat {
            Seat::Class(class) => {
                self.enter(tenant, class)?;
                self.class(seat).map_or(Group::DEFAULT, |class| class.group.clone())
            }
            Seat::Root => {
                if let Some(class) = self.class(old).filter(|class| !class.group.is_default()) {
                    let group = class.group.clone();
                    let left = (0..self.members.len())
                        .filter(|other| *other != tenant && self.placement.seat(*other) == old)
                        .flat_map(|other| self.members[other].cpus.cores().to_vec());
                    self.resctrl.set_cpus(&group, &CoreList::from(left.collect::<Vec<CoreId>>()))?;
                }
                self.assign(tenant, &Group::DEFAULT)?;
                Group::DEFAULT
            }
        };
        self.monitor(tenant, &group, journal)
    }
}
