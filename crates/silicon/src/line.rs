//! Line handles: where in the chip a line lives, worked out once when its address is handed out.
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

impl Line {
    /// Some line or other, to fill room with that nobody looks at.
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

    /// Where the line's LLC set stands in an array: the sets behind one MLC set lie together, each index bit
    /// beyond the MLC's doubling their room. A slice number has room for 32, so that the place is bits of the
    /// handle and no product. `bits`, at most 16, are those of a slice number and of the index beyond the MLC's.
    #[inline(always)]
    pub(crate) fn llc_place(self, bits: u32) -> usize {
        let handle = u64::from(self.0.get());
        let high = (handle & ((1 << SET_BITS) - 1)) << (bits & 63);
        (high | handle >> SET_BITS & ((1 << (bits & 63)) - 1)) as usize
    }

    /// The line of this tag in the LLC set at a place: the inverse of [`Line::llc_place`].
    pub(crate) fn at_llc_place(place: usize, bits: u32, tag: u16) -> Line {
        let slice = place as u32 & ((1 << SLICE_BITS) - 1);
        Line::pack(tag, place as u32 >> bits, slice)
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
    /// The line of the same set and slice with another tag: what an eviction there pushed out.
    #[inline(always)]
    pub(crate) fn with_tag(self, tag: u16) -> Line {
        let rest = self.0.get() & ((1 << (SET_BITS + SLICE_BITS)) - 1);
        Line(PRESENT | u32::from(tag) << (SET_BITS + SLICE_BITS) | rest)
    }
}
