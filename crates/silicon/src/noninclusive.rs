//! Skylake-SP's LLC: exclusive for ordinary lines, two inclusive ways, a directory for what MLCs hold.
//!
//! The LLC's sets, and what cores do to them; devices are in `noninclusive/devices.rs`. One function per row of the
//! transition table in microarchitecture.md 4; the section's marks say how well each is established. Must not know time
//! or programs.

mod devices;
mod insertion;
mod steered;
mod view;

use crate::directory::{Directory, Holder};
use crate::evictions::EvictionReason;
use crate::history::History;
use crate::line::{Line, LineTag, Places};
use crate::mlc::{self, MlcVictim};
use crate::rules::{InclusiveVictim, Migration, Replacement};
use crate::shared::{Arrival, Shared};
use crate::simd::prefetch;
use crate::slices::Slices;
use crate::spec::ChipSpec;
use crate::table::Table;
use crate::ways::{AGE, COPY, Chooser, DIRTY, IO, MaskLanes, PAYLOAD, UNCONSUMED, Ways, promoted};
use crate::{Fill, Level};
use insertion::{insert, insert_copy, leave, remembered, remove};
use waykeeper_units::WayMask;

/// A set's ways and its directory entries: two neighbouring lines of the machine that runs the model.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Set<T, const L: usize> {
    ways: Ways<T, L>,
    directory: Directory<T>,
}

/// Where an MLC will put the next line of a set.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// The way it takes.
    way: u32,
    /// The line that is evicted from it, and the place of its LLC set.
    victim: Option<(MlcVictim, usize)>,
}

/// State of a line that a device has just written, without its age.
const FRESH: u8 = DIRTY | IO | UNCONSUMED;

#[derive(Clone, Debug)]
pub(crate) struct NonInclusive<T, const L: usize> {
    sets: Table<Set<T, L>>,
    places: Places,
    core_masks: Table<MaskLanes<L>>,
    /// The same without the DCA ways; where nothing would be left, with them.
    outside_dca: Table<MaskLanes<L>>,
    dca_ways: Option<MaskLanes<L>>,
    inclusive: MaskLanes<L>,
    directory_mask: u32,
    recency: Vec<[u8; 32]>,
}

impl<T: LineTag, const L: usize> NonInclusive<T, L> {
    pub(crate) fn new(spec: &ChipSpec, shared: &mut Shared<T>) -> NonInclusive<T, L> {
        let places = Places::new::<T>(shared.mlc_sets(), spec.llc.slices, Slices::new(spec));
        let count = places.count((spec.llc.sets / spec.mlc.sets).ilog2());
        let lru = shared.rules.replacement == Replacement::Lru;
        shared.history = History::new(count, shared.rules.reuse_history);
        let core_masks = Table::filled(spec.cores as usize, MaskLanes::new(WayMask::full(spec.llc.ways)));
        let mut new = NonInclusive {
            sets: Table::filled(count, Set { ways: Ways::EMPTY, directory: Directory::EMPTY }),
            places,
            outside_dca: core_masks.clone(),
            core_masks,
            dca_ways: spec.llc.dca_ways.map(MaskLanes::new),
            inclusive: MaskLanes::new(spec.llc.inclusive_ways.unwrap_or_default()),
            directory_mask: (1 << shared.rules.directory_ways) - 1,
            recency: if lru { vec![std::array::from_fn(|way| way as u8); count] } else { Vec::new() },
        };
        new.leave_out_dca();
        new
    }

    /// Brings `outside_dca` up to date.
    fn leave_out_dca(&mut self) {
        let dca = self.dca_ways.as_ref().map_or(0, MaskLanes::bits);
        for (core, outside) in self.outside_dca.entries_mut().iter_mut().enumerate() {
            let all = self.core_masks[core];
            let left = all.bits() & !dca;
            *outside = if left == 0 { all } else { MaskLanes::new(WayMask::from_bits(left)) };
        }
    }

    pub(crate) fn set_core_mask(&mut self, core: usize, mask: WayMask) {
        self.core_masks[core] = MaskLanes::new(mask);
        self.leave_out_dca();
    }

    pub(crate) fn core_mask(&self, core: usize) -> WayMask {
        WayMask::from_bits(self.core_masks[core].bits())
    }

    pub(crate) fn set_dca_ways(&mut self, mask: WayMask) {
        self.dca_ways = Some(MaskLanes::new(mask));
        self.leave_out_dca();
    }

    #[inline(always)]
    fn index(&self, line: Line) -> usize {
        self.sets.masked(T::llc_place(line, self.places))
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, line: Line) {
        self.prefetch_set(self.index(line));
    }

    #[inline(always)]
    fn prefetch_set(&self, at: usize) {
        let set = &self.sets[at];
        prefetch(&set.ways);
        prefetch(&set.directory);
    }

    /// Frees a way because its line moves elsewhere.
    #[inline(always)]
    fn remove(&mut self, sh: &mut Shared<T>, at: usize, way: u32) {
        remove(sh, &mut self.sets[at].ways, way);
    }

    /// LRU variant only: notes a use in place.
    #[inline(always)]
    fn touched(&mut self, sh: &mut Shared<T>, at: usize, way: u32) {
        Chooser { kind: sh.rules.replacement, rng: &mut sh.rng, recency: &mut self.recency }.touched(at, way);
    }

    /// A core's read that its MLC could not serve. `index` is the MLC set's index in the table of all MLC sets.
    #[inline(always)]
    pub(crate) fn read_miss(
        &mut self,
        sh: &mut Shared<T>,
        core: usize,
        index: usize,
        line: Line,
        fill: Fill,
    ) -> Level {
        let at = self.index(line);
        let leaving = self.leaving(sh, index, line);
        let set = &self.sets[at];
        let (level, arrival) = match set.ways.find(T::of(line)) {
            Some(found) => {
                let payload = self.demand(sh, core, set.ways.state(found));
                (Level::Llc, self.read_from_llc(sh, at, found, line, fill).also(payload))
            }
            // The MLC fills from another MLC (cache to cache) or from memory; both bypass the LLC.
            None if set.directory.holds(T::of(line)) => {
                (Level::Peer, Arrival::new(0, fill).also(mlc::SHARED))
            }
            None => {
                sh.memory_read(line);
                (Level::Memory, Arrival::new(remembered(sh, at, line), fill))
            }
        };
        self.fill(sh, core, index, line, at, leaving, arrival);
        level
    }

    /// What the next fill of an MLC set will evict. Prefetches the LLC set into which the victim will be inserted.
    #[inline(always)]
    fn leaving(&self, sh: &mut Shared<T>, index: usize, line: Line) -> Leaving {
        let (way, victim) = sh.mlc_victim(index, T::set(line));
        let victim = victim.map(|victim| (victim, self.index(victim.line)));
        if let Some((_, at)) = victim {
            self.prefetch_set(at);
        }
        Leaving { way, victim }
    }

    /// A core demands a line of this state from the LLC: counts payload and keeps its tag (IDIO s3.3, s3.4).
    #[inline(always)]
    fn demand(&self, sh: &mut Shared<T>, core: usize, state: u8) -> u64 {
        if state & PAYLOAD == 0 {
            return 0;
        }
        sh.steering.payload_missed(core);
        mlc::PAYLOAD
    }

    /// Core read, line in the LLC: three rows of the table.
    #[inline(never)]
    fn read_from_llc(&mut self, sh: &mut Shared<T>, at: usize, way: u32, line: Line, fill: Fill) -> Arrival {
        let state = self.sets[at].ways.state(way);
        if state & COPY != 0 {
            // Another MLC holds it as well: the line stays, and the same cache still has the dirty data.
            self.promote(sh, at, way, state & !UNCONSUMED);
            return Arrival::new(0, fill).also(mlc::COPIED | mlc::SHARED);
        }
        if state & IO == 0 {
            return self.read_ordinary(sh, at, way, state, fill);
        }
        let reused = T::LATER_RULES && sh.rules.io_read_is_reuse && sh.rules.reuse_flag;
        let reused = if reused { mlc::REUSED } else { 0 };
        let dirty = if state & DIRTY != 0 { mlc::DIRTY } else { 0 };
        if self.inclusive.bits() >> way & 1 == 1 {
            // In bits 1-0: stays in place as a clean copy, the MLC's line becomes dirty.
            self.promote(sh, at, way, state & !(DIRTY | UNCONSUMED) | COPY);
            return Arrival::new(dirty | reused, fill).also(mlc::COPIED);
        }
        self.migrate(sh, at, way, line, (dirty, reused), fill)
    }

    /// Core read, LLC, not IO: the line moves from the LLC to the MLC and has proven reuse.
    #[inline(always)]
    fn read_ordinary(&mut self, sh: &mut Shared<T>, at: usize, way: u32, state: u8, fill: Fill) -> Arrival {
        let reused = if sh.rules.reuse_flag { mlc::REUSED } else { 0 };
        if sh.rules.ordinary_hit_stays {
            self.promote(sh, at, way, state | COPY);
            return Arrival::new(reused, fill).also(mlc::COPIED);
        }
        let dirty = if state & DIRTY != 0 { mlc::DIRTY } else { 0 };
        self.remove(sh, at, way);
        Arrival::new(dirty | reused, fill)
    }

    /// Core read, LLC, IO, outside the inclusive ways: the line migrates (A4 O1).
    #[inline(always)]
    fn migrate(
        &mut self,
        sh: &mut Shared<T>,
        at: usize,
        way: u32,
        line: Line,
        (dirty, reused): (u8, u8),
        fill: Fill,
    ) -> Arrival {
        let NonInclusive { sets, recency, inclusive, .. } = self;
        let set = &mut sets[at];
        let owner = set.ways.owner(way);
        // Searched before the line is removed, which is in none of these ways: a load of all tags right after the store
        // of one would wait for it.
        let spare = set.ways.way_for_copy(inclusive);
        remove(sh, &mut set.ways, way);
        sh.chip.migrations += 1;
        if sh.rules.migration == Migration::NoCopy {
            return Arrival::new(dirty | reused, fill);
        }
        let keeps_dirt = sh.rules.migration == Migration::DirtyCopy && dirty != 0;
        let dirt = if keeps_dirt { DIRTY } else { 0 };
        let state = COPY | IO | dirt | sh.rules.io_age;
        let entry = (state, owner, EvictionReason::MigratedCopy);
        if !insert_copy(sh, set, recency, at, line, (inclusive, spare), entry) {
            return Arrival::new(dirty | reused, fill);
        }
        let flags = if keeps_dirt { reused } else { dirty | reused };
        Arrival::new(flags, fill).also(mlc::COPIED)
    }

    /// Hit promotion H11 of core reads in place.
    #[inline(always)]
    fn promote(&mut self, sh: &mut Shared<T>, at: usize, way: u32, state: u8) {
        self.sets[at].ways.set_state(way, state & !AGE | promoted(state & AGE));
        self.touched(sh, at, way);
    }

    /// A core's write that its MLC could not serve: the line is then dirty in that MLC and in no other cache.
    #[inline(always)]
    pub(crate) fn write_miss(
        &mut self,
        sh: &mut Shared<T>,
        core: usize,
        index: usize,
        line: Line,
        fill: Fill,
    ) -> Level {
        let at = self.index(line);
        let leaving = self.leaving(sh, index, line);
        let (mut flags, mut payload) = (mlc::DIRTY, 0);
        let level = match self.sets[at].ways.find(T::of(line)) {
            Some(found) => {
                let state = self.sets[at].ways.state(found);
                payload = self.demand(sh, core, state);
                if (state & IO == 0 || T::LATER_RULES && sh.rules.io_read_is_reuse) && sh.rules.reuse_flag {
                    flags |= mlc::REUSED;
                }
                if state & COPY != 0 {
                    self.drop_mlc_copies(sh, at, line);
                }
                self.remove(sh, at, found);
                Level::Llc
            }
            None if self.drop_mlc_copies(sh, at, line) => Level::Peer,
            None => {
                sh.memory_read(line);
                flags |= remembered(sh, at, line);
                Level::Memory
            }
        };
        // Other MLCs lost their copies, this core's had none: its victim is unchanged.
        self.fill(sh, core, index, line, at, leaving, Arrival::new(flags, fill).also(payload));
        level
    }

    /// A write that hit the own MLC where the LLC or another MLC may hold a copy: both copies are invalidated.
    #[inline(never)]
    pub(crate) fn own_exclusively(&mut self, sh: &mut Shared<T>, core: usize, line: Line, elsewhere: u64) {
        let at = self.index(line);
        if elsewhere & mlc::COPIED != 0
            && let Some(way) = self.sets[at].ways.find(T::of(line))
        {
            self.remove(sh, at, way);
        }
        if elsewhere & mlc::SHARED != 0 {
            for other in 0..sh.cores() {
                if other != core
                    && let Some(way) = sh.mlc(other, T::set(line)).find(T::of(line))
                {
                    sh.mlc_invalidate(other, T::set(line), way);
                }
            }
            if let Some(way) = sh.mlc(core, T::set(line)).find(T::of(line)) {
                self.sets[at].directory.set_single(T::of(line), core, way);
            }
        }
    }

    /// Fills an MLC: evicts the victim to its place, and enters the line into the directory.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call per access that missed; all of it is in registers"
    )]
    #[inline(always)]
    fn fill(
        &mut self,
        sh: &mut Shared<T>,
        core: usize,
        index: usize,
        line: Line,
        at: usize,
        Leaving { way, victim }: Leaving,
        arrival: Arrival,
    ) {
        debug_assert_eq!(sh.mlc_victim(index, T::set(line)), (way, victim.map(|(victim, _)| victim)));
        if let Some((victim, victim_at)) = victim {
            sh.chip.mlc_evictions += 1;
            self.place_victim(sh, core, victim, victim_at, way, EvictionReason::MlcVictim);
        }
        sh.mlc_fill(index, way, line, arrival);
        if arrival.marks & mlc::SHARED != 0 {
            self.share(sh, core, line, at, way);
        } else {
            self.track(sh, core, line, at, way);
        }
    }

    /// Enters a line into the directory; if that is full, first evicts a tracked line from its MLC into its owner's
    /// CAT ways.
    #[inline(always)]
    fn track(&mut self, sh: &mut Shared<T>, core: usize, line: Line, at: usize, way: u32) {
        if !self.sets[at].directory.add(self.directory_mask, T::of(line), core, way) {
            self.make_directory_room(sh, at, line);
            let added = self.sets[at].directory.add(self.directory_mask, T::of(line), core, way);
            debug_assert!(added, "an entry was just freed");
        }
    }

    #[cold]
    fn make_directory_room(&mut self, sh: &mut Shared<T>, at: usize, near: Line) {
        let random = sh.random();
        let (tag, holder) = self.sets[at].directory.choose(self.directory_mask, random);
        let line = tag.in_set_of(near);
        sh.chip.directory_evictions += 1;
        match holder {
            Holder::One { core, .. } => self.push_out(sh, at, line, core),
            Holder::Several => {
                for core in 0..sh.cores() {
                    self.push_out(sh, at, line, core);
                }
            }
        }
    }

    fn push_out(&mut self, sh: &mut Shared<T>, at: usize, line: Line, core: usize) {
        let way = sh.mlc(core, T::set(line)).find(T::of(line));
        if let Some(way) = way
            && let Some(victim) = sh.mlc_push_out(core, line)
        {
            sh.evictions.count(sh.group_of[core], EvictionReason::DirectoryConflict, false);
            self.place_victim(sh, core, victim, at, way, EvictionReason::DirectoryVictim);
        }
    }

    /// A line that is now in several MLCs.
    #[cold]
    fn share(&mut self, sh: &mut Shared<T>, core: usize, line: Line, at: usize, way: u32) {
        match self.sets[at].directory.holder(T::of(line)) {
            Some(Holder::One { core: first, way: first_way }) => {
                sh.mlc(first, T::set(line)).mark(first_way, mlc::SHARED);
                self.sets[at].directory.set_several(T::of(line));
            }
            Some(Holder::Several) => {}
            // Only with `dma_write_invalidates_mlc = false` can a copy have no directory entry.
            None => self.track(sh, core, line, at, way),
        }
    }

    /// MLC eviction: four rows of the table. `way` is the MLC way the line left.
    #[inline(always)]
    fn place_victim(
        &mut self,
        sh: &mut Shared<T>,
        core: usize,
        victim: MlcVictim,
        at: usize,
        way: u32,
        why: EvictionReason,
    ) {
        let tag = T::of(victim.line);
        if !self.sets[at].directory.remove_single(tag, core, way) && self.leave_sharers(sh, core, victim, at)
        {
            return;
        }
        sh.steering.mlc_gave_up(core, victim.flags & mlc::DIRTY != 0);
        let mut rule = sh.victims[usize::from(victim.flags) % 8];
        rule.state |= if victim.marks & mlc::PAYLOAD != 0 { PAYLOAD } else { 0 };
        if victim.marks & mlc::COPIED != 0
            && let Some(copy) = self.sets[at].ways.find(tag)
        {
            match self.take_copy(sh, at, copy, rule.state & DIRTY) {
                Some(dirt) => (rule.state, rule.keep) = (rule.state | dirt, true),
                None => return,
            }
        }
        let owner = sh.group_of[core];
        let NonInclusive { sets, recency, core_masks, outside_dca, .. } = self;
        let mut mask = &core_masks[core];
        // Unproven: usually dropped.
        if !rule.keep && (!rule.chance.hits(sh.random()) || rule.needs_room && !sets[at].ways.has_room(mask))
        {
            return leave(sh, at, victim.line, rule.state);
        }
        if T::LATER_RULES
            && victim.flags & mlc::REUSED != 0
            && let Some(outside) = sh.p_outside_dca
            && outside.hits(sh.random())
        {
            mask = &outside_dca[core];
        }
        insert(sh, &mut sets[at], recency, at, victim.line, mask, (rule.state, owner, why));
    }

    /// A line leaves LLC and MLCs; a dirty one is written to memory.
    pub(crate) fn flush(&mut self, sh: &mut Shared<T>, line: Line) {
        let at = self.index(line);
        let mut dirty = self.take_mlc_copies(sh, at, line).is_some_and(|flags| flags & mlc::DIRTY != 0);
        if let Some(way) = self.sets[at].ways.find(T::of(line)) {
            dirty |= self.sets[at].ways.state(way) & DIRTY != 0;
            self.remove(sh, at, way);
        }
        if dirty {
            sh.write_back(line);
        }
        remembered(sh, at, line);
    }

    pub(crate) fn has(&self, line: Line) -> bool {
        self.sets[self.index(line)].ways.find(T::of(line)).is_some()
    }

    /// The line of an MLC victim has a copy in the inclusive ways: the way is freed, and the copy's dirtiness returned;
    /// the line is never dropped (DMA bloat). `None` if by the rules the two merge there.
    #[inline(never)]
    fn take_copy(&mut self, sh: &mut Shared<T>, at: usize, copy: u32, dirt: u8) -> Option<u8> {
        let ways = &mut self.sets[at].ways;
        let state = ways.state(copy);
        if sh.rules.inclusive_victim == InclusiveVictim::Stays || sh.rules.ordinary_hit_stays {
            ways.set_state(copy, state & !COPY | dirt);
            return None;
        }
        sh.chip.bloated += u64::from(state & IO != 0);
        remove(sh, ways, copy);
        Some(state & DIRTY)
    }

    /// One of several holders evicts the line: its copy is removed, its dirtiness moves to another holder. False if
    /// it was the last holder.
    #[cold]
    fn leave_sharers(&mut self, sh: &mut Shared<T>, core: usize, victim: MlcVictim, at: usize) -> bool {
        let line = victim.line;
        let (mut heir, mut others) = (None, 0);
        for other in (0..sh.cores()).filter(|other| *other != core) {
            if let Some(way) = sh.mlc_ref(other, T::set(line)).find(T::of(line)) {
                heir = heir.or(Some((other, way)));
                others += 1;
            }
        }
        let Some((first, way)) = heir else {
            self.sets[at].directory.remove(T::of(line));
            return false;
        };
        if victim.flags & mlc::DIRTY != 0 {
            sh.mlc(first, T::set(line)).add_flags(way, mlc::DIRTY);
        }
        if others == 1 {
            self.sets[at].directory.set_single(T::of(line), first, way);
            sh.mlc(first, T::set(line)).unmark(way, mlc::SHARED);
        }
        true
    }
}
