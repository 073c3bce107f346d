//! A single cache level: the bare path of the model, for benchmarks and closed forms.
//!
//! The same [`Ways`] and the same QLRU rule as the chip's LLC, without MLCs, directory or devices.

use crate::simd::prefetch;
use crate::ways::{MaskLanes, Ways};
use waykeeper_units::WayMask;

/// Prefetch distance, in accesses (performance.md 1: 8 to 32).
const AHEAD: usize = 16;

/// One set-associative cache of up to 16 ways with the LLC's replacement rule.
#[derive(Debug)]
pub struct OneLevel {
    sets: Vec<Ways<u16, 16>>,
    /// 2^64 over the number of sets, rounded up, so that a multiplication divides.
    reciprocal: u64,
    mask: MaskLanes<16>,
}

impl OneLevel {
    /// A cold cache.
    ///
    /// # Panics
    /// If `sets` is under 2 or over 2^16, or `ways` is not 1 to 16.
    pub fn new(sets: u32, ways: u32) -> OneLevel {
        assert!((2..=1 << 16).contains(&sets) && (1..=16).contains(&ways));
        OneLevel {
            sets: vec![Ways::EMPTY; sets as usize],
            reciprocal: u64::MAX / u64::from(sets) + 1,
            mask: MaskLanes::new(WayMask::full(ways)),
        }
    }

    /// Set and tag of a line address. Low bits choose the set, as in most caches.
    #[inline(always)]
    pub fn place(&self, line: u32) -> (u32, u16) {
        // The reciprocal is less than one part in 2^47 too large: the quotient of 32 bits is exact.
        let quotient = ((u128::from(self.reciprocal) * u128::from(line)) >> 64) as u32;
        (line - quotient * self.sets.len() as u32, quotient as u16)
    }

    /// Touches a line; allocates it if absent. Returns whether it hit.
    #[inline(always)]
    pub fn access(&mut self, (set, tag): (u32, u16)) -> bool {
        self.sets[set as usize].touch_or_allocate(&self.mask, tag)
    }

    /// Touches lines in turn and prefetches their sets. Returns how many hit.
    pub fn access_all(&mut self, lines: &[u32]) -> u64 {
        let mut hits = 0;
        for (index, line) in lines.iter().enumerate() {
            if let Some(later) = lines.get(index + AHEAD) {
                self.prefetch(self.place(*later));
            }
            hits += u64::from(self.access(self.place(*line)));
        }
        hits
    }

    /// Prefetches a set.
    #[inline(always)]
    pub fn prefetch(&self, (set, _): (u32, u16)) {
        prefetch(&self.sets[set as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_the_division_by_the_number_of_sets() {
        for sets in [2, 3, 64, 36_863, 36_864, 65_535, 65_536] {
            let cache = OneLevel::new(sets, 1);
            let most = ((u64::from(sets) << 16) - 1) as u32;
            for line in [0, 1, sets - 1, sets, sets + 1, most / 3, most - sets, most - 1, most] {
                assert_eq!(cache.place(line), (line % sets, (line / sets) as u16), "{line} of {sets}");
            }
        }
    }

    #[test]
    fn what_fits_hits_and_a_scan_beyond_it_misses() {
        // 64 sets x 4 ways hold 256 lines: a second pass over 256 hits, over 2560 (ten times) hardly does.
        let mut cache = OneLevel::new(64, 4);
        let pass = |cache: &mut OneLevel, lines: u32| {
            (0..lines).filter(|line| cache.access(cache.place(*line))).count()
        };
        assert_eq!(pass(&mut cache, 256), 0);
        assert_eq!(pass(&mut cache, 256), 256);
        pass(&mut cache, 2560);
        assert!(pass(&mut cache, 2560) < 512);
    }
}
