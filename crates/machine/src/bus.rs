//! State that agents share: the chip, the devices, the meters; and the cost of an access.
//!
//! The cost depends on the level that served the access and on the load of its memory channel (microarchitecture.md 2
//! and 7). Must not know what a program does with an access.

use crate::mailbox::Mailbox;
use crate::meter::Meter;
use crate::nic::{Nic, Queue};
use crate::ssd::Array;
use crate::team::Team;
use waykeeper_silicon::{Chip, ChipSpec, Fill, Latency, Level, Line};

/// Cost in ns by level: MLC, LLC, another MLC, memory (unloaded).
#[derive(Clone, Copy, Debug)]
pub struct Costs([f64; 4]);

impl Costs {
    /// From the costs of MLC, LLC and memory; a hit in another MLC costs `peer` times an LLC hit.
    pub const fn new(mlc: f64, llc: f64, memory: f64, peer: f64) -> Costs {
        Costs([mlc, llc, llc * peer, memory])
    }

    fn of(latency: Latency, peer: f64) -> Costs {
        Costs::new(latency.mlc_ns, latency.llc_ns, latency.memory_ns, peer)
    }

    /// All costs multiplied, for example divided by the memory-level parallelism of a program.
    pub fn scaled(self, factor: f64) -> Costs {
        Costs(self.0.map(|ns| ns * factor))
    }

    /// Cost of a level on an idle chip.
    pub fn idle(self, level: Level) -> f64 {
        self.0[level as usize]
    }
}

/// One access of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// The chip with what an access to it costs.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The chip.
    pub chip: Chip,
    channels: u32,
}

impl Memory {
    /// One access of `core`; returns its cost in ns, loaded memory included.
    #[inline(always)]
    pub fn touch(&mut self, core: usize, line: Line, access: Access, fill: Fill, costs: &Costs) -> f64 {
        let level = match access {
            Access::Read => self.chip.read(core, line, fill),
            Access::Write => self.chip.write(core, line, fill),
        };
        self.cost(line, level, costs)
    }

    /// An access of `core` to a line that its prefetchers fetched into the MLC in time. `costs` are those of a line in
    /// a stream: the rest of the fetch that the core does not overlap.
    #[inline(always)]
    pub fn touch_prefetched(&mut self, core: usize, line: Line, access: Access, costs: &Costs) -> f64 {
        let level = self.chip.fetch_ahead(core, line, true);
        self.touch(core, line, access, Fill::Ordinary, costs);
        self.cost(line, level, costs)
    }

    #[inline(always)]
    fn cost(&self, line: Line, level: Level, costs: &Costs) -> f64 {
        let ns = costs.0[level as usize];
        if level == Level::Memory { ns * self.chip.dram().factor(line.channel(self.channels)) } else { ns }
    }
}

/// Prefetch distance in a run of accesses, in lines. Assumption: changes the speed of a run, never its result;
/// performance.md 1 used 8 to 32 on bare caches.
const AHEAD: usize = 6;

impl Memory {
    /// Accesses of `core`, one after the other. Calls `each` with the cost of each in ns, in their order.
    #[inline(always)]
    pub fn touch_all(
        &mut self,
        core: usize,
        lines: &[Line],
        access: Access,
        costs: &Costs,
        mut each: impl FnMut(f64),
    ) {
        for (index, line) in lines.iter().enumerate() {
            if let Some(ahead) = lines.get(index + AHEAD) {
                self.chip.prefetch(core, *ahead);
            }
            each(self.touch(core, *line, access, Fill::Ordinary, costs));
        }
    }
}

/// State that all agents share.
#[derive(Clone, Debug)]
pub struct Bus {
    /// The chip and the cost of an access to it.
    pub memory: Memory,
    /// NICs, by index.
    pub nics: Vec<Nic>,
    /// Virtual ports between switches and their tenants.
    pub(crate) ports: Vec<Queue>,
    /// SSD arrays, by index.
    pub arrays: Vec<Array>,
    /// One meter per workload.
    pub meters: Vec<Meter>,
    /// Pairs of programs that talk to each other.
    pub mailboxes: Vec<Mailbox>,
    /// Per workload: the state that its threads share, if its program is `memload`.
    pub(crate) teams: Vec<Option<Team>>,
    /// Dependent loads on this chip.
    pub dependent: Costs,
    /// Streaming loads on this chip.
    pub streaming: Costs,
    /// Core clock, GHz.
    pub ghz: f64,
    /// A hit in another core's MLC costs this many LLC hits.
    pub peer_factor: f64,
}

/// Core clock, GHz, that the times of microarchitecture.md 7 and 8 hold for: the Gold 6140's (microarchitecture.md 2).
const REFERENCE_GHZ: f64 = 2.3;

impl Bus {
    /// A chip without devices.
    pub fn new(spec: &ChipSpec, chip: Chip) -> Bus {
        Bus {
            memory: Memory { chip, channels: spec.dram.channels },
            nics: Vec::new(),
            ports: Vec::new(),
            arrays: Vec::new(),
            meters: Vec::new(),
            mailboxes: Vec::new(),
            teams: Vec::new(),
            dependent: Costs::of(spec.dependent, spec.core_to_core_factor),
            streaming: Costs::of(spec.streaming, spec.core_to_core_factor),
            ghz: spec.ghz,
            peer_factor: spec.core_to_core_factor,
        }
    }

    /// Time that this chip's cores take for work that a Gold 6140's core does in `ns`: the same number of cycles.
    pub fn work_ns(&self, ns: f64) -> f64 {
        // The quotient is exactly 1 at 2.3 GHz.
        ns * (REFERENCE_GHZ / self.ghz)
    }

    /// Costs of a line on this chip, from those on a Gold 6140: MLC, LLC, memory, ns.
    ///
    /// An MLC hit takes the same number of core cycles. The LLC and memory add the same time to it on every chip.
    /// Assumption: mesh, ring and memory do not run on the core's clock, and no source gives these costs for another
    /// chip.
    pub fn line_costs(&self, (mlc, llc, memory): (f64, f64, f64)) -> Costs {
        let hit = self.work_ns(mlc);
        Costs::new(hit, hit + (llc - mlc), hit + (memory - mlc), self.peer_factor)
    }
}

/// Mean cost of one class of accesses, for the lines outside the sample (microarchitecture.md 9).
#[derive(Clone, Copy, Debug)]
pub struct ClassMean(f64);

/// Weight of one sampled access. The mean must follow as fast as real costs change: a mean that lags by a few
/// hundred sampled accesses hides the start of a DMA leak, and a queue that fills up in an exact run drains in a
/// sampled one (flagship, 30 ms: 23 % misses exact, 6 % with 1/256, 28.0 and 28.4 with 1/8). Assumption: of the
/// weights that were tried, the one that comes closest to the exact run.
const MEAN_WEIGHT: f64 = 1.0 / 8.0;

impl ClassMean {
    /// Starts from a first guess.
    pub fn new(ns: f64) -> ClassMean {
        ClassMean(ns)
    }

    /// A sampled access cost this much.
    #[inline(always)]
    pub fn note(&mut self, ns: f64) {
        self.0 += (ns - self.0) * MEAN_WEIGHT;
    }

    /// The mean, ns.
    #[inline(always)]
    pub fn ns(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_silicon::{AddressMap, Sampling};

    fn bus(ghz: f64) -> Bus {
        let mut spec = ChipSpec::built_in("gold-6140").expect("a built-in chip");
        spec.ghz = ghz;
        let chip = Chip::new(&spec, Sampling::EXACT, 1);
        Bus::new(&spec, chip)
    }

    #[test]
    fn a_prefetched_line_costs_what_a_line_of_a_stream_costs() {
        let mut bus = bus(2.3);
        let spec = ChipSpec::built_in("gold-6140").expect("a built-in chip");
        let mut memory = AddressMap::new(&spec, Sampling::EXACT, 1, 1);
        let line = memory.ordinary(4096).expect("memory is empty").lines()[0];
        let stream = bus.streaming;
        // Memory is idle: 11.5 ns from there, 2.2 once the MLC holds it.
        for ns in [11.5, 2.2] {
            assert_eq!(bus.memory.touch_prefetched(0, line, Access::Read, &stream), ns);
        }
        assert_eq!(bus.memory.chip.core_counters(0).mlc_hits, 2, "both times the core found it in its MLC");
        assert_eq!(bus.memory.chip.prefetch_counters(0).llc_misses, 1);
    }

    #[test]
    fn the_core_s_part_of_a_cost_follows_its_clock() {
        let costs = |ghz| bus(ghz).line_costs((2.0, 5.0, 9.5)).0;
        let peer = bus(2.3).peer_factor;
        assert_eq!(costs(2.3), [2.0, 5.0, 5.0 * peer, 9.5], "a Gold 6140, to the last bit");
        assert_eq!(costs(4.6), [1.0, 4.0, 4.0 * peer, 8.5], "twice the clock");
        assert_eq!((bus(2.3).work_ns(0.9), bus(4.6).work_ns(25.0)), (0.9, 12.5));
    }
}
