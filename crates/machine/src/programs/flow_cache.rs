//! The flow table of a virtual switch: an exact-match cache in front of a table that has an entry per flow.
//!
//! Modelled on Open vSwitch's userspace datapath (lib/dpif-netdev.c): each thread has a cache of 8192 entries,
//! a flow may be in either of two of them, and a flow that misses it is inserted with a probability of 1 in 100. Knows
//! the lines of a look-up, must not know what is done with the packet. Marks: docs/reference/README.md#marks.

use super::packet_handler::Spent;
use super::program::Site;
use super::table::{Lookups, Table};
use crate::bus::{Access, Memory};
use crate::random::Stream;
use waykeeper_silicon::OutOfMemory;

/// Bits of a cache entry's number (EM_FLOW_HASH_SHIFT).
const ENTRY_BITS: u32 = 13;
const ENTRIES: u32 = 1 << ENTRY_BITS;
/// Lines of an entry that a match reads (X): pointer and hash, and the key of a UDP flow across two lines.
const MATCH_LINES: u32 = 3;
/// Lines read by a search of the flow table, which the cache saves: bucket, rule, mask, key (X).
const SEARCH_LINES: u32 = 4;
/// Further instructions of such a search, ns (X: hashing under a mask, comparing).
const SEARCH_NS: f64 = 60.0;
/// Lines of a flow read for every packet (its actions), and written (its statistics); X.
const FLOW_LINES: u32 = 1;

/// One thread's flow table.
#[derive(Clone, Debug)]
pub(super) struct FlowCache {
    /// The flow in each cache entry.
    flows: Vec<u32>,
    insert_chance: f64,
    entries: Lookups,
    search: Lookups,
    actions: Lookups,
    statistics: Lookups,
    stream: Stream,
}

/// No flow.
const NONE: u32 = u32::MAX;

impl FlowCache {
    /// A table with room for so many flows, beyond which they share entries.
    pub(super) fn new(site: &mut Site<'_>, flows: u32, insert_chance: f64) -> Result<FlowCache, OutOfMemory> {
        let entries = Table::own(site, ENTRIES * MATCH_LINES)?;
        let search = Table::own(site, flows * SEARCH_LINES)?;
        let (actions, statistics) =
            (Table::own(site, flows * FLOW_LINES)?, Table::own(site, flows * FLOW_LINES)?);
        Ok(FlowCache {
            flows: vec![NONE; ENTRIES as usize],
            insert_chance,
            entries: Lookups::new(entries, Access::Read, site.bus),
            search: Lookups::new(search, Access::Read, site.bus),
            actions: Lookups::new(actions, Access::Read, site.bus),
            statistics: Lookups::new(statistics, Access::Write, site.bus),
            stream: site.stream(),
        })
    }

    /// Looks a flow up.
    pub(super) fn find(&mut self, flow: u32) -> Spent {
        let hash = mixed(flow);
        let slots = [hash % ENTRIES, (hash >> ENTRY_BITS) % ENTRIES];
        let mut spent = Spent { work_ns: 0.0, line_ns: 0.0 };
        let found = slots.iter().find(|slot| {
            let here = self.flows[**slot as usize] == flow;
            // The hash in an entry's first line shows that it is another flow's.
            spent.line_ns += self.entries.touch(**slot * MATCH_LINES, if here { MATCH_LINES } else { 1 });
            here
        });
        if found.is_none() {
            spent.work_ns += SEARCH_NS;
            spent.line_ns += self.search.touch(flow.wrapping_mul(SEARCH_LINES), SEARCH_LINES);
            if self.stream.chance(self.insert_chance) {
                let empty = slots.iter().find(|slot| self.flows[**slot as usize] == NONE);
                let slot = empty.copied().unwrap_or(slots[(self.stream.bits() & 1) as usize]);
                self.flows[slot as usize] = flow;
            }
        }
        spent.line_ns += self.actions.touch(flow, FLOW_LINES) + self.statistics.touch(flow, FLOW_LINES);
        spent
    }

    /// Settles the lines of this turn; returns by how much their cost exceeds their charge, ns.
    pub(super) fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        let FlowCache { entries, search, actions, statistics, .. } = self;
        [entries, search, actions, statistics].into_iter().map(|table| table.settle(memory, core)).sum()
    }
}

/// The hash of a flow (murmur's finaliser).
fn mixed(flow: u32) -> u32 {
    let x = (flow ^ flow >> 16).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
    x ^ x >> 16
}
