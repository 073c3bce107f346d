//! Line handles: a line's place in the chip, computed once when its address is handed out.
//!
//! A handle packs a line's tag and its (dense, sampled) MLC set into 32 bits, so that lists of lines stay short and the hot
//! path does not divide. Handles are made by [`crate::AddressMap`] alone.
//!
//! There are two layouts. A chip of up to 16 ways without the rules of later chips has tags of 16 bits, so that the tags of
//! a set are half a line of the machine that runs the model, and the slice in the handle, so that nothing is hashed. A
//! larger one stores tags of 32 bits, of which 19 are used, and hashes them for the slice.
//!
//! | bits | 31 | 30 | 29..15 | 14..11 | 10 | 9..0 |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | 16-bit tags | 1 | tag | tag | slice | slice | set |
//! | 32-bit tags | 0 | 1 | tag | tag | set | set |

use crate::simd::{LANES, eq_u16, eq_u32};
use crate::slices::Slices;
use std::fmt::Debug;
use std::num::NonZeroU32;

/// A line of simulated memory that the sample contains. One bit is always set, so that an `Option<Line>` needs no more
/// room than a `Line`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Line(NonZeroU32);

/// Set in every handle with a tag of 16 bits.
const NARROW: NonZeroU32 = NonZeroU32::new(1 << 31).unwrap();
/// Set in every handle with a tag of 32 bits.
const WIDE: NonZeroU32 = NonZeroU32::new(1 << 30).unwrap();

/// Bits of a handle that hold the slice, with 16-bit tags.
const SLICE_BITS: u32 = 5;
/// Bits of a handle that hold the tag, with 32-bit tags.
const TAG_BITS: u32 = 19;

/// The tag of a line as the sets of a chip store it, and the layout of the handles of such a chip.
pub(crate) trait LineTag: Copy + Eq + Debug + 'static {
    /// Tag that no line has; marks an empty way.
    const NONE: Self;
    /// Bits of a handle that hold the dense MLC set.
    const SET_BITS: u32;
    /// Slices that there is room for.
    const SLICES: u32;
    /// Tags that lines of one set and slice may have: 0 to this, without it.
    const ADDRESSES: u32;
    /// Whether a socket with such tags has the rules that only later chips have ([`crate::Rules`]): those of the others
    /// cost each of their accesses nothing.
    const LATER_RULES: bool;

    /// Bits for the slice in the index of an LLC set, for a chip of so many slices.
    fn slice_bits(slices: u32) -> u32;

    /// The line of the `address`-th tag. With 32-bit tags that determines the slice.
    fn pack(address: u32, set: u32, slice: u32) -> Line;

    /// The tag of a line.
    fn of(line: Line) -> Self;

    /// Dense index of a line's MLC set within the sample.
    fn set(line: Line) -> usize;

    /// What tells lines of this tag and of one MLC set apart: the slice, unless the tag determines it.
    fn slice_beside(line: Line) -> u8;

    /// The line of this tag: the inverse of the three before.
    fn line(self, set: u32, slice_beside: u8) -> Line;

    /// The line of this tag in the set and slice of another, for example a victim.
    fn in_set_of(self, other: Line) -> Line;

    /// Index of a line's LLC set in an array; bits above those of the array's length must be masked off.
    fn llc_place(line: Line, places: Places) -> usize;

    /// The line of this tag in the LLC set at a place: the inverse of [`LineTag::llc_place`].
    fn at_llc_place(self, place: usize, places: Places) -> Line;

    /// Bit i is set where `lanes[i] == tag`.
    fn equal(lanes: &[Self; LANES], tag: Self) -> u32;
}

/// Index of LLC sets in an array: the index of the MLC's set in the lowest bits, then the slice, then the LLC's
/// index bits above the MLC's. No multiplication is needed; there is room for a power of two of slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Bits for the index of the MLC's set.
    set_bits: u32,
    /// Bits for the slice.
    slice_bits: u32,
    /// The slices of lines with 32-bit tags.
    slices: Slices,
}

impl Places {
    /// For so many MLC sets and slices of a chip with tags `T`.
    pub(crate) fn new<T: LineTag>(mlc_sets: usize, count: u32, slices: Slices) -> Places {
        Places { set_bits: mlc_sets.next_power_of_two().ilog2(), slice_bits: T::slice_bits(count), slices }
    }

    /// Number of places, where the LLC has `2^bits` sets in a slice for each set of the MLC.
    pub(crate) fn count(self, bits: u32) -> usize {
        1 << (self.set_bits + self.slice_bits + bits)
    }
}

impl LineTag for u16 {
    const NONE: u16 = u16::MAX;
    const SET_BITS: u32 = 10;
    const SLICES: u32 = 1 << SLICE_BITS;
    const ADDRESSES: u32 = u16::MAX as u32;
    const LATER_RULES: bool = false;

    /// Always the same: the slice is moved together with the bits above it.
    fn slice_bits(_: u32) -> u32 {
        SLICE_BITS
    }

    #[inline(always)]
    fn pack(address: u32, set: u32, slice: u32) -> Line {
        (address as u16).line(set, slice as u8)
    }

    #[inline(always)]
    fn of(line: Line) -> u16 {
        (line.0.get() >> (Self::SET_BITS + SLICE_BITS)) as u16
    }

    #[inline(always)]
    fn set(line: Line) -> usize {
        (line.0.get() & ((1 << Self::SET_BITS) - 1)) as usize
    }

    #[inline(always)]
    fn slice_beside(line: Line) -> u8 {
        (line.0.get() >> Self::SET_BITS) as u8 & ((1 << SLICE_BITS) - 1)
    }

    #[inline(always)]
    fn line(self, set: u32, slice: u8) -> Line {
        debug_assert!(self != u16::NONE && set < 1 << Self::SET_BITS && slice < 1 << SLICE_BITS);
        let slice_and_set = u32::from(slice) << Self::SET_BITS | set;
        Line(NARROW | u32::from(self) << (Self::SET_BITS + SLICE_BITS) | slice_and_set)
    }

    #[inline(always)]
    fn in_set_of(self, other: Line) -> Line {
        let rest = other.0.get() & ((1 << (Self::SET_BITS + SLICE_BITS)) - 1);
        Line(NARROW | u32::from(self) << (Self::SET_BITS + SLICE_BITS) | rest)
    }

    #[inline(always)]
    fn llc_place(line: Line, Places { set_bits, .. }: Places) -> usize {
        Self::set(line) | ((line.0.get() >> Self::SET_BITS) as usize) << (set_bits & 15)
    }

    fn at_llc_place(self, place: usize, Places { set_bits, .. }: Places) -> Line {
        let slice = place as u32 >> set_bits & ((1 << SLICE_BITS) - 1);
        self.line(place as u32 & ((1 << set_bits) - 1), slice as u8)
    }

    #[inline(always)]
    fn equal(lanes: &[u16; LANES], tag: u16) -> u32 {
        eq_u16(lanes, tag)
    }
}

impl LineTag for u32 {
    const NONE: u32 = u32::MAX;
    const SET_BITS: u32 = 11;
    const SLICES: u32 = 256;
    const ADDRESSES: u32 = 1 << TAG_BITS;
    const LATER_RULES: bool = true;

    fn slice_bits(slices: u32) -> u32 {
        slices.next_power_of_two().ilog2()
    }

    #[inline(always)]
    fn pack(address: u32, set: u32, _: u32) -> Line {
        address.line(set, 0)
    }

    #[inline(always)]
    fn of(line: Line) -> u32 {
        line.0.get() >> Self::SET_BITS & (Self::ADDRESSES - 1)
    }

    #[inline(always)]
    fn set(line: Line) -> usize {
        (line.0.get() & ((1 << Self::SET_BITS) - 1)) as usize
    }

    #[inline(always)]
    fn slice_beside(_: Line) -> u8 {
        0
    }

    #[inline(always)]
    fn line(self, set: u32, _: u8) -> Line {
        debug_assert!(self < Self::ADDRESSES && set < 1 << Self::SET_BITS);
        Line(WIDE | self << Self::SET_BITS | set)
    }

    #[inline(always)]
    fn in_set_of(self, other: Line) -> Line {
        self.line(Self::set(other) as u32, 0)
    }

    #[inline(always)]
    fn llc_place(line: Line, Places { set_bits, slice_bits, slices }: Places) -> usize {
        let (tag, set) = (Self::of(line), Self::set(line));
        let slice = slices.of(tag, set as u32) as usize;
        set | (slice | (tag as usize) << (slice_bits & 15)) << (set_bits & 15)
    }

    fn at_llc_place(self, place: usize, Places { set_bits, .. }: Places) -> Line {
        self.line(place as u32 & ((1 << set_bits) - 1), 0)
    }

    #[inline(always)]
    fn equal(lanes: &[u32; LANES], tag: u32) -> u32 {
        eq_u32(lanes, tag)
    }
}

impl Line {
    /// An arbitrary line to fill unused entries with.
    pub(crate) const ANY: Line = Line(NARROW);

    #[inline(always)]
    pub(crate) fn is_wide(self) -> bool {
        self.0.get() & NARROW.get() == 0
    }

    /// Dense index of its MLC set within the sample.
    pub fn set(self) -> usize {
        if self.is_wide() { u32::set(self) } else { u16::set(self) }
    }

    /// The slice of a line with a tag of 16 bits.
    pub(crate) fn slice_beside(self) -> usize {
        debug_assert!(!self.is_wide());
        u16::slice_beside(self).into()
    }

    /// Line address above the MLC index.
    pub fn tag(self) -> u32 {
        if self.is_wide() { u32::of(self) } else { u16::of(self).into() }
    }

    /// Its group of sets, of a power of two of at most 1024 groups.
    #[inline(always)]
    pub(crate) fn group(self, groups: usize) -> usize {
        debug_assert!(groups.is_power_of_two() && groups <= 1 << u16::SET_BITS);
        self.0.get() as usize & (groups - 1)
    }

    /// Memory channel out of `channels`: lines are spread over channels by a hash of their own.
    #[inline(always)]
    pub fn channel(self, channels: u32) -> usize {
        // Fibonacci hashing on the whole handle, then a multiply-shift range reduction.
        let hash = self.0.get().wrapping_mul(0x9e37_79b1) >> 8;
        ((u64::from(hash) * u64::from(channels)) >> 24) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ChipSpec;

    fn every_set_of_the_llc_has_a_place_of_its_own<T: LineTag>(chip: &str, count: u32) {
        let slices = Slices::new(&ChipSpec::built_in(chip).unwrap());
        for mlc_sets in [1, 32, 64, 256, 1024] {
            let places = Places::new::<T>(mlc_sets, count, slices);
            let mut seen = std::collections::BTreeMap::new();
            let mask = places.count(1) - 1;
            for (tag, beside, set) in (0..2 * count).flat_map(|tag| {
                (0..count).flat_map(move |slice| (0..mlc_sets as u32).map(move |set| (tag, slice, set)))
            }) {
                let line = T::pack(tag, set, beside);
                assert_eq!((line.tag(), line.set()), (tag, set as usize));
                assert_eq!(T::of(line).line(set, T::slice_beside(line)), line);
                let slice = if line.is_wide() { slices.of(tag, set) as usize } else { line.slice_beside() };
                let place = T::llc_place(line, places) & mask;
                // A place is of one set, slice and lowest bit of the tag, which is of the LLC's index.
                let of = *seen.entry(place).or_insert((set, slice, tag & 1));
                assert_eq!(of, (set, slice, tag & 1));
                assert_eq!(T::of(line).at_llc_place(place, places), line);
                assert_eq!(T::of(line).in_set_of(line), line);
            }
            assert!(seen.len() > mlc_sets * count as usize, "{} of {mlc_sets} x {count} x 2", seen.len());
        }
    }

    #[test]
    fn with_16_bit_tags() {
        every_set_of_the_llc_has_a_place_of_its_own::<u16>("gold-6140", 18);
    }

    #[test]
    fn with_32_bit_tags() {
        every_set_of_the_llc_has_a_place_of_its_own::<u32>("platinum-8570", 60);
    }

    #[test]
    fn the_last_line_of_each_layout_is_none_of_the_empty_ways() {
        let last = u16::pack(u16::ADDRESSES - 1, 1023, 31);
        assert_eq!((last.tag(), last.set(), last.slice_beside()), (65_534, 1023, 31));
        assert_ne!(u16::of(last), u16::NONE);
        let last = u32::pack(u32::ADDRESSES - 1, 2047, 0);
        assert_eq!((last.tag(), last.set(), last.is_wide()), ((1 << 19) - 1, 2047, true));
        assert_ne!(u32::of(last), u32::NONE);
    }
}
