//! Mid-level caches (L2): private, exact LRU (microarchitecture.md 2: "LRU is good enough").
//!
//! Knows tags, dirtiness and recency; knows nothing of the LLC. One set of up to 16 ways is one 64-byte
//! line of the machine that runs the model.

use crate::line::{Line, LineTag};

/// Newer than memory and the LLC.
pub(crate) const DIRTY: u8 = 0b001;
/// Filled by an LLC hit on a non-I/O line (proven reuse, microarchitecture.md 3).
pub(crate) const REUSED: u8 = 0b010;
/// Streaming I/O data (storage blocks that are read once).
pub(crate) const STREAM: u8 = 0b100;
const FLAGS: u8 = 0b111;
const SLICE_SHIFT: u32 = 3;

/// One set. `order` holds way numbers as nibbles, nibble 0 the most recent; empty ways are last.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct MlcSet<T> {
    tags: [T; 16],
    meta: [u8; 16],
    order: u64,
    /// One bit per way for each kind of mark.
    marks: u64,
}

/// The line may also be in the LLC (a stale mark costs a look-up, a missing one would be an error).
pub(crate) const COPIED: u64 = 1;
/// The line may also be in another MLC (likewise).
pub(crate) const SHARED: u64 = 1 << 16;
/// IDIO's tag: the line holds payload of a packet (IDIO s3.4). Only steered devices set it.
pub(crate) const PAYLOAD: u64 = 1 << 32;
/// A prefetch hint brought the payload, and the core has not touched it since (IDIO s3.3).
pub(crate) const PUSHED: u64 = 1 << 48;
/// Marks for other places of a line.
pub(crate) const ELSEWHERE: u64 = COPIED | SHARED;
const MARKS: u64 = ELSEWHERE | PAYLOAD | PUSHED;

/// A line evicted from an MLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MlcVictim {
    pub line: Line,
    pub flags: u8,
    pub marks: u64,
}

const NIBBLES: u64 = 0x1111_1111_1111_1111;

impl<T: LineTag> MlcSet<T> {
    pub(crate) const EMPTY: MlcSet<T> =
        MlcSet { tags: [T::NONE; 16], meta: [0; 16], order: 0xfedc_ba98_7654_3210, marks: 0 };

    /// A set in which every way has the same tag.
    pub(crate) fn of_one_tag(tag: T) -> MlcSet<T> {
        MlcSet { tags: [tag; 16], ..MlcSet::EMPTY }
    }

    #[inline(always)]
    pub(crate) fn find(&self, tag: T) -> Option<u32> {
        let bits = T::equal(&self.tags, tag);
        if bits == 0 { None } else { Some(bits.trailing_zeros()) }
    }

    #[inline(always)]
    pub(crate) fn flags(&self, way: u32) -> u8 {
        self.meta[way as usize & 15] & FLAGS
    }

    #[inline(always)]
    pub(crate) fn add_flags(&mut self, way: u32, flags: u8) {
        self.meta[way as usize & 15] |= flags;
    }

    #[inline(always)]
    pub(crate) fn clear_flags(&mut self, way: u32, flags: u8) {
        self.meta[way as usize & 15] &= !flags;
    }

    /// Marks of the line in `way`: [`COPIED`], [`SHARED`], [`PAYLOAD`], [`PUSHED`].
    #[inline(always)]
    pub(crate) fn marks(&self, way: u32) -> u64 {
        self.marks >> (way & 15) & MARKS
    }

    /// True if the line in `way` was pushed there and has not been touched.
    #[inline(always)]
    pub(crate) fn is_pushed(&self, way: u32) -> bool {
        self.marks & PUSHED << (way & 15) != 0
    }

    /// Marks the line in `way`.
    #[inline(always)]
    pub(crate) fn mark(&mut self, way: u32, marks: u64) {
        self.marks |= marks << (way & 15);
    }

    /// Clears marks of the line in `way`.
    #[inline(always)]
    pub(crate) fn unmark(&mut self, way: u32, marks: u64) {
        self.marks &= !(marks << (way & 15));
    }

    /// Makes `way` the most recent, branch-free.
    #[inline(always)]
    pub(crate) fn touch(&mut self, way: u32) {
        let shift = self.position(way) * 4;
        let below = (1u64 << shift) - 1;
        let through = (16u64 << shift).wrapping_sub(1); // wraps to all ones for the last nibble
        self.order = self.order & !through | (self.order & below) << 4 | u64::from(way);
    }

    /// Position of `way` in the order: the lowest zero nibble of order xor way.
    #[inline(always)]
    fn position(&self, way: u32) -> u32 {
        let x = self.order ^ (NIBBLES * u64::from(way));
        (x.wrapping_sub(NIBBLES) & !x & (NIBBLES << 3)).trailing_zeros() / 4
    }

    /// The least recent of the first `ways` positions.
    #[inline(always)]
    pub(crate) fn least_recent(&self, ways: u32) -> u32 {
        (self.order >> ((ways - 1) * 4) & 15) as u32
    }

    /// The line in `way`, if any.
    #[inline(always)]
    pub(crate) fn occupant(&self, way: u32, set: usize) -> Option<MlcVictim> {
        let at = way as usize & 15;
        let tag = self.tags[at];
        if tag == T::NONE {
            return None;
        }
        let meta = self.meta[at];
        let line = tag.line(set as u32, meta >> SLICE_SHIFT);
        Some(MlcVictim { line, flags: meta & FLAGS, marks: self.marks(way) })
    }

    /// Puts `line` into `way`, the least recent of the chip's `ways`, which makes it the most recent.
    #[inline(always)]
    pub(crate) fn fill(&mut self, way: u32, ways: u32, line: Line, flags: u8, marks: u64) {
        debug_assert_eq!(way, self.least_recent(ways));
        let at = way as usize & 15;
        self.tags[at] = T::of(line);
        self.meta[at] = flags | T::slice_beside(line) << SLICE_SHIFT;
        self.marks = self.marks & !(MARKS << at) | marks << at;
        // The last nibble in use moves to the front: no search for its position.
        self.order = if ways == 16 {
            self.order.rotate_left(4)
        } else {
            let beyond = (u64::MAX << 4) << ((ways - 1) * 4);
            self.order & beyond | (self.order << 4) & !beyond | u64::from(way)
        };
    }

    /// Empties `way` and makes it the next of the chip's `ways` to be filled. Returns the flags it had.
    #[inline(always)]
    pub(crate) fn invalidate(&mut self, way: u32, ways: u32) -> u8 {
        let at = way as usize & 15;
        let flags = self.meta[at] & FLAGS;
        self.tags[at] = T::NONE;
        self.marks &= !(MARKS << at);
        let shift = self.position(way) * 4;
        let below = (1u64 << shift) - 1;
        // Older ways move up one position, the emptied way moves to the end of the chip's ways; nibbles beyond those
        // name ways that the chip does not have and keep their positions.
        let end = (ways - 1) * 4;
        let rest = u64::MAX.checked_shl(end + 4).unwrap_or(0);
        let moved = self.order >> 4 & !below & ((1 << end) - 1);
        self.order = self.order & (below | rest) | moved | u64::from(way) << end;
        flags
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.tags.iter().enumerate().filter(|(_, tag)| **tag != T::NONE).map(|(way, tag)| (way as u32, *tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn touch_moves_to_front_and_keeps_the_rest_in_order() {
        let mut set = MlcSet::<u16>::EMPTY;
        set.touch(0xf);
        assert_eq!(set.order, 0xedcb_a987_6543_210f);
        set.touch(0x3);
        assert_eq!(set.order, 0xedcb_a987_6542_10f3);
        set.touch(0x3);
        assert_eq!(set.order, 0xedcb_a987_6542_10f3);
    }

    proptest! {
        /// The packed order behaves as a plain list of ways would.
        #[test]
        fn order_is_a_list(
            ways in prop_oneof![Just(8u32), Just(16)],
            steps in proptest::collection::vec((0u32..16, any::<bool>()), 1..200),
        ) {
            let mut set = MlcSet::<u16>::EMPTY;
            let mut list: Vec<u32> = (0..ways).collect();
            for (way, touch) in steps {
                let way = way % ways;
                let at = list.iter().position(|w| *w == way).unwrap();
                list.remove(at);
                if touch {
                    set.touch(way);
                    list.insert(0, way);
                } else {
                    set.invalidate(way, ways);
                    list.push(way);
                    if way % 2 == 0 {
                        set.fill(way, ways, u16::pack(5, 1, 2), 0, COPIED | SHARED);
                        list.rotate_right(1);
                    }
                }
                let packed: Vec<u32> = (0..ways).map(|i| (set.order >> (4 * i) & 15) as u32).collect();
                prop_assert_eq!(&packed, &list);
                prop_assert_eq!(set.least_recent(ways), list[ways as usize - 1]);
            }
        }
    }
}
