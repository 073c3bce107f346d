//! The plain inclusive LLC of Haswell and older: it holds every line that an MLC holds; all ways are alike.
//!
//! ddio-bench and the nvme-memload thesis ran on such chips. Core fills allocate in the core's CAT ways,
//! an LLC eviction takes the MLC copies with it, a device write updates in place or allocates in the DCA
//! ways. Not prototyped and not validated against a measurement (microarchitecture.md 12); the replacement
//! rule is the one of microarchitecture.md 5 with demand fills at age 1.

use crate::evictions::EvictionReason;
use crate::line::{Line, LineTag, Places};
use crate::mlc::{self, MlcVictim};
use crate::rules::Replacement;
use crate::shared::{Arrival, DEVICE_OWNER, DcaMode, Shared};
use crate::simd::prefetch;
use crate::slices::Slices;
use crate::spec::ChipSpec;
use crate::ways::{AGE, Chooser, DIRTY, IO, MaskLanes, UNCONSUMED, Ways, promoted};
use crate::{Fill, Level};
use waykeeper_units::WayMask;

/// No MLC holds the line.
const NO_HOLDER: u8 = u8::MAX;
/// Several MLCs may hold the line.
const SEVERAL: u8 = u8::MAX - 1;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Set<T> {
    ways: Ways<T, 32>,
    /// Core whose MLC may hold the line (core-valid bits; a clean MLC eviction is silent, so it is a hint).
    holder: [u8; 32],
    /// Owner for eviction counts: the device until a core has used the line, then that core's group.
    user: [u8; 32],
}

#[derive(Clone, Debug)]
pub(crate) struct Inclusive<T> {
    sets: Vec<Set<T>>,
    places: Places,
    core_masks: Vec<MaskLanes<32>>,
    dca_ways: Option<MaskLanes<32>>,
    recency: Vec<[u8; 32]>,
}

impl<T: LineTag> Inclusive<T> {
    pub(crate) fn new(spec: &ChipSpec, shared: &Shared<T>) -> Inclusive<T> {
        let places = Places::new::<T>(shared.mlc_sets(), spec.llc.slices, Slices::new(spec));
        let count = places.count((spec.llc.sets / spec.mlc.sets).ilog2());
        let lru = shared.rules.replacement == Replacement::Lru;
        Inclusive {
            sets: vec![Set { ways: Ways::EMPTY, holder: [NO_HOLDER; 32], user: [0; 32] }; count],
            places,
            core_masks: vec![MaskLanes::new(WayMask::full(spec.llc.ways)); spec.cores as usize],
            dca_ways: spec.llc.dca_ways.map(MaskLanes::new),
            recency: if lru { vec![std::array::from_fn(|way| way as u8); count] } else { Vec::new() },
        }
    }

    pub(crate) fn set_core_mask(&mut self, core: usize, mask: WayMask) {
        self.core_masks[core] = MaskLanes::new(mask);
    }

    pub(crate) fn core_mask(&self, core: usize) -> WayMask {
        WayMask::from_bits(self.core_masks[core].bits())
    }

    pub(crate) fn set_dca_ways(&mut self, mask: WayMask) {
        self.dca_ways = Some(MaskLanes::new(mask));
    }

    #[inline(always)]
    fn index(&self, line: Line) -> usize {
        T::llc_place(line, self.places) & (self.sets.len() - 1)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, line: Line) {
        prefetch(&self.sets[self.index(line)]);
    }

    /// Allocates; the MLC copies of the victim are invalidated (inclusion).
    fn allocate(&mut self, sh: &mut Shared<T>, at: usize, line: Line, mask: &MaskLanes<32>, entry: Entry) {
        let mut rule = Chooser { kind: sh.rules.replacement, rng: &mut sh.rng, recency: &mut self.recency };
        let set = &mut self.sets[at];
        let gone = set.ways.insert(mask, (T::of(line), entry.state, entry.owner), &mut rule, at);
        sh.llc_filled(entry.owner);
        let way = set.ways.find(T::of(line)).expect("it was just inserted");
        let old_holder = std::mem::replace(&mut set.holder[way as usize], entry.holder);
        let old_user = std::mem::replace(&mut set.user[way as usize], entry.owner);
        if let Some(mut gone) = gone {
            let victim = gone.tag.in_set_of(line);
            if back_invalidate_mlcs(sh, victim, old_holder) & mlc::DIRTY != 0 {
                gone.state |= DIRTY;
            }
            sh.llc_evicted(line, gone, old_user, entry.why);
        }
    }

    #[inline(never)]
    pub(crate) fn read_miss(&mut self, sh: &mut Shared<T>, core: usize, line: Line, fill: Fill) -> Level {
        let at = self.index(line);
        match self.sets[at].ways.find(T::of(line)) {
            Some(way) => {
                let holder = self.sets[at].holder[way as usize];
                let state = self.sets[at].ways.state(way);
                if state & UNCONSUMED != 0 {
                    self.sets[at].user[way as usize] = sh.group_of[core];
                }
                self.promote(sh, at, way, state & !UNCONSUMED);
                let lone = holder == NO_HOLDER || usize::from(holder) == core;
                // The other MLC's copy may be dirty: it is written back into the LLC and both stay clean.
                let dirty = if lone { 0 } else { clean_mlcs(sh, line, holder) };
                if dirty & mlc::DIRTY != 0 {
                    let state = self.sets[at].ways.state(way);
                    self.sets[at].ways.set_state(way, state | DIRTY);
                }
                self.sets[at].holder[way as usize] = if lone { core as u8 } else { SEVERAL };
                self.fill(
                    sh,
                    core,
                    line,
                    if lone { Arrival::new(0, fill) } else { Arrival::new(0, fill).also(mlc::SHARED) },
                );
                if dirty & mlc::DIRTY != 0 { Level::Peer } else { Level::Llc }
            }
            None => {
                self.fetch(sh, core, line, at);
                self.fill(sh, core, line, Arrival::new(0, fill));
                Level::Memory
            }
        }
    }

    #[inline(never)]
    pub(crate) fn write_miss(&mut self, sh: &mut Shared<T>, core: usize, line: Line, fill: Fill) -> Level {
        let at = self.index(line);
        let level = match self.sets[at].ways.find(T::of(line)) {
            Some(way) => {
                let holder = self.sets[at].holder[way as usize];
                let foreign = holder != NO_HOLDER && usize::from(holder) != core;
                let dropped = if foreign { invalidate_mlcs(sh, line, holder) } else { 0 };
                self.sets[at].holder[way as usize] = core as u8;
                let state = self.sets[at].ways.state(way);
                if state & UNCONSUMED != 0 {
                    self.sets[at].user[way as usize] = sh.group_of[core];
                }
                self.promote(sh, at, way, state & !(UNCONSUMED | IO));
                if dropped & mlc::DIRTY != 0 { Level::Peer } else { Level::Llc }
            }
            None => {
                self.fetch(sh, core, line, at);
                Level::Memory
            }
        };
        self.fill(sh, core, line, Arrival::new(mlc::DIRTY, fill));
        level
    }

    /// A write that hit the own MLC on a line that other MLCs may hold too.
    #[inline(never)]
    pub(crate) fn own_exclusively(&mut self, sh: &mut Shared<T>, core: usize, line: Line) {
        for other in (0..sh.cores()).filter(|other| *other != core) {
            if let Some(way) = sh.mlc(other, T::set(line)).find(T::of(line)) {
                sh.mlc_invalidate(other, T::set(line), way);
            }
        }
        let at = self.index(line);
        if let Some(way) = self.sets[at].ways.find(T::of(line)) {
            self.sets[at].holder[way as usize] = core as u8;
        }
    }

    /// From memory into the core's CAT ways.
    fn fetch(&mut self, sh: &mut Shared<T>, core: usize, line: Line, at: usize) {
        sh.memory_read(line);
        let mask = self.core_masks[core];
        let (owner, why) = (sh.group_of[core], EvictionReason::CoreFill);
        let entry = Entry { state: sh.rules.victim_age, owner, holder: core as u8, why };
        self.allocate(sh, at, line, &mask, entry);
    }

    fn promote(&mut self, sh: &mut Shared<T>, at: usize, way: u32, state: u8) {
        self.sets[at].ways.set_state(way, state & !AGE | promoted(state & AGE));
        self.touched(sh, at, way);
    }

    /// LRU variant only: marks a use in place.
    #[inline(always)]
    fn touched(&mut self, sh: &mut Shared<T>, at: usize, way: u32) {
        Chooser { kind: sh.rules.replacement, rng: &mut sh.rng, recency: &mut self.recency }.touched(at, way);
    }

    /// Fills the MLC; a dirty victim is written back into its LLC line, a clean one is dropped silently.
    fn fill(&mut self, sh: &mut Shared<T>, core: usize, line: Line, arrival: Arrival) {
        // Looked up only now: the LLC eviction before may have emptied a way of this set.
        let mlc = sh.mlc_index(core, T::set(line));
        let (way, victim) = sh.mlc_victim(mlc, T::set(line));
        if let Some(victim) = victim {
            sh.chip.mlc_evictions += 1;
            self.write_back(victim);
        }
        sh.mlc_fill(mlc, way, line, arrival);
    }

    fn write_back(&mut self, victim: MlcVictim) {
        let at = self.index(victim.line);
        let set = &mut self.sets[at];
        let way = set.ways.find(T::of(victim.line));
        debug_assert!(way.is_some(), "an inclusive LLC holds every MLC line");
        if let Some(way) = way {
            if victim.flags & mlc::DIRTY != 0 {
                set.ways.set_state(way, set.ways.state(way) | DIRTY);
            }
            // The hint is exact for a line that only one core held, which is nearly every line.
            if set.holder[way as usize] != SEVERAL {
                set.holder[way as usize] = NO_HOLDER;
            }
        }
    }

    #[inline(never)]
    pub(crate) fn dma_write(&mut self, sh: &mut Shared<T>, device: usize, line: Line) -> bool {
        let at = self.index(line);
        let found = self.sets[at].ways.find(T::of(line));
        if let Some(way) = found {
            let holder = std::mem::replace(&mut self.sets[at].holder[way as usize], NO_HOLDER);
            if holder != NO_HOLDER {
                invalidate_mlcs(sh, line, holder);
            }
        }
        let owner = DEVICE_OWNER + device as u8;
        match (sh.dca[device], self.dca_ways, found) {
            (DcaMode::On, Some(_), Some(way)) => {
                let ways = &mut self.sets[at].ways;
                let age = sh.rules.dma_update.age(ways.state(way) & AGE, sh.rules.io_age);
                sh.occupancy[usize::from(ways.owner(way))] -= 1;
                sh.occupancy[usize::from(owner)] += 1;
                ways.set_owner(way, owner);
                ways.set_state(way, DIRTY | IO | UNCONSUMED | age);
                self.sets[at].user[way as usize] = owner;
                self.touched(sh, at, way);
                sh.dca_at(device, line).write_hits += 1;
            }
            (DcaMode::On, Some(mask), None) => {
                let young = sh.p_io_young.hits(sh.random());
                let age = if young { sh.rules.victim_age } else { sh.rules.io_age };
                let (state, why) = (DIRTY | IO | UNCONSUMED | age, EvictionReason::DeviceWrite);
                let entry = Entry { state, owner, holder: NO_HOLDER, why };
                self.allocate(sh, at, line, &mask, entry);
                sh.dca_at(device, line).write_misses += 1;
            }
            (_, _, found) => {
                if let Some(way) = found {
                    sh.llc_removed(self.sets[at].ways.owner(way));
                    self.sets[at].ways.free(way);
                }
                sh.uncached_write(device, line);
            }
        }
        found.is_some()
    }

    #[inline(never)]
    pub(crate) fn dma_read(&mut self, sh: &mut Shared<T>, device: usize, line: Line) -> bool {
        let at = self.index(line);
        let found = self.sets[at].ways.find(T::of(line));
        match found {
            Some(way) => {
                // A dirty MLC copy is snooped; the LLC line becomes dirty, the MLC keeps a clean line.
                let holder = self.sets[at].holder[way as usize];
                if holder != NO_HOLDER && clean_mlcs(sh, line, holder) & mlc::DIRTY != 0 {
                    let state = self.sets[at].ways.state(way);
                    self.sets[at].ways.set_state(way, state | DIRTY);
                }
                if sh.rules.dma_read_promotes {
                    let state = self.sets[at].ways.state(way);
                    self.promote(sh, at, way, state);
                }
                sh.dca_at(device, line).read_hits += 1;
            }
            None => {
                sh.memory_read(line);
                sh.dca_at(device, line).read_misses += 1;
            }
        }
        found.is_some()
    }

    /// A line leaves LLC and MLCs; a dirty one is written to memory.
    pub(crate) fn flush(&mut self, sh: &mut Shared<T>, line: Line) {
        let at = self.index(line);
        let Some(way) = self.sets[at].ways.find(T::of(line)) else { return };
        let holder = std::mem::replace(&mut self.sets[at].holder[way as usize], NO_HOLDER);
        let dropped = invalidate_mlcs(sh, line, holder);
        let set = &mut self.sets[at];
        let dirty = dropped & mlc::DIRTY != 0 || set.ways.state(way) & DIRTY != 0;
        sh.llc_removed(set.ways.owner(way));
        set.ways.free(way);
        if dirty {
            sh.write_back(line);
        }
    }

    pub(crate) fn has(&self, line: Line) -> bool {
        self.sets[self.index(line)].ways.find(T::of(line)).is_some()
    }

    pub(crate) fn residents(&self) -> impl Iterator<Item = crate::audit::Resident> + '_ {
        self.sets.iter().enumerate().flat_map(move |(at, set)| {
            (0..32).filter(move |way| set.ways.tag(*way) != T::NONE).map(move |way| {
                let line = set.ways.tag(way).at_llc_place(at, self.places);
                crate::audit::Resident::new(line, way, set.ways.state(way))
            })
        })
    }
}

/// State and owner of a line that is written into an allocated way.
#[derive(Clone, Copy)]
struct Entry {
    state: u8,
    owner: u8,
    holder: u8,
    why: EvictionReason,
}

/// Invalidates the MLC copies of a line that the LLC evicts. Returns their merged flags.
fn back_invalidate_mlcs<T: LineTag>(sh: &mut Shared<T>, line: Line, holder: u8) -> u8 {
    each_holder(sh, line, holder, |sh, core, way| {
        sh.evictions.count(sh.group_of[core], EvictionReason::BackInvalidation, false);
        sh.mlc_invalidate(core, T::set(line), way)
    })
}

/// Invalidates the MLC copies of a line. Returns their merged flags.
fn invalidate_mlcs<T: LineTag>(sh: &mut Shared<T>, line: Line, holder: u8) -> u8 {
    each_holder(sh, line, holder, |sh, core, way| sh.mlc_invalidate(core, T::set(line), way))
}

/// Makes the MLC copies of a line clean. Returns the merged flags they had.
fn clean_mlcs<T: LineTag>(sh: &mut Shared<T>, line: Line, holder: u8) -> u8 {
    each_holder(sh, line, holder, |sh, core, way| {
        let mlc = sh.mlc(core, T::set(line));
        let flags = mlc.flags(way);
        mlc.clear_flags(way, mlc::DIRTY);
        mlc.mark(way, mlc::SHARED);
        flags
    })
}

fn each_holder<T: LineTag>(
    sh: &mut Shared<T>,
    line: Line,
    holder: u8,
    mut act: impl FnMut(&mut Shared<T>, usize, u32) -> u8,
) -> u8 {
    let cores = match holder {
        NO_HOLDER => return 0,
        SEVERAL => 0..sh.cores(),
        core => usize::from(core)..usize::from(core) + 1,
    };
    let mut flags = 0;
    for core in cores {
        if let Some(way) = sh.mlc(core, T::set(line)).find(T::of(line)) {
            flags |= act(sh, core, way);
        }
    }
    flags
}
