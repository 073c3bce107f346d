//! Free physical memory: pages of 2 MiB, and frames of 4 KiB of pages that were opened for them.
//!
//! Must not know lines, sets or slices.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// 4-KiB frames in a 2-MiB page.
const PAGE_FRAMES: u32 = 512;

/// What is free, by number.
#[derive(Clone, Debug)]
pub(crate) struct FreeMemory {
    /// Pages, in random order.
    pages: Vec<u32>,
    /// Frames of opened pages.
    frames: Vec<u32>,
    rng: Xoshiro256PlusPlus,
    /// Memory taken since [`FreeMemory::lend`].
    lent: Option<Lent>,
}

/// Memory that is to be returned: pages and frames in the order in which they were taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lent {
    pages: Vec<u32>,
    frames: Vec<u32>,
}

impl Lent {
    /// Joins two lists of lent memory, `later` after this one.
    pub fn append(&mut self, mut later: Lent) {
        self.pages.append(&mut later.pages);
        self.frames.append(&mut later.frames);
    }
}

impl FreeMemory {
    /// So many pages, in an order that the seed chooses.
    pub(crate) fn new(pages: u32, seed: u64) -> FreeMemory {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xadd2_e550);
        let mut pages: Vec<u32> = (0..pages).collect();
        shuffle(&mut pages, &mut rng);
        FreeMemory { pages, frames: Vec::new(), rng, lent: None }
    }

    /// Number of free pages.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Number of free frames, those of free pages included.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.len() as u64 + self.pages() * u64::from(PAGE_FRAMES)
    }

    /// Takes a page. There must be one.
    pub(crate) fn page(&mut self) -> u32 {
        let page = self.pages.pop().expect("the caller asked how many there are");
        if let Some(lent) = &mut self.lent {
            lent.pages.push(page);
        }
        page
    }

    /// Takes a frame. There must be one.
    pub(crate) fn frame(&mut self) -> u32 {
        if self.frames.is_empty() {
            // Frames of a batch of pages are shuffled so that neighbours in a region are not neighbours in memory.
            let take = self.pages.len().min(64);
            let opened = self.pages.split_off(self.pages.len() - take);
            let frames = |page: &u32| page * PAGE_FRAMES..(page + 1) * PAGE_FRAMES;
            self.frames = opened.iter().flat_map(frames).collect();
            shuffle(&mut self.frames, &mut self.rng);
        }
        let frame = self.frames.pop().expect("a page was opened");
        if let Some(lent) = &mut self.lent {
            lent.frames.push(frame);
        }
        frame
    }

    /// Starts to record which memory is taken.
    pub(crate) fn lend(&mut self) {
        self.lent = Some(Lent::default());
    }

    /// Memory taken since [`FreeMemory::lend`]. Stops recording.
    pub(crate) fn lent(&mut self) -> Lent {
        self.lent.take().unwrap_or_default()
    }

    /// Returns lent memory. The next requests get it in the same order.
    pub(crate) fn take_back(&mut self, lent: Lent) {
        self.pages.extend(lent.pages.into_iter().rev());
        self.frames.extend(lent.frames.into_iter().rev());
    }
}

/// Fisher-Yates with a frozen draw, so that a layout never depends on a library's version.
fn shuffle<T>(items: &mut [T], rng: &mut Xoshiro256PlusPlus) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last as u64 + 1) as usize);
    }
}

/// Uniform in `0..n`.
pub(crate) fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}
