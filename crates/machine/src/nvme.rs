//! An NVMe queue pair as memory: commands that the device reads, completions that it writes.
//!
//! A command is a 64-B entry that the core writes and the device reads; a completion is a 16-B entry that the device
//! writes into a part of a line and the core reads. A transfer over more than two pages has a list of pages (PRP list,
//! NVMe 1.1 s4.3) that the device reads too. Knows lines; must not know what the commands are for or what they cost:
//! the program pays a fixed price per command, which includes this.

use crate::bus::Memory;
use crate::ssd::Array;
use waykeeper_load::{COMMAND_BYTES, COMPLETION_BYTES};
use waykeeper_silicon::{AddressMap, Fill, Line, OutOfMemory, Region};

/// Entries of each ring: the Linux driver's number (NVME_Q_DEPTH).
const ENTRIES: u32 = 1024;
/// Completions that share a line: 16 B each. algorithms.md 7.4.
const COMPLETIONS_PER_LINE: u32 = 4;
/// Entries of a list of pages that share a line: 8 B each. NVM Express base specification: a PRP entry.
const LIST_ENTRIES_PER_LINE: u32 = 8;
/// Lines of a page.
const PAGE_LINES: u32 = 64;

/// The rings of one queue, and a page for the lists of each slot.
#[derive(Clone, Debug)]
pub(crate) struct Rings {
    submission: Region,
    completion: Region,
    lists: Region,
    sent: u32,
    done: u32,
}

impl Rings {
    /// Rings for a queue with `slots` commands in flight.
    pub(crate) fn new(memory: &mut AddressMap, slots: u32) -> Result<Rings, OutOfMemory> {
        Ok(Rings {
            submission: memory.ordinary(u64::from(ENTRIES) * COMMAND_BYTES)?,
            completion: memory.ordinary(u64::from(ENTRIES) * COMPLETION_BYTES)?,
            lists: memory.ordinary(u64::from(slots) * 4096)?,
            sent: 0,
            done: 0,
        })
    }

    /// `core` writes a command whose data lie on `pages` pages, and the device fetches it.
    pub(crate) fn send(
        &mut self,
        memory: &mut Memory,
        array: &mut Array,
        core: usize,
        slot: u32,
        pages: u32,
    ) {
        let entry = self.sent % ENTRIES;
        self.sent = self.sent.wrapping_add(1);
        fetch(memory, array.device, core, sampled(&self.submission, entry, 1));
        let list = list_lines(pages);
        fetch(memory, array.device, core, sampled(&self.lists, slot * PAGE_LINES, list));
        array.control.reads += u64::from(1 + list);
        array.control.lists += u64::from(list);
    }

    /// The device writes a completion, and `core` sees it.
    pub(crate) fn complete(&mut self, memory: &mut Memory, array: &mut Array, core: usize) {
        let line = self.done % ENTRIES / COMPLETIONS_PER_LINE;
        self.done = self.done.wrapping_add(1);
        for line in sampled(&self.completion, line, 1) {
            memory.chip.dma_write_partial(array.device, *line);
            memory.chip.read(core, *line, Fill::Ordinary);
        }
        array.control.writes += 1;
    }
}

/// Lines of the list for data on `pages` pages: a command holds up to two; for more, it holds the first one and the
/// list holds the others.
fn list_lines(pages: u32) -> u32 {
    if pages > 2 { (pages - 1).div_ceil(LIST_ENTRIES_PER_LINE) } else { 0 }
}

fn sampled(region: &Region, from: u32, count: u32) -> &[Line] {
    &region.lines()[region.range(from, from + count)]
}

fn fetch(memory: &mut Memory, device: usize, core: usize, lines: &[Line]) {
    for line in lines {
        memory.chip.write(core, *line, Fill::Ordinary);
        memory.chip.dma_read(device, *line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Bus;
    use crate::random::Stream;
    use crate::ssd::ArraySpec;
    use waykeeper_silicon::{Chip, ChipSpec, Sampling};

    #[test]
    fn two_pages_stand_in_a_command_and_more_in_a_list() {
        // 3 pages: 2 entries of 8 B in one line. 32: 31 entries, 248 B in four lines. 33: 32 entries, 256 B.
        assert_eq!([0, 1, 2, 3, 9, 10, 32, 33, 34].map(list_lines), [0, 0, 0, 1, 1, 2, 4, 4, 5]);
    }

    #[test]
    fn a_command_is_read_whole_and_a_completion_written_in_part() {
        let spec = ChipSpec::built_in("e5-2630v3").unwrap();
        let mut map = AddressMap::new(&spec, Sampling::EXACT, 1, 1);
        let mut bus = Bus::new(&spec, Chip::new(&spec, Sampling::EXACT, 1));
        let mut array = Array::new(0, ArraySpec::default(), Stream::new(1, "ssd"));
        let mut rings = Rings::new(&mut map, 2).unwrap();
        for _ in 0..8 {
            rings.send(&mut bus.memory, &mut array, 0, 1, 33);
            rings.complete(&mut bus.memory, &mut array, 0);
        }
        // A command and four lines of its list each; the core wrote them just now, so the caches serve them.
        let seen = bus.memory.chip.device_counters(0);
        assert_eq!((seen.read_hits, seen.read_misses), (40, 0));
        // Four completions a line: the first of each line misses, three hit.
        assert_eq!((seen.partial_hits, seen.partial_misses), (6, 2));
        assert_eq!((seen.write_hits, seen.write_misses, seen.writes_uncached), (0, 0, 0));
        assert_eq!((array.control.reads, array.control.writes), (40, 8));
    }
}
