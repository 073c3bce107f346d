//! Masks of the slots: runs of ways side by side, and which slots overlap the DDIO ways (IAT s4.D, algorithms.md 2.6).
//!
//! Knows masks, classes and LLC references; must not know states or time. It assumes the DDIO ways at the left end, as
//! on every chip with DCA. Like the paper, it ignores the inclusive ways at the right end.

use super::tenants::{Class, Slot};
use std::cmp::Reverse;
use waykeeper_units::WayMask;

/// Inputs of the placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The run of ways that slots may have.
    pub run: WayMask,
    /// Ways of it to leave to devices where possible; empty if the policy ignores I/O.
    pub ddio: WayMask,
    /// LLC references per second of each slot.
    pub refs: &'a [Option<f64>],
    /// A slot that overlaps DDIO is replaced by another only if that one has fewer references by this ratio.
    pub threshold: f64,
    /// Lower bound of references in comparisons.
    pub floor: f64,
}

/// Why masks moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shuffle {
    /// Performance-critical tenants overlapped this many DDIO ways too many.
    Protects(u32),
    /// Idle ways allow so many more DDIO ways without a tenant.
    Frees(u32),
    /// This slot overlaps DDIO now, since it has the fewest references.
    Exchanges(usize),
}

/// Slots from the left (the DDIO side) to the right.
fn order_now(slots: &[Slot]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|index| (Reverse(slots[*index].mask.highest()), *index));
    order
}

/// Slots side by side in `order`, the last at the right end of `run`: idle ways lie on the DDIO side.
fn pack(order: &[usize], counts: &[u32], run: WayMask) -> Vec<WayMask> {
    let mut masks = vec![WayMask::EMPTY; counts.len()];
    let mut low = run.lowest().unwrap_or(0);
    for index in order.iter().rev() {
        masks[*index] = WayMask::span(low, counts[*index]);
        low += counts[*index];
    }
    masks
}

/// The order in which slots overlap as few DDIO ways as possible, and best-effort slots with the fewest references
/// overlap them. Slots that need not move keep their order.
fn wanted_order(slots: &[Slot], counts: &[u32], view: &View<'_>) -> Vec<usize> {
    let now = order_now(slots);
    let clear = view.run.minus(view.ddio).count();
    let needed = counts.iter().sum::<u32>().saturating_sub(clear);
    if needed == 0 {
        return now;
    }
    // A slot that overlaps already counts with fewer references, by the threshold, so that noise does not swap equal
    // slots.
    let weight = |index: usize| {
        let refs = view.refs.get(index).copied().flatten().unwrap_or(f64::INFINITY).max(view.floor);
        if slots[index].mask.overlaps(view.ddio) { refs * (1.0 - view.threshold) } else { refs }
    };
    let (mut lenders, mut others): (Vec<usize>, Vec<usize>) =
        now.into_iter().partition(|index| slots[*index].class == Class::Be);
    // The sort is stable: among equals the one nearest to the DDIO side comes first.
    lenders.sort_by(|a, b| weight(*a).total_cmp(&weight(*b)));
    let mut covered = 0;
    let enough = lenders.iter().position(|index| {
        covered += counts[*index];
        covered >= needed
    });
    match enough {
        Some(last) => {
            let kept = lenders.split_off(last + 1);
            others.extend(kept);
            others.sort_by_key(|index| (Reverse(slots[*index].mask.highest()), *index));
        }
        // All best-effort slots together are too few: performance-critical I/O slots come next, the stack last.
        None => others.sort_by_key(|index| (slots[*index].class, Reverse(slots[*index].is_io))),
    }
    lenders.extend(others);
    lenders
}

/// Ways of `masks` that overlap `ddio`: those of slots above best effort, and all.
fn overlap(slots: &[Slot], masks: &[WayMask], ddio: WayMask) -> (u32, u32) {
    let ways = |(slot, mask): (&Slot, &WayMask)| {
        let ways = mask.and(ddio).count();
        (if slot.class == Class::Be { 0 } else { ways }, ways)
    };
    slots.iter().zip(masks).map(ways).fold((0, 0), |sum, ways| (sum.0 + ways.0, sum.1 + ways.1))
}

/// Moves slots if that reduces the overlap of performance-critical slots with DDIO, or overlap without need, or if
/// another best-effort slot should overlap. Returns why, if anything moved.
pub(crate) fn shuffle(slots: &mut [Slot], view: &View<'_>) -> Option<Shuffle> {
    let counts: Vec<u32> = slots.iter().map(Slot::ways).collect();
    let now: Vec<WayMask> = slots.iter().map(|slot| slot.mask).collect();
    let wanted = pack(&wanted_order(slots, &counts, view), &counts, view.run);
    let (high_now, all_now) = overlap(slots, &now, view.ddio);
    let (high, all) = overlap(slots, &wanted, view.ddio);
    let newcomer =
        (0..slots.len()).find(|index| wanted[*index].overlaps(view.ddio) && !now[*index].overlaps(view.ddio));
    let why = if high < high_now {
        Shuffle::Protects(high_now - high)
    } else if high == high_now && all < all_now {
        Shuffle::Frees(all_now - all)
    } else if let (Some(newcomer), true) = (newcomer, (high, all) == (high_now, all_now)) {
        Shuffle::Exchanges(newcomer)
    } else {
        return None;
    };
    put(slots, &wanted);
    Some(why)
}

/// Adds one free way to slot `index`; false if none is free.
///
/// It takes a neighbouring way outside DDIO's if one is free; otherwise all slots are packed again.
pub(crate) fn extend(slots: &mut [Slot], index: usize, view: &View<'_>) -> bool {
    let mut counts: Vec<u32> = slots.iter().map(Slot::ways).collect();
    if counts.iter().sum::<u32>() >= view.run.count() {
        return false;
    }
    let taken = slots.iter().fold(WayMask::EMPTY, |all, slot| all.or(slot.mask));
    let free = view.run.minus(taken).minus(view.ddio);
    let mask = slots[index].mask;
    let below = mask.lowest().and_then(|way| way.checked_sub(1));
    let above = mask.highest().map(|way| way + 1);
    match below.into_iter().chain(above).find(|way| free.contains(*way)) {
        Some(way) => slots[index].mask = mask.or(WayMask::span(way, 1)),
        None => {
            counts[index] += 1;
            let wanted = pack(&wanted_order(slots, &counts, view), &counts, view.run);
            put(slots, &wanted);
        }
    }
    true
}

/// Removes the leftmost way of a slot, so that free ways lie on the DDIO side.
pub(crate) fn shrink(slot: &mut Slot) {
    if let Some(way) = slot.mask.highest() {
        slot.mask = slot.mask.minus(WayMask::span(way, 1));
    }
}

/// Moves all slots side by side into `run`, in their order; they must fit.
pub(crate) fn compact(slots: &mut [Slot], run: WayMask) {
    let counts: Vec<u32> = slots.iter().map(Slot::ways).collect();
    let wanted = pack(&order_now(slots), &counts, run);
    put(slots, &wanted);
}

fn put(slots: &mut [Slot], masks: &[WayMask]) {
    for (slot, mask) in slots.iter_mut().zip(masks) {
        slot.mask = *mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::WorkloadId;

    fn slot(id: u32, class: Class, is_io: bool, bits: u32) -> Slot {
        let mask = WayMask::from_bits(bits);
        Slot {
            members: vec![WorkloadId(id)],
            name: format!("c{id}"),
            class,
            is_io,
            grant: mask.count(),
            mask,
            refs_at_growth: None,
        }
    }

    fn bits(slots: &[Slot]) -> Vec<u32> {
        slots.iter().map(|slot| slot.mask.bits()).collect()
    }

    fn view(refs: &[Option<f64>], ddio: u32) -> View<'_> {
        let (run, ddio) = (WayMask::full(11), WayMask::from_bits(ddio));
        View { run, ddio, refs, threshold: 0.03, floor: 1e4 }
    }

    /// s6.B: container 4 (PC) at 0x180, 3 and 2 (BE) at 0x060 and 0x018, 0 and 1 (PC, I/O) at 0x007.
    fn containers() -> Vec<Slot> {
        vec![
            slot(4, Class::Pc, false, 0x180),
            slot(3, Class::Be, false, 0x060),
            slot(2, Class::Be, false, 0x018),
            slot(0, Class::Pc, true, 0x007),
        ]
    }

    #[test]
    fn container_4_grows_into_ddio_and_container_3_takes_its_place_there() {
        // Nine ways are taken, so a tenth overlaps DDIO: the BE slot with the fewest references moves there.
        let mut slots = containers();
        let refs = [Some(9e7), Some(1e6), Some(1e6), Some(5e6)];
        assert!(extend(&mut slots, 0, &view(&refs, 0x600)));
        assert_eq!(bits(&slots), [0x0e0, 0x300, 0x018, 0x007]);
        assert!(extend(&mut slots, 0, &view(&refs, 0x600)));
        assert_eq!(bits(&slots), [0x1e0, 0x600, 0x018, 0x007]);
        assert!(!extend(&mut slots, 0, &view(&refs, 0x600)), "all eleven ways are taken");
        // Two more DDIO ways by hand cover half of container 4: container 2 has to move there (s6.B, 15 s).
        assert_eq!(shuffle(&mut slots, &view(&refs, 0x780)), Some(Shuffle::Protects(2)));
        assert_eq!(bits(&slots), [0x078, 0x600, 0x180, 0x007]);
    }

    #[test]
    fn without_best_effort_the_stack_is_the_last_to_overlap() {
        let mut slots = vec![
            slot(0, Class::Stack, true, 0x7c0),
            slot(1, Class::Pc, false, 0x038),
            slot(2, Class::Pc, true, 0x007),
        ];
        // Eleven ways are taken, two of them DDIO's: of the performance-critical slots the one with I/O overlaps them.
        assert_eq!(shuffle(&mut slots, &view(&[None, None, None], 0x600)), Some(Shuffle::Exchanges(2)));
        assert_eq!(bits(&slots), [0x01f, 0x0e0, 0x700]);
        assert_eq!(shuffle(&mut slots, &view(&[None, None, None], 0x600)), None, "and stays there");
    }
}
