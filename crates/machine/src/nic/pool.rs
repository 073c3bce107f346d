//! Packet buffers: a DPDK mempool in huge pages, with the sampled lines of every buffer worked out once.
//!
//! A buffer is 37 lines apart from the next: 64-byte object header, two lines of rte_mbuf, two of headroom,
//! 2 KiB of data, padded odd by the mempool (microarchitecture.md 6).

use waykeeper_silicon::{AddressMap, Chip, Line, OutOfMemory, Table};
use waykeeper_units::LINE_BYTES;

/// Lines from one buffer to the next.
const STRIDE_LINES: u32 = 37;
/// Lines before the packet's first byte.
const DATA_LINE: u32 = 5;
/// First line of the rte_mbuf structure.
const MBUF_LINE: u32 = 1;
/// Bytes of packet data a buffer holds.
pub(crate) const BUFFER_BYTES: u32 = 2048;

/// Where the sampled lines of one buffer are, and which of its lines they are.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// First sampled data line in `lines`; the header part's stand just before it.
    data_at: u32,
    /// Bit per data line: it is in the sample. At most 32 of them.
    data_mask: u32,
    /// Bit per line from the rte_mbuf structure up to the data: likewise.
    meta_mask: u32,
}

/// A pool of packet buffers.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    buffers: Table<Buffer>,
    lines: Vec<Line>,
}

impl Pool {
    pub(crate) fn new(memory: &mut AddressMap, buffers: u32) -> Result<Pool, OutOfMemory> {
        let region = memory.huge(u64::from(buffers * STRIDE_LINES) * LINE_BYTES)?;
        let (mut places, mut lines) = (Vec::with_capacity(buffers as usize), Vec::new());
        for buffer in 0..buffers {
            let start = buffer * STRIDE_LINES;
            let mut part = |from: u32, to: u32| {
                let range = region.range(start + from, start + to);
                lines.extend_from_slice(&region.lines()[range.clone()]);
                region.offsets()[range].iter().fold(0u32, |mask, offset| mask | 1 << (offset - start - from))
            };
            let meta_mask = part(MBUF_LINE, DATA_LINE);
            let data_mask = part(DATA_LINE, STRIDE_LINES);
            let data_at = lines.len() as u32 - data_mask.count_ones();
            places.push(Buffer { data_at, data_mask, meta_mask });
        }
        let none = Buffer { data_at: 0, data_mask: 0, meta_mask: 0 };
        Ok(Pool { buffers: Table::new(places, none), lines })
    }

    /// Sampled lines of the first `lines` data lines of a buffer.
    #[inline(always)]
    pub(crate) fn data(&self, buffer: u32, lines: u32) -> &[Line] {
        let Buffer { data_at, data_mask, .. } = self.buffers[buffer as usize];
        let count = (data_mask & first_bits(lines)).count_ones() as usize;
        &self.lines[data_at as usize..data_at as usize + count]
    }

    /// Sampled lines of the first `lines` lines of the rte_mbuf structure and what follows it.
    #[inline(always)]
    pub(crate) fn meta(&self, buffer: u32, lines: u32) -> &[Line] {
        let Buffer { data_at, meta_mask, .. } = self.buffers[buffer as usize];
        let from = (data_at - meta_mask.count_ones()) as usize;
        let count = (meta_mask & first_bits(lines)).count_ones() as usize;
        &self.lines[from..from + count]
    }

    /// Hints that the lines of a buffer will be asked for soon.
    #[inline(always)]
    pub(crate) fn prefetch_data(&self, chip: &Chip, buffer: u32, lines: u32) {
        if !chip.is_large() {
            return;
        }
        for line in self.data(buffer, lines) {
            chip.prefetch_llc(*line);
        }
    }
}

/// The low `count` bits, of 32 at most.
#[inline(always)]
fn first_bits(count: u32) -> u32 {
    debug_assert!(count <= 32);
    ((1u64 << (count & 63)) - 1) as u32
}

/// The sampled lines of an array of equal entries, one or several to a line: for each entry that starts a line,
/// the line if the sample has it. Worked out once; rings keep the answers beside what they ask them for.
pub(crate) fn entry_lines(
    memory: &mut AddressMap,
    entries: u32,
    entry_bytes: u32,
) -> Result<Vec<Option<Line>>, OutOfMemory> {
    let region = memory.huge(u64::from(entries) * u64::from(entry_bytes))?;
    let per_line = LINE_BYTES as u32 / entry_bytes;
    let mut lines = vec![None; entries as usize];
    for (line, offset) in region.lines().iter().zip(region.offsets()) {
        lines[(offset * per_line) as usize] = Some(*line);
    }
    Ok(lines)
}
