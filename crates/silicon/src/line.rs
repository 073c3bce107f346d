//! Line handles: where in the chip a line lives, worked out once when its address is handed out.
//!
//! A handle packs the line's tag, its (dense, sampled) MLC set and its LLC slice into 32 bits, so that
//! the hot path neither hashes nor divides. Handles are made by [`crate::AddressMap`] alone.

/// A line of simulated memory that the sample contains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Line(u32);

/// Bits of a handle that hold the dense MLC set.
pub(crate) const SET_BITS: u32 = 10;
/// Bits that hold the slice.
pub(crate) const SLICE_BITS: u32 = 5;

/// Tag value that no line has; marks an empty way.
pub(crate) const NO_TAG: u16 = u16::MAX;

impl Line {
    #[inline(always)]
    pub(crate) fn pack(tag: u16, set: u32, slice: u32) -> Line {
        debug_assert!(tag != NO_TAG && set < 1 << SET_BITS && slice < 1 << SLICE_BITS);
        Line(u32::from(tag) << (SET_BITS + SLICE_BITS) | slice << SET_BITS | set)
    }

    /// Dense index of its MLC set within the sample.
    #[inline(always)]
    pub fn set(self) -> usize {
        (self.0 & ((1 << SET_BITS) - 1)) as usize
    }

    /// LLC slice.
    #[inline(always)]
    pub fn slice(self) -> usize {
        (self.0 >> SET_BITS & ((1 << SLICE_BITS) - 1)) as usize
    }

    /// Line address above the MLC index.
    #[inline(always)]
    pub fn tag(self) -> u16 {
        (self.0 >> (SET_BITS + SLICE_BITS)) as u16
    }

    /// Memory channel out of `channels`: lines are spread over channels by a hash of their own.
    #[inline(always)]
    pub fn channel(self, channels: u32) -> usize {
        // Fibonacci hashing on the whole handle, then a multiply-shift range reduction.
        let hash = self.0.wrapping_mul(0x9e37_79b1) >> 8;
        ((u64::from(hash) * u64::from(channels)) >> 24) as usize
    }
}

impl Line {
    /// The line of the same set and slice with another tag: what an eviction there pushed out.
    #[inline(always)]
    pub(crate) fn with_tag(self, tag: u16) -> Line {
        let rest = self.0 & ((1 << (SET_BITS + SLICE_BITS)) - 1);
        Line(u32::from(tag) << (SET_BITS + SLICE_BITS) | rest)
    }
}
