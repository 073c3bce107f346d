//! One machine on which trials run: the chip, the memory of the experiment, a clock, and the neighbours.
//!
//! Time passes with the steps and moves nothing but the neighbours: they access as many lines as their rates ask for.

use crate::file::{ExperimentFile, MeasuredExperiment, Neighbours, Part, Sample, Step, Walk};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::ops::Range;
use waykeeper_silicon::{
    AddressMap, Chip, ChipSpec, Fill, Latency, Level, Line, OutOfMemory, Region, Sampling,
};
use waykeeper_units::LINE_BYTES;

/// The device of the experiment, and that of the neighbours.
const DEVICE: usize = 0;
const NEIGHBOUR: usize = 1;

/// Lines between two turns of the neighbours: 64 simulated ones take some microseconds of a sample of 1/64.
const TURN: usize = 64;

/// Memory that a neighbour reads line by line, in capacities of the LLC. Assumption: a line has left all caches when it is
/// read again.
const STREAM_LLCS: u64 = 3;

/// Bytes that the neighbours' devices write to, MiB. Assumption: beyond what any DCA ways hold, as their streams are.
const DEVICE_RING_MIB: u64 = 256;

/// A chip with the memory of a file's experiments and its neighbours.
pub(crate) struct Machine<'a> {
    file: &'a ExperimentFile,
    chip: Chip,
    /// The neighbours' cores: those that no experiment of the file uses; the last of all if it uses all.
    others: Range<usize>,
    /// The one of them that is next.
    other: usize,
    streaming: Latency,
    /// Real lines per simulated one.
    factor: f64,
    /// Lines per MiB of the file.
    lines_per_mib: f64,
    regions: BTreeMap<&'a str, Region>,
    neighbours: Option<Traffic>,
    rng: Xoshiro256PlusPlus,
}

/// The neighbours' memory, and what they have yet to do.
struct Traffic {
    device: Stream,
    stream: Stream,
    reuse: Stream,
}

/// Accesses to a region at a rate.
struct Stream {
    region: Region,
    next: usize,
    /// Simulated lines per ns.
    rate: f64,
    /// Simulated lines that are due.
    due: f64,
}

impl Stream {
    fn new(region: Region, gb_per_s: f64, factor: f64) -> Stream {
        Stream { region, next: 0, rate: gb_per_s / LINE_BYTES as f64 / factor, due: 0.0 }
    }

    /// How many lines are due after so much time.
    fn due(&mut self, ns: f64) -> usize {
        self.due += self.rate * ns;
        let now = self.due.floor();
        self.due -= now;
        if self.region.lines().is_empty() { 0 } else { now as usize }
    }

    /// The next line, in order.
    fn next(&mut self) -> Line {
        let line = self.region.lines()[self.next];
        self.next = (self.next + 1) % self.region.lines().len();
        line
    }
}

/// What a sample showed, in simulated lines.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    pub lines: u64,
    /// Served by an MLC.
    pub mlc: u64,
    /// Served by the LLC, or by the MLC of another core.
    pub llc: u64,
}

impl<'a> Machine<'a> {
    /// A chip whose LLC is full of the neighbours' lines.
    pub fn new(
        spec: &ChipSpec,
        file: &'a ExperimentFile,
        sampling: Sampling,
        seed: u64,
    ) -> Result<Machine<'a>, OutOfMemory> {
        let layout = file.layout.unwrap_or(seed);
        let mut map = AddressMap::new(spec, sampling, layout, seed);
        let way_mib = spec.llc_bytes() as f64 / f64::from(spec.llc.ways) / f64::from(1 << 20);
        let lines_per_mib = way_mib / file.way_mib * f64::from(1 << 20) / LINE_BYTES as f64;
        let factor = f64::from(sampling.factor());
        let bytes = |mib: f64| (mib * lines_per_mib).round() as u64 * LINE_BYTES;
        let mut regions = BTreeMap::new();
        for (name, mib) in &file.regions {
            regions.insert(name.as_str(), map.huge(bytes(*mib))?);
        }
        let old = map.huge(STREAM_LLCS * spec.llc_bytes())?;
        let chip = Chip::new(spec, sampling, seed);
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x7e57);
        let neighbours = match file.neighbours {
            None => None,
            Some(Neighbours { device_gb_per_s, stream_gb_per_s, reuse_gb_per_s, reuse_mib }) => {
                let scaled = |gb_per_s: f64| gb_per_s * way_mib / file.way_mib;
                let device = map.huge(bytes(DEVICE_RING_MIB as f64))?;
                let reuse = map.huge(bytes(reuse_mib))?;
                Some(Traffic {
                    device: Stream::new(device, scaled(device_gb_per_s), factor),
                    stream: Stream::new(old.clone(), scaled(stream_gb_per_s), factor),
                    reuse: Stream::new(reuse, scaled(reuse_gb_per_s), factor),
                })
            }
        };
        let cores = spec.cores as usize;
        let others = file.cores().min(cores - 1)..cores;
        let (other, streaming) = (others.start, spec.streaming);
        let mut new =
            Machine { file, chip, others, other, streaming, factor, lines_per_mib, regions, neighbours, rng };
        new.warm_up(&old);
        Ok(new)
    }

    /// Fills the LLC, and gives the neighbours time to have in it what they reuse.
    fn warm_up(&mut self, old: &Region) {
        for line in old.lines() {
            let core = self.next_other();
            self.chip.read(core, *line, Fill::Ordinary);
        }
        let stream_ns = self.neighbours.as_ref().map_or(0.0, |traffic| {
            let slowest = traffic.stream.rate.max(traffic.reuse.rate).max(traffic.device.rate);
            if slowest > 0.0 { old.lines().len() as f64 / slowest } else { 0.0 }
        });
        self.pass(stream_ns);
    }

    /// The share of hits that an experiment shows at `x`: the steps, then the sample.
    pub fn trial(&mut self, experiment: &MeasuredExperiment, x: f64) -> Seen {
        for step in &experiment.steps {
            self.step(step, x);
        }
        self.pass(self.file.pace.sample_us * 1e3);
        let Sample { region, at, mib, cores } = &experiment.sample;
        let mut seen = Seen::default();
        for core in 0..cores.of(x) as usize {
            let from = at.of(x) + core as f64 * mib.of(x);
            for line in self.lines(region, from, mib.of(x)) {
                seen.lines += 1;
                match self.chip.level_of(core, line) {
                    Level::Mlc => seen.mlc += 1,
                    Level::Llc | Level::Peer => seen.llc += 1,
                    Level::Memory => {}
                }
            }
        }
        seen
    }

    fn step(&mut self, step: &Step, x: f64) {
        match step {
            Step::Flush(part) => {
                let ns = self.file.pace.flush_ns;
                self.each_turn(part, x, ns, |chip, lines| chip.flush_all(lines));
            }
            Step::DeviceWrite(part) => {
                self.transfer(part, x, |chip, lines| chip.dma_write_all(DEVICE, lines))
            }
            Step::DeviceRead(part) => self.transfer(part, x, |chip, lines| chip.dma_read_all(DEVICE, lines)),
            Step::Read(walk) => self.walk(walk, x, |chip, core, line| chip.read(core, line, Fill::Ordinary)),
            Step::Write(walk) => {
                self.walk(walk, x, |chip, core, line| chip.write(core, line, Fill::Ordinary))
            }
            Step::Wait(wait) => self.pass(wait.us.of(x) * 1e3),
        }
    }

    /// A part of a region, from so many MiB on.
    fn lines(&self, region: &str, at: f64, mib: f64) -> Vec<Line> {
        let region = &self.regions[region];
        let line = |mib: f64| (mib * self.lines_per_mib).round() as u32;
        region.lines()[region.range(line(at), line(at + mib))].to_vec()
    }

    fn each_turn(&mut self, part: &Part, x: f64, ns: f64, act: impl Fn(&mut Chip, &[Line])) {
        for lines in self.lines(&part.region, part.at.of(x), part.mib.of(x)).chunks(TURN) {
            act(&mut self.chip, lines);
            self.pass(ns * self.factor * lines.len() as f64);
        }
    }

    fn transfer(&mut self, part: &Part, x: f64, act: impl Fn(&mut Chip, &[Line])) {
        if part.mib.of(x) > 0.0 {
            self.pass(self.file.pace.device_start_us * 1e3);
            self.each_turn(part, x, LINE_BYTES as f64 / self.file.pace.device_gb_per_s, act);
        }
    }

    /// Cores go over their parts line by line, one as fast as the other.
    fn walk(&mut self, walk: &Walk, x: f64, access: impl Fn(&mut Chip, usize, Line) -> Level) {
        let cores = walk.cores.of(x) as usize;
        let mut parts: Vec<Vec<Line>> = (0..cores)
            .map(|core| {
                self.lines(&walk.region, walk.at.of(x) + core as f64 * walk.mib.of(x), walk.mib.of(x))
            })
            .collect();
        if walk.random {
            parts.iter_mut().for_each(|part| shuffle(part, &mut self.rng));
        }
        let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
        for _ in 0..walk.passes.of(x) as usize {
            let mut ns = 0.0;
            for at in 0..longest {
                for (core, part) in parts.iter().enumerate() {
                    if let Some(line) = part.get(at) {
                        let level = access(&mut self.chip, core, *line);
                        ns += self.cost(level) / cores as f64;
                    }
                }
                if at % TURN == TURN - 1 || at + 1 == longest {
                    self.pass(std::mem::take(&mut ns) * self.factor);
                }
            }
        }
    }

    /// ns of a load in a stream of them.
    fn cost(&self, level: Level) -> f64 {
        match level {
            Level::Mlc => self.streaming.mlc_ns,
            Level::Llc | Level::Peer => self.streaming.llc_ns,
            Level::Memory => self.streaming.memory_ns,
        }
    }

    /// The neighbours' cores take turns.
    fn next_other(&mut self) -> usize {
        self.other = if self.other + 1 < self.others.end { self.other + 1 } else { self.others.start };
        self.other
    }

    /// Time passes: the neighbours go on.
    fn pass(&mut self, ns: f64) {
        if self.neighbours.is_none() {
            return;
        }
        // In slices, so that their accesses are mixed as they are on a machine.
        let slices = (ns / 1e5).ceil().max(1.0);
        for _ in 0..slices as usize {
            self.slice(ns / slices);
        }
    }

    fn slice(&mut self, ns: f64) {
        let Some(mut traffic) = self.neighbours.take() else { return };
        for _ in 0..traffic.device.due(ns) {
            self.chip.dma_write(NEIGHBOUR, traffic.device.next());
        }
        for _ in 0..traffic.stream.due(ns) {
            let core = self.next_other();
            self.chip.read(core, traffic.stream.next(), Fill::Ordinary);
        }
        for _ in 0..traffic.reuse.due(ns) {
            let lines = traffic.reuse.region.lines();
            let line = lines[below(&mut self.rng, lines.len())];
            let core = self.next_other();
            self.chip.read(core, line, Fill::Ordinary);
        }
        self.neighbours = Some(traffic);
    }
}

/// Fisher-Yates.
fn shuffle(items: &mut [Line], rng: &mut Xoshiro256PlusPlus) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last + 1));
    }
}

/// Uniform in `0..n`.
fn below(rng: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}
