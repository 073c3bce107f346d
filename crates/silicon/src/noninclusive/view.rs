//! The lines of a non-inclusive LLC for tests: every resident line once, with its place.
//!
//! Knows the layout; never on the hot path.

use super::NonInclusive;
use crate::audit::Resident;
use crate::directory::Holder;
use crate::line::{Line, LineTag};

impl<T: LineTag, const L: usize> NonInclusive<T, L> {
    pub(crate) fn residents(&self) -> impl Iterator<Item = Resident> + '_ {
        self.sets.entries().iter().enumerate().flat_map(move |(at, set)| {
            (0..L as u32)
                .filter(move |way| set.ways.tag(*way) != T::NONE)
                .map(move |way| Resident::new(self.line_at(at, set.ways.tag(way)), way, set.ways.state(way)))
        })
    }

    pub(crate) fn tracked(&self) -> impl Iterator<Item = (Line, Holder)> + '_ {
        self.sets.entries().iter().enumerate().flat_map(move |(at, set)| {
            set.directory.entries().map(move |(tag, holder)| (self.line_at(at, tag), holder))
        })
    }

    fn line_at(&self, at: usize, tag: T) -> Line {
        tag.at_llc_place(at, self.places)
    }
}
