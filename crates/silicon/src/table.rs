//! A table whose length is a power of two, so that an index into it is masked instead of checked.
//!
//! The hot path indexes by numbers that are in range by construction (a core, the place of a line's set). A
//! check there costs three instructions and a register, a mask one instruction. A wrong index finds a wrong
//! entry but never leaves the table.

use std::ops::{Index, IndexMut};

/// A fixed number of entries, rounded up to a power of two.
#[derive(Clone, Debug)]
pub struct Table<T> {
    entries: Box<[T]>,
    /// `entries.len() - 1`; the length is a power of two and never changes.
    mask: usize,
}

impl<T: Clone> Table<T> {
    /// The given entries; the rest up to the next power of two is filled with `rest`.
    pub fn new(mut entries: Vec<T>, rest: T) -> Table<T> {
        entries.resize(entries.len().next_power_of_two(), rest);
        Table { mask: entries.len() - 1, entries: entries.into_boxed_slice() }
    }

    /// At least `count` equal entries.
    pub fn filled(count: usize, entry: T) -> Table<T> {
        Table::new(vec![entry.clone(); count], entry)
    }
}

impl<T> Table<T> {
    /// Every entry, with those that fill up to the power of two.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    /// The same entries, mutable.
    pub fn entries_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }

    /// The index masked to the table's length.
    #[inline(always)]
    pub(crate) fn masked(&self, index: usize) -> usize {
        index & self.mask
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        debug_assert!(index <= self.mask);
        // SAFETY: `mask` is the length minus one and the length is at least one, so the masked index is below it.
        unsafe { self.entries.get_unchecked(index & self.mask) }
    }
}

impl<T> IndexMut<usize> for Table<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: usize) -> &mut T {
        debug_assert!(index <= self.mask);
        // SAFETY: as in `index`.
        unsafe { self.entries.get_unchecked_mut(index & self.mask) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_and_entries_kept() {
        let mut table = Table::new(vec![1, 2, 3], 9);
        assert_eq!(table.entries(), [1, 2, 3, 9]);
        table[1] = 7;
        assert_eq!((table[1], table[2]), (7, 3));
        assert_eq!(Table::filled(0, 5).entries(), [5]);
    }
}
