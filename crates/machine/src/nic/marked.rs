//! Packets whose buffers have sampled lines, noted while packets arrive or leave, and looked up afterwards.
//!
//! Whether a packet has sampled lines is random: a branch on it would be mispredicted. So each packet is written to the
//! list, and the count grows only for those with sampled lines. Knows buffers, not their content.

use super::pool::{Buffer, Pool};
use waykeeper_silicon::Gather;

/// Room of a new list. Assumption: a turn has fewer packets; the list grows if it has more.
const ROOM: usize = 256;

/// A list of packets, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    /// Storage; the first `count` entries are in the list.
    room: Vec<Mark>,
    count: usize,
}

/// One packet, in one word: a buffer, data lines from bit 32 on, a queue from bit 40 on.
#[derive(Clone, Copy, Debug)]
struct Mark(u64);

impl Mark {
    #[inline(always)]
    fn new(queue: u32, buffer: Buffer, lines: u8) -> Mark {
        Mark(u64::from(buffer.bits()) | u64::from(lines) << 32 | u64::from(queue) << 40)
    }

    #[inline(always)]
    fn queue(self) -> usize {
        (self.0 >> 40) as usize
    }

    #[inline(always)]
    fn lines(self) -> u8 {
        (self.0 >> 32) as u8
    }

    #[inline(always)]
    fn buffer(self) -> Buffer {
        Buffer::from_bits(self.0 as u32)
    }
}

impl Marked {
    /// An empty list.
    pub(crate) fn new() -> Marked {
        Marked { room: vec![Mark(0); ROOM], count: 0 }
    }

    /// Adds the first `lines` data lines of a buffer of `queue` if one of them is in the sample.
    #[inline(always)]
    pub(crate) fn note(&mut self, queue: u32, buffer: Buffer, lines: u8) {
        if self.count == self.room.len() {
            self.grow();
        }
        self.room[self.count] = Mark::new(queue, buffer, lines);
        self.count += usize::from(buffer.has_data(lines));
    }

    /// Moves the sampled lines of all packets to `into` and empties the list. `pool_of` returns the pool of a queue.
    #[inline(always)]
    pub(crate) fn gather<'a>(&mut self, pool_of: impl Fn(usize) -> &'a Pool, into: &mut Gather) {
        for mark in &self.room[..self.count] {
            pool_of(mark.queue()).gather(mark.buffer(), mark.lines(), into);
        }
        self.count = 0;
    }

    #[cold]
    fn grow(&mut self) {
        self.room.resize(2 * self.room.len(), self.room[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_silicon::{AddressMap, ChipSpec, Sampling};

    #[test]
    fn sampled_lines_come_in_the_order_of_the_packets() {
        let chip = ChipSpec::built_in("gold-6140").expect("a built-in chip");
        let mut memory = AddressMap::new(&chip, Sampling::DEFAULT, 1, 1);
        let pools = [0, 1].map(|_| Pool::new(&mut memory, 500).expect("memory is empty"));
        let (mut marked, mut lines, mut expected) = (Marked::new(), Gather::new(), Gather::new());
        // More packets than a new list has room for, of both queues in turn and of several sizes.
        for number in 0..1000u32 {
            let (queue, size) = (number % 2, (number % 33) as u8);
            let pool = &pools[queue as usize];
            let buffer = pool.buffer(number / 2);
            marked.note(queue, buffer, size);
            pool.gather(buffer, size, &mut expected);
        }
        assert!(marked.count > ROOM && marked.count < 1000, "{}", marked.count);
        marked.gather(|queue| &pools[queue], &mut lines);
        assert_eq!(lines.lines(), expected.lines());
        assert_eq!(marked.count, 0);
    }
}
