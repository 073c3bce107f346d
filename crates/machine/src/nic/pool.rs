//! Packet buffers, with the sampled lines of every buffer computed once: a DPDK mempool in huge pages, or a kernel
//! driver's pages.
//! Buffers of a mempool are 37 lines apart: 64-byte object header, two lines of rte_mbuf, two of headroom,
//! 2 KiB of data, padded to an odd number by the mempool (microarchitecture.md 6). A driver's buffer is half a page.

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

/// Lines of the parts of a buffer: the distance of two buffers, the first line of the structure before the data, and
/// the first line of data.
struct Layout {
    stride: u32,
    structure: u32,
    data: u32,
}

/// A buffer's number, and the number of lines before its first sampled ones. Most packets are so known to have no
/// sampled line without a read of the buffer's place, which costs a miss of the L1.
///
/// From the lowest bit: 24 bits of number, 6 bits of data lines before the first sampled one (32 if there is none), and
/// 2 bits of lines of the rte_mbuf structure and what follows it (3 if the fourth is the first or there is none).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Buffer(u32);

const NUMBER_BITS: u32 = 24;
const DATA_BITS: u32 = 6;

impl Buffer {
    pub(crate) const NONE: Buffer = Buffer(0);

    fn new(number: u32, place: Place) -> Buffer {
        let (data, meta) = (place.data_mask.trailing_zeros(), place.meta_mask.trailing_zeros().min(3));
        Buffer(number | data << NUMBER_BITS | meta << (NUMBER_BITS + DATA_BITS))
    }

    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The buffer with these [`Buffer::bits`].
    #[inline(always)]
    pub(super) fn from_bits(bits: u32) -> Buffer {
        Buffer(bits)
    }

    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// True if one of the first `lines` data lines is in the sample.
    #[inline(always)]
    pub(super) fn has_data(self, lines: u8) -> bool {
        (self.0 >> NUMBER_BITS) & ((1 << DATA_BITS) - 1) < u32::from(lines)
    }

    /// False if none of the first `lines` lines of the structure and what follows it is in the sample.
    #[inline(always)]
    pub(super) fn may_have_meta(self, lines: u8) -> bool {
        self.0 >> (NUMBER_BITS + DATA_BITS) < u32::from(lines)
    }

    /// The same buffer in a pool where its number is higher by `moved`.
    pub(super) fn moved(self, moved: u32) -> Buffer {
        Buffer(self.0 + moved)
    }
}

/// Where a buffer's sampled lines are.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// First sampled data line in the pool's list; those of the header part are just before it.
    data_at: u32,
    /// Bit per data line, set if it is in the sample. At most 32 lines.
    data_mask: u32,
    /// Bit per line from the rte_mbuf structure up to the data, set if it is in the sample.
    meta_mask: u32,
}

impl Place {
    const NONE: Place = Place { data_at: 0, data_mask: 0, meta_mask: 0 };

    /// How many of the first `lines` data lines are in the sample.
    #[inline(always)]
    fn sampled(self, lines: u8) -> usize {
        (self.data_mask & first_bits(lines)).count_ones() as usize
    }
}

/// A pool of packet buffers.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    places: Table<Place>,
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
        assert!(buffers <= 1 << NUMBER_BITS, "{buffers} buffers: more than numbers");
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
            places.push(Place { data_at, data_mask, meta_mask });
        }
        let last = lines.last().copied();
        lines.extend(last.into_iter().flat_map(|line| [line; PADDING]));
        Pool { places: Table::new(places, Place::NONE), lines }
    }

    /// The buffer of a number.
    pub(crate) fn buffer(&self, number: u32) -> Buffer {
        Buffer::new(number, self.places[number as usize])
    }

    /// The first `count` buffers.
    pub(super) fn buffers(&self, count: u32) -> Vec<Buffer> {
        (0..count).map(|number| self.buffer(number)).collect()
    }

    /// The sampled lines of all buffers.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines[..self.lines.len().saturating_sub(PADDING)]
    }

    /// The buffers of both pools as one pool, and the offset of the second one's numbers.
    pub(crate) fn joined(first: &Pool, second: &Pool) -> (Pool, u32) {
        let (moved, lines_moved) = (first.places.entries().len() as u32, first.lines.len() as u32);
        let shifted = second
            .places
            .entries()
            .iter()
            .map(|place| Place { data_at: place.data_at + lines_moved, ..*place });
        let places: Vec<Place> = first.places.entries().iter().copied().chain(shifted).collect();
        assert!(places.len() <= 1 << NUMBER_BITS, "{} buffers: more than numbers", places.len());
        let lines = [first.lines.as_slice(), &second.lines].concat();
        (Pool { places: Table::new(places, Place::NONE), lines }, moved)
    }

    #[inline(always)]
    fn place(&self, buffer: Buffer) -> Place {
        self.places[buffer.number() as usize]
    }

    /// How many of the first `lines` data lines of a buffer are in the sample.
    #[inline(always)]
    pub(crate) fn sampled(&self, buffer: Buffer, lines: u8) -> usize {
        self.place(buffer).sampled(lines)
    }

    /// Adds the sampled ones of the first `lines` lines of the rte_mbuf structure and what follows it to a list.
    #[inline(always)]
    pub(crate) fn gather_meta(&self, buffer: Buffer, lines: u8, into: &mut Gather) {
        // Few buffers have one: unlike for a packet's data this branch is predicted well.
        if !buffer.may_have_meta(lines) {
            return;
        }
        let place = self.place(buffer);
        let sampled = (place.meta_mask & first_bits(lines)).count_ones() as usize;
        let from = place.data_at - place.meta_mask.count_ones();
        into.extend(&self.lines[from as usize..], sampled);
    }

    /// Adds the sampled ones of the first `lines` data lines of a buffer to a list.
    #[inline(always)]
    pub(crate) fn gather(&self, buffer: Buffer, lines: u8, into: &mut Gather) {
        let place = self.place(buffer);
        into.extend(&self.lines[place.data_at as usize..], place.sampled(lines));
    }

    /// Adds the sampled ones of the first `lines` data lines without the first `skip` lines.
    #[inline(always)]
    pub(crate) fn gather_behind(&self, buffer: Buffer, skip: u8, lines: u8, into: &mut Gather) {
        let place = self.place(buffer);
        let skipped = place.sampled(skip);
        into.extend(&self.lines[place.data_at as usize + skipped..], place.sampled(lines) - skipped);
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

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_silicon::{ChipSpec, Sampling};

    #[test]
    fn a_buffer_tells_what_its_place_holds() {
        let chip = ChipSpec::built_in("gold-6140").expect("a built-in chip");
        for sampling in [Sampling::EXACT, Sampling::DEFAULT] {
            let mut memory = AddressMap::new(&chip, sampling, 1, 1);
            let first = Pool::new(&mut memory, 300).expect("memory is empty");
            let (joined, moved) =
                Pool::joined(&first, &Pool::new(&mut memory, 300).expect("memory has room"));
            for (number, buffer) in first.buffers(300).into_iter().enumerate() {
                assert_eq!(buffer.number(), number as u32);
                for lines in 0..=32 {
                    assert_eq!(buffer.has_data(lines), first.sampled(buffer, lines) > 0);
                }
                for lines in 0..=4 {
                    let mut found = Gather::new();
                    first.gather_meta(buffer, lines, &mut found);
                    assert!(buffer.may_have_meta(lines) || found.count() == 0);
                    let place = first.place(buffer);
                    assert_eq!(found.count(), (place.meta_mask & first_bits(lines)).count_ones() as usize);
                }
                let second = joined.buffer(moved + number as u32);
                assert_eq!(second.number(), moved + number as u32);
            }
        }
    }
}
