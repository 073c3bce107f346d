//! The state of a chip at one moment that the public interface shows, indexed by line.
//!
//! For tests that compare the state before and after an access. Knows no rule.

use std::collections::{BTreeMap, BTreeSet};
use waykeeper_silicon::{
    Chip, ChipCounters, CoreCounters, DeviceCounters, EvictionReason, Line, Owner, Resident,
};

/// The visible state of a chip.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    pub llc: BTreeMap<Line, Resident>,
    /// Holders of each line and whether their copy is dirty.
    pub mlc: BTreeMap<Line, BTreeMap<usize, bool>>,
    pub tracked: BTreeMap<Line, Option<usize>>,
    pub chip: ChipCounters,
    pub core: Vec<CoreCounters>,
    pub device: Vec<DeviceCounters>,
    pub occupancy: u32,
    /// Lines evicted and, of these, unread ones, by evictor, owner and reason.
    pub evictions: BTreeMap<(Owner, Owner, EvictionReason), (u64, u64)>,
}

impl View {
    pub fn of(chip: &Chip, cores: usize, devices: usize) -> View {
        let residents = chip.residents();
        let llc: BTreeMap<Line, Resident> =
            residents.iter().map(|resident| (resident.line, *resident)).collect();
        assert_eq!(llc.len(), residents.len(), "a line is in the LLC once");
        let mut mlc: BTreeMap<Line, BTreeMap<usize, bool>> = BTreeMap::new();
        for held in chip.mlc_residents() {
            let before = mlc.entry(held.line).or_default().insert(held.core, held.dirty);
            assert_eq!(before, None, "a line is in an MLC once");
        }
        let groups = chip.group_occupancy(0) + chip.group_occupancy(1);
        View {
            llc,
            mlc,
            tracked: chip.tracked().into_iter().collect(),
            chip: chip.counters(),
            core: (0..cores).map(|core| chip.core_counters(core)).collect(),
            device: (0..devices).map(|device| chip.device_counters(device)).collect(),
            occupancy: (0..devices).map(|device| chip.device_occupancy(device)).sum::<u32>() + groups,
            evictions: chip
                .evictions()
                .map(|seen| ((seen.by, seen.of, seen.reason), (seen.lines, seen.unread)))
                .collect(),
        }
    }

    pub fn holders(&self, line: Line) -> BTreeSet<usize> {
        self.mlc.get(&line).map(|held| held.keys().copied().collect()).unwrap_or_default()
    }

    pub fn cached(&self, line: Line) -> bool {
        self.llc.contains_key(&line) || self.mlc.contains_key(&line)
    }

    /// Places where a line is dirty.
    pub fn dirty_places(&self, line: Line) -> usize {
        let llc = self.llc.get(&line).is_some_and(|resident| resident.dirty);
        let mlc = self.mlc.get(&line).map_or(0, |held| held.values().filter(|dirty| **dirty).count());
        usize::from(llc) + mlc
    }

    /// Lines that are newer than memory.
    pub fn dirty(&self) -> BTreeSet<Line> {
        let lines: BTreeSet<Line> = self.llc.keys().chain(self.mlc.keys()).copied().collect();
        lines.into_iter().filter(|line| self.dirty_places(*line) > 0).collect()
    }
}
