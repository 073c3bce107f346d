//! A sample of LLC sets: in each way an owner's line with an age, and the choice of the line that an insertion evicts.
//!
//! The rules are those of microarchitecture.md 4 and 5. Knows owners as numbers and ways as bits; must not know counters,
//! rates or what an owner is.

use waykeeper_units::WayMask;

/// Number of an owner: tenants first, then root ports.
pub(crate) type OwnerNumber = u16;

/// What a line is to its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum LineKind {
    /// A tenant's own line; of a port: device data that a core will read.
    Plain = 0,
    /// A tenant's line that a device wrote and the tenant has read; of a port: device data that no core will read.
    Used = 1,
    /// A copy of such a line in the inclusive ways, while an MLC holds it.
    Copy = 2,
}

const KINDS: usize = 3;

/// Evict first (microarchitecture.md 3).
pub(crate) const EVICT_FIRST: u8 = 3;

/// A way of a sampled set, numbered through all sets.
pub(crate) type WayNumber = u32;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Class of its line: owner and kind; `EMPTY` without a line.
    class: u32,
    /// Its place in the list of the class.
    place: u32,
    age: u8,
    /// Written by a device and not moved since.
    io: bool,
    /// Changes when the line does.
    stamp: u32,
}

const EMPTY: u32 = u32::MAX;

/// A line as it was evicted or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GoneLine {
    pub owner: OwnerNumber,
    pub kind: LineKind,
}

/// The sampled sets.
#[derive(Clone, Debug)]
pub(crate) struct SampledSets {
    ways: u32,
    count: u32,
    slots: Vec<Slot>,
    /// Per class, its ways.
    lists: Vec<Vec<WayNumber>>,
    stamp: u32,
}

impl SampledSets {
    pub fn new(ways: u32, count: u32, owners: usize) -> SampledSets {
        let slot = Slot { class: EMPTY, place: 0, age: 0, io: false, stamp: 0 };
        SampledSets {
            ways,
            count,
            slots: vec![slot; (ways * count) as usize],
            lists: vec![Vec::new(); owners * KINDS],
            stamp: 0,
        }
    }

    /// How many sets there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Lines of an owner of one kind.
    pub fn lines(&self, owner: OwnerNumber, kind: LineKind) -> usize {
        self.lists[class(owner, kind) as usize].len()
    }

    /// One line of an owner of one kind, chosen by `random`.
    pub fn any(&self, owner: OwnerNumber, kind: LineKind, random: u32) -> Option<WayNumber> {
        let list = &self.lists[class(owner, kind) as usize];
        if list.is_empty() { None } else { Some(list[below(random, list.len() as u32) as usize]) }
    }

    /// The bit number of a way in a mask.
    pub fn bit(&self, way: WayNumber) -> u32 {
        way % self.ways
    }

    /// The set of a way.
    pub fn set_of(&self, way: WayNumber) -> u32 {
        way / self.ways
    }

    /// A mark by which a line is found again.
    pub fn mark(&self, way: WayNumber) -> (WayNumber, u32) {
        (way, self.slots[way as usize].stamp)
    }

    /// Whether the marked line is still there.
    pub fn is_there(&self, (way, stamp): (WayNumber, u32)) -> bool {
        let slot = &self.slots[way as usize];
        slot.class != EMPTY && slot.stamp == stamp
    }

    /// Frees a way.
    pub fn remove(&mut self, way: WayNumber) -> Option<GoneLine> {
        let slot = self.slots[way as usize];
        if slot.class == EMPTY {
            return None;
        }
        self.unlist(slot);
        self.slots[way as usize].class = EMPTY;
        Some(gone(slot.class))
    }

    /// The line there belongs to another class from now on; its age stays.
    pub fn give(&mut self, way: WayNumber, owner: OwnerNumber, kind: LineKind, io: bool) {
        let age = self.slots[way as usize].age;
        self.remove(way);
        self.enter(way, owner, kind, io, age);
    }

    /// Hit promotion of core reads in place (microarchitecture.md 5).
    pub fn promote(&mut self, way: WayNumber) {
        let age = &mut self.slots[way as usize].age;
        *age = u8::from(*age >= 2);
    }

    /// Puts a line into a way of `mask` of a set: an empty one, else the leftmost that is evict-first, for which all are
    /// aged if there is none. Returns the way and the evicted line.
    pub fn insert(
        &mut self,
        set: u32,
        mask: WayMask,
        (owner, kind, io, age): (OwnerNumber, LineKind, bool, u8),
    ) -> Option<(WayNumber, Option<GoneLine>)> {
        let way = self.place_in(set, mask)?;
        let evicted = self.remove(way);
        self.enter(way, owner, kind, io, age);
        Some((way, evicted))
    }

    /// The way for a copy that displaces nothing of value: an empty one, else the leftmost that is evict-first and does not
    /// hold device data that only the LLC has.
    pub fn spare_for_copy(&self, set: u32, mask: WayMask) -> Option<WayNumber> {
        let first = set * self.ways;
        let of = |bit: &u32| &self.slots[(first + bit) as usize];
        let mut bits = (0..self.ways).rev().filter(|bit| mask.contains(*bit));
        let empty = bits.clone().find(|bit| of(bit).class == EMPTY);
        let spare = || bits.find(|bit| of(bit).age == EVICT_FIRST && (!of(bit).io || is_copy(of(bit).class)));
        Some(first + empty.or_else(spare)?)
    }

    /// Puts a copy into a way. Returns the evicted line.
    pub fn put_copy(&mut self, way: WayNumber, owner: OwnerNumber) -> Option<GoneLine> {
        let evicted = self.remove(way);
        self.enter(way, owner, LineKind::Copy, true, EVICT_FIRST);
        evicted
    }

    /// Whether an insertion into `mask` finds an empty or evict-first way.
    pub fn has_room(&self, set: u32, mask: WayMask) -> bool {
        let first = set * self.ways;
        (0..self.ways).filter(|bit| mask.contains(*bit)).any(|bit| {
            let slot = &self.slots[(first + bit) as usize];
            slot.class == EMPTY || slot.age == EVICT_FIRST
        })
    }

    fn place_in(&mut self, set: u32, mask: WayMask) -> Option<WayNumber> {
        let first = set * self.ways;
        let mut oldest: Option<(u8, u32)> = None;
        for bit in (0..self.ways).rev().filter(|bit| mask.contains(*bit)) {
            let slot = &self.slots[(first + bit) as usize];
            if slot.class == EMPTY {
                return Some(first + bit);
            }
            if oldest.is_none_or(|(age, _)| slot.age > age) {
                oldest = Some((slot.age, bit));
            }
        }
        let (age, bit) = oldest?;
        let lack = EVICT_FIRST - age;
        if lack > 0 {
            for other in (0..self.ways).filter(|bit| mask.contains(*bit)) {
                self.slots[(first + other) as usize].age += lack;
            }
        }
        Some(first + bit)
    }

    fn enter(&mut self, way: WayNumber, owner: OwnerNumber, kind: LineKind, io: bool, age: u8) {
        let class = class(owner, kind);
        let list = &mut self.lists[class as usize];
        self.stamp = self.stamp.wrapping_add(1);
        self.slots[way as usize] = Slot { class, place: list.len() as u32, age, io, stamp: self.stamp };
        list.push(way);
    }

    fn unlist(&mut self, slot: Slot) {
        let list = &mut self.lists[slot.class as usize];
        list.swap_remove(slot.place as usize);
        if let Some(moved) = list.get(slot.place as usize) {
            self.slots[*moved as usize].place = slot.place;
        }
    }
}

/// A number below `bound`, uniform for a uniform 32-bit number.
pub(crate) fn below(random: u32, bound: u32) -> u32 {
    ((u64::from(random) * u64::from(bound)) >> 32) as u32
}

fn class(owner: OwnerNumber, kind: LineKind) -> u32 {
    u32::from(owner) * KINDS as u32 + kind as u32
}

fn is_copy(class: u32) -> bool {
    class % KINDS as u32 == LineKind::Copy as u32
}

fn gone(class: u32) -> GoneLine {
    let kind = match class % KINDS as u32 {
        0 => LineKind::Plain,
        1 => LineKind::Used,
        _ => LineKind::Copy,
    };
    GoneLine { owner: (class / KINDS as u32) as OwnerNumber, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: (OwnerNumber, LineKind, bool, u8) = (0, LineKind::Plain, false, 1);

    fn mask(bits: u32) -> WayMask {
        WayMask::from_bits(bits)
    }

    #[test]
    fn an_insertion_takes_an_empty_way_from_the_left_and_then_the_leftmost_of_the_oldest() {
        let mut sets = SampledSets::new(4, 1, 2);
        // Of the ways 3, 2 and 0: 3, then 2, then 0; the set has no others of the mask.
        let ways = [0, 1, 2].map(|_| sets.insert(0, mask(0b1101), LINE).expect("a way"));
        assert_eq!(ways, [(3, None), (2, None), (0, None)]);
        // All have age 1, so all are aged by 2 and the leftmost is evicted. The new line has age 1: then way 2 is the
        // oldest.
        let gone = Some(GoneLine { owner: 0, kind: LineKind::Plain });
        assert_eq!(sets.insert(0, mask(0b1101), (1, LineKind::Used, true, 1)), Some((3, gone)));
        assert_eq!(sets.insert(0, mask(0b1101), LINE), Some((2, gone)));
        assert_eq!((sets.lines(0, LineKind::Plain), sets.lines(1, LineKind::Used)), (2, 1));
        assert_eq!(sets.insert(0, WayMask::EMPTY, LINE), None);
    }

    #[test]
    fn a_copy_spares_device_data_that_only_the_llc_has() {
        let mut sets = SampledSets::new(2, 1, 1);
        let unread = (0, LineKind::Plain, true, EVICT_FIRST);
        sets.insert(0, mask(0b11), unread);
        assert_eq!(sets.spare_for_copy(0, mask(0b11)), Some(0), "the empty way");
        sets.insert(0, mask(0b11), unread);
        assert_eq!(sets.spare_for_copy(0, mask(0b11)), None);
        sets.give(1, 0, LineKind::Copy, true);
        assert_eq!(sets.spare_for_copy(0, mask(0b11)), Some(1), "a copy gives way to another");
        let mark = sets.mark(1);
        sets.put_copy(1, 0);
        assert!(!sets.is_there(mark) && sets.is_there(sets.mark(1)));
    }

    #[test]
    fn every_line_is_found_by_its_class_after_others_have_left() {
        let mut sets = SampledSets::new(4, 1, 1);
        for _ in 0..4 {
            sets.insert(0, mask(0b1111), LINE);
        }
        sets.remove(3);
        sets.remove(0);
        let mut found: Vec<WayNumber> =
            [0, u32::MAX].map(|random| sets.any(0, LineKind::Plain, random).unwrap()).into();
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
        assert!(sets.has_room(0, mask(0b0001)) && !sets.has_room(0, mask(0b0110)));
    }
}
