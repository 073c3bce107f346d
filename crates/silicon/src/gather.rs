//! Lines gathered for one pass over the chip.
//!
//! How many lines of a packet are in the sample is luck, none or one mostly: a loop over them mispredicts at
//! every other packet. Gathered without a branch from a whole burst they are one long loop. Knows lines, not what
//! they are for.

use crate::line::Line;

/// Lines that are copied at once, wanted or not. Assumption: changes the speed of a run, never its result.
const CHUNK: usize = 4;

/// Entries that a list of lines needs behind its last one, so that a whole chunk can be read from any of them.
pub const PADDING: usize = CHUNK - 1;

/// A list of lines that is filled, used and cleared over and over.
#[derive(Clone, Debug)]
pub struct Gather {
    /// Room; the first `count` entries are in the list.
    room: Vec<Line>,
    count: usize,
}

impl Gather {
    /// An empty list.
    pub fn new() -> Gather {
        Gather { room: vec![Line::ANY; 64], count: 0 }
    }

    /// Empties it.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Lines in it.
    #[inline(always)]
    pub fn lines(&self) -> &[Line] {
        &self.room[..self.count]
    }

    /// How many these are.
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
    /// If there are not as many.
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
    use proptest::prelude::*;

    fn line(tag: u16) -> Line {
        Line::pack(tag, 1, 2)
    }

    proptest! {
        /// It behaves as a plain list would, however lines come.
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
