//! A chip small enough for calculation by hand, and lines of it that are all in one set.
//!
//! Shared by the integration tests; knows the public interface only.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub mod view;

use waykeeper_silicon::{
    AddressMap, Chip, ChipCounters, ChipSpec, DcaMode, Fill, Level, Line, MlcResident, Resident, Rules,
    Sampling,
};
use waykeeper_units::WayMask;

/// Sets of the small chips' MLCs.
pub const MLC_SETS: u32 = 16;

/// A chip of 4 cores with 2-way MLCs; `llc` is the body of its `[llc]` table. If it has DCA ways, its register
/// accepts any.
pub fn spec(llc: &str) -> ChipSpec {
    let dca = if llc.contains("dca_ways") {
        "[dca]\nlowest = \"0x1\"\nkept = \"0x0\"\ncontiguous = false\nacts = true\nport_switch = true\n"
    } else {
        ""
    };
    let text = format!(
        "name = \"small\"\nabout = \"for tests\"\ncores = 4\nghz = 2.0\ncore_to_core_factor = 1.8\n\
         [mlc]\nsets = {MLC_SETS}\nways = 2\n[llc]\n{llc}\nclos = 4\nmin_ways = 1\n\
         {dca}\
         [dependent]\nmlc_ns = 5.0\nllc_ns = 20.0\nmemory_ns = 90.0\n\
         [streaming]\nmlc_ns = 2.0\nllc_ns = 5.0\nmemory_ns = 11.0\n\
         [dram]\nchannels = 2\nchannel_gb_per_s = 17.5\nload_slope = 0.12\nmax_utilisation = 0.95\n"
    );
    ChipSpec::parse("small.toml", &text).expect("a legal chip")
}

/// Skylake in small: 11 ways, DCA in 0x600, inclusive ways 0x003, one slice.
pub fn skylake() -> ChipSpec {
    spec(
        "kind = \"non-inclusive\"\nslices = 1\nsets = 16\nways = 11\ndca_ways = \"0x600\"\n\
         inclusive_ways = \"0x003\"",
    )
}

/// Haswell in small: inclusive, 6 ways, DCA in 0x30.
pub fn haswell() -> ChipSpec {
    spec("kind = \"inclusive\"\nslices = 1\nsets = 16\nways = 6\ndca_ways = \"0x030\"")
}

/// Every probability 0: no outcome is random.
pub fn certain() -> Rules {
    Rules { p_force: 0.0, p_insert: 0.0, p_io_young: 0.0, ..Rules::default() }
}

/// Clean victims are always inserted into the LLC.
pub fn keeping() -> Rules {
    Rules { p_insert: 1.0, ..certain() }
}

/// A mask from its bits.
pub fn mask(bits: u32) -> WayMask {
    WayMask::from_bits(bits)
}

/// A chip and lines that share one MLC set and one LLC set.
pub struct World {
    pub chip: Chip,
    lines: Vec<Line>,
    fresh: usize,
}

impl World {
    pub fn new(spec: &ChipSpec, rules: Rules) -> World {
        let spec = &spec.clone().with_rules(rules);
        let mut map = AddressMap::new(spec, Sampling::EXACT, 1, 1);
        let region = map.huge(2 << 20).expect("memory is empty");
        // One LLC set: same MLC set, same slice, same index bits above the MLC's.
        let spread = spec.llc.sets / spec.mlc.sets;
        let place = |line: &Line| (line.set(), map.slice(*line), line.tag() % spread);
        let first = place(&region.lines()[0]);
        let lines = region.lines().iter().filter(|line| place(line) == first).copied().collect();
        World { chip: Chip::new(spec, Sampling::EXACT, 1), lines, fresh: 0 }
    }

    /// A line that was not accessed yet.
    pub fn line(&mut self) -> Line {
        self.fresh += 1;
        self.lines[self.fresh - 1]
    }

    pub fn read(&mut self, core: usize, line: Line) -> Level {
        self.chip.read(core, line, Fill::Ordinary)
    }

    pub fn write(&mut self, core: usize, line: Line) -> Level {
        self.chip.write(core, line, Fill::Ordinary)
    }

    /// Makes `core` evict what its set holds, by reading two new lines. These two are clean and unproven; with
    /// `p_insert` 0 they are dropped when they are evicted.
    pub fn evict(&mut self, core: usize) {
        for _ in 0..2 {
            let filler = self.line();
            assert_eq!(self.read(core, filler), Level::Memory);
        }
    }

    /// Sets a core's mask.
    pub fn confine(&mut self, core: usize, bits: u32) {
        self.chip.set_core_mask(core, mask(bits)).expect("a legal mask");
    }

    /// A fresh ordinary line in the LLC, in the lowest way of `bits`; dirty, age 1.
    pub fn dirty_in_llc(&mut self, core: usize, bits: u32) -> Line {
        let (line, before) = (self.line(), self.chip.core_mask(core));
        self.confine(core, bits);
        self.write(core, line);
        self.evict(core);
        self.chip.set_core_mask(core, before).expect("it was legal");
        line
    }

    /// A fresh I/O line that is in the inclusive ways only.
    pub fn io_in_inclusive(&mut self, core: usize) -> Line {
        let line = self.line();
        self.chip.dma_write(0, line);
        self.read(core, line); // migrates
        self.chip.dma_write(0, line); // updates the copy in place
        assert!(self.llc(line).is_some_and(|found| found.way < 2) && self.holders(line).is_empty());
        line
    }

    pub fn llc(&self, line: Line) -> Option<Resident> {
        self.chip.residents().into_iter().find(|resident| resident.line == line)
    }

    pub fn mlc(&self, core: usize, line: Line) -> Option<MlcResident> {
        self.chip.mlc_residents().into_iter().find(|held| held.line == line && held.core == core)
    }

    /// Cores whose MLC has the line.
    pub fn holders(&self, line: Line) -> Vec<usize> {
        let held = self.chip.mlc_residents().into_iter().filter(|held| held.line == line);
        held.map(|held| held.core).collect()
    }

    pub fn dca(&mut self, mode: DcaMode) {
        self.chip.set_dca(0, mode);
    }

    /// What an action adds to the counters: memory reads and writes.
    pub fn memory(&mut self, act: impl FnOnce(&mut World)) -> (u64, u64) {
        let count = |counters: ChipCounters| (counters.memory_reads, counters.memory_writes);
        let before = count(self.chip.counters());
        act(self);
        let after = count(self.chip.counters());
        (after.0 - before.0, after.1 - before.1)
    }
}
