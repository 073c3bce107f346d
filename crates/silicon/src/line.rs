//! Line handles: a line's place in the chip, computed once when its address is handed out.
//!
//! A handle packs the line's tag, its (dense, sampled) MLC set and its LLC slice into 32 bits, so that
//! the hot path neither hashes nor divides. Handles are made by [`crate::AddressMap`] alone.

use std::num::NonZeroU32;

/// A line of simulated memory that the sample contains. The highest bit is always set, so that an
/// `Option<Line>` needs no more room than a `Line`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Line(NonZeroU32);

/// Bits of a handle that hold the dense MLC set.
pub(crate) const SET_BITS: u32 = 10;
/// Bits that hold the slice.
pub(crate) const SLICE_BITS: u32 = 5;

/// Set in every handle.
const PRESENT: NonZeroU32 = NonZeroU32::new(1 << 31).unwrap();

/// Tag value that no line has; marks an empty way.
pub(crate) const NO_TAG: u16 = u16::MAX;

/// Index of LLC sets in an array: the index of the MLC's set in the lowest bits, then the slice, then the LLC's
/// index bits above the MLC's. These are bits of a handle, so that no multiplication is needed; there is room for 32
/// slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Bits for the index of the MLC's set.
    set_bits: u32,
}

impl Places {
    /// For so many MLC sets.
    pub(crate) fn new(mlc_sets: usize) -> Places {
        Places { set_bits: mlc_sets.next_power_of_two().ilog2() }
    }

    /// Number of places, where the LLC has `2^bits` sets in a slice for each set of the MLC.
    pub(crate) fn count(self, bits: u32) -> usize {
        1 << (self.set_bits + SLICE_BITS + bits)
    }
}

impl Line {
    /// An arbitrary line to fill unused entries with.
    pub(crate) const ANY: Line = Line(PRESENT);

    #[inline(always)]
    pub(crate) fn pack(tag: u16, set: u32, slice: u32) -> Line {
        debug_assert!(tag != NO_TAG && set < 1 << SET_BITS && slice < 1 << SLICE_BITS);
        Line(PRESENT | u32::from(tag) << (SET_BITS + SLICE_BITS) | slice << SET_BITS | set)
    }

    /// Dense index of its MLC set within the sample.
    #[inline(always)]
    pub fn set(self) -> usize {
        (self.0.get() & ((1 << SET_BITS) - 1)) as usize
    }

    /// LLC slice.
    #[inline(always)]
    pub fn slice(self) -> usize {
        (self.0.get() >> SET_BITS & ((1 << SLICE_BITS) - 1)) as usize
    }

    /// Line address above the MLC index.
    #[inline(always)]
    pub fn tag(self) -> u16 {
        (self.0.get() >> (SET_BITS + SLICE_BITS)) as u16
    }

    /// Index of the line's LLC set in an array; bits above those of the array's length must be masked off.
    #[inline(always)]
    pub(crate) fn llc_place(self, Places { set_bits }: Places) -> usize {
        self.set() | ((self.0.get() >> SET_BITS) as usize) << (set_bits & 15)
    }

    /// The line of this tag in the LLC set at a place: the inverse of [`Line::llc_place`].
    pub(crate) fn at_llc_place(place: usize, Places { set_bits }: Places, tag: u16) -> Line {
        let slice = place as u32 >> set_bits & ((1 << SLICE_BITS) - 1);
        Line::pack(tag, place as u32 & ((1 << set_bits) - 1), slice)
    }

    /// Memory channel out of `channels`: lines are spread over channels by a hash of their own.
    #[inline(always)]
    pub fn channel(self, channels: u32) -> usize {
        // Fibonacci hashing on the whole handle, then a multiply-shift range reduction.
        let hash = self.0.get().wrapping_mul(0x9e37_79b1) >> 8;
        ((u64::from(hash) * u64::from(channels)) >> 24) as usize
    }
}

impl Line {
    /// The line of the same set and slice with another tag, for example a victim.
    #[inline(always)]
    pub(crate) fn with_tag(self, tag: u16) -> Line {
        let rest = self.0.get() & ((1 << (SET_BITS + SLICE_BITS)) - 1);
        Line(PRESENT | u32::from(tag) << (SET_BITS + SLICE_BITS) | rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_the_llc_has_a_place_of_its_own() {
        for mlc_sets in [1, 32, 64, 256, 1024] {
            let places = Places::new(mlc_sets);
            let mut seen = vec![false; places.count(1)];
            for (tag, slice, set) in (0..2).flat_map(|tag| {
                (0..32).flat_map(move |slice| (0..mlc_sets as u32).map(move |set| (tag, slice, set)))
            }) {
                let place = Line::pack(tag, set, slice).llc_place(places) & (seen.len() - 1);
                assert!(!std::mem::replace(&mut seen[place], true));
                // Lines whose tags differ above the LLC's index are in the same set.
                let other = Line::pack(tag | 6, set, slice);
                assert_eq!(other.llc_place(places) & (seen.len() - 1), place);
                assert_eq!(Line::at_llc_place(place, places, tag | 6), other);
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
