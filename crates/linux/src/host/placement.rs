//! Which tenant sits in which class of service, and what has to change for a wish. Arithmetic only.
//!
//! The rule: as long as there is a free class for every tenant, each has one of its own for good, so that its lines keep
//! their RMID and its occupancy never starts anew. Where classes are fewer, tenants with equal masks share one, and those
//! whose mask is the default group's live there. Must not know files.

use std::collections::BTreeMap;
use waykeeper_units::WayMask;

/// Where a tenant's CPUs and tasks are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Seat {
    /// In the default group.
    Root,
    /// In a class that we hold, by number from 0.
    Class(usize),
}

/// Who sits where, with which mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Per tenant.
    seats: Vec<Seat>,
    /// Per class: its mask, if anybody was ever in it.
    masks: Vec<Option<WayMask>>,
    /// Tenants have classes of their own.
    own: bool,
}

/// What has to be done, in this order: masks first, so that nobody is moved into a class that is still another's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Masks to write, by class.
    pub masks: Vec<(usize, WayMask)>,
    /// Tenants to move.
    pub moves: Vec<(usize, Seat)>,
}

/// More different masks than classes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{needed} different masks beside the default group's are wanted, and {classes} classes of service are free; give \
     some tenants equal masks"
)]
pub struct TooMany {
    /// Classes needed.
    pub needed: usize,
    /// Classes there are.
    pub classes: usize,
}

impl Placement {
    /// A placement of `tenants` on `classes` free classes: everybody in a class of its own if that is possible, else
    /// everybody in the default group.
    pub fn new(tenants: usize, classes: usize) -> Placement {
        let own = tenants <= classes;
        let seat = |tenant| if own { Seat::Class(tenant) } else { Seat::Root };
        let classes = if own { tenants } else { classes };
        Placement { seats: (0..tenants).map(seat).collect(), masks: vec![None; classes], own }
    }

    /// True if every tenant has a class of its own.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Where a tenant sits.
    pub fn seat(&self, tenant: usize) -> Seat {
        self.seats.get(tenant).copied().unwrap_or(Seat::Root)
    }

    /// Where everybody sits.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// What to do so that tenants have the masks of `wanted`. `standing` are the masks they have now, by tenant; `root`
    /// is the mask of the default group. Nothing changes until [`Placement::done_mask`] and [`Placement::done_move`] are
    /// told.
    ///
    /// # Errors
    /// More classes needed than there are; then nothing is to be done.
    pub fn change(
        &self,
        wanted: &BTreeMap<usize, WayMask>,
        standing: &BTreeMap<usize, WayMask>,
        root: Option<WayMask>,
    ) -> Result<Change, TooMany> {
        if self.own {
            let masks = wanted.iter().filter(|(tenant, _)| **tenant < self.seats.len());
            return Ok(Change {
                masks: masks.map(|(tenant, mask)| (*tenant, *mask)).collect(),
                moves: Vec::new(),
            });
        }
        let mut classes: Vec<(WayMask, Vec<usize>)> = Vec::new();
        let mut change = Change::default();
        for tenant in 0..self.seats.len() {
            let Some(mask) = wanted.get(&tenant).or_else(|| standing.get(&tenant)).copied() else {
                continue;
            };
            if root == Some(mask) {
                if self.seats[tenant] != Seat::Root {
                    change.moves.push((tenant, Seat::Root));
                }
                continue;
            }
            match classes.iter_mut().find(|class| class.0 == mask) {
                Some(class) => class.1.push(tenant),
                None => classes.push((mask, vec![tenant])),
            }
        }
        if classes.len() > self.masks.len() {
            return Err(TooMany { needed: classes.len(), classes: self.masks.len() });
        }
        for (seat, (mask, tenants)) in self.seat_classes(classes) {
            if self.masks[seat] != Some(mask) || tenants.iter().any(|tenant| wanted.contains_key(tenant)) {
                change.masks.push((seat, mask));
            }
            let movers = tenants.into_iter().filter(|tenant| self.seats[*tenant] != Seat::Class(seat));
            change.moves.extend(movers.map(|tenant| (tenant, Seat::Class(seat))));
        }
        change.masks.sort_unstable_by_key(|(seat, _)| *seat);
        change.moves.sort_unstable_by_key(|(tenant, _)| *tenant);
        Ok(change)
    }

    /// Gives every class a seat: the one where most of its tenants sit already, so that few move; among equals the one
    /// that has its mask already. Ties go to the lower number, on both sides.
    fn seat_classes(&self, classes: Vec<(WayMask, Vec<usize>)>) -> Vec<(usize, (WayMask, Vec<usize>))> {
        let mut there = Vec::new();
        for (index, (mask, tenants)) in classes.iter().enumerate() {
            for (seat, held) in self.masks.iter().enumerate() {
                let sitting =
                    tenants.iter().filter(|tenant| self.seats[**tenant] == Seat::Class(seat)).count();
                there.push((std::cmp::Reverse(sitting), *held != Some(*mask), index, seat));
            }
        }
        there.sort_unstable();
        let mut seat_of = vec![None; classes.len()];
        let mut taken = vec![false; self.masks.len()];
        for (_, _, index, seat) in there {
            if seat_of[index].is_none() && !taken[seat] {
                (seat_of[index], taken[seat]) = (Some(seat), true);
            }
        }
        seat_of.into_iter().zip(classes).filter_map(|(seat, class)| Some((seat?, class))).collect()
    }

    /// A class has this mask now.
    pub fn done_mask(&mut self, class: usize, mask: WayMask) {
        if let Some(slot) = self.masks.get_mut(class) {
            *slot = Some(mask);
        }
    }

    /// A tenant sits here now.
    pub fn done_move(&mut self, tenant: usize, seat: Seat) {
        if let Some(slot) = self.seats.get_mut(tenant) {
            *slot = seat;
        }
    }

    /// Everything of a change is done.
    #[cfg(test)]
    fn done(&mut self, change: &Change) {
        change.masks.iter().for_each(|(class, mask)| self.done_mask(*class, *mask));
        change.moves.iter().for_each(|(tenant, seat)| self.done_move(*tenant, *seat));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: WayMask = WayMask::full(11);

    fn masks(of: &[(usize, u32)]) -> BTreeMap<usize, WayMask> {
        of.iter().map(|(tenant, bits)| (*tenant, WayMask::from_bits(*bits))).collect()
    }

    #[test]
    fn with_a_class_for_everybody_nobody_ever_moves() {
        let placement = Placement::new(3, 3);
        assert!(placement.is_own());
        let change =
            placement.change(&masks(&[(0, 0x600), (2, 0x600)]), &BTreeMap::new(), Some(FULL)).unwrap();
        let mask = WayMask::from_bits(0x600);
        assert_eq!(change, Change { masks: vec![(0, mask), (2, mask)], moves: vec![] });
    }

    #[test]
    fn with_few_classes_equal_masks_share_one_and_the_default_groups_mask_needs_none() {
        let mut placement = Placement::new(4, 2);
        let standing = masks(&[(0, 0x7ff), (1, 0x7ff), (2, 0x7ff), (3, 0x7ff)]);
        let change =
            placement.change(&masks(&[(0, 0x600), (2, 0x00f), (3, 0x600)]), &standing, Some(FULL)).unwrap();
        assert_eq!(change.masks, [(0, WayMask::from_bits(0x600)), (1, WayMask::from_bits(0x00f))]);
        assert_eq!(change.moves, [(0, Seat::Class(0)), (2, Seat::Class(1)), (3, Seat::Class(0))]);
        placement.done(&change);
        // 2 grows: its class follows, and nobody moves.
        let standing = masks(&[(0, 0x600), (1, 0x7ff), (2, 0x00f), (3, 0x600)]);
        let change = placement.change(&masks(&[(2, 0x01f)]), &standing, Some(FULL)).unwrap();
        assert_eq!(change, Change { masks: vec![(1, WayMask::from_bits(0x01f))], moves: vec![] });
        placement.done(&change);
        // 0 joins 2: it alone moves.
        let standing = masks(&[(0, 0x600), (1, 0x7ff), (2, 0x01f), (3, 0x600)]);
        let change = placement.change(&masks(&[(0, 0x01f)]), &standing, Some(FULL)).unwrap();
        assert_eq!(change.moves, [(0, Seat::Class(1))]);
        placement.done(&change);
        // Back to all ways: to the default group.
        let standing = masks(&[(0, 0x01f), (1, 0x7ff), (2, 0x01f), (3, 0x600)]);
        let change = placement.change(&masks(&[(2, 0x7ff)]), &standing, Some(FULL)).unwrap();
        assert_eq!(change.moves, [(2, Seat::Root)]);
    }

    #[test]
    fn too_many_masks_change_nothing_and_say_so() {
        let placement = Placement::new(4, 2);
        let error =
            placement.change(&masks(&[(0, 1), (1, 2), (2, 4)]), &BTreeMap::new(), Some(FULL)).unwrap_err();
        assert_eq!(error, TooMany { needed: 3, classes: 2 });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Whatever is wanted one after the other: afterwards everybody has the mask it was to have.
        #[test]
        fn everybody_ends_with_the_mask_it_was_to_have(
            tenants in 1usize..7,
            classes in 0usize..7,
            wishes in prop::collection::vec(prop::collection::btree_map(0usize..7, 1u32..5, 0..7), 1..8),
        ) {
            let mut placement = Placement::new(tenants, classes);
            let mut standing: BTreeMap<usize, WayMask> = (0..tenants).map(|tenant| (tenant, FULL)).collect();
            for wish in wishes {
                let wanted: BTreeMap<usize, WayMask> = wish.into_iter().filter(|(tenant, _)| *tenant < tenants)
                    .map(|(tenant, kind)| (tenant, if kind == 4 { FULL } else { WayMask::from_bits(kind) })).collect();
                let mut after = standing.clone();
                after.extend(&wanted);
                match placement.change(&wanted, &standing, Some(FULL)) {
                    Err(too_many) => prop_assert!(too_many.needed > classes && !placement.is_own()),
                    Ok(change) => {
                        placement.done(&change);
                        standing = after;
                        let mut held: BTreeMap<usize, WayMask> = standing.clone();
                        for tenant in 0..tenants {
                            match placement.seat(tenant) {
                                Seat::Root => { held.insert(tenant, FULL); }
                                Seat::Class(class) => {
                                    if let Some(mask) = placement.masks[class] { held.insert(tenant, mask); }
                                }
                            }
                        }
                        prop_assert_eq!(&held, &standing);
                    }
                }
            }
        }
    }
}
