//! Physical memory: its pages of 2 MiB, the frames of 4 KiB of pages that were opened for them, and which of them are free.
//!
//! Must not know lines, sets or slices.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// 4-KiB frames in a 2-MiB page.
const PAGE_FRAMES: u32 = 512;

/// Pages that are reserved for coloured memory at a time: 64 MiB, more than the DCA ways of any chip (ours).
const RESERVED_PAGES: u32 = 32;

/// Which physical memory a program or a device gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// 4-KiB frames at random places, as Linux gives them to a program.
    Small,
    /// 2-MiB pages at random places.
    Huge,
    /// 4-KiB frames in the order of their addresses from a reservation, so that every colour (the bits of the LLC's set
    /// index above those of a frame) is used as often as every other, as in Sepia's stride-1 pools (Song et al., OSDI 2026).
    Coloured,
}

impl Pages {
    /// Every kind, with its name in scenarios.
    pub const NAMED: [(&str, Pages); 3] =
        [("small", Pages::Small), ("huge", Pages::Huge), ("coloured", Pages::Coloured)];
}

/// What is free, by number.
#[derive(Clone, Debug)]
pub(crate) struct FreeMemory {
    /// Pages, in random order.
    pages: Vec<u32>,
    /// Frames of opened pages.
    frames: Vec<u32>,
    /// Frames that are reserved for coloured memory, the last one first.
    coloured: Vec<u32>,
    rng: Xoshiro256PlusPlus,
    /// Memory taken since [`FreeMemory::lend`].
    lent: Option<Lent>,
}

/// Memory that is to be returned: pages and frames in the order in which they were taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lent {
    pages: Vec<u32>,
    frames: Vec<u32>,
    coloured: Vec<u32>,
}

impl Lent {
    /// Joins two lists of lent memory, `later` after this one.
    pub fn append(&mut self, mut later: Lent) {
        self.pages.append(&mut later.pages);
        self.frames.append(&mut later.frames);
        self.coloured.append(&mut later.coloured);
    }
}

impl FreeMemory {
    /// So many pages, in an order that the seed chooses.
    pub(crate) fn new(pages: u32, seed: u64) -> FreeMemory {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0xadd2_e550);
        let mut pages: Vec<u32> = (0..pages).collect();
        shuffle(&mut pages, &mut rng);
        FreeMemory { pages, frames: Vec::new(), coloured: Vec::new(), rng, lent: None }
    }

    /// Number of free pages.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Number of free frames, those of free pages included.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.len() as u64 + self.coloured_frames()
    }

    /// Number of frames that coloured memory can still have.
    pub(crate) fn coloured_frames(&self) -> u64 {
        self.coloured.len() as u64 + self.pages() * u64::from(PAGE_FRAMES)
    }

    /// Takes a page. There must be one.
    pub(crate) fn page(&mut self) -> u32 {
        let page = self.pages.pop().expect("the caller asked how many there are");
        if let Some(lent) = &mut self.lent {
            lent.pages.push(page);
        }
        page
    }

    /// Takes the frame after the one before, as long as the reservation lasts. There must be one.
    pub(crate) fn coloured_frame(&mut self) -> u32 {
        if self.coloured.is_empty() {
            self.reserve();
        }
        let frame = self.coloured.pop().expect("a run of pages was reserved");
        if let Some(lent) = &mut self.lent {
            lent.coloured.push(frame);
        }
        frame
    }

    /// Reserves the longest run of free pages, up to [`RESERVED_PAGES`], the lowest of those of that length.
    fn reserve(&mut self) {
        let mut sorted = self.pages.clone();
        sorted.sort_unstable();
        let runs = sorted
            .chunk_by(|a, b| a + 1 == *b)
            .map(|run| (run[0], run.len().min(RESERVED_PAGES as usize) as u32));
        // The first of the longest: `max_by_key` would return the last.
        let Some((first, count)) = runs.rev().max_by_key(|(_, count)| *count) else { return };
        let run = first..first + count;
        self.pages.retain(|page| !run.contains(page));
        self.coloured = (run.start * PAGE_FRAMES..run.end * PAGE_FRAMES).rev().collect();
    }

    /// Takes a frame. There must be one.
    pub(crate) fn frame(&mut self) -> u32 {
        if self.frames.is_empty() && self.pages.is_empty() {
            // What is left of a reservation.
            self.frames = std::mem::take(&mut self.coloured);
        }
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
        self.coloured.extend(lent.coloured.into_iter().rev());
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
