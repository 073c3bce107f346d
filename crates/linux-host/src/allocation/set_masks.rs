//! Sets tenants' masks: the classes that the placement gives them, and the plan that follows. Each mask is read back.
//! Must not know why a mask is wanted.

use super::placement::{PlacementStep, Slot};
use super::wording;
use super::{Allocation, Class, GroupsError, Pass};
use std::collections::BTreeMap;
use waykeeper_host::KnobOutcome;
use waykeeper_kernel::journal::Journal;
use waykeeper_units::{WayMask, WorkloadId};

/// The outcome for each tenant.
type Outcomes = BTreeMap<WorkloadId, KnobOutcome>;

impl Allocation {
    /// Sets tenants' masks, and returns the outcome for each.
    pub fn apply(&mut self, wanted: &BTreeMap<WorkloadId, WayMask>, journal: &mut Journal) -> Outcomes {
        let all = |outcome: KnobOutcome| wanted.keys().map(|tenant| (*tenant, outcome.clone())).collect();
        let lock = match self.take_lock() {
            Err(error) => return all(wording::refusal(&error)),
            Ok(lock) => lock,
        };
        let mut pass = self.begin(lock, journal);
        // Another program may have written a mask since.
        self.state.groups.values_mut().for_each(|known| known.mask = None);
        let mut present = self.masks(&mut Vec::new());
        present.retain(|tenant, _| self.removed_group(*tenant).is_none());
        let mut stuck = BTreeMap::new();
        let mut asked = BTreeMap::new();
        for (tenant, mask) in wanted {
            match self.removed_group(*tenant) {
                None => drop(asked.insert(*tenant, *mask)),
                Some(group) => {
                    let why = format!(
                        "another program removed resctrl group {group}; Waykeeper leaves it removed, and the \
                         tenant has the default group's mask"
                    );
                    stuck.insert(*tenant, KnobOutcome::Refused(why));
                }
            }
        }
        let steps = match self.placement.change(&asked, &present, self.root_mask()) {
            Err(why) => return all(KnobOutcome::Refused(why.to_string())),
            Ok(steps) => steps,
        };
        self.carry_out(&steps, &mut stuck, &mut pass);
        self.drop_empty_classes();
        let outcome =
            |tenant: &WorkloadId| (*tenant, stuck.get(tenant).cloned().unwrap_or(KnobOutcome::Applied));
        wanted.keys().map(outcome).collect()
    }

    /// Does the steps in order. Adds the tenants that do not get their mask.
    fn carry_out(&mut self, steps: &[PlacementStep], stuck: &mut Outcomes, pass: &mut Pass) {
        let mut failed: BTreeMap<usize, KnobOutcome> = BTreeMap::new();
        let mut moves: BTreeMap<WorkloadId, Slot> = BTreeMap::new();
        self.tidy(pass);
        for step in steps {
            match step {
                PlacementStep::Move(tenant, slot) => drop(moves.insert(*tenant, *slot)),
                PlacementStep::Mask(class, _) => {
                    pass.kept.extend(self.classes.get(class).map(|class| class.group.clone()));
                }
            }
        }
        for step in steps {
            match *step {
                PlacementStep::Mask(class, mask) => {
                    // A tenant that could not leave the class would get the mask too.
                    let held = self.placement.tenants_in(Slot::Class(class)).find_map(|own| stuck.get(&own));
                    let result = held.cloned().map_or_else(|| self.set(class, mask, pass), Err);
                    if let Err(why) = result {
                        let occupants = self.placement.tenants_in(Slot::Class(class));
                        let stay = occupants.filter(|own| !moves.contains_key(own));
                        stuck.extend(stay.map(|own| (own, why.clone())));
                        failed.insert(class, why);
                    }
                }
                PlacementStep::Move(tenant, slot) => {
                    let target = match slot {
                        Slot::Class(class) => failed.get(&class).cloned(),
                        Slot::Default => None,
                    };
                    let moved = target.map_or_else(
                        || self.relocate(tenant, slot, pass).map_err(|why| wording::groups_refusal(&why)),
                        Err,
                    );
                    stuck.extend(moved.err().map(|why| (tenant, why)));
                }
            }
        }
    }

    /// Sets a class's mask. Makes the class if it does not exist, or makes it again if another program removed it and
    /// corrections are configured.
    fn set(&mut self, class: usize, mask: WayMask, pass: &mut Pass) -> Result<(), KnobOutcome> {
        let group = match self.classes.get(&class) {
            Some(class) => class.group.clone(),
            None => {
                // Several tenants may move in, so it is not named after one.
                let own = self.free_name(&format!("class{class}"));
                let group = own.map_err(|why| wording::refusal(&why))?;
                self.classes.insert(class, Class { group: group.clone(), leader: None });
                group
            }
        };
        pass.masks.insert(group.clone(), mask);
        let mut result = self.check_not_gone(Slot::Class(class), pass);
        result = result.and_then(|()| self.settle(pass).map_err(|(_, why)| why));
        let is_gone = match &result {
            Err(GroupsError::Gone(_)) => true,
            Err(GroupsError::Resctrl(error)) => error.is_gone(),
            _ => false,
        };
        if is_gone {
            // If it is not to be made again, the next sample reports the removed group.
            let gone = result.as_ref().err().map(|why| KnobOutcome::Busy(why.to_string()));
            result = self.observe(pass);
            if result.is_ok() && !self.may_remake(&group) {
                pass.masks.remove(&group);
                return gone.map_or(Ok(()), Err);
            }
            result = result.and_then(|()| self.remake(&group, pass));
        }
        if result.is_err() {
            pass.masks.remove(&group);
        }
        result.map_err(|why| wording::groups_refusal(&why))
    }

    /// Moves a tenant to another class. Its lines keep the old RMID, so its occupancy starts anew.
    fn relocate(&mut self, tenant: WorkloadId, slot: Slot, pass: &mut Pass) -> Result<(), GroupsError> {
        if !pass.is_observed {
            self.observe(pass)?;
        }
        self.check_not_gone(slot, pass)?;
        let (old, leads) = (self.placement.slot(tenant), self.leads(tenant));
        let beside = [old, slot].into_iter().flat_map(|slot| self.placement.tenants_in(slot));
        self.check_not_foreign(&beside.collect::<Vec<WorkloadId>>())?;
        self.place(tenant, slot);
        let moved = self.settle(pass).map_err(|(_, why)| why);
        if moved.is_err() {
            self.place_back(tenant, old, leads);
        }
        moved
    }
}
