//! How many line events a second the chip model takes: one bare level, and the whole chip.
//!
//! Traces are made ahead of time and hold ready handles, as the machine's agents do; only the model is timed. Rates are
//! compared between two builds back to back on one machine, never with those of another day (performance.md 1 has the
//! limits). Sampled runs count the events that were simulated; the `equivalent` rows count the real ones that these
//! represent. Knows the public interface only.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro128PlusPlus;
use std::hint::black_box;
use std::time::Duration;
use waykeeper_silicon::{AddressMap, Chip, ChipSpec, Fill, Line, OneLevel, Region, Sampling};

/// Accesses ahead of the present one that are prefetched (performance.md 1: 8-32).
const AHEAD: usize = 16;
const SETS: u32 = 36_864;
const WAYS: u32 = 11;
const CORES: usize = 18;
const ONE_LEVEL_EVENTS: usize = 1 << 21;
const CHIP_EVENTS: usize = 1 << 21;
const MIB: u64 = 1 << 20;

fn below(rng: &mut Xoshiro128PlusPlus, n: usize) -> usize {
    ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize
}

// ---- one level ------------------------------------------------------------------------------------------

fn one_level_traces() -> Vec<(&'static str, Vec<u32>)> {
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(7);
    let lines = |mib_halves: u32| mib_halves * (1 << 13);
    let mut next = 0;
    let mut stream = || {
        next = (next + 1) % lines(128);
        next
    };
    let random = (0..ONE_LEVEL_EVENTS).map(|_| below(&mut rng, 1 << 16) as u32).collect();
    let scan = (0..ONE_LEVEL_EVENTS).map(|_| stream()).collect();
    let half = (0..ONE_LEVEL_EVENTS).map(|_| {
        let hot = rng.next_u32() & 1 == 0;
        if hot { below(&mut rng, lines(3) as usize) as u32 } else { lines(3) + stream() }
    });
    let half = half.collect();
    vec![("a_random_4MiB", random), ("b_scan_64MiB", scan), ("c_half_1.5MiB_half_stream", half)]
}

fn one_level(c: &mut Criterion) {
    let mut group = c.benchmark_group("one_level_36864x11");
    group.throughput(Throughput::Elements(ONE_LEVEL_EVENTS as u64));
    for (name, trace) in one_level_traces() {
        let mut cache = OneLevel::new(SETS, WAYS);
        let places: Vec<(u32, u16)> = trace.iter().map(|line| cache.place(*line)).collect();
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut hits = 0u32;
                let (body, tail) = places.split_at(places.len() - AHEAD);
                for (place, soon) in body.iter().zip(&places[AHEAD..]) {
                    cache.prefetch(*soon);
                    hits += u32::from(cache.access(*place));
                }
                for place in tail {
                    hits += u32::from(cache.access(*place));
                }
                black_box(hits)
            });
        });
    }
    group.finish();
}

// ---- whole chip -----------------------------------------------------------------------------------------

#[derive(Clone, Copy)]
enum Kind {
    Read,
    ReadStream,
    Write,
    DmaWrite,
    DmaRead,
}

/// One line event: the kind, the core or device, the line.
#[derive(Clone, Copy)]
struct Event {
    kind: Kind,
    agent: u8,
    line: Line,
}

fn replay(chip: &mut Chip, events: &[Event]) -> u32 {
    let step = |chip: &mut Chip, event: &Event| {
        let agent = usize::from(event.agent);
        match event.kind {
            Kind::Read => chip.read(agent, event.line, Fill::Ordinary) as u32,
            Kind::ReadStream => chip.read(agent, event.line, Fill::Stream) as u32,
            Kind::Write => chip.write(agent, event.line, Fill::Ordinary) as u32,
            Kind::DmaWrite => u32::from(chip.dma_write(agent, event.line)),
            Kind::DmaRead => u32::from(chip.dma_read(agent, event.line)),
        }
    };
    let mut sum = 0;
    let (body, tail) = events.split_at(events.len() - AHEAD);
    for (event, soon) in body.iter().zip(&events[AHEAD..]) {
        match soon.kind {
            Kind::DmaWrite | Kind::DmaRead => chip.prefetch_llc(soon.line),
            _ => chip.prefetch(usize::from(soon.agent), soon.line),
        }
        sum += step(chip, event);
    }
    tail.iter().fold(sum, |sum, event| sum + step(chip, event))
}

/// Memory of a run and the position of each stream in it.
struct Streams {
    regions: Vec<Region>,
    at: Vec<usize>,
}

impl Streams {
    fn new(map: &mut AddressMap, count: usize, bytes: u64) -> Streams {
        let regions = (0..count).map(|_| map.ordinary(bytes).expect("4 GiB are enough")).collect();
        Streams { regions, at: vec![0; count] }
    }

    fn next(&mut self, who: usize) -> Line {
        let lines = self.regions[who].lines();
        self.at[who] = (self.at[who] + 1) % lines.len();
        lines[self.at[who]]
    }

    fn any(&self, who: usize, rng: &mut Xoshiro128PlusPlus) -> Line {
        let lines = self.regions[who].lines();
        lines[below(rng, lines.len())]
    }
}

/// Makes the events of a run.
type Trace = fn(Sampling) -> Vec<Event>;

fn map(sampling: Sampling) -> AddressMap {
    let spec = ChipSpec::built_in("gold-6140").expect("built in");
    AddressMap::new(&spec, sampling, 3, 5)
}

fn random(sampling: Sampling) -> Vec<Event> {
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(11);
    let own = Streams::new(&mut map(sampling), CORES, 4 * MIB);
    let event =
        |i: usize| Event { kind: Kind::Read, agent: (i % CORES) as u8, line: own.any(i % CORES, &mut rng) };
    (0..CHIP_EVENTS).map(event).collect()
}

fn scan(sampling: Sampling) -> Vec<Event> {
    let mut own = Streams::new(&mut map(sampling), CORES, 64 * MIB);
    let event = |i: usize| Event { kind: Kind::Read, agent: (i % CORES) as u8, line: own.next(i % CORES) };
    (0..CHIP_EVENTS).map(event).collect()
}

fn half(sampling: Sampling) -> Vec<Event> {
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(12);
    let mut map = map(sampling);
    let hot = Streams::new(&mut map, CORES, 3 * MIB / 2);
    let mut cold = Streams::new(&mut map, CORES, 64 * MIB);
    let event = |i: usize| {
        let core = i % CORES;
        let is_hot = rng.next_u32() & 1 == 0;
        let line = if is_hot { hot.any(core, &mut rng) } else { cold.next(core) };
        Event { kind: Kind::Read, agent: core as u8, line }
    };
    (0..CHIP_EVENTS).map(event).collect()
}

/// A server: four cores take packets from a NIC (read, rewrite the header, send), two read blocks an SSD
/// array delivers, twelve mix a hot set and a stream, one access in four a write. Runs of lines take turns.
fn server(sampling: Sampling) -> Vec<Event> {
    let mut rng = Xoshiro128PlusPlus::seed_from_u64(13);
    let mut map = map(sampling);
    let scale = sampling.factor() as usize;
    let hot = Streams::new(&mut map, CORES, 3 * MIB / 2);
    let mut cold = Streams::new(&mut map, CORES, 64 * MIB);
    let ring = |map: &mut AddressMap, bytes| map.huge(bytes).expect("4 GiB are enough");
    let rings: Vec<Region> = (0..4).map(|_| ring(&mut map, 5 * MIB)).collect();
    let blocks: Vec<Region> = (0..2).map(|_| ring(&mut map, 16 * MIB)).collect();
    let mut events = Vec::with_capacity(CHIP_EVENTS + 4096);
    let mut turn = 0usize;
    while events.len() < CHIP_EVENTS {
        let core = turn % CORES;
        // A worker is 1024 packets, a reader 4 blocks behind its device: part of the data has left by then.
        let lap = turn / CORES;
        let mut run = |region: &Region, from: usize, count: usize, kind: Kind, agent: usize| {
            let lines = region.lines();
            for i in 0..count {
                let line = lines[(from + i) % lines.len()];
                events.push(Event { kind, agent: agent as u8, line });
            }
        };
        match core {
            0..4 => {
                let (packet, behind) = (lap * 16, 16 * 1024 / scale);
                let old = packet + rings[core].lines().len() - behind;
                run(&rings[core], packet, 16, Kind::DmaWrite, 0);
                run(&rings[core], old, 16, Kind::Read, core);
                run(&rings[core], old, 1, Kind::Write, core);
                run(&rings[core], old, 16, Kind::DmaRead, 0);
            }
            4..6 => {
                let region = &blocks[core - 4];
                let (block, behind) = (lap * 32, 8192 / scale);
                run(region, block, 32, Kind::DmaWrite, 1);
                run(region, block + region.lines().len() - behind, 32, Kind::ReadStream, core);
            }
            _ => {
                for _ in 0..16 {
                    let draw = rng.next_u32();
                    let line = if draw & 1 == 0 { hot.any(core, &mut rng) } else { cold.next(core) };
                    let kind = if draw & 6 == 0 { Kind::Write } else { Kind::Read };
                    events.push(Event { kind, agent: core as u8, line });
                }
            }
        }
        turn += 1;
    }
    events.truncate(CHIP_EVENTS);
    events
}

fn chip(c: &mut Criterion) {
    let spec = ChipSpec::built_in("gold-6140").expect("built in");
    let traces: [(&str, Trace); 4] =
        [("a_random_4MiB", random), ("b_scan_64MiB", scan), ("c_half", half), ("d_server", server)];
    for (mode, sampling) in [("chip_exact", Sampling::EXACT), ("chip_1_32", Sampling::DEFAULT)] {
        for (name, trace) in traces {
            let events = trace(sampling);
            let mut chip = Chip::new(&spec, sampling, 1);
            replay(&mut chip, &events);
            let mut counted = vec![("sampled", 1)];
            if sampling != Sampling::EXACT {
                counted.push(("equivalent", u64::from(sampling.factor())));
            }
            for (what, factor) in counted {
                let mut group = c.benchmark_group(mode);
                group.throughput(Throughput::Elements(events.len() as u64 * factor));
                group.bench_function(BenchmarkId::new(name, what), |b| {
                    b.iter(|| black_box(replay(&mut chip, &events)));
                });
                group.finish();
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = one_level, chip
}
criterion_main!(benches);
