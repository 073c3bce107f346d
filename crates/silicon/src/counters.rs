//! The chip's counters. They count sampled lines; the reader scales them by the sampling factor.

use std::iter::Sum;
use std::ops::{Add, Sub};

/// Most groups of sets that are counted separately. The sampling error is estimated from how much the groups differ.
/// Assumption: eight give a standard error to about a quarter, and their counters stay in the nearest cache of the
/// machine that runs the model.
pub(crate) const SET_GROUPS: usize = 8;

/// Per core: accesses of programs, and fetches of its prefetchers, which count as accesses that missed the MLC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounters {
    /// Served by the own MLC.
    pub mlc_hits: u64,
    /// Not served by the own MLC.
    pub mlc_misses: u64,
    /// Of the misses: served by the LLC or another MLC.
    pub llc_hits: u64,
    /// Of the misses: served by memory.
    pub llc_misses: u64,
}

/// Per core: lines that its prefetchers fetched into the MLC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchCounters {
    /// Fetched from the LLC or another MLC.
    pub llc_hits: u64,
    /// Fetched from memory.
    pub llc_misses: u64,
    /// Of both, those that the core did not access afterwards.
    pub useless: u64,
}

/// Per device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Full-line writes with DCA on that found the line cached (ItoM hit, write update).
    pub write_hits: u64,
    /// Full-line writes with DCA on that did not find it cached (ItoM miss, write allocate).
    pub write_misses: u64,
    /// Writes of a part of a line that found the line cached (RFO hit).
    pub partial_hits: u64,
    /// Writes of a part of a line that did not find the line cached (RFO miss).
    pub partial_misses: u64,
    /// Writes with DCA off or from a remote socket: straight to memory.
    pub writes_uncached: u64,
    /// Reads served from the caches.
    pub read_hits: u64,
    /// Reads served from memory.
    pub read_misses: u64,
    /// Lines of this device that left the LLC for memory before a core read them (DMA leak).
    pub leaked: u64,
}

/// A device's counters that hit ratios need, over some of the sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DcaCounters {
    /// As in [`DeviceCounters`].
    pub write_hits: u64,
    /// Likewise.
    pub write_misses: u64,
    /// Likewise.
    pub read_hits: u64,
    /// Likewise.
    pub read_misses: u64,
}

/// Whole chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChipCounters {
    /// Lines read from memory.
    pub memory_reads: u64,
    /// Lines written to memory.
    pub memory_writes: u64,
    /// Of the lines written, dirty LLC evictions.
    pub dirty_evictions: u64,
    /// Of the lines written, dirty MLC victims that the LLC did not take, and flushed lines.
    pub write_backs: u64,
    /// Of the lines written, device writes that bypassed the caches.
    pub uncached_writes: u64,
    /// Lines inserted into the LLC.
    pub llc_fills: u64,
    /// Lines evicted from the LLC to make room.
    pub llc_evictions: u64,
    /// Lines removed from the LLC because they moved or were overwritten.
    pub llc_removals: u64,
    /// Lines filled into MLCs.
    pub mlc_fills: u64,
    /// Lines evicted from MLCs by a fill or a full directory.
    pub mlc_evictions: u64,
    /// MLC lines invalidated by devices, other cores or the LLC.
    pub mlc_invalidations: u64,
    /// MLC evictions forced by a full directory.
    pub directory_evictions: u64,
    /// I/O lines that moved to an MLC with a copy in the inclusive ways (directory contention's cause).
    pub migrations: u64,
    /// I/O lines that left an MLC for the CAT ways (DMA bloat).
    pub bloated: u64,
}

impl Add for CoreCounters {
    type Output = CoreCounters;

    fn add(self, other: CoreCounters) -> CoreCounters {
        CoreCounters {
            mlc_hits: self.mlc_hits + other.mlc_hits,
            mlc_misses: self.mlc_misses + other.mlc_misses,
            llc_hits: self.llc_hits + other.llc_hits,
            llc_misses: self.llc_misses + other.llc_misses,
        }
    }
}

impl Sub for CoreCounters {
    type Output = CoreCounters;

    fn sub(self, earlier: CoreCounters) -> CoreCounters {
        CoreCounters {
            mlc_hits: self.mlc_hits - earlier.mlc_hits,
            mlc_misses: self.mlc_misses - earlier.mlc_misses,
            llc_hits: self.llc_hits - earlier.llc_hits,
            llc_misses: self.llc_misses - earlier.llc_misses,
        }
    }
}

impl CoreCounters {
    /// Accesses of the core: those that its own MLC served, and the others.
    pub fn accesses(&self) -> u64 {
        self.mlc_hits + self.mlc_misses
    }
}

impl Sum for CoreCounters {
    fn sum<I: Iterator<Item = CoreCounters>>(all: I) -> CoreCounters {
        all.fold(CoreCounters::default(), Add::add)
    }
}
