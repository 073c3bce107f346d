//! The ways of one LLC set: tags, states, owners, and the choice of victims.
//!
//! Knows a way mask and ages; must not know MLCs, devices or directories. Both kinds of LLC are built on it. A set's
//! tags, states and owners are next to each other: for up to 16 ways they are one 64-byte line of the machine that runs
//! the model.

use crate::bytes::Bytes;
use crate::line::LineTag;
use crate::rules::Replacement;
use crate::simd::{LANES, add_where, eq_masked_u8};
use rand_core::Rng;
use waykeeper_units::WayMask;

/// Age field: 0 = keep longest, 3 = evict first (microarchitecture.md 3).
pub(crate) const AGE: u8 = 0b0000_0011;
/// Newer than memory.
pub(crate) const DIRTY: u8 = 0b0000_0100;
/// Last written by a device and not moved since.
pub(crate) const IO: u8 = 0b0000_1000;
/// An MLC holds the line too.
pub(crate) const COPY: u8 = 0b0001_0000;
/// Written by a device and not read by a core yet (statistics only).
pub(crate) const UNCONSUMED: u8 = 0b0010_0000;
/// IDIO's tag: the line holds payload of a packet (IDIO s3.4). Only steered devices set it.
pub(crate) const PAYLOAD: u8 = 0b0100_0000;

/// A way mask in the two forms that the hot path uses: bits, and a byte per way.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct MaskLanes<const L: usize> {
    bytes: [u8; L],
    bits: u32,
}

impl<const L: usize> MaskLanes<L> {
    pub(crate) fn new(mask: WayMask) -> MaskLanes<L> {
        let byte = |way: usize| if mask.contains(way as u32) { 0xff } else { 0 };
        MaskLanes { bytes: std::array::from_fn(byte), bits: mask.bits() }
    }

    #[inline(always)]
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }
}

/// The line that an insertion evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted<T> {
    pub tag: T,
    pub state: u8,
    pub owner: u8,
    pub way: u32,
}

/// The ways of one set. `L` lanes are stored; the chip's ways are the lowest of them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Ways<T, const L: usize> {
    tags: [T; L],
    state: [u8; L],
    owner: [u8; L],
}

impl<T: LineTag, const L: usize> Ways<T, L> {
    pub(crate) const EMPTY: Ways<T, L> = Ways { tags: [T::NONE; L], state: [0; L], owner: [0; L] };

    /// Bit per way whose tag is `tag`.
    #[inline(always)]
    fn matches(&self, tag: T) -> u32 {
        let mut bits = 0;
        for (i, lanes) in self.tags.as_chunks::<LANES>().0.iter().enumerate() {
            bits |= T::equal(lanes, tag) << (i * LANES);
        }
        bits
    }

    /// Bit per way whose state, masked with `and`, is `value`.
    #[inline(always)]
    fn states(&self, and: u8, value: u8) -> u32 {
        let mut bits = 0;
        for (i, lanes) in self.state.as_chunks::<LANES>().0.iter().enumerate() {
            bits |= eq_masked_u8(lanes, and, value) << (i * LANES);
        }
        bits
    }

    /// The way that holds `tag`.
    #[inline(always)]
    pub(crate) fn find(&self, tag: T) -> Option<u32> {
        let bits = self.matches(tag);
        if bits == 0 { None } else { Some(bits.trailing_zeros()) }
    }

    #[inline(always)]
    pub(crate) fn state(&self, way: u32) -> u8 {
        self.state[way as usize % L]
    }

    #[inline(always)]
    pub(crate) fn set_state(&mut self, way: u32, state: u8) {
        self.state[way as usize % L] = state;
    }

    #[inline(always)]
    pub(crate) fn owner(&self, way: u32) -> u8 {
        self.owner[way as usize % L]
    }

    #[inline(always)]
    pub(crate) fn set_owner(&mut self, way: u32, owner: u8) {
        self.owner[way as usize % L] = owner;
    }

    #[inline(always)]
    pub(crate) fn tag(&self, way: u32) -> T {
        self.tags[way as usize % L]
    }

    /// Empties a way.
    #[inline(always)]
    pub(crate) fn free(&mut self, way: u32) {
        self.tags[way as usize % L] = T::NONE;
        self.state[way as usize % L] = 0;
    }

    /// True if some way of `mask` is empty or evict-first: an insertion there displaces nothing of value.
    #[inline(always)]
    pub(crate) fn has_room(&self, mask: &MaskLanes<L>) -> bool {
        (self.matches(T::NONE) | self.states(AGE, 3)) & mask.bits != 0
    }

    /// The way of `mask` that a copy of an MLC's line may take without loss: an empty one, else the leftmost that is
    /// evict-first and does not hold a device's data that only the LLC has.
    #[inline(always)]
    pub(crate) fn way_for_copy(&self, mask: &MaskLanes<L>) -> Option<u32> {
        let empty = self.matches(T::NONE) & mask.bits;
        let spare = self.states(AGE, 3) & !self.states(IO | COPY, IO) & mask.bits;
        let ways = if empty != 0 { empty } else { spare };
        if ways == 0 { None } else { Some(31 - ways.leading_zeros()) }
    }

    /// Puts a line into a way of `mask`: an empty one, else the victim of `rule`. Returns the evicted line.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        mask: &MaskLanes<L>,
        line: (T, u8, u8),
        rule: &mut Chooser<'_>,
        set: usize,
    ) -> Option<Evicted<T>> {
        debug_assert!(self.matches(line.0) == 0, "a line is in a set once");
        let empty = self.matches(T::NONE) & mask.bits;
        let way = if empty != 0 { 31 - empty.leading_zeros() } else { self.victim(mask, rule, set) };
        self.put(way, line, rule, set)
    }

    /// Puts a line into a way. Returns the evicted line.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        way: u32,
        (tag, state, owner): (T, u8, u8),
        rule: &mut Chooser<'_>,
        set: usize,
    ) -> Option<Evicted<T>> {
        let at = way as usize % L;
        let gone = Evicted { tag: self.tags[at], state: self.state[at], owner: self.owner[at], way };
        self.tags[at] = tag;
        self.state[at] = state;
        self.owner[at] = owner;
        rule.touched(set, way);
        if gone.tag == T::NONE { None } else { Some(gone) }
    }

    #[inline(always)]
    fn victim(&mut self, mask: &MaskLanes<L>, rule: &mut Chooser<'_>, set: usize) -> u32 {
        if rule.kind == Replacement::Qlru {
            return 31 - self.age_until_evictable(mask).leading_zeros();
        }
        match rule.kind {
            Replacement::Lru => least_recent(&rule.recency[set], mask.bits),
            kind => self.random_victim(mask, kind, rule.rng.next_u32()),
        }
    }

    #[cold]
    fn random_victim(&mut self, mask: &MaskLanes<L>, kind: Replacement, random: u32) -> u32 {
        let any_age = kind == Replacement::Random;
        pick(if any_age { mask.bits } else { self.age_until_evictable(mask) }, random)
    }

    /// The ways of the mask that are candidates, QLRU (microarchitecture.md 5): those of age 3; if there is none, all
    /// ways are aged first.
    #[inline(always)]
    fn age_until_evictable(&mut self, mask: &MaskLanes<L>) -> u32 {
        let old = self.states(AGE, 3) & mask.bits;
        if old != 0 { old } else { self.age(mask) }
    }

    /// Ages the ways of the mask until the oldest has age 3. Returns the ways that then have it.
    #[inline(never)]
    fn age(&mut self, mask: &MaskLanes<L>) -> u32 {
        let (two, one) = (self.states(AGE, 2) & mask.bits, self.states(AGE, 1) & mask.bits);
        let (lack, oldest) = if two != 0 {
            (1, two)
        } else if one != 0 {
            (2, one)
        } else {
            (3, mask.bits)
        };
        self.age_by(mask, lack);
        oldest
    }

    /// Adds `lack` to the age of every way of the mask, which leaves none above age 3.
    #[inline(always)]
    fn age_by(&mut self, mask: &MaskLanes<L>, lack: u8) {
        let masks = mask.bytes.as_chunks::<LANES>().0;
        for (states, mask) in self.state.as_chunks_mut::<LANES>().0.iter_mut().zip(masks) {
            add_where(states, mask, lack);
        }
    }
}

impl Ways<u16, LANES> {
    /// Hit or allocate in one branch-free step, QLRU: a demand access to an inclusive cache. On a mixed stream the
    /// hit-or-miss branch would mispredict every other time, which costs more than doing both halves always
    /// (performance.md 1, column c). No way outside the mask may hold a line. Returns whether it hit.
    #[inline(always)]
    pub(crate) fn touch_or_allocate(&mut self, mask: &MaskLanes<LANES>, tag: u16) -> bool {
        // A rank per way, the lowest is taken: its class in the high bits, then its place from the left. Classes: 0 the
        // way that holds the tag, 1 empty ways, 2 to 5 those of age 3 to 0, 8 and more those outside the mask.
        let (state, in_mask) = (Bytes::from_array(&self.state), Bytes::from_array(&mask.bytes));
        let class = Bytes::all(0x50).minus(state.and(Bytes::all(AGE)).left::<4>());
        let class = Bytes::tags_equal(&self.tags, u16::NONE).select(Bytes::all(0x10), class);
        let class = class.without(Bytes::tags_equal(&self.tags, tag));
        let outside = Bytes::all(0x80).without(in_mask);
        let ranks = class.or(Bytes::from_array(&FROM_LEFT).or(outside));
        let best = ranks.least();
        let chosen = ranks.equal(best);
        let hit = best.first() < 0x10;
        // The oldest is below age 3 by as much as its class is above 2.
        let class = best.right::<4>();
        let aged = state.plus(class.minus(Bytes::all(2)).and(in_mask));
        let promoted = aged.and(Bytes::all(!AGE)).or(aged.right::<1>().and(Bytes::all(1)));
        let next = class.equal(Bytes::all(0)).select(promoted, Bytes::all(1));
        chosen.select(next, aged).store(&mut self.state);
        chosen.replace_tags(&mut self.tags, tag);
        hit
    }
}

/// Place of each way, counted from the leftmost.
const FROM_LEFT: [u8; LANES] = [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0];

/// Hit promotion H11 (microarchitecture.md 5, QLRU family of uops.info): 3 -> 1, 2 -> 1, else 0.
#[inline(always)]
pub(crate) fn promoted(age: u8) -> u8 {
    age >> 1
}

/// One of the set bits of `bits`, by a random number.
#[inline]
fn pick(bits: u32, random: u32) -> u32 {
    let nth = ((u64::from(random) * u64::from(bits.count_ones())) >> 32) as u32;
    (0..nth).fold(bits, |rest, _| rest & (rest - 1)).trailing_zeros()
}

/// The replacement rule with the state it needs beside the set.
pub(crate) struct Chooser<'a> {
    pub kind: Replacement,
    pub rng: &'a mut rand_xoshiro::Xoshiro128PlusPlus,
    /// Recency order per set for [`Replacement::Lru`]; empty otherwise. Byte 0 is the most recent way.
    pub recency: &'a mut [[u8; 32]],
}

impl Chooser<'_> {
    /// Notes that `way` was used (matters to LRU only).
    #[inline(always)]
    pub(crate) fn touched(&mut self, set: usize, way: u32) {
        if self.kind == Replacement::Lru {
            move_to_front(&mut self.recency[set], way as u8);
        }
    }
}

#[cold]
fn least_recent(order: &[u8; 32], mask: u32) -> u32 {
    let oldest = order.iter().rev().find(|way| mask >> **way & 1 == 1);
    u32::from(*oldest.expect("the order holds every way, and the mask has at least one"))
}

#[cold]
fn move_to_front(order: &mut [u8; 32], way: u8) {
    let at = order.iter().position(|w| *w == way).expect("the order holds every way");
    order.copy_within(0..at, 1);
    order[0] = way;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn with_chooser<T>(kind: Replacement, run: impl FnOnce(&mut Chooser<'_>) -> T) -> T {
        let mut rng = rand_xoshiro::Xoshiro128PlusPlus::seed_from_u64(1);
        let mut recency = vec![std::array::from_fn(|way| way as u8); 1];
        run(&mut Chooser { kind, rng: &mut rng, recency: &mut recency })
    }

    fn mask(bits: u32) -> MaskLanes<16> {
        MaskLanes::new(WayMask::from_bits(bits))
    }

    #[test]
    fn empty_ways_fill_from_the_left_then_the_leftmost_oldest_is_evicted() {
        with_chooser(Replacement::Qlru, |rule| {
            let mut ways = Ways::<u16, 16>::EMPTY;
            let mask = mask(0b111);
            for (tag, age) in [(10, 1), (11, 3), (12, 3)] {
                assert_eq!(ways.insert(&mask, (tag, age, 0), rule, 0), None);
            }
            // Bits 2, 1, 0 hold ages 1, 3, 3: the leftmost of age 3 is bit 1.
            let gone = ways.insert(&mask, (13, 1, 0), rule, 0).unwrap();
            assert_eq!((gone.tag, gone.way), (11, 1));
            // Ages 1, 1, 3: bit 0.
            assert_eq!(ways.insert(&mask, (14, 1, 0), rule, 0).unwrap().tag, 12);
            // Ages 1, 1, 1: all age by 2, the leftmost is evicted, the others are evict-first now.
            assert_eq!(ways.insert(&mask, (15, 0, 0), rule, 0).unwrap().tag, 10);
            assert_eq!((ways.state(2) & AGE, ways.state(1) & AGE, ways.state(0) & AGE), (0, 3, 3));
        });
    }

    #[test]
    fn a_mask_confines_victims() {
        for kind in [Replacement::Qlru, Replacement::QlruRandom, Replacement::Random, Replacement::Lru] {
            with_chooser(kind, |rule| {
                let mut ways = Ways::<u16, 16>::EMPTY;
                for tag in 0..11 {
                    ways.insert(&mask(0x7ff), (tag, 0, 0), rule, 0);
                }
                for tag in 100..200 {
                    let gone = ways.insert(&mask(0x060), (tag, 3, 0), rule, 0).unwrap();
                    assert!(gone.way == 5 || gone.way == 6, "{kind:?} took way {}", gone.way);
                }
            });
        }
    }

    #[test]
    fn lru_evicts_in_the_order_of_use_with_every_number_of_ways() {
        for number in 1..=32 {
            with_chooser(Replacement::Lru, |rule| {
                let mut ways = Ways::<u16, 32>::EMPTY;
                let mask = MaskLanes::new(WayMask::from_bits(u32::MAX >> (32 - number)));
                let lines = number as u16;
                for tag in 0..lines {
                    assert_eq!(ways.insert(&mask, (tag, 0, 0), rule, 0), None);
                }
                for tag in 0..lines {
                    let gone = ways.insert(&mask, (lines + tag, 0, 0), rule, 0);
                    assert_eq!(gone.map(|gone| gone.tag), Some(tag), "{number} ways");
                }
            });
        }
    }

    #[test]
    fn a_copy_takes_an_empty_way_or_an_evict_first_one_but_no_unread_device_data() {
        with_chooser(Replacement::Qlru, |rule| {
            let mut ways = Ways::<u16, 16>::EMPTY;
            let mask = mask(0b111);
            // Bits 2, 1, 0: unread device data, a copy of such data that was read, a young ordinary line.
            ways.insert(&mask, (10, IO | 3, 0), rule, 0);
            ways.insert(&mask, (11, IO | COPY | 3, 0), rule, 0);
            assert_eq!(ways.way_for_copy(&mask), Some(0), "an empty way first");
            ways.insert(&mask, (12, 1, 0), rule, 0);
            assert_eq!(ways.way_for_copy(&mask), Some(1), "then what was read");
            ways.set_state(1, IO | 3);
            assert_eq!(ways.way_for_copy(&mask), None);
        });
    }

    #[test]
    fn lru_evicts_the_least_recent_of_the_mask() {
        with_chooser(Replacement::Lru, |rule| {
            let mut ways = Ways::<u16, 16>::EMPTY;
            let mask = mask(0b1111);
            for tag in 0..4 {
                ways.insert(&mask, (tag, 1, 0), rule, 0); // ways 3, 2, 1, 0
            }
            rule.touched(0, 3); // tag 0 again
            assert_eq!(ways.insert(&mask, (9, 1, 0), rule, 0).unwrap().tag, 1);
            assert_eq!(ways.insert(&mask, (8, 1, 0), rule, 0).unwrap().tag, 2);
        });
    }

    #[test]
    fn branch_free_path_agrees_with_find_and_insert() {
        with_chooser(Replacement::Qlru, |rule| {
            let (mut fused, mut plain) = (Ways::<u16, LANES>::EMPTY, Ways::<u16, LANES>::EMPTY);
            let mask = mask(0xf8f7);
            for step in 0..20_000 {
                let tag = (rule.rng.next_u32() % 24) as u16;
                let hit = match plain.find(tag) {
                    Some(way) => {
                        let state = plain.state(way);
                        plain.set_state(way, state & !AGE | promoted(state & AGE));
                        true
                    }
                    None => {
                        plain.insert(&mask, (tag, 1, 0), rule, 0);
                        false
                    }
                };
                assert_eq!(fused.touch_or_allocate(&mask, tag), hit, "step {step}");
                assert_eq!((fused.tags, fused.state), (plain.tags, plain.state), "step {step}");
            }
        });
    }
}
