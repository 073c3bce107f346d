//! Finds memory that the sampled sets cover badly: working sets and buffers with too few simulated lines, or too many.
//!
//! Accesses to a region without a simulated line are missing from a program's hit ratios and from its time. Regions
//! with the same owner and size are judged together, because they have the same use, as the buffers of a ring. Knows
//! the lines of each workload and device; must not know how often they are used, nor how a report shows a gap.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_silicon::{FRAME_LINES, Handed, Sampling};

/// Minimum lines of all regions with one owner and size to be judged. Assumption: smaller regions, such as the state of
/// a queue, have few accesses outside the L1, and no sample of sets covers them.
const LEAST_LINES: u64 = FRAME_LINES as u64;

/// Allowed relative difference between the actual and the nominal share of simulated lines. Assumption: the weight of
/// such a region in a hit ratio is then 0.5 to 1.5 times the correct one.
const TOLERANCE: f64 = 0.5;

/// Regions of one owner and size that the sample covers badly.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// The workload or device that owns them.
    pub owner: String,
    /// Number of regions.
    pub regions: u64,
    /// Lines per region.
    pub region_lines: u32,
    /// Simulated lines of all of them.
    pub sampled: u64,
    /// The sparsest sampling that covers such regions at any address.
    pub mended_by: Sampling,
}

/// The regions of each workload and device, by their size in lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(BTreeMap<(String, u32), Handed>);

impl Coverage {
    /// Records regions that an owner was given, by their size in lines.
    pub(crate) fn add(&mut self, owner: &str, handed: BTreeMap<u32, Handed>) {
        for (lines, more) in handed {
            let all = self.0.entry((owner.to_owned(), lines)).or_default();
            all.regions += more.regions;
            all.lines += more.lines;
            all.sampled += more.sampled;
        }
    }

    /// The regions that a sample covers badly, sorted by owner.
    pub(crate) fn gaps(&self, sampling: Sampling) -> Vec<Gap> {
        let large = self.0.iter().filter(|(_, handed)| handed.lines >= LEAST_LINES);
        let bad = large.filter(|(_, handed)| {
            let nominal = handed.lines as f64 / f64::from(sampling.factor());
            (handed.sampled as f64 / nominal - 1.0).abs() > TOLERANCE
        });
        let gap = |((owner, region_lines), handed): (&(String, u32), &Handed)| Gap {
            owner: owner.clone(),
            regions: handed.regions,
            region_lines: *region_lines,
            sampled: handed.sampled,
            mended_by: mended_by(*region_lines),
        };
        bad.map(gap).collect()
    }
}

/// The sample has one set in each range of `n` sets. Of consecutive lines, up to a frame, it has one in `n`, plus or
/// minus one line. Two lines per region are enough.
fn mended_by(region_lines: u32) -> Sampling {
    let most = (region_lines / 2).clamp(1, FRAME_LINES);
    Sampling::one_in(1 << most.ilog2()).expect("a power of two, at most a frame's lines")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(region_lines: u32, regions: u64, sampled: u64, one_in: u32) -> Vec<Gap> {
        let mut coverage = Coverage::default();
        let lines = regions * u64::from(region_lines);
        // In two parts: regions that an owner is given later are added.
        for part in [sampled / 2, sampled - sampled / 2] {
            let handed = Handed { regions: regions / 2, lines: lines / 2, sampled: part };
            coverage.add("fio", BTreeMap::from([(region_lines, handed)]));
        }
        coverage.gaps(Sampling::one_in(one_in).unwrap())
    }

    #[test]
    fn regions_of_one_size_are_judged_together() {
        // 512 lines, 4 of them nominal. Two and six differ by half of that, which is within the tolerance.
        for sampled in [2, 4, 6] {
            assert_eq!(gaps(64, 8, sampled, 128), []);
        }
        for sampled in [0, 1, 7] {
            let mended_by = Sampling::one_in(32).unwrap();
            let gap = Gap { owner: "fio".to_owned(), regions: 8, region_lines: 64, sampled, mended_by };
            assert_eq!(gaps(64, 8, sampled, 128), [gap]);
        }
        assert_eq!(gaps(10, 4, 0, 128), [], "too few lines to count");
    }

    #[test]
    fn the_sampling_that_mends_a_gap_has_two_lines_of_a_region() {
        for (region_lines, one_in) in
            [(1, 1), (3, 1), (4, 2), (31, 8), (32, 16), (100, 32), (128, 64), (9999, 64)]
        {
            assert_eq!(mended_by(region_lines).factor(), one_in, "{region_lines} lines");
        }
    }
}
