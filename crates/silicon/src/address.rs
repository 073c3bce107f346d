//! Addresses: simulated memory, the sample of sets, and the way from an address to its place in the chip.
//!
//! Hands out memory and turns addresses into [`Line`] handles. Knows the geometry of a chip, not its
//! state. A line is simulated if and only if its MLC index is in the sample, which takes MLC sets and the
//! LLC sets behind them together (microarchitecture.md 9).

use crate::line::{Line, LineTag};
use crate::pages::{FreeMemory, Lent, Pages, below};
use crate::simd::prefetch;
use crate::slices::Slices;
use crate::spec::ChipSpec;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use waykeeper_units::shown;

/// Lines in a 4-KiB frame.
pub const FRAME_LINES: u32 = 64;
/// Lines in a 2-MiB huge page.
pub const HUGE_LINES: u32 = 32_768;

/// How many sets are simulated: one in `n`. `1` is exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sampling {
    one_in: u32,
}

impl Sampling {
    /// Every set.
    pub const EXACT: Sampling = Sampling { one_in: 1 };
    /// One set in 32: enough for control runs (microarchitecture.md 9).
    pub const DEFAULT: Sampling = Sampling { one_in: 32 };

    /// The fewest sets: one in 256.
    pub const COARSEST: Sampling = Sampling { one_in: 256 };

    /// One set in `n`; `n` must be a power of two up to 256, so that every chip keeps whole sets.
    pub fn one_in(n: u32) -> Option<Sampling> {
        (n.is_power_of_two() && n <= Sampling::COARSEST.one_in).then_some(Sampling { one_in: n })
    }

    /// The factor that scales sampled counts to whole ones.
    pub fn factor(self) -> u32 {
        self.one_in
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.one_in == 1 { f.write_str("exact") } else { write!(f, "1/{}", self.one_in) }
    }
}

impl FromStr for Sampling {
    type Err = String;

    fn from_str(text: &str) -> Result<Sampling, String> {
        let n = match text.trim() {
            "exact" => Some(1),
            t => t.strip_prefix("1/").unwrap_or(t).parse().ok(),
        };
        n.and_then(Sampling::one_in).ok_or_else(|| {
            format!("`{}` is not a sampling; write exact, 1/2, 1/4, ... 1/256 (default 1/32)", shown(text))
        })
    }
}

impl TryFrom<String> for Sampling {
    type Error = String;

    fn try_from(text: String) -> Result<Sampling, String> {
        text.parse()
    }
}

impl From<Sampling> for String {
    fn from(sampling: Sampling) -> String {
        sampling.to_string()
    }
}

/// Simulated memory is used up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the programs and devices ask for {asked_mib} MiB more than is left of the {total_mib} MiB of simulated memory; use smaller working sets"
)]
pub struct OutOfMemory {
    /// What was asked for, MiB.
    pub asked_mib: u64,
    /// What there is in all, MiB.
    pub total_mib: u64,
}

/// A piece of memory: its sampled lines in address order.
#[derive(Clone, Debug, Default)]
pub struct Region {
    lines: Vec<Line>,
    /// For each sampled line, its offset in lines from the region's start.
    offsets: Vec<u32>,
    total: u32,
}

impl Region {
    /// Sampled lines, in address order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Prefetches the handle of this sampled line. Changes speed only.
    #[inline(always)]
    pub fn prefetch(&self, number: usize) {
        if let Some(line) = self.lines.get(number) {
            prefetch(line);
        }
    }

    /// Offset of each sampled line from the region's start, in lines, ascending.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Lines the region really has.
    pub fn total_lines(&self) -> u32 {
        self.total
    }

    /// Real lines per sampled line of this region, not the nominal factor: the time of a region that the sample covers
    /// badly is still right.
    pub fn scale(&self) -> f64 {
        f64::from(self.total) / self.lines.len().max(1) as f64
    }

    /// Index range of the sampled lines with `from <= offset < to`.
    pub fn range(&self, from: u32, to: u32) -> std::ops::Range<usize> {
        self.offsets.partition_point(|o| *o < from)..self.offsets.partition_point(|o| *o < to)
    }
}

/// Regions of one size that were handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handed {
    /// How many.
    pub regions: u64,
    /// Their lines, all together.
    pub lines: u64,
    /// Of these lines, those in the sample.
    pub sampled: u64,
}

/// Hands out memory and places its lines.
#[derive(Clone, Debug)]
pub struct AddressMap {
    sampling: Sampling,
    /// The MLC sets in the sample, in ascending order; a set's dense index is its place here.
    sampled: Vec<u32>,
    mlc_set_bits: u32,
    slices: Slices,
    /// Whether handles have the layout with wide tags.
    is_wide: bool,
    free: FreeMemory,
    /// The kind of all pages from now on, whatever is asked for.
    pages: Option<Pages>,
    total_lines: u64,
    /// What was handed out since [`AddressMap::handed_out`], by the size of a region in lines.
    handed: BTreeMap<u32, Handed>,
}

impl AddressMap {
    /// The memory of a chip. `sample_seed` chooses the sampled sets and nothing else; `seed` chooses where
    /// memory is placed, so that the error of sampling can be separated from the effect of a layout.
    pub fn new(spec: &ChipSpec, sampling: Sampling, seed: u64, sample_seed: u64) -> AddressMap {
        let sets = spec.mlc.sets;
        let kept = (sets / sampling.factor()).max(1) as usize;
        // One random set in each of as many equal ranges. Strided sets would resonate with packet buffers, which are
        // strided (microarchitecture.md 9). Sets drawn from the whole index would cover it unevenly.
        let width = sets / kept as u32;
        let mut choice = Xoshiro256PlusPlus::seed_from_u64(sample_seed ^ 0x5a5a_0000);
        let sampled = (0..kept as u32).map(|range| range * width + below(&mut choice, width.into()) as u32);
        let mlc_set_bits = sets.trailing_zeros();
        let total_lines = spec.memory_lines();
        // Only whole huge pages.
        let pages = (total_lines / u64::from(HUGE_LINES)) as u32;
        AddressMap {
            sampling,
            sampled: sampled.collect(),
            mlc_set_bits,
            slices: Slices::new(spec),
            is_wide: spec.has_wide_tags(),
            free: FreeMemory::new(pages, seed),
            pages: None,
            total_lines,
            handed: BTreeMap::new(),
        }
    }

    /// The sampling in force.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// From now on all memory is in pages of this kind; `None`: as each request asks.
    pub fn set_pages(&mut self, pages: Option<Pages>) {
        self.pages = pages;
    }

    /// `bytes` of memory in 4-KiB frames at random places, as an ordinary program gets it.
    ///
    /// # Errors
    /// When simulated memory is used up.
    pub fn ordinary(&mut self, bytes: u64) -> Result<Region, OutOfMemory> {
        self.take(bytes, Pages::Small)
    }

    /// `bytes` of memory in 2-MiB pages, as DPDK pools and rings get it.
    ///
    /// # Errors
    /// When simulated memory is used up.
    pub fn huge(&mut self, bytes: u64) -> Result<Region, OutOfMemory> {
        self.take(bytes, Pages::Huge)
    }

    fn take(&mut self, bytes: u64, asked: Pages) -> Result<Region, OutOfMemory> {
        let pages = self.pages.unwrap_or(asked);
        let (page_lines, free) = match pages {
            Pages::Small => (FRAME_LINES, self.free.frames()),
            Pages::Huge => (HUGE_LINES, self.free.pages()),
            Pages::Coloured => (FRAME_LINES, self.free.coloured_frames()),
        };
        let mut lines = waykeeper_units::lines_of(bytes);
        let count = lines.div_ceil(u64::from(page_lines));
        if count > free {
            return Err(self.exhausted(bytes));
        }
        let mut region = Region::default();
        for _ in 0..count {
            let page = match pages {
                Pages::Small => self.free.frame(),
                Pages::Huge => self.free.page(),
                Pages::Coloured => self.free.coloured_frame(),
            };
            let count = lines.min(u64::from(page_lines)) as u32;
            self.append(&mut region, page * page_lines, count);
            lines -= u64::from(count);
        }
        self.note(&region);
        Ok(region)
    }

    /// The LLC slice of a line.
    pub fn slice(&self, line: Line) -> usize {
        if self.is_wide {
            self.slices.of(line.tag(), line.set() as u32) as usize
        } else {
            line.slice_beside()
        }
    }

    /// Counts of regions handed out since the last call, by their size in lines. Resets the counts.
    pub fn handed_out(&mut self) -> BTreeMap<u32, Handed> {
        std::mem::take(&mut self.handed)
    }

    fn note(&mut self, region: &Region) {
        let handed = self.handed.entry(region.total).or_default();
        handed.regions += 1;
        handed.lines += u64::from(region.total);
        handed.sampled += region.lines.len() as u64;
    }

    /// Starts to record which memory is taken.
    pub fn lend(&mut self) {
        self.free.lend();
    }

    /// Memory taken since [`AddressMap::lend`], to be returned later. Stops recording.
    pub fn lent(&mut self) -> Lent {
        self.free.lent()
    }

    /// Returns lent memory. The next allocations get it in the same order.
    pub fn take_back(&mut self, lent: Lent) {
        self.free.take_back(lent);
    }

    /// Bytes of free memory.
    pub fn free_bytes(&self) -> u64 {
        self.free.frames() * u64::from(FRAME_LINES) * waykeeper_units::LINE_BYTES
    }

    fn exhausted(&self, bytes: u64) -> OutOfMemory {
        OutOfMemory {
            asked_mib: bytes >> 20,
            total_mib: (self.total_lines * waykeeper_units::LINE_BYTES) >> 20,
        }
    }

    fn append(&self, region: &mut Region, first: u32, count: u32) {
        let end = first + count;
        let mut from = first;
        // Lines with one tag are in successive sets; only those of sampled sets are visited.
        while from < end {
            let tag = from >> self.mlc_set_bits;
            let set = from - (tag << self.mlc_set_bits);
            let until = end.min((tag + 1) << self.mlc_set_bits);
            let earlier = self.sampled.partition_point(|sampled| *sampled < set);
            for (dense, sampled) in (earlier as u32..).zip(&self.sampled[earlier..]) {
                let address = (tag << self.mlc_set_bits) + sampled;
                if address >= until {
                    break;
                }
                region.lines.push(if self.is_wide {
                    u32::pack(tag, dense, 0)
                } else {
                    u16::pack(tag, dense, self.slices.of(tag, *sampled))
                });
                region.offsets.push(region.total + (address - first));
            }
            from = until;
        }
        region.total += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(sampling: u32) -> AddressMap {
        let spec = ChipSpec::built_in("gold-6140").unwrap();
        AddressMap::new(&spec, Sampling::one_in(sampling).unwrap(), 1, 1)
    }

    #[test]
    fn exact_keeps_every_line_once() {
        let mut map = map(1);
        let (a, b) = (map.ordinary(1 << 20).unwrap(), map.huge(3 << 20).unwrap());
        assert_eq!((a.lines().len(), b.lines().len()), (1 << 14, 3 << 14));
        let mut all: Vec<Line> = a.lines().iter().chain(b.lines()).copied().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 << 14);
    }

    #[test]
    fn the_sample_is_one_in_n_and_its_scale_is_its_own() {
        let mut map = map(32);
        let region = map.huge(64 << 20).unwrap();
        assert_eq!(region.total_lines(), 1 << 20);
        assert_eq!(region.lines().len(), (1 << 20) / 32);
        let odd = map.huge(10 * 64).unwrap();
        assert!((odd.scale() * odd.lines().len().max(1) as f64 - 10.0).abs() < 1e-9);
        assert_eq!(region.range(0, 1 << 20), 0..region.lines().len());
    }

    #[test]
    fn a_sample_has_the_lines_of_its_sets_and_no_others() {
        let (mut exact, mut sampled) = (map(1), map(64));
        let chosen = sampled.sampled.clone();
        // Ordinary frames, whole pages, and a part of a page whose end is within the sets of one tag.
        for bytes in [5 << 20, 3 << 20, 100 << 10] {
            for (all, some) in [
                (exact.ordinary(bytes).unwrap(), sampled.ordinary(bytes).unwrap()),
                (exact.huge(bytes).unwrap(), sampled.huge(bytes).unwrap()),
            ] {
                assert_eq!(some.total_lines(), all.total_lines());
                let of_sets = all.lines().iter().zip(all.offsets()).filter_map(|(line, offset)| {
                    let dense = chosen.iter().position(|set| *set as usize == line.set())?;
                    Some((line.tag(), dense, exact.slice(*line), *offset))
                });
                let some = some.lines().iter().zip(some.offsets());
                let some = some.map(|(line, offset)| (line.tag(), line.set(), sampled.slice(*line), *offset));
                assert_eq!(some.collect::<Vec<_>>(), of_sets.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_sample_has_one_set_of_every_range() {
        let spec = ChipSpec::built_in("gold-6140").unwrap();
        let sets = |sample_seed| {
            let sampling = Sampling::one_in(64).unwrap();
            AddressMap::new(&spec, sampling, 1, sample_seed).sampled
        };
        for seed in 0..20 {
            // 1024 sets, one in 64: sixteen ranges of 64.
            let ranges: Vec<u32> = sets(seed).iter().map(|set| set / 64).collect();
            assert_eq!(ranges, (0..16).collect::<Vec<u32>>());
        }
        assert_ne!(sets(1), sets(2));
    }

    #[test]
    fn slices_are_used_evenly() {
        let mut map = map(1);
        let mut counts = [0u32; 18];
        for line in map.ordinary(36 << 20).unwrap().lines() {
            counts[map.slice(*line)] += 1;
        }
        let mean = f64::from(36 << 14) / 18.0;
        for count in counts {
            assert!((f64::from(count) / mean - 1.0).abs() < 0.02, "{counts:?}");
        }
    }

    #[test]
    fn memory_that_was_lent_comes_back_and_is_lent_again() {
        let mut map = map(1);
        map.ordinary(4096).unwrap();
        let free = map.free_bytes();
        let mut seen = Vec::new();
        for _ in 0..3 {
            map.lend();
            let (a, b) = (map.ordinary(1 << 20).unwrap(), map.huge(3 << 20).unwrap());
            let lent = map.lent();
            map.ordinary(0).unwrap();
            // 1 MiB of frames, and whole pages of 2 MiB.
            assert_eq!(map.free_bytes(), free - (5 << 20));
            seen.push((a.lines().to_vec(), b.lines().to_vec()));
            map.take_back(lent);
            assert_eq!(map.free_bytes(), free);
        }
        assert!(seen[0] == seen[1] && seen[1] == seen[2]);
    }

    #[test]
    fn what_was_handed_out_is_known_by_size_and_reported_once() {
        let mut map = map(32);
        map.handed_out();
        let (a, b) = (map.ordinary(4096).unwrap(), map.ordinary(4096).unwrap());
        let large = map.huge(1 << 20).unwrap();
        // A frame has lines of two ranges of 32 sets, and a sampled line of each.
        let frames = Handed { regions: 2, lines: 128, sampled: 4 };
        assert_eq!(a.lines().len() + b.lines().len(), 4);
        let pages = Handed { regions: 1, lines: 1 << 14, sampled: large.lines().len() as u64 };
        assert_eq!(map.handed_out(), BTreeMap::from([(64, frames), (1 << 14, pages)]));
        assert!(map.handed_out().is_empty());
    }

    #[test]
    fn memory_ends_with_an_error() {
        let mut map = map(256);
        let error = map.ordinary(5 << 30).unwrap_err();
        assert_eq!(error.asked_mib, 5 << 10);
        assert!(map.ordinary(1 << 30).is_ok());
    }

    #[test]
    fn samplings_are_read_and_refused() {
        assert_eq!("exact".parse(), Ok(Sampling::EXACT));
        assert_eq!("1/32".parse(), Ok(Sampling::DEFAULT));
        assert_eq!(Sampling::DEFAULT.to_string(), "1/32");
        for bad in ["", "1/0", "1/3", "1/512", "2/3", "half"] {
            assert!(bad.parse::<Sampling>().is_err(), "{bad}");
        }
    }
}
