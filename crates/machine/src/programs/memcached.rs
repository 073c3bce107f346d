//! `memcached`: answers requests from the network over kernel sockets: a key's bucket and item are looked up, and
//! the item is copied into the answer, which leaves in the request's place.
//!
//! Every packet is a request; keys are Zipf-distributed as YCSB's. All threads serve one store. Knows lines and
//! keys, neither connections nor slab classes. Marks: docs/reference/README.md#marks.

use super::class::Class;
use super::dpdk::read_stall;
use super::packet_handler::{PacketHandler, Spent};
use super::poller::{Fate, LINE_WORK_NS, PACKET_LINE_NS, PacketWork, Poller, Stall, Touch};
use super::program::{Blueprint, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::table::{Lookups, Table};
use crate::bus::{Access, Memory};
use crate::nic::{MAX_BURST, Packet, Pool};
use crate::random::{Stream, Zipf};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Level, OutOfMemory, Region};
use waykeeper_units::LINE_BYTES;

pub(super) const MEMCACHED: ProgramKind = ProgramKind {
    name: "memcached",
    about: "answers get and set requests from the network, keys Zipf-distributed",
    kind: WorkloadKind::NetworkIo,
    score: ScoreKind::InverseLatency,
    unit: WorkUnit::Operations,
    read,
};

/// Lines of an item before its value: links, lengths and the key (memcached's item header is 48 bytes).
const HEADER_LINES: u32 = 1;
/// Bytes around a value in an answer: headers of Ethernet, IP and TCP, and memcached's own line (X).
const ANSWER_HEADER_BYTES: u16 = 100;
/// Answer to a set, bytes. Assumption: headers of TCP with time stamps, 66, and `STORED` with its line end, 8.
const STORED_BYTES: u16 = 74;
/// Lines of kernel and connection state per request, and lines there are (X: sk_buffs, sockets, epoll).
const STATE_LINES: u32 = 60;
const STATE_TOTAL_LINES: u32 = 4096;

#[derive(Debug)]
struct Memcached {
    work: PacketWork,
    stall: Stall,
    records: u32,
    value_bytes: u16,
    writes: f64,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    let work = PacketWork {
        burst: keys.count("burst", 1..=MAX_BURST, 64)?, // Linux: NAPI's weight
        base_ns: keys.number("base_ns", 0.0..=1e6, 3_000.0)?, // X: about 250 k requests/s a core over TCP
        burst_ns: keys.number("burst_ns", 0.0..=1e6, 300.0)?, // X: as iperf
        delay_ns: keys.number("delay_ns", 0.0..=1e6, 0.0)?,
        meta_lines: 3, // X: sk_buff
        touch: Touch::Payload,
        fate: Fate::Send,
    };
    Ok(Arc::new(Memcached {
        work,
        stall: read_stall(keys)?,
        records: keys.count("records", 1..=1_000_000, 100_000)?,
        // An answer is one packet.
        value_bytes: keys.count("value_bytes", 1..=1_400, 1_000)? as u16,
        writes: keys.number("write_share", 0.0..=1.0, 0.05)?, // YCSB B
    }))
}

impl Memcached {
    fn item_lines(&self) -> u32 {
        HEADER_LINES + u32::from(self.value_bytes).div_ceil(LINE_BYTES as u32)
    }
}

impl Blueprint for Memcached {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        // The buckets of the hash table, eight pointers a line, and the items behind them.
        let buckets = self.records.div_ceil(8);
        if site.shared.is_none() {
            let lines = u64::from(buckets) + u64::from(self.records) * u64::from(self.item_lines());
            *site.shared = Some(Arc::new(site.memory.ordinary(lines * LINE_BYTES)?));
        }
        let (dependent, streaming) = (site.bus.dependent, site.bus.streaming);
        let state = Table::own(site, STATE_TOTAL_LINES)?;
        let serve = Serve {
            memory: site.shared.clone().expect("just made"),
            buckets,
            item_lines: self.item_lines(),
            answer_bytes: self.value_bytes + ANSWER_HEADER_BYTES,
            writes: self.writes,
            zipf: Zipf::new(self.records, 0.99), // YCSB: ZIPFIAN_CONSTANT
            stream: site.stream(),
            requests: 0,
            state: Lookups::new(state, Access::Write, site.bus),
            found: Class::of(dependent, Level::Memory),
            read: Class::of(streaming, Level::Memory),
            written: Class::of(streaming, Level::Memory),
            answer: Class::new(PACKET_LINE_NS, site.bus, Level::Memory),
            line_work_ns: site.bus.work_ns(LINE_WORK_NS),
        };
        Ok(Box::new(Poller::with(serve, site, self.work, self.stall)))
    }
}

/// Looks a key up and answers.
#[derive(Clone, Debug)]
struct Serve {
    memory: Arc<Region>,
    buckets: u32,
    item_lines: u32,
    answer_bytes: u16,
    writes: f64,
    zipf: Zipf,
    stream: Stream,
    requests: u32,
    state: Lookups,
    /// Bucket and item header: each leads to the next.
    found: Class,
    read: Class,
    written: Class,
    answer: Class,
    /// Work on a line of the value beyond fetching it, ns.
    line_work_ns: f64,
}

/// Gathers `count` lines of a region into a class; returns what they are charged, ns.
fn gather(region: &Region, from: u32, count: u32, class: &mut Class) -> f64 {
    for line in &region.lines()[region.range(from, from + count)] {
        class.sampled.push(*line);
    }
    f64::from(count) * class.ns()
}

impl PacketHandler for Serve {
    const SLEEPS: bool = true;

    fn run(&mut self, packet: &mut Packet, pool: &Pool) -> Spent {
        self.requests = self.requests.wrapping_add(1);
        let key = self.zipf.draw(&mut self.stream);
        let item = self.buckets + key * self.item_lines;
        let value_lines = self.item_lines - HEADER_LINES;
        let mut line_ns = self.state.touch(self.requests.wrapping_mul(STATE_LINES), STATE_LINES);
        line_ns += gather(&self.memory, key / 8, 1, &mut self.found);
        line_ns += gather(&self.memory, item, HEADER_LINES, &mut self.found);
        let write = self.stream.chance(self.writes);
        let value = if write { &mut self.written } else { &mut self.read };
        line_ns += gather(&self.memory, item + HEADER_LINES, value_lines, value);
        packet.answer(if write { STORED_BYTES } else { self.answer_bytes });
        pool.gather(packet.buffer, packet.lines, &mut self.answer.sampled);
        line_ns += f64::from(packet.lines) * self.answer.ns();
        let lines = value_lines + u32::from(packet.lines);
        Spent { work_ns: f64::from(lines) * self.line_work_ns, line_ns }
    }

    fn rest(&mut self, packet: &mut Packet, _: &Pool) -> Spent {
        // The answer is in the first buffer.
        packet.answer(0);
        Spent { work_ns: 0.0, line_ns: 0.0 }
    }

    fn settle(&mut self, memory: &mut Memory, core: usize) -> f64 {
        let mut ns = self.state.settle(memory, core);
        ns += self.found.settle(memory, core, Access::Read);
        ns += self.read.settle(memory, core, Access::Read);
        ns += self.written.settle(memory, core, Access::Write);
        ns + self.answer.settle(memory, core, Access::Write)
    }
}
