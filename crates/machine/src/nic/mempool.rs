//! Free packet buffers and the order in which they are reused: one unlimited LIFO or, like DPDK's mempool, a LIFO
//! cache of the worker's core before a FIFO ring (microarchitecture.md 6).
//!
//! Knows buffers by a handle, not where they are or what they contain.
//! Marks: docs/reference/README.md#marks.

use std::collections::VecDeque;
use waykeeper_silicon::Table;

/// Sent packets whose buffers a driver returns together (D: DPDK, mlx5's `MLX5_TX_COMP_THRESH`; the usual
/// `tx_free_thresh` of Intel's drivers has the same value).
const SENT_TOGETHER: usize = 32;

/// A DPDK mempool as a scenario describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MempoolSpec {
    /// Buffers that a core's cache keeps when it is filled or flushed; 0: there is no cache.
    pub cache: u32,
    /// Buffers of the pool.
    pub buffers: u32,
}

/// The free buffers of a queue.
#[derive(Clone, Debug)]
pub(super) struct FreeBuffers<B> {
    /// The buffer freed last is at the end.
    cache: Table<B>,
    count: u32,
    /// The ring behind the cache.
    ring: Option<Box<Ring<B>>>,
}

/// The part of a mempool that all cores share, and the buffers that will be returned to it.
#[derive(Clone, Debug)]
struct Ring<B> {
    /// DPDK's `cache_size`.
    size: u32,
    /// DPDK's `cache_flushthresh`.
    flush: u32,
    /// The buffer freed first is at the front.
    buffers: VecDeque<B>,
    /// Buffers of sent packets that the driver has not returned yet.
    sent: Vec<B>,
}

impl<B: Copy> FreeBuffers<B> {
    /// These buffers, of which the first is taken first; `cache` is the size of a mempool's cache.
    pub(super) fn new(mut buffers: Vec<B>, cache: Option<u32>) -> FreeBuffers<B> {
        let (first, count) = (buffers[0], buffers.len());
        let Some(size) = cache else {
            buffers.reverse();
            return FreeBuffers { cache: Table::new(buffers, first), count: count as u32, ring: None };
        };
        let ring = Ring {
            size,
            // DPDK: CACHE_FLUSHTHRESH_MULTIPLIER is 1.5.
            flush: size + size / 2,
            buffers: buffers.into(),
            sent: Vec::with_capacity(SENT_TOGETHER),
        };
        FreeBuffers { cache: Table::filled(count, first), count: 0, ring: Some(Box::new(ring)) }
    }

    /// Removes all buffers.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        if let Some(ring) = &mut self.ring {
            ring.buffers.clear();
            ring.sent.clear();
        }
    }

    /// Takes a buffer.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<B> {
        match self.count.checked_sub(1) {
            Some(count) => {
                self.count = count;
                Some(self.cache[count as usize])
            }
            None => self.take_from_ring(),
        }
    }

    /// Takes a buffer if another one remains.
    #[inline(always)]
    pub(super) fn take_but_one(&mut self) -> Option<B> {
        let behind = self.ring.as_ref().map_or(0, |ring| ring.buffers.len());
        if self.count as usize + behind > 1 { self.take() } else { None }
    }

    /// A core frees a buffer.
    #[inline(always)]
    pub(super) fn give(&mut self, buffer: B) {
        self.cache[self.count as usize] = buffer;
        self.count += 1;
        if self.ring.is_some() {
            self.flush();
        }
    }

    /// The packet in a buffer was sent: the driver frees the buffer at its next check.
    #[inline(always)]
    pub(super) fn give_sent(&mut self, buffer: B) {
        match &mut self.ring {
            None => self.give(buffer),
            Some(ring) => {
                ring.sent.push(buffer);
                if ring.sent.len() == SENT_TOGETHER {
                    self.give_together();
                }
            }
        }
    }

    /// Replaces each handle.
    pub(super) fn replace_each(&mut self, with: impl Fn(B) -> B) {
        self.cache.entries_mut().iter_mut().for_each(|buffer| *buffer = with(*buffer));
        if let Some(ring) = &mut self.ring {
            ring.buffers.iter_mut().chain(&mut ring.sent).for_each(|buffer| *buffer = with(*buffer));
        }
    }

    /// The cache is empty: fills it and takes one more, or takes one from the ring if the ring has too few.
    #[cold]
    fn take_from_ring(&mut self) -> Option<B> {
        let ring = self.ring.as_mut()?;
        if ring.size <= 1 || ring.buffers.len() <= ring.size as usize {
            return ring.buffers.pop_front();
        }
        for buffer in ring.buffers.drain(..=ring.size as usize) {
            self.cache[self.count as usize] = buffer;
            self.count += 1;
        }
        self.take()
    }

    #[cold]
    fn give_together(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        for buffer in ring.sent.drain(..) {
            self.cache[self.count as usize] = buffer;
            self.count += 1;
        }
        self.flush();
    }

    /// Moves the buffers above the cache's size to the end of the ring.
    fn flush(&mut self) {
        let Some(ring) = self.ring.as_mut().filter(|ring| self.count >= ring.flush) else { return };
        ring.buffers.extend(&self.cache.entries()[ring.size as usize..self.count as usize]);
        self.count = ring.size;
    }
}

#[cfg(test)]
impl<B: Copy> FreeBuffers<B> {
    /// All buffers, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = B> + '_ {
        let behind = self.ring.iter().flat_map(|ring| ring.buffers.iter().chain(&ring.sent));
        self.cache.entries()[..self.count as usize].iter().chain(behind).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(free: &mut FreeBuffers<u32>, count: u32) -> Vec<u32> {
        (0..count).filter_map(|_| free.take()).collect()
    }

    fn give(free: &mut FreeBuffers<u32>, buffers: impl IntoIterator<Item = u32>) {
        buffers.into_iter().for_each(|buffer| free.give(buffer));
    }

    #[test]
    fn without_a_mempool_the_last_freed_is_taken_first() {
        let mut free = FreeBuffers::new((0..5).collect(), None);
        assert_eq!(take(&mut free, 3), [0, 1, 2]);
        give(&mut free, [0, 2]);
        assert_eq!(take(&mut free, 9), [2, 0, 3, 4]);
    }

    #[test]
    fn without_a_cache_a_buffer_comes_back_after_all_others() {
        let mut free = FreeBuffers::new((0..4).collect(), Some(0));
        assert_eq!(take(&mut free, 2), [0, 1]);
        give(&mut free, [1, 0]);
        assert_eq!(take(&mut free, 9), [2, 3, 1, 0]);
    }

    #[test]
    fn an_empty_cache_is_filled_from_the_ring_and_gives_the_last_of_these_first() {
        // One and the four of the cache: 0 to 4, of which 4 is on top.
        let mut free = FreeBuffers::new((0..12).collect(), Some(4));
        assert_eq!(take(&mut free, 5), [4, 3, 2, 1, 0]);
        assert_eq!(take(&mut free, 1), [9]);
        // Only 10 and 11 are left, fewer than five: the ring gives them one by one.
        assert_eq!(take(&mut free, 9), [8, 7, 6, 5, 10, 11]);
    }

    #[test]
    fn a_cache_with_half_as_much_again_is_flushed_to_its_size() {
        let mut free = FreeBuffers::new((0..10).collect(), Some(4));
        assert_eq!(take(&mut free, 6), [4, 3, 2, 1, 0, 9]);
        // 5 to 8 are in the cache. The fifth stays; with the sixth, both leave for the ring.
        give(&mut free, [0]);
        assert_eq!(take(&mut free, 1), [0]);
        give(&mut free, [0, 1]);
        assert_eq!(take(&mut free, 4), [8, 7, 6, 5]);
        // The ring has 0 and 1 in this order.
        assert_eq!(take(&mut free, 9), [0, 1]);
    }

    #[test]
    fn buffers_of_sent_packets_come_back_by_32() {
        let mut free = FreeBuffers::new((0..100).collect(), Some(64));
        let taken = take(&mut free, 40);
        assert_eq!(taken, (25..65).rev().collect::<Vec<_>>());
        taken[..31].iter().for_each(|buffer| free.give_sent(*buffer));
        assert_eq!(take(&mut free, 1), [24], "31 are still with the driver");
        free.give_sent(taken[31]);
        assert_eq!(take(&mut free, 2), [taken[31], taken[30]]);
    }

    #[test]
    fn a_swing_of_more_packets_than_the_cache_has_buffers_brings_others() {
        let distinct = |swing: u32| {
            let mut free = FreeBuffers::new((0..10_000).collect(), Some(512));
            let mut used = std::collections::BTreeSet::<u32>::new();
            for _ in 0..20 {
                let taken = take(&mut free, swing);
                used.extend(&taken);
                give(&mut free, taken);
            }
            used.len()
        };
        // The cache is filled once, with 513.
        assert_eq!(distinct(512), 512);
        // The cache is filled twice, 512 of the second fill stay, and with 2 more they are enough ever after.
        assert_eq!(distinct(514), 1026);
        // Of 600 given back to what is left of a fill, the cache keeps 512 to 514: every swing needs another fill.
        assert!(distinct(600) > 9_000, "{}", distinct(600));
    }

    #[test]
    fn none_is_lost_and_none_is_there_twice() {
        for cache in [None, Some(0), Some(1), Some(8)] {
            let mut free = FreeBuffers::new((0..100).collect(), cache);
            let mut held = VecDeque::new();
            for turn in 0..1000u32 {
                held.extend(take(&mut free, turn % 37));
                for _ in 0..turn % 41 {
                    let Some(buffer) = held.pop_front() else { break };
                    if turn % 2 == 0 { free.give(buffer) } else { free.give_sent(buffer) }
                }
            }
            let mut all: Vec<u32> = free.all().chain(held).collect();
            all.sort_unstable();
            assert_eq!(all, (0..100).collect::<Vec<_>>(), "{cache:?}");
        }
    }
}
