//! The directory (snoop filter) of one LLC set: which MLC holds which line, and in which of its ways.
//!
//! The way lets a device write invalidate an MLC copy without a search. Knows tags and cores; the LLC decides what
//! happens to a line whose entry is removed. Marks: docs/reference/README.md#marks.

use crate::line::LineTag;

/// Core number for "several cores".
const SEVERAL: u8 = u8::MAX;

/// Which MLCs hold a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// One MLC, in this way.
    One {
        /// The core whose MLC it is.
        core: usize,
        /// The way in that MLC.
        way: u32,
    },
    /// More than one.
    Several,
}

/// The entries of one set.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Directory<T> {
    tags: [T; 16],
    core: [u8; 16],
    way: [u8; 16],
}

impl<T: LineTag> Directory<T> {
    pub(crate) const EMPTY: Directory<T> = Directory { tags: [T::NONE; 16], core: [0; 16], way: [0; 16] };

    #[inline(always)]
    fn slot(&self, tag: T) -> Option<usize> {
        let bits = T::equal(&self.tags, tag);
        if bits == 0 { None } else { Some(bits.trailing_zeros() as usize & 15) }
    }

    #[inline(always)]
    fn at(&self, slot: usize) -> Holder {
        match self.core[slot] {
            SEVERAL => Holder::Several,
            core => Holder::One { core: usize::from(core), way: u32::from(self.way[slot]) },
        }
    }

    #[inline(always)]
    pub(crate) fn holder(&self, tag: T) -> Option<Holder> {
        self.slot(tag).map(|slot| self.at(slot))
    }

    #[inline(always)]
    pub(crate) fn holds(&self, tag: T) -> bool {
        T::equal(&self.tags, tag) != 0
    }

    /// Enters a line into a free slot of `mask`; false if there is none.
    #[inline(always)]
    pub(crate) fn add(&mut self, mask: u32, tag: T, core: usize, way: u32) -> bool {
        debug_assert!(self.slot(tag).is_none(), "a line is tracked once");
        let free = T::equal(&self.tags, T::NONE) & mask;
        if free == 0 {
            return false;
        }
        let slot = free.trailing_zeros() as usize & 15;
        self.tags[slot] = tag;
        self.core[slot] = core as u8;
        self.way[slot] = way as u8;
        true
    }

    /// Removes a line's entry and returns its holder.
    #[inline(always)]
    pub(crate) fn remove(&mut self, tag: T) -> Option<Holder> {
        let slot = self.slot(tag)?;
        self.tags[slot] = T::NONE;
        Some(self.at(slot))
    }

    /// Removes the entry of a line that only `core` holds (in `way`); false, and no change, if others hold it too.
    #[inline(always)]
    pub(crate) fn remove_single(&mut self, tag: T, core: usize, way: u32) -> bool {
        let Some(slot) = self.slot(tag) else {
            debug_assert!(false, "every MLC line is tracked");
            return true;
        };
        if self.core[slot] == SEVERAL {
            return false;
        }
        debug_assert_eq!(self.at(slot), Holder::One { core, way });
        self.tags[slot] = T::NONE;
        true
    }

    pub(crate) fn set_single(&mut self, tag: T, core: usize, way: u32) {
        if let Some(slot) = self.slot(tag) {
            self.core[slot] = core as u8;
            self.way[slot] = way as u8;
        }
    }

    pub(crate) fn set_several(&mut self, tag: T) {
        if let Some(slot) = self.slot(tag) {
            self.core[slot] = SEVERAL;
        }
    }

    /// A random one of the entries in `mask`, all of which are in use. Which entry a full directory replaces is not
    /// published (X).
    pub(crate) fn choose(&self, mask: u32, random: u32) -> (T, Holder) {
        let slot = ((u64::from(random) * u64::from(mask.count_ones())) >> 32) as usize & 15;
        (self.tags[slot], self.at(slot))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (T, Holder)> + '_ {
        (0..16).filter(|slot| self.tags[*slot] != T::NONE).map(|slot| (self.tags[slot], self.at(slot)))
    }
}
