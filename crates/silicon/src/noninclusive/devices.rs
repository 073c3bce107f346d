//! What devices do to the LLC: DMA writes that update, allocate or bypass it, and DMA reads.
//!
//! One function per row of the transition table, as for cores in `noninclusive.rs`. Knows lines and ways; must not
//! know which device writes or why.

use super::insertion::{insert, insert_copy};
use super::{FRESH, NonInclusive};
use crate::directory::Holder;
use crate::evictions::EvictionReason;
use crate::line::{Line, LineTag};
use crate::mlc;
use crate::rules::MlcHeldWrite;
use crate::shared::{DEVICE_OWNER, DcaMode, Shared};
use crate::socket::with_ahead;
use crate::ways::{AGE, COPY, DIRTY};

impl<T: LineTag, const L: usize> NonInclusive<T, L> {
    /// Device writes of full lines, one after the other.
    #[inline(never)]
    pub(crate) fn dma_write_all(&mut self, sh: &mut Shared<T>, device: usize, lines: &[Line]) {
        let cached = sh.dca[device] == DcaMode::On && self.dca_ways.is_some();
        for (line, ahead) in with_ahead(lines) {
            if let Some(ahead) = ahead {
                self.prefetch(ahead);
            }
            let at = self.index(line);
            if cached {
                self.dma_write_cached(sh, device, line, at, FRESH);
            } else {
                self.dma_write_uncached(sh, device, line, at);
            }
        }
    }

    /// Device reads, one after the other.
    #[inline(never)]
    pub(crate) fn dma_read_all(&mut self, sh: &mut Shared<T>, device: usize, lines: &[Line]) {
        for (line, ahead) in with_ahead(lines) {
            if let Some(ahead) = ahead {
                self.prefetch(ahead);
            }
            self.dma_read(sh, device, line);
        }
    }

    /// Device write of a full line. Returns whether the line was cached.
    #[inline(always)]
    pub(crate) fn dma_write(&mut self, sh: &mut Shared<T>, device: usize, line: Line) -> bool {
        let at = self.index(line);
        if sh.dca[device] != DcaMode::On || self.dca_ways.is_none() {
            return self.dma_write_uncached(sh, device, line, at);
        }
        self.dma_write_cached(sh, device, line, at, FRESH)
    }

    /// The same for a line that is written to the LLC; `fresh` is its state there without the age.
    #[inline(always)]
    pub(super) fn dma_write_cached(
        &mut self,
        sh: &mut Shared<T>,
        device: usize,
        line: Line,
        at: usize,
        fresh: u8,
    ) -> bool {
        match self.sets[at].ways.find(T::of(line)) {
            Some(way) => {
                self.dma_update(sh, device, line, at, way, fresh);
                true
            }
            None => self.dma_allocate(sh, device, line, at, fresh),
        }
    }

    /// Write update: in place, in any way; MLC copies are invalidated.
    #[inline(always)]
    fn dma_update(&mut self, sh: &mut Shared<T>, device: usize, line: Line, at: usize, way: u32, fresh: u8) {
        let owner = DEVICE_OWNER + device as u8;
        let state = self.sets[at].ways.state(way);
        if state & COPY != 0 && sh.rules.dma_write_invalidates_mlc {
            self.drop_mlc_copies(sh, at, line);
        }
        let kept = if sh.rules.dma_write_invalidates_mlc { 0 } else { state & COPY };
        let age = sh.rules.dma_update.age(state & AGE, sh.rules.io_age);
        let ways = &mut self.sets[at].ways;
        sh.occupancy[usize::from(ways.owner(way))] -= 1;
        sh.occupancy[usize::from(owner)] += 1;
        ways.set_owner(way, owner);
        ways.set_state(way, fresh | age | kept);
        self.touched(sh, at, way);
        sh.dca_at(device, line).write_hits += 1;
    }

    /// Write of a line that the LLC does not have: it is allocated there. A copy in an MLC is invalidated, and the
    /// write then counts as a hit.
    #[inline(always)]
    fn dma_allocate(&mut self, sh: &mut Shared<T>, device: usize, line: Line, at: usize, fresh: u8) -> bool {
        let held = self.sets[at].directory.holds(T::of(line));
        if held {
            sh.dca_at(device, line).write_hits += 1;
            if !sh.rules.dma_write_invalidates_mlc {
                return true;
            }
            self.drop_mlc_copies(sh, at, line);
        } else {
            sh.dca_at(device, line).write_misses += 1;
        }
        let NonInclusive { sets, recency, inclusive, dca_ways, .. } = self;
        let into_inclusive = held && sh.rules.mlc_held_write == MlcHeldWrite::InclusiveWays;
        let mask = dca_ways.as_ref().filter(|_| !into_inclusive).unwrap_or(inclusive);
        let young = sh.p_io_young.hits(sh.random());
        let age = if young { sh.rules.victim_age } else { sh.rules.io_age };
        let owner = DEVICE_OWNER + device as u8;
        let entry = (fresh | age, owner, EvictionReason::DeviceWrite);
        insert(sh, &mut sets[at], recency, at, line, mask, entry);
        held
    }

    /// DCA off, or a device of another socket: cached copies are invalidated, memory is written.
    #[inline(never)]
    pub(super) fn dma_write_uncached(
        &mut self,
        sh: &mut Shared<T>,
        device: usize,
        line: Line,
        at: usize,
    ) -> bool {
        let found = self.sets[at].ways.find(T::of(line));
        let held = self.drop_mlc_copies(sh, at, line);
        if let Some(way) = found {
            if sh.rules.dca_off_updates {
                let state = self.sets[at].ways.state(way);
                self.sets[at].ways.set_state(way, state & !(DIRTY | COPY));
            } else {
                self.remove(sh, at, way);
            }
        }
        sh.uncached_write(device, line);
        held || found.is_some()
    }

    /// Device read. Returns whether the caches served it.
    #[inline(always)]
    pub(crate) fn dma_read(&mut self, sh: &mut Shared<T>, device: usize, line: Line) -> bool {
        let at = self.index(line);
        if let Some(way) = self.sets[at].ways.find(T::of(line)) {
            if sh.rules.dma_read_promotes {
                let state = self.sets[at].ways.state(way);
                self.promote(sh, at, way, state);
            }
            sh.dca_at(device, line).read_hits += 1;
            return true;
        }
        let Some(holder) = self.sets[at].directory.holder(T::of(line)) else {
            sh.memory_read(line);
            sh.dca_at(device, line).read_misses += 1;
            return false;
        };
        if sh.rules.read_allocate {
            self.read_allocate(sh, device, line, at, holder);
        }
        sh.dca_at(device, line).read_hits += 1;
        true
    }

    /// Device read of a line that only MLCs hold: it is copied into bits 1-0 first (A4 s2.2, egress), if the rules let
    /// a copy take a way there. The copy becomes dirty if the line was, the MLC keeps a clean line.
    #[inline(never)]
    fn read_allocate(&mut self, sh: &mut Shared<T>, device: usize, line: Line, at: usize, holder: Holder) {
        let NonInclusive { sets, recency, inclusive, .. } = self;
        let entry = (COPY | sh.rules.io_age, DEVICE_OWNER + device as u8, EvictionReason::ReadAllocatedCopy);
        let spare = sets[at].ways.way_for_copy(inclusive);
        if !insert_copy(sh, &mut sets[at], recency, at, line, (inclusive, spare), entry) {
            return;
        }
        let mut dirty = 0;
        let mut copy_from = |sh: &mut Shared<T>, core: usize, way: u32| {
            let mlc = sh.mlc(core, T::set(line));
            dirty |= mlc.flags(way) & mlc::DIRTY;
            mlc.clear_flags(way, mlc::DIRTY);
            mlc.mark(way, mlc::COPIED);
        };
        match holder {
            Holder::One { core, way } => copy_from(sh, core, way),
            Holder::Several => {
                for core in 0..sh.cores() {
                    if let Some(way) = sh.mlc(core, T::set(line)).find(T::of(line)) {
                        copy_from(sh, core, way);
                    }
                }
            }
        }
        if dirty != 0
            && let Some(way) = sets[at].ways.find(T::of(line))
        {
            let state = sets[at].ways.state(way);
            sets[at].ways.set_state(way, state | DIRTY);
        }
    }

    /// Invalidates every MLC copy of a line. Returns whether there was one.
    #[inline(always)]
    pub(super) fn drop_mlc_copies(&mut self, sh: &mut Shared<T>, at: usize, line: Line) -> bool {
        self.take_mlc_copies(sh, at, line).is_some()
    }

    /// The same. Returns the merged flags of the copies, if there was one.
    #[inline(always)]
    pub(super) fn take_mlc_copies(&mut self, sh: &mut Shared<T>, at: usize, line: Line) -> Option<u8> {
        match self.sets[at].directory.remove(T::of(line))? {
            Holder::One { core, way } => Some(sh.mlc_invalidate(core, T::set(line), way)),
            Holder::Several => {
                let mut flags = 0;
                for core in 0..sh.cores() {
                    if let Some(way) = sh.mlc(core, T::set(line)).find(T::of(line)) {
                        flags |= sh.mlc_invalidate(core, T::set(line), way);
                    }
                }
                Some(flags)
            }
        }
    }
}
