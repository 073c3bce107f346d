//! Packet structures of a kernel (`sk_buff`) in a core's own list, a LIFO.
//!
//! Linux: `napi_alloc_cache` and the slab's per-CPU list. Knows structures and lines, not their content.

use waykeeper_silicon::{AddressMap, Line, OutOfMemory, Region};
use waykeeper_units::LINE_BYTES;

/// Lines of a structure: Linux's `struct sk_buff` has 232 bytes and begins a line.
pub(super) const SKB_LINES: u32 = 4;

/// The structures of one core.
#[derive(Clone, Debug)]
pub(super) struct Skbs {
    region: Region,
    /// Of each structure: where its sampled lines are in the region's.
    sampled: Vec<(u32, u32)>,
    /// Free structures; the one freed last is at the end.
    free: Vec<u32>,
}

impl Skbs {
    /// `count` structures.
    pub(super) fn new(memory: &mut AddressMap, count: u32) -> Result<Skbs, OutOfMemory> {
        let region = memory.ordinary(u64::from(count * SKB_LINES) * LINE_BYTES)?;
        let range = |skb: u32| region.range(skb * SKB_LINES, (skb + 1) * SKB_LINES);
        let sampled = (0..count).map(range).map(|range| (range.start as u32, range.end as u32)).collect();
        Ok(Skbs { region, sampled, free: (0..count).rev().collect() })
    }

    /// Takes the one freed last.
    ///
    /// # Panics
    /// If none is free: there are as many as frames fit into the socket and the core's burst.
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().expect("as many structures as frames")
    }

    /// Frees a structure.
    pub(super) fn give_back(&mut self, skb: u32) {
        self.free.push(skb);
    }

    /// Its sampled lines.
    pub(super) fn lines(&self, skb: u32) -> &[Line] {
        let (from, to) = self.sampled[skb as usize];
        &self.region.lines()[from as usize..to as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_silicon::{ChipSpec, Sampling};

    #[test]
    fn the_last_one_freed_is_the_first_one_used() {
        let chip = ChipSpec::built_in("gold-6140").unwrap();
        let mut memory = AddressMap::new(&chip, Sampling::EXACT, 1, 1);
        let mut skbs = Skbs::new(&mut memory, 5).unwrap();
        assert_eq!([skbs.take(), skbs.take(), skbs.take()], [0, 1, 2]);
        skbs.give_back(0);
        skbs.give_back(2);
        // 2 was freed last, then 0; 3 was never used.
        assert_eq!([skbs.take(), skbs.take(), skbs.take()], [2, 0, 3]);
        // 232 bytes fill four lines, and no two structures share one.
        assert_eq!(skbs.lines(3).len(), 4);
        assert!(skbs.lines(3).iter().all(|line| !skbs.lines(2).contains(line)));
    }
}
