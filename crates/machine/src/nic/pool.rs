//! Packet buffers: a DPDK mempool in huge pages, with the sampled lines of every buffer worked out once.
//!
//! A buffer is 37 lines apart from the next: 64-byte object header, two lines of rte_mbuf, two of headroom,
//! 2 KiB of data, padded odd by the mempool (microarchitecture.md 6).

use waykeeper_silicon::{AddressMap, Line, OutOfMemory};
use waykeeper_units::LINE_BYTES;

/// Lines from one buffer to the next.
const STRIDE_LINES: u32 = 37;
/// Lines before the packet's first byte.
const DATA_LINE: u32 = 5;
/// First line of the rte_mbuf structure.
const MBUF_LINE: u32 = 1;
/// Bytes of packet data a buffer holds.
pub(crate) const BUFFER_BYTES: u32 = 2048;

/// A pool of packet buffers.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Per buffer: where its lines start in `lines`; one more at the end.
    first: Vec<u32>,
    /// Per buffer: where its data lines start.
    data: Vec<u32>,
    lines: Vec<Line>,
    /// Line number within the buffer's data, or within its header part.
    offset: Vec<u8>,
}

impl Pool {
    pub(crate) fn new(memory: &mut AddressMap, buffers: u32) -> Result<Pool, OutOfMemory> {
        let region = memory.huge(u64::from(buffers * STRIDE_LINES) * LINE_BYTES)?;
        let mut pool = Pool { first: vec![0], data: Vec::new(), lines: Vec::new(), offset: Vec::new() };
        for buffer in 0..buffers {
            let start = buffer * STRIDE_LINES;
            let split = region.range(start, start + DATA_LINE);
            let all = region.range(start, start + STRIDE_LINES);
            pool.data.push(split.end as u32);
            for at in all.clone() {
                let within = region.offsets()[at] - start;
                let offset = if within < DATA_LINE { within } else { within - DATA_LINE };
                pool.lines.push(region.lines()[at]);
                pool.offset.push(offset as u8);
            }
            pool.first.push(all.end as u32);
        }
        Ok(pool)
    }

    pub(crate) fn buffers(&self) -> u32 {
        self.data.len() as u32
    }

    /// Sampled lines of the first `lines` data lines of a buffer.
    #[inline(always)]
    pub(crate) fn data(&self, buffer: u32, lines: u32) -> &[Line] {
        let from = self.data[buffer as usize] as usize;
        let to = self.first[buffer as usize + 1] as usize;
        let count = self.offset[from..to].iter().take_while(|offset| u32::from(**offset) < lines).count();
        &self.lines[from..from + count]
    }

    /// Sampled lines of the first `lines` lines of the rte_mbuf structure and what follows it.
    #[inline(always)]
    pub(crate) fn meta(&self, buffer: u32, lines: u32) -> &[Line] {
        let from = self.first[buffer as usize] as usize;
        let to = self.data[buffer as usize] as usize;
        let offsets = &self.offset[from..to];
        let skip = offsets.iter().take_while(|offset| u32::from(**offset) < MBUF_LINE).count();
        let end = offsets.iter().take_while(|offset| u32::from(**offset) < MBUF_LINE + lines).count();
        &self.lines[from + skip..from + end]
    }
}

/// An array of equal entries, several to a line: completion or descriptor rings.
#[derive(Clone, Debug)]
pub(crate) struct EntryRing {
    /// Per line: its handle if the sample has it.
    lines: Vec<Option<Line>>,
    per_line: u32,
}

impl EntryRing {
    pub(crate) fn new(
        memory: &mut AddressMap,
        entries: u32,
        entry_bytes: u32,
    ) -> Result<EntryRing, OutOfMemory> {
        let region = memory.huge(u64::from(entries) * u64::from(entry_bytes))?;
        let mut lines = vec![None; region.total_lines() as usize];
        for (line, offset) in region.lines().iter().zip(region.offsets()) {
            lines[*offset as usize] = Some(*line);
        }
        Ok(EntryRing { lines, per_line: (LINE_BYTES as u32 / entry_bytes).max(1) })
    }

    /// The line of an entry, if the sample has it.
    #[inline(always)]
    pub(crate) fn line(&self, entry: u32) -> Option<Line> {
        self.lines[(entry / self.per_line) as usize]
    }

    /// True if this entry is the first of its line.
    #[inline(always)]
    pub(crate) fn starts_line(&self, entry: u32) -> bool {
        entry.is_multiple_of(self.per_line)
    }
}
