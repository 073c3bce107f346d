//! `rocksdb`: a persistent key-value store driven by YCSB in its own process: searches its memtable, then its block
//! cache; updates go to the log and into the memtable (IAT s6.C).
//!
//! IAT loads 10,000 records of 1 KB, so that all are in the memtable and nothing touches a drive; with more records
//! the rest is found in cached blocks. Knows lines and keys, not files: there is no flushing and no compaction.
//! Marks: docs/reference/README.md#marks.

use super::program::{Blueprint, Core, Program, ProgramKind, ScoreKind, Site, WorkUnit};
use super::working_set::{WorkingSet, in_turn, mix, run_of};
use crate::bus::{Access, Bus, ClassMean, Costs, Memory};
use crate::random::{Stream, Zipf};
use crate::scenario::{Keys, ScenarioError};
use std::sync::Arc;
use waykeeper_host::WorkloadKind;
use waykeeper_silicon::{Level, OutOfMemory, Region};
use waykeeper_units::LINE_BYTES;

pub(super) const ROCKSDB: ProgramKind = ProgramKind {
    name: "rocksdb",
    about: "a persistent key-value store: memtable and block cache under YCSB mixes (IAT s6.C)",
    kind: WorkloadKind::NonIo,
    score: ScoreKind::Ipc,
    unit: WorkUnit::Operations,
    read,
};

/// Lines of a record: key, header and 1 KB (IAT s6.C), a skip-list node in the first of them.
const RECORD_LINES: u32 = 17;
/// Each level of the skip list has this many times the nodes of the level above (RocksDB: kBranching).
const BRANCHING: u32 = 4;
/// Nodes compared on a level: the last that is not beyond the key, and the one that is. Assumption: no node lies
/// between them.
const COMPARED: u32 = 2;
/// Records in a data block of 4 KiB, and its lines. RocksDB: block_size is 4 KiB; a block ends with the record that
/// fills it.
const BLOCK_RECORDS: u32 = 4;
const BLOCK_LINES: u32 = 68;
/// Index entries in a line (X: key and block handle in 32 bytes).
const INDEX_PER_LINE: u32 = 2;
/// RocksDB's and YCSB's own code per operation, ns (X: 400 to 600 thousand gets a second from memory), at an IPC
/// of about 1.2.
const GET_NS: f64 = 1_300.0;
const PUT_NS: f64 = 2_200.0;
const INSTRUCTIONS_PER_NS: f64 = 2.8;
/// Lines of the write-ahead log's buffers (X: page cache that is written out and used again).
const LOG_BYTES: u64 = 4 << 20;
/// The skew of YCSB's keys. YCSB: ZIPFIAN_CONSTANT.
const THETA: f64 = 0.99;

#[derive(Clone, Copy, Debug)]
struct RocksDb {
    records: u32,
    memtable: u64,
    writes: f64,
}

fn read(keys: &mut Keys<'_>) -> Result<Arc<dyn Blueprint>, ScenarioError> {
    Ok(Arc::new(RocksDb {
        records: keys.count("records", 1..=1_000_000, 10_000)?, // IAT s6.C
        memtable: keys.size("memtable", 64 << 10..=1 << 30, 64 << 20)?, // RocksDB: write_buffer_size
        writes: mix(keys)?,
    }))
}

impl Blueprint for RocksDb {
    fn build(&self, site: &mut Site<'_>) -> Result<Box<dyn Program>, OutOfMemory> {
        let room = (self.memtable / (u64::from(RECORD_LINES) * LINE_BYTES)) as u32;
        let in_memtable = self.records.min(room.max(1));
        let blocks = (self.records - in_memtable).div_ceil(BLOCK_RECORDS);
        let mut region = |lines: u32| site.memory.ordinary(u64::from(lines) * LINE_BYTES);
        let memtable = region(in_memtable * RECORD_LINES)?;
        let index = region(blocks.div_ceil(INDEX_PER_LINE))?;
        let handles = region(blocks)?;
        let cache = region(blocks * BLOCK_LINES)?;
        let log = site.memory.ordinary(LOG_BYTES)?;
        let (dependent, streaming) = (site.bus.dependent, site.bus.streaming);
        let class = |costs: Costs| (costs, ClassMean::new(costs.idle(Level::Llc)));
        let levels = (0..).find(|levels| BRANCHING.pow(*levels) >= in_memtable).unwrap_or_default();
        Ok(Box::new(Store {
            workload: site.workload,
            writes: self.writes,
            in_memtable,
            levels,
            memtable,
            index,
            handles,
            cache,
            log: WorkingSet::new(log, streaming),
            search: class(dependent),
            value: class(streaming),
            order: site.stream().permutation(self.records),
            zipf: Zipf::new(self.records, THETA),
            stream: site.stream(),
        }))
    }
}

/// One thread with a store of its own.
#[derive(Clone, Debug)]
struct Store {
    workload: usize,
    writes: f64,
    /// Keys below this one are in the memtable.
    in_memtable: u32,
    levels: u32,
    memtable: Region,
    index: Region,
    /// The block cache's entries, a line each.
    handles: Region,
    cache: Region,
    log: WorkingSet,
    search: (Costs, ClassMean),
    value: (Costs, ClassMean),
    /// Key of each rank of popularity.
    order: Vec<u32>,
    zipf: Zipf,
    stream: Stream,
}

impl Store {
    /// Searches the skip list for a key. Each level's nodes are every BRANCHING-th of the level below: every search
    /// reads the upper ones, the lowest are the key's neighbours.
    fn descend(&mut self, memory: &mut Memory, core: usize, key: u32) -> f64 {
        let mut ns = 0.0;
        for level in (0..self.levels).rev() {
            let apart = BRANCHING.pow(level);
            let node = key % self.in_memtable / apart * apart;
            for compared in (0..COMPARED).map(|next| (node + next * apart) % self.in_memtable) {
                let line = (&self.memtable, compared * RECORD_LINES, 1);
                ns += run_of(memory, core, line, Access::Read, &mut self.search);
            }
        }
        ns
    }

    /// Finds a key in the block cache: binary search of the index, the cache's entry, the block.
    fn block(&mut self, memory: &mut Memory, core: usize, key: u32) -> f64 {
        let record = key - self.in_memtable;
        let block = record / BLOCK_RECORDS;
        let (mut low, mut high) = (0, self.index.total_lines());
        let mut ns = 0.0;
        while low < high {
            let middle = low + (high - low) / 2;
            ns += run_of(memory, core, (&self.index, middle, 1), Access::Read, &mut self.search);
            match middle.cmp(&(block / INDEX_PER_LINE)) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => break,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        ns += run_of(memory, core, (&self.handles, block, 1), Access::Read, &mut self.search);
        let at = block * BLOCK_LINES + record % BLOCK_RECORDS * RECORD_LINES;
        ns + run_of(memory, core, (&self.cache, at, RECORD_LINES), Access::Read, &mut self.value)
    }

    fn get(&mut self, memory: &mut Memory, core: usize, key: u32) -> f64 {
        let ns = self.descend(memory, core, key);
        if key >= self.in_memtable {
            return ns + self.block(memory, core, key);
        }
        let record = (&self.memtable, key * RECORD_LINES, RECORD_LINES);
        ns + run_of(memory, core, record, Access::Read, &mut self.value)
    }

    /// An update replaces the key's old version, which a flush would free.
    fn put(&mut self, memory: &mut Memory, core: usize, key: u32) -> f64 {
        let lines = f64::from(RECORD_LINES);
        let mut ns = self.log.touch(memory, core, lines, Access::Write, &mut self.stream, in_turn);
        ns += self.descend(memory, core, key);
        let record = (&self.memtable, key % self.in_memtable * RECORD_LINES, RECORD_LINES);
        ns + run_of(memory, core, record, Access::Write, &mut self.value)
    }
}

impl Program for Store {
    fn run(&mut self, bus: &mut Bus, core: &mut Core, until_ns: f64) {
        while core.clock_ns < until_ns {
            let key = self.order[self.zipf.draw(&mut self.stream) as usize];
            let began_ns = core.clock_ns;
            let (work_ns, ns) = if self.stream.chance(self.writes) {
                (PUT_NS, self.put(&mut bus.memory, core.id, key))
            } else {
                (GET_NS, self.get(&mut bus.memory, core.id, key))
            };
            core.work(work_ns + ns, work_ns * INSTRUCTIONS_PER_NS);
            let meter = &mut bus.meters[self.workload];
            meter.operations += 1.0;
            meter.bytes += f64::from(RECORD_LINES) * LINE_BYTES as f64;
            meter.latency(core.clock_ns - began_ns);
        }
    }
}
