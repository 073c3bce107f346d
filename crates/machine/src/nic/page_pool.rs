//! Packet pages of a kernel's driver: which half of which 4-KiB page the next frame is written to, and when a page is
//! returned. Linux recycles pages through a ring (`page_pool`'s `ptr_ring`): the page that was returned first is used
//! first. A page that was never used is taken only when no returned one is free, so that as many are in use as the
//! maximum ever needed at once. A frame of at most 2 KiB takes half a page, as mlx5's receive queues do. Knows numbers
//! of buffers, neither where they are nor what they contain. Marks: docs/reference/README.md#marks.

use std::collections::VecDeque;

/// Bytes of a buffer: half a page of 4 KiB. mlx5: headroom, an Ethernet frame of 1500 B and the kernel's
/// `skb_shared_info`, rounded up to a power of two (en/params.c).
pub(crate) const HALF_PAGE_BYTES: u32 = 2048;

/// Which of the returned pages is used next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recycle {
    /// The first: Linux's ring.
    Fifo,
    /// The last: as in a DPDK mempool's cache.
    Lifo,
}

/// The pages of one receive queue.
#[derive(Clone, Debug)]
pub(crate) struct PagePool {
    recycle: Recycle,
    /// Returned pages, the first at the front.
    free: VecDeque<u32>,
    /// Number of the first page that was never used.
    fresh: u32,
    /// Halves of each page that are in use.
    out: Vec<u8>,
    /// The second half of the page that was taken last, until it is taken too.
    second_half: Option<u32>,
}

impl PagePool {
    /// A pool of at least `buffers` halves of pages.
    pub(crate) fn new(buffers: u32, recycle: Recycle) -> PagePool {
        let pages = buffers.div_ceil(2) as usize;
        PagePool {
            recycle,
            free: VecDeque::with_capacity(pages),
            fresh: 0,
            out: vec![0; pages],
            second_half: None,
        }
    }

    /// Number of buffers; their numbers start at 0.
    pub(crate) fn buffers(&self) -> u32 {
        self.out.len() as u32 * 2
    }

    /// Takes the next buffer, if one is free.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(half) = self.second_half.take() {
            return Some(half);
        }
        let recycled = match self.recycle {
            Recycle::Fifo => self.free.pop_front(),
            Recycle::Lifo => self.free.pop_back(),
        };
        let page = match recycled {
            Some(page) => page,
            None if (self.fresh as usize) < self.out.len() => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        self.out[page as usize] = 2;
        self.second_half = Some(page * 2 + 1);
        Some(page * 2)
    }

    /// Returns a buffer; the page is returned with its second half.
    pub(crate) fn give_back(&mut self, buffer: u32) {
        let (page, out) = (buffer / 2, &mut self.out[buffer as usize / 2]);
        debug_assert!(*out > 0, "buffer {buffer} came back twice");
        *out -= 1;
        if *out == 0 {
            self.free.push_back(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pool: &mut PagePool, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| pool.take()).collect()
    }

    #[test]
    fn pages_come_back_in_the_order_of_their_use() {
        let mut pool = PagePool::new(8, Recycle::Fifo);
        // Two pages, half by half; then their halves are returned in order.
        assert_eq!(take(&mut pool, 4), [0, 1, 2, 3]);
        for buffer in 0..3 {
            pool.give_back(buffer);
        }
        // Page 0 is returned, page 1 only by half: next are page 0, then the fresh page 2.
        assert_eq!(take(&mut pool, 3), [0, 1, 4]);
        for buffer in [3, 0, 1] {
            pool.give_back(buffer);
        }
        // The other half of page 2, then page 1, which was returned first, then page 0.
        assert_eq!(take(&mut pool, 5), [5, 2, 3, 0, 1]);
        // One page is left of four.
        assert_eq!(take(&mut pool, 9), [6, 7]);
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn the_other_order_uses_the_warmest_page() {
        let mut pool = PagePool::new(8, Recycle::Lifo);
        assert_eq!(take(&mut pool, 4), [0, 1, 2, 3]);
        for buffer in 0..4 {
            pool.give_back(buffer);
        }
        assert_eq!(take(&mut pool, 4), [2, 3, 0, 1]);
    }

    #[test]
    fn no_more_pages_are_used_than_were_out_at_once() {
        for recycle in [Recycle::Fifo, Recycle::Lifo] {
            let mut pool = PagePool::new(100, recycle);
            for _ in 0..50 {
                let out = take(&mut pool, 6);
                assert!(out.iter().all(|buffer| *buffer < 6), "{recycle:?} {out:?}");
                out.iter().for_each(|buffer| pool.give_back(*buffer));
            }
        }
    }
}
