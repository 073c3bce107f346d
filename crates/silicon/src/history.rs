//! Lines that left a set not long ago, by their tags: a miss on one of them proves reuse.
//!
//! A cache that keeps more tags than data sees reuse at a distance at which it no longer has the data (Albericio et al., The
//! Reuse Cache, MICRO 2013). Which structure does it on a real chip is not published; that reuse is recognised is
//! measured (docs/real-chip.md). Knows sets and tags; must not know why a line left.

use crate::line::LineTag;
use crate::table::Table;

/// Most tags that are remembered per set.
pub(crate) const MOST: usize = 16;

/// The tags of each set, the latest first.
#[derive(Clone, Debug)]
pub(crate) struct History<T> {
    sets: Table<[T; MOST]>,
    depth: usize,
}

impl<T: LineTag> History<T> {
    /// For so many sets; `None` if nothing is to be remembered.
    pub(crate) fn new(sets: usize, depth: u32) -> Option<History<T>> {
        let depth = (depth as usize).min(MOST);
        (depth > 0).then(|| History { sets: Table::filled(sets, [T::NONE; MOST]), depth })
    }

    /// A line has left the set.
    pub(crate) fn remember(&mut self, set: usize, tag: T) {
        let tags = &mut self.sets[set][..self.depth];
        let last = tags.iter().position(|held| *held == tag).unwrap_or(tags.len() - 1);
        tags[..=last].rotate_right(1);
        tags[0] = tag;
    }

    /// Whether the line left the set not long ago. It is forgotten.
    pub(crate) fn forget(&mut self, set: usize, tag: T) -> bool {
        let tags = &mut self.sets[set][..self.depth];
        let Some(at) = tags.iter().position(|held| *held == tag) else { return false };
        tags[at..].rotate_left(1);
        tags[self.depth - 1] = T::NONE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_tags_are_remembered_each_once_until_they_are_asked_for() {
        let mut history = History::<u16>::new(2, 3).unwrap();
        for tag in [1, 2, 3, 2, 4] {
            history.remember(1, tag);
        }
        // 1 was the oldest of four; 2 is there once.
        assert_eq!([1, 2, 3, 4].map(|tag| history.forget(1, tag)), [false, true, true, true]);
        assert!(!history.forget(1, 2) && !history.forget(0, 4));
        history.remember(1, 7);
        assert!(history.forget(1, 7));
        assert!(History::<u16>::new(2, 0).is_none());
    }
}
