//! Which class of service each tenant is in, and what must change for requested masks. Arithmetic only.
//!
//! The rule is to move as few tenants as possible: a tenant that changes its class gets another RMID, and its occupancy
//! starts anew.
//! * A new tenant gets a class of its own if one is free, else the default group. No other tenant moves.
//! * A tenant keeps its own class, whatever the mask, until a new distinct mask needs a class and none is free. Then
//!   the class that costs the fewest moves is given up: one with the default group's mask (its tenants move to the
//!   default group), or one of two with equal masks (its tenants join the other). Among equals the one with the highest
//!   number.
//! * A tenant that leaves a class joins a class that has its requested mask; if that is the default group's mask, it
//!   moves to the default group.
//! * A class that becomes free is given to a waiting tenant.
//!
//! So a request is granted if it has at most as many distinct masks (besides the default group's) as there are classes.
//! Must not know files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::own_class_masks;
use waykeeper_units::{WayMask, WorkloadId};

/// The resctrl group of a tenant's CPUs and tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Slot {
    /// In the default group.
    Default,
    /// In one of our classes, numbered from 0.
    Class(usize),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassPlacement {
    slots: BTreeMap<WorkloadId, Slot>,
    /// Most classes that may be used.
    limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlacementStep {
    /// Write a class's mask.
    Mask(usize, WayMask),
    /// Move a tenant.
    Move(WorkloadId, Slot),
}

/// There are more distinct masks than classes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{needed} different masks are needed beside the default group's, but {classes} classes of service are \
     free; give some tenants equal masks"
)]
pub struct TooMany {
    /// Classes needed.
    pub needed: usize,
    /// Classes there are.
    pub classes: usize,
}

/// The planned state of a class.
#[derive(Default)]
struct Planned {
    mask: Option<WayMask>,
    tenants: Vec<WorkloadId>,
}

impl ClassPlacement {
    /// No tenants yet, and at most `limit` classes.
    pub fn new(limit: usize) -> ClassPlacement {
        ClassPlacement { limit, ..ClassPlacement::default() }
    }

    /// Most classes that may be used.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit. Classes in use stay in use.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub fn slot(&self, tenant: WorkloadId) -> Slot {
        self.slots.get(&tenant).copied().unwrap_or(Slot::Default)
    }

    pub fn slots(&self) -> impl Iterator<Item = (WorkloadId, Slot)> {
        self.slots.iter().map(|(tenant, slot)| (*tenant, *slot))
    }

    /// The tenants of a class, in order of arrival.
    pub fn tenants_in(&self, slot: Slot) -> impl Iterator<Item = WorkloadId> {
        self.slots().filter(move |(_, own)| *own == slot).map(|(tenant, _)| tenant)
    }

    /// Classes that have tenants.
    pub fn in_use(&self) -> BTreeSet<usize> {
        let class = |slot: &Slot| match slot {
            Slot::Class(class) => Some(*class),
            Slot::Default => None,
        };
        self.slots.values().filter_map(class).collect()
    }

    /// A class without tenants, if the limit allows one.
    pub fn free(&self) -> Option<usize> {
        let used = self.in_use();
        (used.len() < self.limit).then(|| (0..).find(|class| !used.contains(class))).flatten()
    }

    /// Tenants without a class of their own: in the default group, or in a class that an earlier tenant has.
    pub fn waiting(&self) -> Vec<WorkloadId> {
        let mut taken = BTreeSet::new();
        self.slots()
            .filter(|(_, slot)| *slot == Slot::Default || !taken.insert(*slot))
            .map(|(tenant, _)| tenant)
            .collect()
    }

    /// Puts a tenant into a slot, or moves it there.
    pub fn arrive(&mut self, tenant: WorkloadId, slot: Slot) {
        self.slots.insert(tenant, slot);
    }

    pub fn leave(&mut self, tenant: WorkloadId) {
        self.slots.remove(&tenant);
    }

    /// The steps after which tenants have the masks of `wanted`. `present` has their present masks;
    /// `default_mask` is the default group's mask. Nothing changes until [`ClassPlacement::arrive`] is called.
    ///
    /// # Errors
    /// If more classes are needed than there are; then no step is to be done.
    pub fn change(
        &self,
        wanted: &BTreeMap<WorkloadId, WayMask>,
        present: &BTreeMap<WorkloadId, WayMask>,
        default_mask: Option<WayMask>,
    ) -> Result<Vec<PlacementStep>, TooMany> {
        let target = |tenant: &WorkloadId| wanted.get(tenant).or_else(|| present.get(tenant)).copied();
        let mut classes: BTreeMap<usize, Planned> = BTreeMap::new();
        let mut unplaced: Vec<(WayMask, Vec<WorkloadId>)> = Vec::new();
        let mut to_default = Vec::new();
        let mut leave = |mask: WayMask, tenant| match unplaced.iter_mut().find(|own| own.0 == mask) {
            Some(own) => own.1.push(tenant),
            None => unplaced.push((mask, vec![tenant])),
        };
        for class in self.in_use() {
            let tenants: Vec<WorkloadId> = self.tenants_in(Slot::Class(class)).collect();
            // The class takes the mask that most of its tenants want; among equals the mask that it has, then that of
            // its first tenant.
            let has = |mask: &WayMask| tenants.iter().any(|tenant| present.get(tenant) == Some(mask));
            let votes = tenants.iter().filter_map(target).collect::<Vec<WayMask>>();
            let vote = |mask: &WayMask| {
                let first = votes.iter().position(|own| own == mask);
                let count = votes.iter().filter(|own| *own == mask).count();
                (count, has(mask), Reverse(first))
            };
            let mask = votes.iter().max_by_key(|mask| vote(mask)).copied();
            let planned = classes.entry(class).or_default();
            planned.mask = mask;
            for tenant in tenants {
                match target(&tenant) {
                    Some(other) if Some(other) != mask => leave(other, tenant),
                    // A tenant without a known mask stays in the class.
                    _ => planned.tenants.push(tenant),
                }
            }
        }
        for tenant in self.tenants_in(Slot::Default) {
            match target(&tenant) {
                Some(mask) if Some(mask) != default_mask => leave(mask, tenant),
                _ => {}
            }
        }
        unplaced.sort_by_key(|(_, tenants)| tenants.first().copied());
        for (mask, tenants) in unplaced {
            if let Some(class) = classes.values_mut().find(|class| class.mask == Some(mask)) {
                class.tenants.extend(tenants);
            } else if Some(mask) == default_mask {
                to_default.extend(tenants);
            } else {
                let free = (classes.len() < self.limit)
                    .then(|| (0..).find(|class| !classes.contains_key(class)))
                    .flatten();
                let class = free.or_else(|| vacate(&mut classes, &mut to_default, default_mask));
                let class = class.ok_or_else(|| self.too_many(wanted, present, default_mask))?;
                classes.insert(class, Planned { mask: Some(mask), tenants });
            }
        }
        let mut masks = BTreeMap::new();
        let mut moves = BTreeMap::new();
        let mut place = |tenant: WorkloadId, slot: Slot| {
            if self.slot(tenant) != slot {
                moves.insert(tenant, slot);
            }
        };
        for (class, planned) in &classes {
            let asked = planned.tenants.iter().any(|tenant| wanted.contains_key(tenant));
            let stays = planned.tenants.iter().any(|tenant| self.slot(*tenant) == Slot::Class(*class));
            masks.extend(planned.mask.filter(|_| asked || !stays).map(|mask| (*class, mask)));
            planned.tenants.iter().for_each(|tenant| place(*tenant, Slot::Class(*class)));
        }
        to_default.into_iter().for_each(|tenant| place(tenant, Slot::Default));
        Ok(self.in_order(masks, moves))
    }

    fn too_many(
        &self,
        wanted: &BTreeMap<WorkloadId, WayMask>,
        present: &BTreeMap<WorkloadId, WayMask>,
        default_mask: Option<WayMask>,
    ) -> TooMany {
        let targets =
            self.slots.keys().filter_map(|tenant| wanted.get(tenant).or_else(|| present.get(tenant)));
        let needed = own_class_masks(targets.copied(), default_mask).len();
        TooMany { needed, classes: self.limit }
    }

    /// Orders the steps so that no tenant is in a class with another tenant's mask: a class gets its mask after the
    /// tenants that leave it have left, and a tenant moves after its new class has its mask. Where tenants swap classes
    /// both are impossible; then a mask is written first.
    fn in_order(
        &self,
        mut masks: BTreeMap<usize, WayMask>,
        mut moves: BTreeMap<WorkloadId, Slot>,
    ) -> Vec<PlacementStep> {
        let mut steps = Vec::new();
        while !(masks.is_empty() && moves.is_empty()) {
            let left = |class: &usize| !moves.keys().any(|tenant| self.slot(*tenant) == Slot::Class(*class));
            let mask = masks.keys().find(|class| left(class)).copied();
            let ready = |slot: &Slot| !matches!(slot, Slot::Class(class) if masks.contains_key(class));
            let next = moves.iter().find(|(_, slot)| ready(slot)).map(|(tenant, slot)| (*tenant, *slot));
            match (mask, next) {
                (None, Some((tenant, slot))) => {
                    moves.remove(&tenant);
                    steps.push(PlacementStep::Move(tenant, slot));
                }
                (Some(class), _) => {
                    steps.extend(masks.remove(&class).map(|mask| PlacementStep::Mask(class, mask)))
                }
                (None, None) => {
                    steps.extend(masks.pop_first().map(|(class, mask)| PlacementStep::Mask(class, mask)))
                }
            }
        }
        steps
    }
}

/// Gives up the class that costs the fewest moves: one with the default group's mask, or one of two with equal masks.
fn vacate(
    classes: &mut BTreeMap<usize, Planned>,
    to_default: &mut Vec<WorkloadId>,
    default_mask: Option<WayMask>,
) -> Option<usize> {
    let mut best: Option<(usize, Reverse<usize>, Option<usize>)> = None;
    for (class, planned) in classes.iter() {
        let Some(mask) = planned.mask else { continue };
        let cost = planned.tenants.len();
        let others = classes.iter().filter(|(other, own)| *other != class && own.mask == Some(mask));
        let joined = others.map(|(other, _)| *other).next();
        let into = match joined {
            _ if Some(mask) == default_mask => None,
            Some(other) => Some(other),
            None => continue,
        };
        let option = (cost, Reverse(*class), into);
        if best.is_none_or(|best| option < best) {
            best = Some(option);
        }
    }
    let (_, Reverse(class), into) = best?;
    let tenants = classes.remove(&class)?.tenants;
    match into.and_then(|into| classes.get_mut(&into)) {
        Some(other) => other.tenants.extend(tenants),
        None => to_default.extend(tenants),
    }
    Some(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: WayMask = WayMask::full(11);

    fn masks(of: &[(u32, u32)]) -> BTreeMap<WorkloadId, WayMask> {
        of.iter().map(|(tenant, bits)| (WorkloadId(*tenant), WayMask::from_bits(*bits))).collect()
    }

    fn mask(class: usize, bits: u32) -> PlacementStep {
        PlacementStep::Mask(class, WayMask::from_bits(bits))
    }

    /// Tenants 0 to `tenants` - 1, added in this order.
    fn placed(tenants: u32, limit: usize) -> ClassPlacement {
        let mut placement = ClassPlacement::new(limit);
        (0..tenants).for_each(|tenant| arrive(&mut placement, WorkloadId(tenant)));
        placement
    }

    fn arrive(placement: &mut ClassPlacement, tenant: WorkloadId) {
        let slot = placement.free().map_or(Slot::Default, Slot::Class);
        placement.arrive(tenant, slot);
    }

    fn done(placement: &mut ClassPlacement, steps: &[PlacementStep]) {
        for step in steps {
            if let PlacementStep::Move(tenant, slot) = step {
                placement.arrive(*tenant, *slot);
            }
        }
    }

    #[test]
    fn with_a_class_for_each_tenant_no_tenant_ever_moves() {
        let placement = placed(3, 3);
        let present = masks(&[(0, 0x7ff), (1, 0x7ff), (2, 0x7ff)]);
        let steps = placement.change(&masks(&[(0, 0x600), (2, 0x600)]), &present, Some(FULL)).unwrap();
        assert_eq!(steps, [mask(0, 0x600), mask(2, 0x600)]);
    }

    #[test]
    fn with_few_classes_those_who_came_first_keep_theirs_and_the_others_share() {
        // 0 and 1 have classes, 2 and 3 are in the default group.
        let mut placement = placed(4, 2);
        assert_eq!(placement.waiting(), [WorkloadId(2), WorkloadId(3)]);
        let present = masks(&[(0, 0x7ff), (1, 0x7ff), (2, 0x7ff), (3, 0x7ff)]);
        let wanted = masks(&[(0, 0x600), (2, 0x00f), (3, 0x600)]);
        let steps = placement.change(&wanted, &present, Some(FULL)).unwrap();
        // 3 joins 0. No class is free for 2's mask. Tenant 1 wants the default group's mask, so its class is given up.
        let expected = [
            mask(0, 0x600),
            PlacementStep::Move(WorkloadId(1), Slot::Default),
            mask(1, 0x00f),
            PlacementStep::Move(WorkloadId(2), Slot::Class(1)),
            PlacementStep::Move(WorkloadId(3), Slot::Class(0)),
        ];
        assert_eq!(steps, expected);
        done(&mut placement, &steps);
        // 2 gets more ways: its class gets them, and no tenant moves.
        let present = masks(&[(0, 0x600), (1, 0x7ff), (2, 0x00f), (3, 0x600)]);
        let steps = placement.change(&masks(&[(2, 0x01f)]), &present, Some(FULL)).unwrap();
        assert_eq!(steps, [mask(1, 0x01f)]);
        // 0 joins 2. Only 0 moves; 3 stays.
        let present = masks(&[(0, 0x600), (1, 0x7ff), (2, 0x01f), (3, 0x600)]);
        let steps = placement.change(&masks(&[(0, 0x01f)]), &present, Some(FULL)).unwrap();
        assert_eq!(steps, [mask(1, 0x01f), PlacementStep::Move(WorkloadId(0), Slot::Class(1))]);
        done(&mut placement, &steps);
        // All ways for 2: it shares a class, so it moves to the default group.
        let present = masks(&[(0, 0x01f), (1, 0x7ff), (2, 0x01f), (3, 0x600)]);
        let steps = placement.change(&masks(&[(2, 0x7ff)]), &present, Some(FULL)).unwrap();
        assert_eq!(steps, [PlacementStep::Move(WorkloadId(2), Slot::Default)]);
    }

    #[test]
    fn of_two_classes_with_equal_masks_the_one_made_last_is_given_up() {
        let placement = placed(4, 3);
        let present = masks(&[(0, 0x600), (1, 0x600), (2, 0x00f), (3, 0x7ff)]);
        let steps = placement.change(&masks(&[(3, 0x0f0)]), &present, Some(FULL)).unwrap();
        let expected = [
            PlacementStep::Move(WorkloadId(1), Slot::Class(0)),
            mask(1, 0x0f0),
            PlacementStep::Move(WorkloadId(3), Slot::Class(1)),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn tenants_who_change_places_do_so_in_one_go() {
        // 0 and 2 share a class, 1 and 3 the other; 2 and 3 want each other's mask.
        let mut placement = placed(2, 2);
        placement.arrive(WorkloadId(2), Slot::Class(0));
        placement.arrive(WorkloadId(3), Slot::Class(1));
        let present = masks(&[(0, 0x600), (2, 0x600), (1, 0x00f), (3, 0x00f)]);
        let steps = placement.change(&masks(&[(2, 0x00f), (3, 0x600)]), &present, Some(FULL)).unwrap();
        done(&mut placement, &steps);
        assert_eq!(placement.tenants_in(Slot::Class(0)).collect::<Vec<_>>(), [WorkloadId(0), WorkloadId(3)]);
        assert_eq!(placement.tenants_in(Slot::Class(1)).collect::<Vec<_>>(), [WorkloadId(1), WorkloadId(2)]);
    }

    #[test]
    fn too_many_masks_change_nothing_and_are_reported() {
        let placement = placed(4, 2);
        let error =
            placement.change(&masks(&[(0, 1), (1, 2), (2, 4)]), &BTreeMap::new(), Some(FULL)).unwrap_err();
        assert_eq!(error, TooMany { needed: 3, classes: 2 });
    }

    /// One event of a test.
    #[derive(Clone, Debug)]
    enum Event {
        Wish(BTreeMap<u32, u32>),
        Arrive,
        /// The tenant at this index leaves.
        Leave(usize),
        Limit(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => prop::collection::btree_map(0u32..12, 1u32..6, 0..8).prop_map(Event::Wish),
            2 => Just(Event::Arrive),
            1 => (0usize..12).prop_map(Event::Leave),
            1 => (0usize..7).prop_map(Event::Limit),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// After any arrivals, departures and requests each tenant has its requested mask, and no tenant moves when
        /// others arrive or leave.
        #[test]
        fn every_tenant_ends_with_the_mask_that_was_wanted(
            tenants in 0u32..7,
            limit in 0usize..7,
            events in prop::collection::vec(event(), 1..16),
        ) {
            let mut placement = placed(tenants, limit);
            let mut present: BTreeMap<WorkloadId, WayMask> = (0..tenants).map(|id| (WorkloadId(id), FULL)).collect();
            // The masks of the classes: a new class has the default group's.
            let mut held: BTreeMap<usize, WayMask> = BTreeMap::new();
            let mut next = tenants;
            for event in events {
                let before: Vec<_> = placement.slots().collect();
                match event {
                    Event::Arrive => {
                        arrive(&mut placement, WorkloadId(next));
                        present.insert(WorkloadId(next), FULL);
                        next += 1;
                        prop_assert!(before.iter().all(|(tenant, slot)| placement.slot(*tenant) == *slot));
                    }
                    Event::Leave(nth) => {
                        let Some(leaving) = present.keys().nth(nth).copied() else { continue };
                        placement.leave(leaving);
                        present.remove(&leaving);
                        prop_assert!(before.iter().all(|(own, slot)| *own == leaving || placement.slot(*own) == *slot));
                    }
                    Event::Limit(limit) => placement.set_limit(limit),
                    Event::Wish(wish) => {
                        let alive = |tenant: &u32| present.contains_key(&WorkloadId(*tenant));
                        let wanted: BTreeMap<WorkloadId, WayMask> = wish.into_iter().filter(|(tenant, _)| alive(tenant))
                            .map(|(tenant, kind)| (WorkloadId(tenant), if kind == 5 { FULL } else { WayMask::from_bits(kind) }))
                            .collect();
                        let mut after = present.clone();
                        after.extend(&wanted);
                        let used = placement.in_use().len();
                        // The control loop decides by the same count.
                        if used <= placement.limit() {
                            let fits = own_class_masks(after.values().copied(), Some(FULL)).len() <= placement.limit();
                            prop_assert_eq!(placement.change(&wanted, &present, Some(FULL)).is_ok(), fits);
                        }
                        match placement.change(&wanted, &present, Some(FULL)) {
                            Err(too_many) => {
                                let masks: BTreeSet<_> = after.values().filter(|mask| **mask != FULL).collect();
                                prop_assert_eq!(too_many.needed, masks.len());
                                // If the limit was lowered, more classes may be in use than it allows.
                                prop_assert!(masks.len() > placement.limit().min(used));
                            }
                            Ok(steps) => {
                                for step in &steps {
                                    match step {
                                        PlacementStep::Mask(class, mask) => { held.insert(*class, *mask); }
                                        PlacementStep::Move(tenant, slot) => placement.arrive(*tenant, *slot),
                                    }
                                }
                                present = after;
                            }
                        }
                        prop_assert!(placement.in_use().len() <= placement.limit().max(used));
                    }
                }
                let used = placement.in_use();
                held.retain(|class, _| used.contains(class));
                for (tenant, mask) in &present {
                    let has = match placement.slot(*tenant) {
                        Slot::Default => FULL,
                        Slot::Class(class) => held.get(&class).copied().unwrap_or(FULL),
                    };
                    prop_assert_eq!(has, *mask, "{}", tenant);
                }
                prop_assert_eq!(placement.slots().count(), present.len());
            }
        }
    }
}
