//! Packet buffers, with the sampled lines of every buffer worked out once: a DPDK mempool in huge pages, or a kernel
//! driver's pages.
//!
//! A mempool's buffer is 37 lines apart from the next: 64-byte object header, two lines of rte_mbuf, two of headroom,
//! 2 KiB of data, padded odd by the mempool (microarchitecture.md 6). A
//! driver's buffer is half a page.

use super::page_pool::HALF_PAGE_BYTES;
use waykeeper_silicon::{AddressMap, Gather, Line, OutOfMemory, PADDING, Region, Table};
use waykeeper_units::LINE_BYTES;

/// Lines from one buffer to the next. microarchitecture.md 6: the mempool pads it to an odd number.
const STRIDE_LINES: u32 = 37;
/// Lines before the packet's first byte. microarchitecture.md 6: one of header, two of structure, two of headroom.
const DATA_LINE: u32 = 5;
/// First line of the rte_mbuf structure. microarchitecture.md 6: behind the 64-byte header.
const MBUF_LINE: u32 = 1;
/// Bytes of packet data a buffer holds. microarchitecture.md 6.
pub(crate) const BUFFER_BYTES: u32 = 2048;

/// Lines of the parts of a buffer: from one buffer to the next, where the structure before the data begins, and where
/// the data does.
struct Layout {
    stride: u32,
    structure: u32,
    data: u32,
}

/// A buffer and where its sampled lines are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub buffer: u32,
    /// First sampled data line in the pool's list; the header part's stand just before it.
    data_at: u32,
    /// Bit per data line: it is in the sample. At most 32 of them.
    data_mask: u32,
    /// Bit per line from the rte_mbuf structure up to the data: likewise.
    meta_mask: u32,
}

impl Place {
    pub(crate) const NONE: Place = Place { buffer: 0, data_at: 0, data_mask: 0, meta_mask: 0 };

    /// How many of the first `lines` data lines are in the sample.
    #[inline(always)]
    pub(crate) fn sampled(self, lines: u8) -> u8 {
        (self.data_mask & first_bits(lines)).count_ones() as u8
    }
}

/// A pool of packet buffers.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    buffers: Table<Place>,
    /// The lines of all buffers, and [`PADDING`].
    lines: Vec<Line>,
}

impl Pool {
    pub(crate) fn new(memory: &mut AddressMap, buffers: u32) -> Result<Pool, OutOfMemory> {
        let region = memory.huge(u64::from(buffers * STRIDE_LINES) * LINE_BYTES)?;
        let layout = Layout { stride: STRIDE_LINES, structure: MBUF_LINE, data: DATA_LINE };
        Ok(Pool::laid_out(&region, buffers, &layout))
    }

    /// Buffers of half a page each in ordinary memory, without any structure before the data.
    pub(crate) fn pages(memory: &mut AddressMap, buffers: u32) -> Result<Pool, OutOfMemory> {
        let region = memory.ordinary(u64::from(buffers) * u64::from(HALF_PAGE_BYTES))?;
        let layout = Layout { stride: HALF_PAGE_BYTES / LINE_BYTES as u32, structure: 0, data: 0 };
        Ok(Pool::laid_out(&region, buffers, &layout))
    }

    fn laid_out(region: &Region, buffers: u32, layout: &Layout) -> Pool {
        let (mut places, mut lines) = (Vec::with_capacity(buffers as usize), Vec::new());
        for buffer in 0..buffers {
            let start = buffer * layout.stride;
            let mut part = |from: u32, to: u32| {
                let range = region.range(start + from, start + to);
                lines.extend_from_slice(&region.lines()[range.clone()]);
                region.offsets()[range].iter().fold(0u32, |mask, offset| mask | 1 << (offset - start - from))
            };
            let meta_mask = part(layout.structure, layout.data);
            let data_mask = part(layout.data, layout.stride);
            let data_at = lines.len() as u32 - data_mask.count_ones();
            places.push(Place { buffer, data_at, data_mask, meta_mask });
        }
        let last = lines.last().copied();
        lines.extend(last.into_iter().flat_map(|line| [line; PADDING]));
        Pool { buffers: Table::new(places, Place::NONE), lines }
    }

    /// The sampled lines of all buffers.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines[..self.lines.len().saturating_sub(PADDING)]
    }

    /// Both pools' buffers as one, and how far the second one's numbers moved up.
    pub(crate) fn joined(first: &Pool, second: &Pool) -> (Pool, u32) {
        let (moved, lines_moved) = (first.buffers.entries().len() as u32, first.lines.len() as u32);
        let shifted = second.buffers.entries().iter().map(|place| Place {
            buffer: place.buffer + moved,
            data_at: place.data_at + lines_moved,
            ..*place
        });
        let places = first.buffers.entries().iter().copied().chain(shifted).collect();
        let lines = [first.lines.as_slice(), &second.lines].concat();
        (Pool { buffers: Table::new(places, Place::NONE), lines }, moved)
    }

    /// Where a buffer is.
    #[inline(always)]
    pub(crate) fn place(&self, buffer: u32) -> Place {
        self.buffers[buffer as usize]
    }

    /// Adds the sampled ones of the first `lines` lines of the rte_mbuf structure and what follows it to a list.
    #[inline(always)]
    pub(crate) fn gather_meta(&self, place: Place, lines: u8, into: &mut Gather) {
        let sampled = place.meta_mask & first_bits(lines);
        // Few buffers have one: unlike a packet's data this is a branch that is mostly foreseen.
        if sampled != 0 {
            let from = place.data_at - place.meta_mask.count_ones();
            into.extend(&self.lines[from as usize..], sampled.count_ones() as usize);
        }
    }

    /// Adds the first `count` sampled data lines of a buffer to a list.
    #[inline(always)]
    pub(crate) fn gather(&self, place: Place, count: u8, into: &mut Gather) {
        into.extend(&self.lines[place.data_at as usize..], usize::from(count));
    }
}

/// The sampled data lines behind the first few.
impl Pool {
    /// Adds those of the first `count` sampled data lines of a buffer that come after the first `skip` of them.
    #[inline(always)]
    pub(crate) fn gather_behind(&self, place: Place, skip: u8, count: u8, into: &mut Gather) {
        into.extend(&self.lines[place.data_at as usize + usize::from(skip)..], usize::from(count - skip));
    }
}

/// The low `count` bits, of 32 at most.
#[inline(always)]
fn first_bits(count: u8) -> u32 {
    debug_assert!(count <= 32);
    ((1u64 << (count & 63)) - 1) as u32
}

/// The sampled lines of an array of equal entries, one or several to a line, each with the entry that begins it,
/// ascending.
pub(crate) fn entry_lines(
    memory: &mut AddressMap,
    entries: u32,
    entry_bytes: u32,
) -> Result<Vec<(u32, Line)>, OutOfMemory> {
    let region = memory.huge(u64::from(entries) * u64::from(entry_bytes))?;
    let per_line = LINE_BYTES as u32 / entry_bytes;
    Ok(region.offsets().iter().map(|offset| offset * per_line).zip(region.lines().iter().copied()).collect())
}
