//! Lines gathered for one pass over the chip.
//!
//! Whether a line of a packet is in the sample is random, and most packets have none or one: a loop over them
//! mispredicts at every other packet. Gathered without a branch from a whole burst they are one long loop. Knows lines,
//! not what they are for.

use crate::line::Line;

/// Lines that are copied at once, even if fewer are needed. Assumption: changes the speed of a run, never its result.
const CHUNK: usize = 4;

/// Entries needed behind the last line of a list, so that a whole chunk can be read from any line on.
pub const PADDING: usize = CHUNK - 1;

/// A list of lines that is filled, used and cleared repeatedly.
#[derive(Clone, Debug)]
pub struct Gather {
    /// Storage; the first `count` entries are in the list.
    room: Vec<Line>,
    count: usize,
}

impl Gather {
    /// An empty list.
    pub fn new() -> Gather {
        Gather { room: vec![Line::ANY; 64], count: 0 }
    }

    /// Removes all lines.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// The lines.
    #[inline(always)]
    pub fn lines(&self) -> &[Line] {
        &self.room[..self.count]
    }

    /// Number of lines.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the first `count` lines.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
    }

    /// Adds a line.
    #[inline(always)]
    pub fn push(&mut self, line: Line) {
        if self.count == self.room.len() {
            self.grow(1);
        }
        self.room[self.count] = line;
        self.count += 1;
    }

    /// Adds the first `count` of `lines`, which should have [`PADDING`] more behind them.
    ///
    /// # Panics
    /// If there are fewer than `count`.
    #[inline(always)]
    pub fn extend(&mut self, lines: &[Line], count: usize) {
        if self.room.len() < self.count + count.max(CHUNK) {
            self.grow(count + CHUNK);
        }
        let room = &mut self.room[self.count..];
        match (lines.first_chunk::<CHUNK>(), room.first_chunk_mut::<CHUNK>()) {
            (Some(from), Some(to)) if count <= CHUNK => *to = *from,
            _ => room[..count].copy_from_slice(&lines[..count]),
        }
        self.count += count;
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        self.room.resize((self.room.len() + more).next_power_of_two(), Line::ANY);
    }
}

impl Default for Gather {
    fn default() -> Gather {
        Gather::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LineTag;
    use proptest::prelude::*;

    fn line(tag: u16) -> Line {
        u16::pack(tag.into(), 1, 2)
    }

    proptest! {
        /// The list equals a plain list, whatever the sizes added.
        #[test]
        fn it_is_a_list(steps in proptest::collection::vec((0usize..12, any::<bool>()), 0..200)) {
            let source: Vec<Line> = (0..12 + PADDING as u16).map(line).collect();
            let (mut gather, mut list) = (Gather::new(), Vec::new());
            for (count, single) in steps {
                if single {
                    gather.push(line(count as u16));
                    list.push(line(count as u16));
                } else {
                    gather.extend(&source, count);
                    list.extend_from_slice(&source[..count]);
                }
                prop_assert_eq!(gather.lines(), &list[..]);
            }
            gather.clear();
            prop_assert_eq!(gather.count(), 0);
        }
    }
}
