//! The slice of a line: a hash of its address.
//!
//! Knows addresses and the geometry of the LLC; must not know handles or sets.

use crate::rules::SliceHash;
use crate::spec::ChipSpec;

/// How a chip's lines choose their slices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
    hash: SliceHash,
    count: u32,
    /// Bits of the index of an MLC set.
    mlc_set_bits: u32,
    /// Bits of the index of an LLC set above those of the MLC's.
    llc_bits: u32,
}

impl Slices {
    pub(crate) fn new(spec: &ChipSpec) -> Slices {
        let mlc_set_bits = spec.mlc.sets.trailing_zeros();
        let llc_bits = spec.llc.sets.trailing_zeros() - mlc_set_bits;
        Slices { hash: spec.rules.slice_hash, count: spec.llc.slices, mlc_set_bits, llc_bits }
    }

    /// The slice of the line of this tag in the MLC set of this index.
    #[inline(always)]
    pub(crate) fn of(self, tag: u32, index: u32) -> u32 {
        let address = tag << self.mlc_set_bits | index;
        match self.hash {
            SliceHash::Uniform => {
                // Finaliser of a 64-bit mixer (Stafford's variant of murmur3), then multiply-shift.
                let mut x = u64::from(address).wrapping_add(0x9e37_79b9_7f4a_7c15);
                x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                (((x >> 32) * u64::from(self.count)) >> 32) as u32
            }
            SliceHash::Permutation => {
                // Successive lines of one index step through the slices from a start that the index and a
                // coarse address hash choose: distinct slices for the lines of one index within a run.
                let start = (index ^ tag >> 4).wrapping_mul(0x9e37_79b1) >> 12;
                (start + (tag & 15)) % self.count
            }
            SliceHash::Rounds => {
                // The lowest bits of the tag belong to the index of the LLC's set.
                let start = index.wrapping_mul(0x9e37_79b1) >> 12;
                (start + (tag >> self.llc_bits)) % self.count
            }
        }
    }
}
