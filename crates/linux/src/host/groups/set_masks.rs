//! Sets tenants' masks: writes the masks of classes, and moves tenants to the class with their mask. Each mask is read
//! back. Must not know why a mask is wanted.

use super::super::placement::{Slot, Step};
use super::super::wording;
use super::{Groups, GroupsError};
use crate::journal::Journal;
use crate::resctrl::{Action, Group, Line, ResctrlError, Resource, Schemata, Setting};
use std::collections::BTreeMap;
use waykeeper_host::KnobOutcome;
use waykeeper_units::{GroupId, WayMask};

impl Groups {
    /// Sets tenants' masks, and returns the outcome for each.
    pub fn apply(
        &mut self,
        wanted: &BTreeMap<GroupId, WayMask>,
        journal: &mut Journal,
    ) -> BTreeMap<GroupId, KnobOutcome> {
        let all = |outcome: KnobOutcome| wanted.keys().map(|tenant| (*tenant, outcome.clone())).collect();
        let lock = match self.take_lock() {
            Err(error) => return all(wording::refusal(&error)),
            Ok(lock) => lock,
        };
        let mut present = self.masks(&mut Vec::new());
        present.retain(|tenant, _| self.removed_group(*tenant).is_none());
        let mut left = BTreeMap::new();
        let mut asked = BTreeMap::new();
        for (tenant, mask) in wanted {
            match self.removed_group(*tenant) {
                None => drop(asked.insert(*tenant, *mask)),
                Some(group) => {
                    let why = format!(
                        "another program removed resctrl group {group}; Waykeeper leaves it removed, and the \
                         tenant has the default group's mask"
                    );
                    left.insert(*tenant, KnobOutcome::Refused(why));
                }
            }
        }
        let default = self.root_mask();
        let steps = match self.placement.change(&asked, &present, default) {
            Err(why) => return all(KnobOutcome::Refused(why.to_string())),
            Ok(steps) => steps,
        };
        let mut stuck = self.carry_out(&steps, journal);
        stuck.extend(left);
        drop(lock);
        let outcome =
            |tenant: &GroupId| (*tenant, stuck.get(tenant).cloned().unwrap_or(KnobOutcome::Applied));
        wanted.keys().map(outcome).collect()
    }

    /// Does the steps in order. Returns the tenants that did not get their mask.
    fn carry_out(&mut self, steps: &[Step], journal: &mut Journal) -> BTreeMap<GroupId, KnobOutcome> {
        let mut failed: BTreeMap<usize, KnobOutcome> = BTreeMap::new();
        let mut stuck: BTreeMap<GroupId, KnobOutcome> = BTreeMap::new();
        let mut moves: BTreeMap<GroupId, Slot> = BTreeMap::new();
        moves.extend(steps.iter().filter_map(|step| match step {
            Step::Move(tenant, slot) => Some((*tenant, *slot)),
            Step::Mask(..) => None,
        }));
        for step in steps {
            match *step {
                Step::Mask(class, mask) => {
                    // A tenant that could not leave the class would get the mask too.
                    let held = self.placement.tenants_in(Slot::Class(class)).find_map(|own| stuck.get(&own));
                    let result = held.cloned().map_or_else(|| self.set(class, mask, journal), Err);
                    if let Err(why) = result {
                        let occupants = self.placement.tenants_in(Slot::Class(class));
                        stuck.extend(
                            occupants
                                .filter(|own| !moves.contains_key(own))
                                .map(|own| (own, why.clone()))
                                .collect::<Vec<_>>(),
                        );
                        failed.insert(class, why);
                    }
                }
                Step::Move(tenant, slot) => {
                    let target = match slot {
                        Slot::Class(class) => failed.get(&class).cloned(),
                        Slot::Default => None,
                    };
                    let moved = target.map_or_else(
                        || self.relocate(tenant, slot, journal).map_err(|why| wording::groups_refusal(&why)),
                        Err,
                    );
                    match moved {
                        Ok(()) => self.placement.done_move(tenant, slot),
                        Err(why) => {
                            stuck.insert(tenant, why);
                        }
                    }
                }
            }
        }
        stuck
    }

    /// Sets a class's mask, in both halves with CDP. Makes the class if it does not exist, or makes it again if another
    /// program removed it and corrections are configured.
    fn set(&mut self, class: usize, mask: WayMask, journal: &mut Journal) -> Result<(), KnobOutcome> {
        let lines = self.lines(mask);
        if !self.classes.contains_key(&class) {
            self.make_class(class, journal).map_err(|why| wording::groups_refusal(&why))?;
        }
        let mut found = self.write(class, &lines);
        if found.as_ref().is_err_and(ResctrlError::is_gone) {
            // If it is not to be made again, the next sample reports the removed group.
            let gone = found.as_ref().map_or_else(ToString::to_string, |_| String::new());
            if !self.may_remake(class) {
                return Err(KnobOutcome::Busy(gone));
            }
            self.make_class(class, journal).map_err(|why| wording::groups_refusal(&why))?;
            found = self.write(class, &lines);
        }
        let found = found.map_err(|error| match error.action {
            // The write succeeded, but the value now in force could not be read.
            Action::Read => KnobOutcome::ReadsBack(error.to_string()),
            _ => wording::refusal(&error),
        })?;
        match self.mask_in(&found) {
            Ok(now) if now == mask => Ok(()),
            Ok(now) => Err(KnobOutcome::ReadsBack(now.to_string())),
            Err(why) => Err(KnobOutcome::ReadsBack(why)),
        }
    }

    fn lines(&self, mask: WayMask) -> Vec<Line> {
        let line =
            |resource: &Resource| Line::new(resource.clone(), vec![(self.domain, Setting::Mask(mask))]);
        self.resources.iter().map(line).collect()
    }

    /// Sets the mask of a new class.
    pub(super) fn give_mask(&self, class: usize, mask: WayMask) -> Result<(), GroupsError> {
        self.write(class, &self.lines(mask))?;
        Ok(())
    }

    fn write(&self, class: usize, lines: &[Line]) -> Result<Schemata, ResctrlError> {
        match self.classes.get(&class) {
            Some(class) => self.resctrl.set_schemata(&class.group, lines),
            None => Ok(Schemata::default()),
        }
    }

    /// Makes the group of a class, again if it was removed, and moves its tenants in.
    pub(super) fn make_class(&mut self, class: usize, journal: &mut Journal) -> Result<(), GroupsError> {
        let occupants: Vec<GroupId> = self.placement.tenants_in(Slot::Class(class)).collect();
        let group = match (self.classes.get(&class), occupants.first()) {
            (Some(held), _) => held.group.clone(),
            (None, Some(first)) => self.name_for(*first)?,
            // No tenants yet: several may move in, so it is not named after one.
            (None, None) => self.resctrl.own(&format!("class{class}"))?,
        };
        self.check_not_foreign(|tenant| occupants.contains(&tenant))?;
        let made = self.make(group.clone(), journal)?;
        self.classes.insert(class, made);
        // The class's own RMID is for the tenant that had it, else for the first.
        let own = occupants.iter().find(|own| self.members.get(own).is_some_and(|m| m.monitor.is_none()));
        let own = own.or(occupants.first()).copied();
        for tenant in &occupants {
            self.enter(*tenant, class)?;
            if Some(*tenant) != own {
                self.monitor(*tenant, &group, journal)?;
                continue;
            }
            let held = self.hold(&group, 0)?;
            if let Some(member) = self.members.get_mut(tenant) {
                (member.monitor, member.occupancy, member.unwatched) = (None, held, None);
            }
        }
        Ok(())
    }

    /// Moves a tenant to another class. Its lines keep the old RMID, so its occupancy starts anew.
    pub(super) fn relocate(
        &mut self,
        tenant: GroupId,
        slot: Slot,
        journal: &mut Journal,
    ) -> Result<(), GroupsError> {
        let old = self.placement.slot(tenant);
        self.check_not_foreign(|other| other == tenant || [old, slot].contains(&self.placement.slot(other)))?;
        self.unwatch(tenant, journal)?;
        let group = match slot {
            Slot::Class(class) => {
                self.enter(tenant, class)?;
                self.class(slot).map_or(Group::DEFAULT, |class| class.group.clone())
            }
            Slot::Default => {
                if let Some(class) = self.class(old).filter(|class| !class.group.is_default()) {
                    let group = class.group.clone();
                    let left: Vec<GroupId> =
                        self.placement.tenants_in(old).filter(|other| *other != tenant).collect();
                    match self.give_cpus(&group, &left) {
                        // Another program removed the group: its CPUs and tasks are in the default group.
                        Err(error) if error.is_gone() && !self.resctrl.has(&group) => {}
                        other => other?,
                    }
                }
                self.assign(tenant, &Group::DEFAULT)?;
                Group::DEFAULT
            }
        };
        self.monitor(tenant, &group, journal)
    }
}
