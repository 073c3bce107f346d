//! One layout on the small chip for some simulated milliseconds. It must not know what a result means for progress.

use crate::layout::Layout;
use crate::plant::{LineSet, Plant, QueuePlant, TenantPlant};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use waykeeper_silicon::{Chip, DcaMode, Fill, Level, Line};

/// Counts of a run, after its warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// By tenant, in the order of the plant.
    pub tenants: Vec<TenantCounts>,
    /// Device writes by device of the chip: hits and misses.
    pub writes: Vec<(u64, u64)>,
    /// Line events that were simulated.
    pub events: u64,
}

/// A tenant's counts, in parts of equal time.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantCounts {
    pub own: [Hits; PARTS],
    pub data: [Hits; PARTS],
    /// Lines of the small chip that its cores' lines occupy, in the mean.
    pub held: f64,
}

/// Hits and references.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Hits {
    pub hits: f64,
    pub all: f64,
}

/// Parts of a run, whose differences show its sampling error. Assumption: eight give a standard error to about a quarter.
pub(crate) const PARTS: usize = 8;

/// Line events of one tenant in a step, as a multiple of the mean step: a tenant that makes more has counters that
/// contradict each other. Assumption: no layout makes a tenant so much faster.
const MOST_OF_A_STEP: f64 = 16.0;
/// Part of the events that warm the chip up.
const WARM: f64 = 0.35;
/// Line events of the busiest queue in one time step. Assumption: devices and cores then alternate often enough.
const STEP_LINES: f64 = 8.0;
/// Share of a program's accesses that write. Assumption: one in four, as of SPEC CPU2017 (docs/programs.md).
const WRITES: f64 = 0.25;
/// Growth of the logarithm of a NIC's queue per hit ratio lost. Assumption, of the values tried on `a4-hpw-heavy`.
const FEEDBACK: f64 = 4.0;
/// Reads whose hits decide that.
const REMEMBERED: f64 = 64.0;
/// Share of its buffers that a queue fills at most: the others wait for packets.
pub(crate) const FULL: f64 = 0.9;
/// References that find their line in the MLC are drawn again, so often.
const REDRAWS: usize = 6;

impl Hits {
    /// Hits per reference; `None` without references.
    pub fn ratio(self) -> Option<f64> {
        (self.all > 0.0).then(|| self.hits / self.all)
    }

    fn note(&mut self, hit: bool) {
        self.all += 1.0;
        self.hits += f64::from(u8::from(hit));
    }
}

impl std::iter::Sum for Hits {
    fn sum<I: Iterator<Item = Hits>>(all: I) -> Hits {
        all.fold(Hits::default(), |a, b| Hits { hits: a.hits + b.hits, all: a.all + b.all })
    }
}

/// State of a tenant in a run.
struct Tenant<'a> {
    plant: &'a TenantPlant,
    rng: Xoshiro256PlusPlus,
    /// Its clock, seconds of the small chip.
    clock: f64,
    once_at: usize,
    /// The next line of each set that is referenced in turn.
    scans: Vec<usize>,
    core: usize,
}

/// State of a queue in a run.
struct Queue<'a> {
    plant: &'a QueuePlant,
    /// Lines written so far, and what is owed for the present time.
    head: usize,
    /// Share of the last reads that hit.
    recent: f64,
    owed: f64,
    owed_read: f64,
    owed_sent: f64,
}

/// Simulates a layout with about so many line events. Equal arguments give equal counts.
pub(crate) fn run(plant: &Plant, layout: &Layout, events: u64) -> Counts {
    let mut chip = plant.chip.power_on(CHIP_SEED);
    layout.set(&mut chip, plant);
    let mut tenants: Vec<Tenant<'_>> = plant
        .tenants
        .iter()
        .map(|plant| Tenant {
            plant,
            rng: Xoshiro256PlusPlus::seed_from_u64(TENANT_SEED ^ u64::from(plant.id.0) << 20),
            clock: 0.0,
            once_at: 0,
            scans: vec![0; plant.sets.len()],
            core: 0,
        })
        .collect();
    let mut queues: Vec<Queue<'_>> = plant
        .queues
        .iter()
        .map(|plant| Queue {
            plant,
            head: plant.lag as usize,
            recent: plant.usual,
            owed: 0.0,
            owed_read: 0.0,
            owed_sent: 0.0,
        })
        .collect();
    let filled = fill(&mut chip, &mut tenants, layout, plant);
    let seconds = events.saturating_sub(filled).max(events / 4) as f64 / plant.events_per_s().max(1.0);
    let busiest = plant.queues.iter().map(|queue| queue.inbound).fold(0.0, f64::max);
    let steps = (busiest * seconds / STEP_LINES).clamp(64.0, 4000.0).ceil();
    let step_s = seconds / steps;
    let warm = (steps * WARM).ceil();
    let mut counts =
        Counts { tenants: vec![TenantCounts::default(); tenants.len()], writes: Vec::new(), events: filled };
    // Counters that contradict each other could make references free of time.
    let most = (MOST_OF_A_STEP * events as f64 / steps) as u64 + 64;
    let mut before = Vec::new();
    for step in 0..steps as usize {
        let part = (step as f64 - warm) / (steps - warm) * PARTS as f64;
        if step == warm as usize {
            before = writes(&chip, plant);
        }
        let part = (part >= 0.0).then(|| (part as usize).min(PARTS - 1));
        let until = (step + 1) as f64 * step_s;
        for queue in &mut queues {
            counts.events += queue.advance(&mut chip, step_s, part, &mut counts.tenants);
        }
        for (index, (tenant, into)) in tenants.iter_mut().zip(&mut counts.tenants).enumerate() {
            if part.is_some() {
                into.held += f64::from(chip.group_occupancy(group(index))) / (steps - warm);
            }
            counts.events += tenant.advance(&mut chip, until, most, part.map(|part| &mut into.own[part]));
        }
    }
    let after = writes(&chip, plant);
    counts.writes = after.iter().zip(&before).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect();
    counts
}

/// Seeds of the chip's and the tenants' random choices: the same for all layouts, so that their difference has less noise.
const CHIP_SEED: u64 = 0x1eaf;
const TENANT_SEED: u64 = 0x5eed_7e4a;

/// The group that a tenant's lines are counted for.
fn group(tenant: usize) -> u8 {
    tenant.min(127) as u8
}

fn writes(chip: &Chip, plant: &Plant) -> Vec<(u64, u64)> {
    (0..plant.ports.len())
        .map(|device| {
            let counters = chip.device_counters(device);
            (counters.write_hits, counters.write_misses + counters.writes_uncached)
        })
        .collect()
}

/// Fills each tenant's ways with its lines, so that a tenant with few references need not do so in simulated time.
fn fill(chip: &mut Chip, tenants: &mut [Tenant<'_>], layout: &Layout, plant: &Plant) -> u64 {
    let way = plant.chip.llc_lines / f64::from(layout.ways);
    let fills: Vec<bool> = tenants.iter().map(|tenant| !tenant.plant.sets.is_empty()).collect();
    let has = |index: usize, way: u32| fills[index] && layout.masks[index].contains(way);
    let room = |index: usize| {
        // Its part of each of its ways.
        let ways = (0..layout.ways).filter(|at| has(index, *at));
        ways.map(|at| way / (0..fills.len()).filter(|other| has(*other, at)).count() as f64).sum::<f64>()
            as usize
    };
    let rooms: Vec<usize> = (0..tenants.len()).map(room).collect();
    let mut events = 0;
    let longest = tenants.iter().flat_map(|t| &t.plant.sets).map(|set| set.lines.len()).max().unwrap_or(0);
    const RUN: usize = 32;
    // Twice: lines that are found the second time have proven reuse, as those of a program that has run for long.
    for _ in 0..2 {
        for from in (0..longest).step_by(RUN) {
            for (index, tenant) in tenants.iter_mut().enumerate() {
                for LineSet { lines, .. } in &tenant.plant.sets {
                    for line in lines.iter().take(rooms[index].min(from + RUN)).skip(from) {
                        let core = tenant.plant.cores.start + tenant.core % tenant.plant.cores.len();
                        tenant.core += 1;
                        chip.write(core, *line, Fill::Ordinary);
                        events += 1;
                    }
                }
            }
        }
    }
    events
}

impl Tenant<'_> {
    /// References until its clock reaches `until`. Returns the line events.
    /// At most so many in a step.
    fn advance(&mut self, chip: &mut Chip, until: f64, most: u64, mut into: Option<&mut Hits>) -> u64 {
        if self.plant.own_rate <= 0.0 {
            return 0;
        }
        let mut events = 0;
        while self.clock < until {
            let (hit, spent) = self.reference(chip);
            events += spent;
            if let Some(into) = &mut into {
                into.note(hit);
            }
            let cost = if hit { self.plant.hit_s } else { self.plant.miss_s };
            // At least a thousandth of a microsecond of the small chip, so that time passes.
            self.clock += (self.plant.base_s + cost).max(1e-9);
            if events >= most {
                self.clock = until;
            }
        }
        events
    }

    fn reference(&mut self, chip: &mut Chip) -> (bool, u64) {
        let plant = self.plant;
        self.core = if self.core + 1 < plant.cores.len() { self.core + 1 } else { 0 };
        let core = plant.cores.start + self.core;
        let place = unit(&mut self.rng);
        let write = unit(&mut self.rng) < WRITES;
        let choice = self.rng.next_u64();
        let touch = |chip: &mut Chip, line: Line| {
            if write { chip.write(core, line, Fill::Ordinary) } else { chip.read(core, line, Fill::Ordinary) }
        };
        let Some(at) = plant.sets.iter().position(|set| place < set.until) else {
            let until = plant.sets.last().map_or(0.0, |set| set.until);
            if place < until + plant.always || plant.once.is_empty() {
                return (true, 0);
            }
            self.once_at = if self.once_at + 1 < plant.once.len() { self.once_at + 1 } else { 0 };
            return (touch(chip, plant.once[self.once_at]) != Level::Memory, 1);
        };
        let set = &plant.sets[at];
        if set.scan {
            let next = self.scans[at];
            self.scans[at] = if next + 1 < set.lines.len() { next + 1 } else { 0 };
            return (touch(chip, set.lines[next]) != Level::Memory, 1);
        }
        let mut choice = choice;
        for draws in 1..=REDRAWS {
            let line = set.lines[((choice >> 32) as usize * set.lines.len()) >> 32];
            match touch(chip, line) {
                Level::Mlc if draws < REDRAWS => choice = mixed(choice),
                level => return (level != Level::Memory, draws as u64),
            }
        }
        (true, REDRAWS as u64)
    }
}

/// Another number from one.
fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ x >> 31
}

/// Uniform in `[0, 1)`.
fn unit(rng: &mut Xoshiro256PlusPlus) -> f64 {
    f64::from((rng.next_u64() >> 32) as u32) * (1.0 / 4_294_967_296.0)
}

impl Queue<'_> {
    /// Lines that the device is ahead now: a tenant that misses more is slower, and its queue grows. Drives wait for their
    /// program instead.
    fn lag(&self) -> f64 {
        let plant = self.plant;
        if plant.storage {
            return plant.lag;
        }
        let grown = plant.lag * (FEEDBACK * (plant.usual - self.recent)).exp();
        grown.min(plant.lines.len() as f64 * FULL)
    }

    /// The device writes the lines of a step, the tenant reads those of as many lines before, the device sends them.
    fn advance(
        &mut self,
        chip: &mut Chip,
        step_s: f64,
        part: Option<usize>,
        counts: &mut [TenantCounts],
    ) -> u64 {
        let plant = self.plant;
        self.owed += plant.inbound * step_s;
        let count = self.owed as usize;
        self.owed -= count as f64;
        let len = plant.lines.len();
        let sends = if plant.inbound > 0.0 { plant.outbound / plant.inbound } else { 0.0 };
        let mut events = count as u64;
        let lag = self.lag();
        for _ in 0..count {
            chip.dma_write(plant.device, plant.lines[self.head % len]);
            // A line of the small chip is many of the server's, so a lag is no whole number: of its fraction, as many reads
            // are one line later. The golden ratio spreads them evenly.
            let later = (self.head as f64 * 0.618_033_988_749_895).fract() < lag.fract();
            let behind = lag as usize + usize::from(later);
            let line = plant.lines[(self.head + len - behind) % len];
            self.head += 1;
            self.owed_read += plant.read;
            if self.owed_read >= 1.0 {
                self.owed_read -= 1.0;
                let fill = if plant.storage { Fill::Stream } else { Fill::Ordinary };
                let level = if plant.rewrites {
                    chip.write(plant.core, line, fill)
                } else {
                    chip.read(plant.core, line, fill)
                };
                events += 1;
                self.recent += (f64::from(u8::from(level != Level::Memory)) - self.recent) / REMEMBERED;
                if let (Some(part), Some(tenant)) = (part, plant.tenant) {
                    counts[tenant].data[part].note(level != Level::Memory);
                }
            }
            self.owed_sent += sends;
            if self.owed_sent >= 1.0 {
                self.owed_sent -= 1.0;
                chip.dma_read(plant.device, line);
                events += 1;
            }
        }
        events
    }
}

impl Layout {
    /// Sets a chip's knobs.
    fn set(&self, chip: &mut Chip, plant: &Plant) {
        for (index, (tenant, mask)) in plant.tenants.iter().zip(&self.masks).enumerate() {
            for core in tenant.cores.clone() {
                // A mask that the chip does not take is not asked for: layouts are checked when they are made.
                let _ = chip.set_core_mask(core, *mask);
                chip.set_group(core, group(index));
            }
        }
        if let Some(ways) = self.dca_ways {
            let _ = chip.set_dca_ways(ways);
        }
        for (device, port) in plant.ports.iter().enumerate() {
            let on = self.dca.get(port).copied().unwrap_or(true);
            chip.set_dca(device, if on { DcaMode::On } else { DcaMode::Off });
        }
    }
}
