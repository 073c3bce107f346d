//! Counts of evictions per evictor, owner and reason. True values of the model; no hardware shows them.
//!
//! Knows owners (groups of cores, and devices) and counts; must not know the rules that choose victims.

use crate::shared::DEVICE_OWNER;
use crate::table::Table;
use crate::{MAX_CORES, MAX_DEVICES};
use serde::{Deserialize, Serialize};

/// The evictor or the owner of an evicted line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// The cores of a group (RMID).
    Group(u8),
    /// A device.
    Device(usize),
}

/// Why a line was evicted. The first six evict from the LLC, the last two from an MLC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum EvictionReason {
    /// A device's write allocated in the DCA ways (write allocate).
    DeviceWrite,
    /// An MLC victim was inserted into the CAT ways of its core.
    MlcVictim,
    /// The same, where the MLC evicted the line because the directory was full.
    DirectoryVictim,
    /// A core read device data, and a copy of the line was inserted into the inclusive ways (migration).
    MigratedCopy,
    /// A device read a line of an MLC, and a copy of it was inserted into the inclusive ways.
    ReadAllocatedCopy,
    /// A core read or wrote a line that no cache had (inclusive LLC).
    CoreFill,
    /// The directory was full: a line was evicted from the MLC that held it.
    DirectoryConflict,
    /// An inclusive LLC evicted a line: it was evicted from the MLC that held it as well.
    BackInvalidation,
}

impl EvictionReason {
    /// Every reason.
    pub const ALL: [EvictionReason; REASONS] = {
        use EvictionReason::*;
        [
            DeviceWrite,
            MlcVictim,
            DirectoryVictim,
            MigratedCopy,
            ReadAllocatedCopy,
            CoreFill,
            DirectoryConflict,
            BackInvalidation,
        ]
    };

    /// Whether the line was evicted from the LLC; else from an MLC.
    pub fn from_llc(self) -> bool {
        !matches!(self, EvictionReason::DirectoryConflict | EvictionReason::BackInvalidation)
    }
}

/// Evictions of one kind since power-on, in sampled lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionCount {
    /// The owner of the access that evicted the lines.
    pub by: Owner,
    /// Owner of the lines. A device owns a line that it wrote until a core has read it. The core that holds the line in
    /// its MLC owns a copy in the LLC.
    pub of: Owner,
    /// The reason.
    pub reason: EvictionReason,
    /// How many lines.
    pub lines: u64,
    /// Of these lines, device data that no core had read (DMA leak).
    pub unread: u64,
}

const REASONS: usize = 8;

/// Counts per pair of owners: for each reason, unread lines of a device, and all others.
const KINDS: usize = 2 * REASONS;

/// Owners that a new table has room for: all devices and as many groups.
const FIRST_OWNERS: usize = 2 * MAX_DEVICES;

/// Agent number of the first device; lower numbers are cores.
const FIRST_DEVICE: usize = MAX_CORES;

/// The counts: one per evictor, owner, reason and whether the line was unread.
#[derive(Clone, Debug)]
pub(crate) struct Evictions {
    counts: Table<u64>,
    /// Owners that the table has room for, a power of two: devices first, then groups.
    owners: usize,
    /// Per agent (core or device): the place of its owner in the table.
    places: Table<u8>,
    /// The agent of the present access.
    by: usize,
}

impl Evictions {
    pub(crate) fn new() -> Evictions {
        let mut places = Table::filled(FIRST_DEVICE + MAX_DEVICES, place(0) as u8);
        for device in 0..MAX_DEVICES {
            places[FIRST_DEVICE + device] = device as u8;
        }
        Evictions { counts: Evictions::table(FIRST_OWNERS), owners: FIRST_OWNERS, places, by: 0 }
    }

    fn table(owners: usize) -> Table<u64> {
        Table::filled(owners * owners * KINDS, 0)
    }

    /// Assigns a core to a group.
    pub(crate) fn set_group(&mut self, core: usize, group: u8) {
        self.places[core] = place(group) as u8;
        let owners = (place(group) + 1).next_power_of_two();
        if owners <= self.owners {
            return;
        }
        let old = std::mem::replace(&mut self.counts, Evictions::table(owners));
        let rows = old.entries().chunks(self.owners * KINDS);
        for (row, counts) in self.counts.entries_mut().chunks_mut(owners * KINDS).zip(rows) {
            row[..counts.len()].copy_from_slice(counts);
        }
        self.owners = owners;
    }

    /// A core makes the next accesses: it evicts what they evict.
    #[inline(always)]
    pub(crate) fn by_core(&mut self, core: usize) {
        self.by = core;
    }

    /// A device makes the next accesses: it evicts what they evict.
    #[inline(always)]
    pub(crate) fn by_device(&mut self, device: usize) {
        self.by = FIRST_DEVICE + device;
    }

    /// Counts an evicted line of an owner.
    #[inline(always)]
    pub(crate) fn count(&mut self, of: u8, reason: EvictionReason, unread: bool) {
        let pair = usize::from(self.places[self.by]) * self.owners + place(of);
        self.counts[pair * KINDS + 2 * reason as usize + usize::from(unread)] += 1;
    }

    /// All non-zero counts, by evictor, owner and reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = EvictionCount> + '_ {
        let kinds = self.counts.entries().as_chunks::<2>().0.iter().enumerate();
        kinds.filter(|(_, [read, unread])| read + unread > 0).map(move |(at, [read, unread])| {
            let (pair, reason) = (at / REASONS, EvictionReason::ALL[at % REASONS]);
            let (by, of) = (owner(pair / self.owners), owner(pair % self.owners));
            EvictionCount { by, of, reason, lines: read + unread, unread: *unread }
        })
    }
}

/// Place of an owner in the table.
#[inline(always)]
fn place(owner: u8) -> usize {
    let owner = usize::from(owner);
    if owner >= DEVICE_OWNER as usize { owner - DEVICE_OWNER as usize } else { owner + MAX_DEVICES }
}

/// The owner at a place.
fn owner(place: usize) -> Owner {
    match place.checked_sub(MAX_DEVICES) {
        Some(group) => Owner::Group(group as u8),
        None => Owner::Device(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_when_a_group_needs_more_room() {
        let mut evictions = Evictions::new();
        let count = |evictions: &mut Evictions| {
            evictions.by_device(15);
            evictions.count(3, EvictionReason::DeviceWrite, false);
            evictions.by_core(0);
            evictions.count(DEVICE_OWNER, EvictionReason::MlcVictim, true);
        };
        count(&mut evictions);
        let before: Vec<EvictionCount> = evictions.counts().collect();
        evictions.set_group(1, 127);
        assert_eq!(evictions.counts().collect::<Vec<_>>(), before);
        count(&mut evictions);
        evictions.by_core(1);
        evictions.count(127, EvictionReason::CoreFill, false);
        let seen = evictions.counts().map(|seen| (seen.by, seen.of, seen.reason, seen.lines, seen.unread));
        let wanted = [
            (Owner::Device(15), Owner::Group(3), EvictionReason::DeviceWrite, 2, 0),
            (Owner::Group(0), Owner::Device(0), EvictionReason::MlcVictim, 2, 2),
            (Owner::Group(127), Owner::Group(127), EvictionReason::CoreFill, 1, 0),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn reasons_are_numbered_as_listed() {
        assert!(EvictionReason::ALL.iter().enumerate().all(|(number, reason)| number == *reason as usize));
    }
}
