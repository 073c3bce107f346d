//! Line handles: a line's place in the chip, computed once when its address is handed out.
//!
//! A handle packs the line's tag, its (dense, sampled) MLC set and its LLC slice into 64 bits, so that the hot path
//! neither hashes nor divides. Handles are made by [`crate::AddressMap`] alone.
//!
//! There are two layouts. A chip of up to 16 ways without the rules of later chips has tags of 16 bits, so that the tags of
//! a set are half a line of the machine that runs the model. A larger one has tags of 32 bits, of which 31 are used; the
//! upper 8 of these are the slice.
//!
//! | bits | 63 | 62..32 | 31 | 30..15 | 14..12 | 11..10 | 9..0 |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 16-bit tags | 0 | 0 | 1 | tag | slice | slice | set |
//! | 32-bit tags | 1 | tag, its upper 8 bits are the slice | 1 | 0 | 0 | set | set |

use crate::simd::{LANES, eq_u16, eq_u32};
use std::fmt::Debug;
use std::num::{NonZeroU32, NonZeroU64};

/// A line of simulated memory that the sample contains. One bit is always set, so that an `Option<Line>` needs no more
/// room than a `Line`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Line(NonZeroU64);

/// Set in every handle.
const PRESENT: NonZeroU32 = NonZeroU32::new(1 << 31).unwrap();
/// Set in handles with tags of 32 bits.
const WIDE: u64 = 1 << 63;

/// Bits of a handle that hold the slice, with 16-bit tags.
const SLICE_BITS: u32 = 5;
/// Bits of a 32-bit tag below those that hold the slice.
const ADDRESS_BITS: u32 = 23;

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

    /// The line of the `address`-th tag.
    fn pack(address: u32, set: u32, slice: u32) -> Line;

    /// The tag of a line.
    fn of(line: Line) -> Self;

    /// Dense index of a line's MLC set within the sample.
    fn set(line: Line) -> usize;

    /// What tells lines of this tag and of one MLC set apart: the slice, unless the tag has it.
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

    /// [`Line::channel`] of a line with such tags.
    fn channel(line: Line, channels: u32) -> usize;
}

/// One of `channels` by Fibonacci hashing, then a multiply-shift range reduction.
#[inline(always)]
fn spread(bits: u32, channels: u32) -> usize {
    let hash = bits.wrapping_mul(0x9e37_79b1) >> 8;
    ((u64::from(hash) * u64::from(channels)) >> 24) as usize
}

/// Index of LLC sets in an array: the index of the MLC's set in the lowest bits, then the slice, then the LLC's
/// index bits above the MLC's. No multiplication is needed; there is room for a power of two of slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Bits for the index of the MLC's set.
    set_bits: u32,
    /// Bits for the slice.
    slice_bits: u32,
}

impl Places {
    /// For so many MLC sets and slices of a chip with tags `T`.
    pub(crate) fn new<T: LineTag>(mlc_sets: usize, slices: u32) -> Places {
        Places { set_bits: mlc_sets.next_power_of_two().ilog2(), slice_bits: T::slice_bits(slices) }
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
        (line.0.get() as u32 >> (Self::SET_BITS + SLICE_BITS)) as u16
    }

    #[inline(always)]
    fn set(line: Line) -> usize {
        (line.0.get() & ((1 << Self::SET_BITS) - 1)) as usize
    }

    #[inline(always)]
    fn slice_beside(line: Line) -> u8 {
        (line.0.get() as u32 >> Self::SET_BITS) as u8 & ((1 << SLICE_BITS) - 1)
    }

    #[inline(always)]
    fn line(self, set: u32, slice: u8) -> Line {
        debug_assert!(self != u16::NONE && set < 1 << Self::SET_BITS && slice < 1 << SLICE_BITS);
        let slice_and_set = u32::from(slice) << Self::SET_BITS | set;
        Line::narrow(u32::from(self) << (Self::SET_BITS + SLICE_BITS) | slice_and_set)
    }

    #[inline(always)]
    fn in_set_of(self, other: Line) -> Line {
        let rest = other.0.get() as u32 & ((1 << (Self::SET_BITS + SLICE_BITS)) - 1);
        Line::narrow(u32::from(self) << (Self::SET_BITS + SLICE_BITS) | rest)
    }

    #[inline(always)]
    fn llc_place(line: Line, Places { set_bits, .. }: Places) -> usize {
        Self::set(line) | ((line.0.get() as u32 >> Self::SET_BITS) as usize) << (set_bits & 15)
    }

    fn at_llc_place(self, place: usize, Places { set_bits, .. }: Places) -> Line {
        let slice = place as u32 >> set_bits & ((1 << SLICE_BITS) - 1);
        self.line(place as u32 & ((1 << set_bits) - 1), slice as u8)
    }

    #[inline(always)]
    fn equal(lanes: &[u16; LANES], tag: u16) -> u32 {
        eq_u16(lanes, tag)
    }

    #[inline(always)]
    fn channel(line: Line, channels: u32) -> usize {
        spread(line.0.get() as u32, channels)
    }
}

impl LineTag for u32 {
    /// No line has it: its highest bit is of a slice that no chip has.
    const NONE: u32 = u32::MAX;
    const SET_BITS: u32 = 12;
    const SLICES: u32 = 1 << (31 - ADDRESS_BITS);
    const ADDRESSES: u32 = 1 << ADDRESS_BITS;
    const LATER_RULES: bool = true;

    fn slice_bits(slices: u32) -> u32 {
        slices.next_power_of_two().ilog2()
    }

    fn pack(address: u32, set: u32, slice: u32) -> Line {
        debug_assert!(address < Self::ADDRESSES && slice < Self::SLICES);
        (slice << ADDRESS_BITS | address).line(set, 0)
    }

    #[inline(always)]
    fn of(line: Line) -> u32 {
        (line.0.get() >> 32) as u32 & (u32::MAX >> 1)
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
        debug_assert!(self != u32::NONE && set < 1 << Self::SET_BITS);
        Line(NonZeroU64::from(PRESENT) | WIDE | u64::from(self) << 32 | u64::from(set))
    }

    #[inline(always)]
    fn in_set_of(self, other: Line) -> Line {
        self.line(Self::set(other) as u32, 0)
    }

    #[inline(always)]
    fn llc_place(line: Line, Places { set_bits, slice_bits }: Places) -> usize {
        let tag = Self::of(line);
        let (slice, address) = (tag >> ADDRESS_BITS, tag & (Self::ADDRESSES - 1));
        Self::set(line) | (slice as usize | (address as usize) << (slice_bits & 15)) << (set_bits & 15)
    }

    fn at_llc_place(self, place: usize, Places { set_bits, .. }: Places) -> Line {
        self.line(place as u32 & ((1 << set_bits) - 1), 0)
    }

    #[inline(always)]
    fn equal(lanes: &[u32; LANES], tag: u32) -> u32 {
        eq_u32(lanes, tag)
    }

    #[inline(always)]
    fn channel(line: Line, channels: u32) -> usize {
        let (low, high) = (line.0.get() as u32, (line.0.get() >> 32) as u32);
        spread(low ^ high.rotate_left(16), channels)
    }
}

impl Line {
    /// An arbitrary line to fill unused entries with.
    pub(crate) const ANY: Line = Line(NonZeroU64::new(PRESENT.get() as u64).unwrap());

    /// With 16-bit tags all is in 32 bits, whose arithmetic has shorter instructions.
    #[inline(always)]
    fn narrow(bits: u32) -> Line {
        Line(NonZeroU64::from(PRESENT | bits))
    }

    #[inline(always)]
    pub(crate) fn is_wide(self) -> bool {
        self.0.get() & WIDE != 0
    }

    /// Dense index of its MLC set within the sample.
    pub fn set(self) -> usize {
        if self.is_wide() { u32::set(self) } else { u16::set(self) }
    }

    /// LLC slice.
    pub fn slice(self) -> usize {
        let wide = || (u32::of(self) >> ADDRESS_BITS) as usize;
        if self.is_wide() { wide() } else { u16::slice_beside(self).into() }
    }

    /// Line address above the MLC index.
    pub fn tag(self) -> u32 {
        if self.is_wide() { u32::of(self) & (u32::ADDRESSES - 1) } else { u16::of(self).into() }
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
        if self.is_wide() { u32::channel(self, channels) } else { u16::channel(self, channels) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_set_of_the_llc_has_a_place_of_its_own<T: LineTag>(slices: u32) {
        for mlc_sets in [1, 32, 64, 256, 1024] {
            let places = Places::new::<T>(mlc_sets, slices);
            let mut seen = vec![false; places.count(1)];
            for (tag, slice, set) in (0..2).flat_map(|tag| {
                (0..slices).flat_map(move |slice| (0..mlc_sets as u32).map(move |set| (tag, slice, set)))
            }) {
                let line = T::pack(tag, set, slice);
                assert_eq!((line.tag(), line.set(), line.slice()), (tag, set as usize, slice as usize));
                assert_eq!(T::of(line).line(set, T::slice_beside(line)), line);
                let place = T::llc_place(line, places) & (seen.len() - 1);
                assert!(!std::mem::replace(&mut seen[place], true));
                // Lines whose tags differ above the LLC's index are in the same set.
                let other = T::pack(tag | 6, set, slice);
                assert_eq!(T::llc_place(other, places) & (seen.len() - 1), place);
                assert_eq!(T::of(other).at_llc_place(place, places), other);
                assert_eq!(T::of(other).in_set_of(line), other);
            }
            assert_eq!(seen.into_iter().filter(|seen| *seen).count(), 2 * mlc_sets * slices as usize);
        }
    }

    #[test]
    fn with_16_bit_tags() {
        every_set_of_the_llc_has_a_place_of_its_own::<u16>(32);
    }

    #[test]
    fn with_32_bit_tags() {
        every_set_of_the_llc_has_a_place_of_its_own::<u32>(60);
    }

    #[test]
    fn the_last_line_of_each_layout_is_none_of_the_empty_ways() {
        let last = u16::pack(u16::ADDRESSES - 1, 1023, 31);
        assert_eq!((last.tag(), last.set(), last.slice()), (65_534, 1023, 31));
        assert_ne!(u16::of(last), u16::NONE);
        let last = u32::pack(u32::ADDRESSES - 1, 4095, 255);
        assert_eq!((last.tag(), last.set(), last.slice()), ((1 << 23) - 1, 4095, 255));
        assert_ne!(u32::of(last), u32::NONE);
    }
}
