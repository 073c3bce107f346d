//! The choices of the model: which rule, and the constants in it.
//!
//! [`Rules::default`] is the model of microarchitecture.md 4 and 5. Two rules differ from its prototype:
//! [`DmaUpdate::KeepsAge`], where the prototype made updated lines evict-first, and [`Rules::stream_needs_room`]. Every
//! other value is a variant of microarchitecture.md 11 or a user's experiment. The ablation test of the machine crate
//! checks the variants: each contradicts a published figure, except `dma-update-evicts-first`, `dca-off-updates`,
//! `permutation-hash` and `no-read-allocate`, which change none. Rules of later chips are checked on what was measured there
//! (docs/real-chip.md). Marks: docs/reference/README.md#marks.

use crate::history::MOST;
use serde::{Deserialize, Serialize};

/// Which line of a full set is evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// Leftmost way of age 3, ageing as needed (F; the QLRU family of uops.info).
    #[default]
    Qlru,
    /// The same with a random candidate instead of the leftmost.
    QlruRandom,
    /// Any way of the mask.
    Random,
    /// Least recently used or filled of the mask.
    Lru,
}

/// What happens when a core reads an I/O line outside the inclusive ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Migration {
    /// The line moves to the MLC with its dirtiness and leaves a clean, weak copy in the inclusive ways (F).
    #[default]
    CleanCopy,
    /// It moves to the MLC and leaves nothing.
    NoCopy,
    /// The copy keeps the dirtiness, the MLC gets a clean line.
    DirtyCopy,
}

/// Where a line is put when an MLC evicts it while the inclusive ways hold a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InclusiveVictim {
    /// The copy is freed, the line is inserted into the core's CAT ways: DMA bloat (F).
    #[default]
    ToCatWays,
    /// The line is merged into the copy.
    Stays,
}

/// Where a device write puts a line that only an MLC holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlcHeldWrite {
    /// In the DCA ways, like any other allocation (F).
    #[default]
    DcaWays,
    /// In the inclusive ways.
    InclusiveWays,
}

/// What a device write does to the age of a line it updates in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DmaUpdate {
    /// None: new data, old age (C). With the prototype's evict-first a ring that once filled up stays full under
    /// every policy, because its lines in ordinary ways are evicted first; A4 Fig. 13b shows 71 %
    /// LLC hits for FastClick shared and 99 % under A4-d, which this rule gives and the other does not.
    #[default]
    KeepsAge,
    /// It becomes evict-first, as a device allocation is (the prototype's rule).
    EvictFirst,
    /// It becomes young.
    Promotes,
    /// It becomes one younger than a device allocation: the second write renews the line (M).
    Renews,
}

impl DmaUpdate {
    /// The age of an updated line that had `age`, where device allocations get `io_age`.
    #[inline(always)]
    pub(crate) fn age(self, age: u8, io_age: u8) -> u8 {
        match self {
            DmaUpdate::KeepsAge => age,
            DmaUpdate::EvictFirst => io_age,
            DmaUpdate::Promotes => 0,
            DmaUpdate::Renews => io_age.saturating_sub(1),
        }
    }
}

/// How a line address chooses its slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceHash {
    /// Uniform: the number of lines per set is Poisson-distributed (X; fits 1500 B x 128/512/1024 descriptors).
    #[default]
    Uniform,
    /// The lines of one index in a run of slices fall on distinct slices (McCalpin 2021).
    Permutation,
    /// The same from page to page: contiguous memory fills each set once before any set a second time, and two 2-MiB pages
    /// share all their sets, a part of them, or none (M: a region loses lines page by page).
    Rounds,
}

/// The rule set. Probabilities are 0..1, ages 0 (keep) to 3 (evict first).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Victim choice.
    pub replacement: Replacement,
    /// With [`Replacement::Qlru`], devices evict a random one of the candidates, while cores evict the leftmost.
    pub device_victim_random: bool,
    /// Core read of an I/O line outside the inclusive ways.
    pub migration: Migration,
    /// Probability that a copy of what an MLC holds displaces a line of value in the inclusive ways (C: 1/8,
    /// A4 Fig. 3b, X-Mem at 0x003 and 0x006; 1/4 with `copies_spare_io` off).
    pub p_force: f64,
    /// In the inclusive ways, device data that only the LLC holds are of value to migrated and read-allocated copies,
    /// at any age: such a copy saves one access to the MLC, a displaced line leaks to memory. `false` is a variant:
    /// copies of the ring's own packets make every third line of a full ring of 4 x 1024 packets leak, where A4's
    /// artifact (Fig. 13b) has one in twenty or fewer under A4-b to A4-d.
    pub copies_spare_io: bool,
    /// MLC eviction of a line with an inclusive copy.
    pub inclusive_victim: InclusiveVictim,
    /// Device write of an MLC-held line.
    pub mlc_held_write: MlcHeldWrite,
    /// Lines that proved reuse (filled by an LLC hit) are inserted with age 0 and never dropped (F).
    pub reuse_flag: bool,
    /// Tags per LLC set of lines that left MLC and LLC, at most 16; a miss on one of them proves reuse as well. 0: none
    /// are remembered.
    pub reuse_history: u32,
    /// A core's read of an I/O line proves reuse.
    pub io_read_is_reuse: bool,
    /// Probability that an MLC victim with proven reuse is inserted outside the DCA ways, if its core may allocate there.
    pub p_outside_dca: f64,
    /// Probability that a clean MLC victim without proven reuse is inserted into the LLC (C: 1/4).
    pub p_insert: f64,
    /// The same of a dirty one, which is written to memory otherwise (C: 1, it is always inserted).
    pub p_insert_dirty: f64,
    /// Streaming I/O data without proven reuse may take an empty or evict-first way only, never displace a line of
    /// value (C: A4 Fig. 8b, whose miss rate falls with every way that is taken from the storage program; with the
    /// prototype's fixed 6 % it stays flat from four ways to two).
    pub stream_needs_room: bool,
    /// Ordinary lines stay in the LLC when a core reads them (variant; P says they leave).
    pub ordinary_hit_stays: bool,
    /// Age of a line that a device write updates in place.
    pub dma_update: DmaUpdate,
    /// A device read makes a line young instead of leaving its age (variant).
    pub dma_read_promotes: bool,
    /// Device writes invalidate MLC copies (P, ItoM); `false` is a variant.
    pub dma_write_invalidates_mlc: bool,
    /// Device reads of MLC-only lines allocate in the inclusive ways (P, A4 s2.2); `false` is a variant.
    pub read_allocate: bool,
    /// With DCA off, an LLC copy is updated instead of invalidated (variant; makes no difference).
    pub dca_off_updates: bool,
    /// Age of device allocations, migrated copies and read allocations (F: evict first).
    pub io_age: u8,
    /// Age of MLC victims without proven reuse (C).
    pub victim_age: u8,
    /// Age of MLC victims with proven reuse (F).
    pub reused_age: u8,
    /// Probability that a device allocation gets `victim_age` instead of `io_age` (C: 1/16).
    pub p_io_young: f64,
    /// Directory entries per (slice, set) for lines that MLCs hold (P: 12, Yan et al.).
    pub directory_ways: u32,
    /// Accesses, and devices that write memory, wait for the backlog of their memory channel (X: conservation;
    /// without it channels move half as much again as they can).
    pub dram_backlog: bool,
    /// Address to slice.
    pub slice_hash: SliceHash,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            replacement: Replacement::Qlru,
            device_victim_random: false,
            migration: Migration::CleanCopy,
            p_force: 0.125,
            copies_spare_io: true,
            inclusive_victim: InclusiveVictim::ToCatWays,
            mlc_held_write: MlcHeldWrite::DcaWays,
            reuse_flag: true,
            reuse_history: 0,
            io_read_is_reuse: false,
            p_outside_dca: 0.0,
            p_insert: 0.25,
            p_insert_dirty: 1.0,
            stream_needs_room: true,
            ordinary_hit_stays: false,
            dma_update: DmaUpdate::KeepsAge,
            dma_read_promotes: false,
            dma_write_invalidates_mlc: true,
            read_allocate: true,
            dca_off_updates: false,
            io_age: 3,
            victim_age: 1,
            reused_age: 0,
            p_io_young: 1.0 / 16.0,
            directory_ways: 12,
            dram_backlog: true,
            slice_hash: SliceHash::Uniform,
        }
    }
}

impl Rules {
    /// The rows of microarchitecture.md 11: name and rule set, each differs from the default in one step.
    pub fn variants() -> Vec<(&'static str, Rules)> {
        let base = Rules::default();
        vec![
            ("base", base),
            ("no-migrated-copy", Rules { migration: Migration::NoCopy, ..base }),
            ("migration-always-evicts", Rules { p_force: 1.0, ..base }),
            ("copies-displace-io", Rules { copies_spare_io: false, ..base }),
            ("dirt-stays-when-migrating", Rules { migration: Migration::DirtyCopy, ..base }),
            ("mlc-victim-stays-inclusive", Rules { inclusive_victim: InclusiveVictim::Stays, ..base }),
            ("random-replacement", Rules { replacement: Replacement::Random, ..base }),
            ("lru", Rules { replacement: Replacement::Lru, ..base }),
            ("no-evict-first", Rules { io_age: 1, victim_age: 1, reused_age: 1, ..base }),
            ("evict-first-random", Rules { replacement: Replacement::QlruRandom, ..base }),
            ("no-reuse-flag", Rules { reuse_flag: false, ..base }),
            (
                "pure-victim-cache",
                Rules { reuse_flag: false, p_insert: 1.0, stream_needs_room: false, ..base },
            ),
            ("all-clean-victims-inserted", Rules { p_insert: 1.0, stream_needs_room: false, ..base }),
            ("stream-displaces", Rules { stream_needs_room: false, ..base }),
            ("llc-keeps-lines-on-hit", Rules { ordinary_hit_stays: true, ..base }),
            ("dma-update-evicts-first", Rules { dma_update: DmaUpdate::EvictFirst, ..base }),
            ("dma-update-promotes", Rules { dma_update: DmaUpdate::Promotes, ..base }),
            ("dma-read-promotes", Rules { dma_read_promotes: true, ..base }),
            ("mlc-held-write-inclusive", Rules { mlc_held_write: MlcHeldWrite::InclusiveWays, ..base }),
            ("dma-write-leaves-mlc", Rules { dma_write_invalidates_mlc: false, ..base }),
            ("no-read-allocate", Rules { read_allocate: false, ..base }),
            ("dca-off-updates", Rules { dca_off_updates: true, ..base }),
            ("dram-without-backlog", Rules { dram_backlog: false, ..base }),
            ("permutation-hash", Rules { slice_hash: SliceHash::Permutation, ..base }),
            // Rules of later chips.
            ("reuse-history", Rules { reuse_history: 5, ..base }),
            ("io-read-is-reuse", Rules { io_read_is_reuse: true, ..base }),
            ("reuse-outside-dca-ways", Rules { io_read_is_reuse: true, p_outside_dca: 0.5, ..base }),
            ("dirty-victims-dropped", Rules { p_insert_dirty: 0.25, ..base }),
            ("device-victim-random", Rules { device_victim_random: true, ..base }),
            ("dma-update-renews", Rules { dma_update: DmaUpdate::Renews, io_age: 2, ..base }),
            ("rounds-hash", Rules { slice_hash: SliceHash::Rounds, ..base }),
        ]
    }

    /// These rules where a table, by the names of the keys, does not say otherwise. Does not check ranges.
    ///
    /// # Errors
    /// An unknown key, or a value of another type than its rule.
    pub fn with(self, changes: &toml::Table) -> Result<Rules, toml::de::Error> {
        let mut all = toml::Table::try_from(self).expect("rules are a table");
        all.extend(changes.clone());
        all.try_into()
    }

    /// Whether a rule is in force that only later chips have ([`crate::line::LineTag::LATER_RULES`]).
    pub(crate) fn are_later(&self) -> bool {
        self.reuse_history > 0
            || self.io_read_is_reuse
            || self.p_outside_dca > 0.0
            || self.p_insert_dirty < 1.0
            || self.device_victim_random
    }

    /// Whether no rule differs from the default.
    pub(crate) fn are_default(&self) -> bool {
        *self == Rules::default()
    }

    /// These rules on a non-inclusive LLC without inclusive ways (gem5's, algorithms.md 4.3): a line is in the LLC or
    /// in MLCs, and no rule copies one there.
    pub(crate) fn without_inclusive_ways_if(self, none: bool) -> Rules {
        if !none {
            return self;
        }
        let (migration, mlc_held_write) = (Migration::NoCopy, MlcHeldWrite::DcaWays);
        Rules { migration, mlc_held_write, read_allocate: false, ordinary_hit_stays: false, ..self }
    }

    /// Refuses values outside their range, naming the key.
    ///
    /// # Errors
    /// `(key, value, what would do)` of the first bad one.
    pub fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        let chances = [
            ("p_force", self.p_force),
            ("p_insert", self.p_insert),
            ("p_insert_dirty", self.p_insert_dirty),
            ("p_io_young", self.p_io_young),
            ("p_outside_dca", self.p_outside_dca),
        ];
        if let Some((key, value)) = chances.iter().find(|(_, p)| !(0.0..=1.0).contains(p)) {
            return Err((key, value.to_string(), "a probability from 0 to 1"));
        }
        let ages =
            [("io_age", self.io_age), ("victim_age", self.victim_age), ("reused_age", self.reused_age)];
        if let Some((key, value)) = ages.iter().find(|(_, age)| *age > 3) {
            return Err((key, value.to_string(), "an age from 0 (keep) to 3 (evict first)"));
        }
        if !(1..=16).contains(&self.directory_ways) {
            let value = self.directory_ways.to_string();
            return Err(("directory_ways", value, "1 to 16 entries per slice and set"));
        }
        if self.reuse_history > MOST as u32 {
            return Err(("reuse_history", self.reuse_history.to_string(), "0 to 16 tags per slice and set"));
        }
        Ok(())
    }
}

/// A probability as a threshold on a uniform 32-bit number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(p: f64) -> Chance {
        let below = (p * f64::from(u32::MAX)).round() as u64;
        // Strictly below, except that probability 1 must always hit.
        Chance(if below == u64::from(u32::MAX) { below + 1 } else { below })
    }

    /// True with that probability, given a uniform random number.
    #[inline(always)]
    pub(crate) fn hits(self, random: u32) -> bool {
        u64::from(random) < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        let check = |rules: Rules| rules.check().map_err(|(key, ..)| key);
        assert_eq!(check(Rules::default()), Ok(()));
        assert_eq!(check(Rules { p_insert: 1.5, ..Rules::default() }), Err("p_insert"));
        assert_eq!(check(Rules { p_force: f64::NAN, ..Rules::default() }), Err("p_force"));
        assert_eq!(check(Rules { io_age: 4, ..Rules::default() }), Err("io_age"));
        assert_eq!(check(Rules { directory_ways: 0, ..Rules::default() }), Err("directory_ways"));
    }

    #[test]
    fn every_variant_is_one_step_from_base_and_legal() {
        let base = Rules::default();
        for (name, rules) in Rules::variants() {
            assert_eq!(rules.check(), Ok(()), "{name}");
            assert_eq!(rules == base, name == "base", "{name}");
        }
    }

    #[test]
    fn chances_at_the_ends_are_certain() {
        assert!(Chance::new(1.0).hits(u32::MAX) && Chance::new(1.0).hits(0));
        assert!(!Chance::new(0.0).hits(0));
    }
}
