//! Which memory the sample of sets covers badly: working sets and buffers with too few simulated lines, or too many.
//!
//! A program's accesses to a region without a simulated line are not in its hit ratios, and its time lacks them. Regions
//! of one owner and size are taken together: they have the same use, as the buffers of a ring. Knows how many lines each
//! workload and device has; must not know how often they are used, nor how a report shows a gap.

use std::collections::BTreeMap;
use waykeeper_silicon::{FRAME_LINES, Handed, Sampling};

/// Lines of all regions of one owner and size from which on they count. Assumption: fewer, such as the state of a queue,
/// have few of a program's accesses outside its L1, and no sample of sets covers them.
const LEAST_LINES: u64 = FRAME_LINES as u64;

/// The share of simulated lines may differ from the nominal one by this part of it. Assumption: the weight of such a
/// region in a hit ratio is then half to one and a half times the right one.
const TOLERANCE: f64 = 0.5;

/// Regions of one owner and size that the sample covers badly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The workload or device that has them.
    pub owner: String,
    /// How many regions.
    pub regions: u64,
    /// Lines of each.
    pub region_lines: u32,
    /// Lines of all of them that are simulated.
    pub sampled: u64,
    /// The sparsest sampling that covers such regions wherever they are in memory.
    pub mended_by: Sampling,
}

/// The regions that each workload and device has, by their size in lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(BTreeMap<(String, u32), Handed>);

impl Coverage {
    /// An owner got regions, by their size in lines.
    pub(crate) fn add(&mut self, owner: &str, handed: BTreeMap<u32, Handed>) {
        for (lines, more) in handed {
            let all = self.0.entry((owner.to_owned(), lines)).or_default();
            all.regions += more.regions;
            all.lines += more.lines;
            all.sampled += more.sampled;
        }
    }

    /// The regions that a sample covers badly, in order of their owners' names.
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

/// The sample has one set of each range of `n`, so of a run of lines that is no longer than a frame it has the nth part,
/// and one line more or less. Two lines of a region are enough.
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
        // Half of them first: what an owner gets later counts as well.
        for part in [sampled / 2, sampled - sampled / 2] {
            let handed = Handed { regions: regions / 2, lines: lines / 2, sampled: part };
            coverage.add("fio", BTreeMap::from([(region_lines, handed)]));
        }
        coverage.gaps(Sampling::one_in(one_in).unwrap())
    }

    #[test]
    fn regions_of_one_size_are_judged_together() {
        // 512 lines; four are nominal. Two and six are half of them off, which is not too much.
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
