//! Entries of a queue's rings in memory: completions and descriptors, one or several to a line, and the positions of
//! the NIC and of the core that works on the queue.
//!
//! An entry's index starts again at 0 when the ring wraps; its number counts on. Knows lines and numbers of entries, not
//! their content.

use super::pool::entry_lines;
use waykeeper_silicon::{AddressMap, Gather, Line, OutOfMemory};

/// A ring of entries in memory. The NIC and the worker, a core's receive loop, each advance through it. Only entries that
/// begin a sampled line matter, and these are few: each of the two knows its next one.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    /// Entries of the whole allocation that begin a sampled line, ascending, and these lines.
    all: Vec<(u32, Line)>,
    /// Those of the ring at its present size.
    sampled: Vec<(u32, Line)>,
    ring: u64,
    nic: Cursor,
    worker: Cursor,
}

/// Position of one of the two.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Place of the next sampled entry in the list, and the entry's number; `u64::MAX` if no entry is sampled.
    next: usize,
    number: u64,
}

impl Entries {
    /// A ring of `entries` entries of so many bytes.
    pub(super) fn new(
        memory: &mut AddressMap,
        entries: u32,
        entry_bytes: u32,
    ) -> Result<Entries, OutOfMemory> {
        let all = entry_lines(memory, entries, entry_bytes)?;
        let start = Cursor::at(&all, u64::from(entries), 0);
        Ok(Entries { sampled: all.clone(), all, ring: u64::from(entries), nic: start, worker: start })
    }

    /// Continues with the first `entries` entries; `nic` and `worker` are the numbers up to which the two have
    /// advanced.
    pub(super) fn resize(&mut self, entries: u32, nic: u64, worker: u64) {
        self.ring = u64::from(entries);
        self.sampled = self.all.iter().copied().filter(|(entry, _)| *entry < entries).collect();
        self.nic = Cursor::at(&self.sampled, self.ring, nic);
        self.worker = Cursor::at(&self.sampled, self.ring, worker);
    }

    /// Adds the lines that the NIC touches on its way up to the entry with this number.
    #[inline(always)]
    pub(super) fn nic_up_to(&mut self, number: u64, into: &mut Gather) {
        self.nic.up_to(&self.sampled, self.ring, number, into);
    }

    /// The same for the worker.
    #[inline(always)]
    pub(super) fn worker_up_to(&mut self, number: u64, into: &mut Gather) {
        self.worker.up_to(&self.sampled, self.ring, number, into);
    }
}

impl Cursor {
    /// The cursor at the first sampled entry whose number is not below `passed`.
    fn at(sampled: &[(u32, Line)], ring: u64, passed: u64) -> Cursor {
        let Some(first) = sampled.first() else {
            return Cursor { next: 0, number: u64::MAX };
        };
        let (round, within) = (passed - passed % ring, passed % ring);
        match sampled.iter().position(|(entry, _)| u64::from(*entry) >= within) {
            Some(next) => Cursor { next, number: round + u64::from(sampled[next].0) },
            None => Cursor { next: 0, number: round + ring + u64::from(first.0) },
        }
    }

    /// Adds the lines of the sampled entries before `number` that it has not passed yet, and passes them.
    #[inline(always)]
    fn up_to(&mut self, sampled: &[(u32, Line)], ring: u64, number: u64, into: &mut Gather) {
        while self.number < number {
            into.push(sampled[self.next].1);
            let round = self.number - u64::from(sampled[self.next].0);
            self.next = if self.next + 1 < sampled.len() { self.next + 1 } else { 0 };
            let next_round = if self.next == 0 { round + ring } else { round };
            self.number = next_round + u64::from(sampled[self.next].0);
        }
    }
}
