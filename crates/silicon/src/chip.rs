//! The chip's interface for the machine: accesses, levels that served them, masks, switches, counters.
//!
//! Knows neither time nor programs. This file decides MLC hits; the LLC's rules decide the rest.

use crate::address::Sampling;
use crate::audit::{MlcResident, Resident};
use crate::counters::{ChipCounters, CoreCounters, DcaCounters, DeviceCounters, PrefetchCounters};
use crate::dca::{DcaRegisters, RegisterError};
use crate::dram::Dram;
use crate::evictions::EvictionCount;
use crate::inclusive::Inclusive;
use crate::line::Line;
use crate::mlc;
use crate::noninclusive::NonInclusive;
use crate::rules::Rules;
use crate::shared::{DEVICE_OWNER, DcaMode, Shared};
use crate::simd::prefetch;
use crate::spec::{ChipSpec, LlcKind};
use crate::steering::{self, PayloadTarget, Placement, SteeringCounters, Tag};
use waykeeper_units::{MaskError, WayMask};

/// Devices a chip can tell apart. Assumption: more than any scenario has; owners leave room for 128.
pub const MAX_DEVICES: usize = 16;

/// Prefetch distance in a device's transfer, in lines. Assumption: changes the speed of a run, never its result; not
/// measured on its own.
const DMA_AHEAD: usize = 4;

/// The lines of a device's transfer, each with the line to prefetch at its turn.
#[inline(always)]
pub(crate) fn with_ahead(lines: &[Line]) -> impl Iterator<Item = (Line, Option<Line>)> + '_ {
    lines.iter().enumerate().map(|(index, line)| (*line, lines.get(index + DMA_AHEAD).copied()))
}

/// Where an access was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Level {
    /// In the core's own MLC.
    Mlc = 0,
    /// In the LLC.
    Llc = 1,
    /// In another core's MLC.
    Peer = 2,
    /// In memory.
    Memory = 3,
}

/// Kind of data that a fill brings; the MLC's victim rule depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Any other data.
    Ordinary,
    /// Streaming I/O data: storage blocks that are read once (microarchitecture.md 3, stream).
    Stream,
}

#[derive(Clone, Debug)]
enum Llc {
    NonInclusive(NonInclusive),
    Inclusive(Inclusive),
}

/// One socket: MLCs, LLC, memory.
#[derive(Clone, Debug)]
pub struct Chip {
    shared: Shared,
    llc: Llc,
    ways: u32,
    min_ways: u32,
    sparse_masks: bool,
    dca_ways: Option<WayMask>,
    dca_registers: Option<DcaRegisters>,
}

impl Chip {
    /// A cold chip with every core on all ways and DCA on. `seed` drives its random choices.
    pub fn new(spec: &ChipSpec, rules: Rules, sampling: Sampling, seed: u64) -> Chip {
        let rules = rules.without_inclusive_ways_if(spec.llc.inclusive_ways.is_none());
        let shared = Shared::new(spec, rules, sampling, seed);
        let llc = match spec.llc.kind {
            LlcKind::NonInclusive => Llc::NonInclusive(NonInclusive::new(spec, &shared)),
            LlcKind::Inclusive => Llc::Inclusive(Inclusive::new(spec, &shared)),
        };
        Chip {
            shared,
            llc,
            ways: spec.llc.ways,
            min_ways: spec.llc.min_ways,
            sparse_masks: spec.llc.sparse_masks,
            dca_ways: spec.llc.dca_ways,
            dca_registers: spec.dca,
        }
    }

    /// A program on `core` reads a line.
    #[inline]
    pub fn read(&mut self, core: usize, line: Line, fill: Fill) -> Level {
        let index = self.shared.mlc_index(core, line.set());
        let mlc = self.shared.mlc_at(index);
        let Some(way) = mlc.find(line.tag()) else {
            return self.read_miss(core, index, line, fill);
        };
        mlc.touch(way);
        if mlc.is_pushed(way) {
            mlc.unmark(way, mlc::PUSHED);
            self.shared.steering.pushed_payload_hit(core);
        }
        self.count(core, line, Level::Mlc)
    }

    /// A program on `core` writes a line.
    #[inline]
    pub fn write(&mut self, core: usize, line: Line, fill: Fill) -> Level {
        let index = self.shared.mlc_index(core, line.set());
        let mlc = self.shared.mlc_at(index);
        let Some(way) = mlc.find(line.tag()) else {
            return self.write_miss(core, index, line, fill);
        };
        mlc.touch(way);
        mlc.add_flags(way, mlc::DIRTY);
        let marks = mlc.marks(way);
        if marks & !mlc::PAYLOAD != 0 {
            mlc.unmark(way, marks & !mlc::PAYLOAD);
            self.marked_write(core, line, marks);
        }
        self.count(core, line, Level::Mlc)
    }

    /// Turns a core's hardware prefetchers on or off (MSR 0x1A4).
    pub fn set_prefetchers(&mut self, core: usize, on: bool) {
        self.shared.prefetchers_on[core] = on;
    }

    /// Whether a core's hardware prefetchers are on, as they are at power-on.
    #[inline(always)]
    pub fn prefetchers_on(&self, core: usize) -> bool {
        self.shared.prefetchers_on[core]
    }

    /// A prefetcher of `core` fetches a line into its MLC. Counts as an access that missed the MLC, as in the events of
    /// real chips (L2_RQSTS.MISS, LONGEST_LAT_CACHE), and separately from demand accesses
    /// ([`Chip::prefetch_counters`]). Does nothing if the MLC already has the line. `useful` says whether the core will
    /// access the line.
    #[inline]
    pub fn fetch_ahead(&mut self, core: usize, line: Line, useful: bool) -> Level {
        let index = self.shared.mlc_index(core, line.set());
        if self.shared.mlc_at(index).find(line.tag()).is_some() {
            return Level::Mlc;
        }
        let level = self.read_miss(core, index, line, Fill::Ordinary);
        let counters = &mut self.shared.prefetches[core];
        counters.llc_misses += u64::from(level == Level::Memory);
        counters.llc_hits += u64::from(level != Level::Memory);
        counters.useless += u64::from(!useful);
        level
    }

    #[inline(never)]
    fn read_miss(&mut self, core: usize, index: usize, line: Line, fill: Fill) -> Level {
        self.shared.evictions.by_core(core);
        let level = match &mut self.llc {
            Llc::NonInclusive(llc) => llc.read_miss(&mut self.shared, core, index, line, fill),
            Llc::Inclusive(llc) => llc.read_miss(&mut self.shared, core, line, fill),
        };
        self.count(core, line, level)
    }

    #[inline(never)]
    fn write_miss(&mut self, core: usize, index: usize, line: Line, fill: Fill) -> Level {
        self.shared.evictions.by_core(core);
        let level = match &mut self.llc {
            Llc::NonInclusive(llc) => llc.write_miss(&mut self.shared, core, index, line, fill),
            Llc::Inclusive(llc) => llc.write_miss(&mut self.shared, core, line, fill),
        };
        self.count(core, line, level)
    }

    #[inline(never)]
    fn marked_write(&mut self, core: usize, line: Line, marks: u64) {
        if marks & mlc::PUSHED != 0 {
            self.shared.steering.pushed_payload_hit(core);
        }
        let elsewhere = marks & mlc::ELSEWHERE;
        if elsewhere == 0 {
            return;
        }
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.own_exclusively(&mut self.shared, core, line, elsewhere),
            Llc::Inclusive(llc) => llc.own_exclusively(&mut self.shared, core, line),
        }
    }

    #[inline(always)]
    fn count(&mut self, core: usize, line: Line, level: Level) -> Level {
        self.shared.served_at(core, line)[level as usize] += 1;
        level
    }

    /// Counts accesses of `core` that its MLC served and that are not simulated line by line.
    pub fn count_mlc_hits(&mut self, core: usize, accesses: u64) {
        self.shared.hits_without_line[core] += accesses;
    }

    /// A device writes a full line. Returns whether it was cached before.
    #[inline]
    pub fn dma_write(&mut self, device: usize, line: Line) -> bool {
        self.shared.evictions.by_device(device);
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.dma_write(&mut self.shared, device, line),
            Llc::Inclusive(llc) => llc.dma_write(&mut self.shared, device, line),
        }
    }

    /// A device writes a part of a line. Returns whether it was cached before.
    ///
    /// Where DCA puts a line that was not cached into the LLC, memory is read first, for the rest of the line. Counted
    /// separately from full lines, as in the opcode events (RFO, not ItoM; nvme-memload s2.3).
    pub fn dma_write_partial(&mut self, device: usize, line: Line) -> bool {
        let before = *self.shared.dca_at(device, line);
        let uncached = self.shared.device[device].writes_uncached;
        let cached = self.dma_write(device, line);
        let full = std::mem::replace(self.shared.dca_at(device, line), before);
        if full.write_misses > before.write_misses {
            self.shared.memory_read(line);
        }
        let device = &mut self.shared.device[device];
        device.writes_uncached = uncached;
        device.partial_hits += u64::from(cached);
        device.partial_misses += u64::from(!cached);
        cached
    }

    /// A device reads a line. Returns whether the caches served it.
    #[inline]
    pub fn dma_read(&mut self, device: usize, line: Line) -> bool {
        self.shared.evictions.by_device(device);
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.dma_read(&mut self.shared, device, line),
            Llc::Inclusive(llc) => llc.dma_read(&mut self.shared, device, line),
        }
    }

    /// A device writes full lines, one after the other.
    #[inline]
    pub fn dma_write_all(&mut self, device: usize, lines: &[Line]) {
        self.shared.evictions.by_device(device);
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.dma_write_all(&mut self.shared, device, lines),
            Llc::Inclusive(llc) => {
                for (line, ahead) in with_ahead(lines) {
                    ahead.into_iter().for_each(|ahead| llc.prefetch(ahead));
                    llc.dma_write(&mut self.shared, device, line);
                }
            }
        }
    }

    /// A device reads lines, one after the other.
    #[inline]
    pub fn dma_read_all(&mut self, device: usize, lines: &[Line]) {
        self.shared.evictions.by_device(device);
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.dma_read_all(&mut self.shared, device, lines),
            Llc::Inclusive(llc) => {
                for (line, ahead) in with_ahead(lines) {
                    ahead.into_iter().for_each(|ahead| llc.prefetch(ahead));
                    llc.dma_read(&mut self.shared, device, line);
                }
            }
        }
    }

    /// A device writes full lines of a packet, one after the other: the first of them is the packet's header if
    /// `header` says so. An inclusive LLC has no IDIO and treats them as any others.
    pub fn steered_write_all(
        &mut self,
        device: usize,
        lines: &[Line],
        header: bool,
        placement: Placement,
        tag: Tag,
    ) {
        let Chip { shared, llc, .. } = self;
        shared.evictions.by_device(device);
        for (index, line) in lines.iter().enumerate() {
            match llc {
                Llc::NonInclusive(llc) => {
                    let tag = Tag { header: header && index == 0, ..tag };
                    let to = steering::target(placement, tag, shared.steering.status(tag.core));
                    llc.steered_write(shared, device, *line, tag, to);
                }
                Llc::Inclusive(llc) => drop(llc.dma_write(shared, device, *line)),
            }
        }
    }

    /// A device reads lines of packets that were destined to `core`.
    pub fn steered_read_all(&mut self, device: usize, lines: &[Line], core: usize) {
        self.shared.evictions.by_device(device);
        for line in lines {
            match &mut self.llc {
                Llc::NonInclusive(llc) => drop(llc.steered_read(&mut self.shared, device, *line, core)),
                Llc::Inclusive(llc) => drop(llc.dma_read(&mut self.shared, device, *line)),
            }
        }
    }

    /// Consumed buffers are invalidated without being written back. An inclusive LLC cannot.
    pub fn discard_all(&mut self, lines: &[Line]) {
        if let Llc::NonInclusive(llc) = &mut self.llc {
            for line in lines {
                llc.discard(&mut self.shared, *line);
            }
        }
    }

    /// The register that says where IDIO sends payload for a core.
    pub fn steering_status(&self, core: usize) -> PayloadTarget {
        self.shared.steering.status(core)
    }

    /// Sets that register.
    pub fn set_steering_status(&mut self, core: usize, status: PayloadTarget) {
        self.shared.steering.set_status(core, status);
    }

    /// IDIO's counters of a core, and whether its MLC has too much pushed payload that was not touched.
    pub fn steering_counters(&self, core: usize) -> (SteeringCounters, bool) {
        (self.shared.steering.counters(core), self.shared.steering.mlc_is_flooded(core))
    }

    /// Clears IDIO's counters of a core, as every epoch does.
    pub fn clear_steering_counters(&mut self, core: usize) {
        self.shared.steering.clear_counters(core);
    }

    /// Dirty lines that fills evicted from a core's MLC (non-inclusive LLC).
    pub fn mlc_writebacks(&self, core: usize) -> u64 {
        self.shared.steering.mlc_writebacks(core)
    }

    /// True if the chip's state is so big that prefetching it saves time ([`Chip::prefetch`]).
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.shared.is_large()
    }

    /// Hints that `core` will access `line` soon. Changes nothing but speed.
    #[inline(always)]
    pub fn prefetch(&mut self, core: usize, line: Line) {
        if !self.is_large() {
            return;
        }
        prefetch(self.shared.mlc(core, line.set()));
        self.prefetch_llc(line);
    }

    /// Hints that a device will access `line` soon. Changes nothing but speed.
    #[inline(always)]
    pub fn prefetch_llc(&self, line: Line) {
        match &self.llc {
            Llc::NonInclusive(llc) => llc.prefetch(line),
            Llc::Inclusive(llc) => llc.prefetch(line),
        }
    }

    /// Confines a core's allocations (CAT). Moves no line.
    ///
    /// # Errors
    /// A mask the chip would not take.
    pub fn set_core_mask(&mut self, core: usize, mask: WayMask) -> Result<(), MaskError> {
        self.check_mask(mask)?;
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.set_core_mask(core, mask),
            Llc::Inclusive(llc) => llc.set_core_mask(core, mask),
        }
        Ok(())
    }

    /// Whether this chip's CAT takes a mask.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_mask(&self, mask: WayMask) -> Result<(), MaskError> {
        mask.check_on(self.ways, self.min_ways, self.sparse_masks).map(drop)
    }

    /// The mask a core's allocations are confined to.
    pub fn core_mask(&self, core: usize) -> WayMask {
        match &self.llc {
            Llc::NonInclusive(llc) => llc.core_mask(core),
            Llc::Inclusive(llc) => llc.core_mask(core),
        }
    }

    /// Sets the ways in which devices may allocate, even to a value that the register refuses: an experiment's start
    /// state. Moves no line. Does nothing on a chip without DCA.
    ///
    /// # Errors
    /// A mask with holes or beyond the chip.
    pub fn set_dca_ways(&mut self, mask: WayMask) -> Result<(), MaskError> {
        let mask = mask.check(self.ways, 1)?;
        if self.dca_ways.is_some() {
            self.dca_ways = Some(mask);
            self.steer_devices(mask);
        }
        Ok(())
    }

    /// Writes IIO_LLC_WAYS as software on the server does, under the rules of this generation; returns what
    /// then reads back.
    ///
    /// # Errors
    /// A value the register faults on, or no such register.
    pub fn write_dca_register(&mut self, wanted: WayMask) -> Result<WayMask, RegisterError> {
        let (Some(registers), Some(before)) = (self.dca_registers, self.dca_ways) else {
            return Err(RegisterError::Absent);
        };
        let after = registers.write(before, wanted, self.ways)?;
        self.dca_ways = Some(after);
        if registers.acts {
            self.steer_devices(after);
        }
        Ok(after)
    }

    fn steer_devices(&mut self, mask: WayMask) {
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.set_dca_ways(mask),
            Llc::Inclusive(llc) => llc.set_dca_ways(mask),
        }
    }

    /// What IIO_LLC_WAYS holds: the ways devices may allocate in; `None` on a chip without DCA.
    pub fn dca_ways(&self) -> Option<WayMask> {
        self.dca_ways
    }

    /// Sets how a device's writes reach the chip.
    pub fn set_dca(&mut self, device: usize, mode: DcaMode) {
        self.shared.dca[device] = mode;
    }

    /// How a device's writes reach the chip.
    pub fn dca(&self, device: usize) -> DcaMode {
        self.shared.dca[device]
    }

    /// Charges a core's future insertions to `group` (RMID; below 128).
    pub fn set_group(&mut self, core: usize, group: u8) {
        assert!(group < DEVICE_OWNER, "groups are numbered below {DEVICE_OWNER}");
        self.shared.group_of[core] = group;
        self.shared.evictions.set_group(core, group);
    }

    /// Sampled LLC lines a group holds.
    pub fn group_occupancy(&self, group: u8) -> u32 {
        self.shared.occupancy[usize::from(group)]
    }

    /// Sampled LLC lines that a device owns.
    pub fn device_occupancy(&self, device: usize) -> u32 {
        self.shared.occupancy[usize::from(DEVICE_OWNER) + device]
    }

    /// Counters of a core.
    pub fn core_counters(&self, core: usize) -> CoreCounters {
        let mut all: CoreCounters = self.core_groups(core).sum();
        all.mlc_hits += self.shared.hits_without_line[core];
        all
    }

    /// Counters of a core per group of simulated sets: eight groups, or as many as there are sets. The accesses of
    /// [`Chip::count_mlc_hits`] are in none of them.
    pub fn core_groups(&self, core: usize) -> impl Iterator<Item = CoreCounters> + '_ {
        self.shared.served(core).iter().map(|&[mlc_hits, llc, peer, llc_misses]| {
            let llc_hits = llc + peer;
            CoreCounters { mlc_hits, mlc_misses: llc_hits + llc_misses, llc_hits, llc_misses }
        })
    }

    /// What a core's prefetchers fetched: part of [`Chip::core_counters`].
    pub fn prefetch_counters(&self, core: usize) -> PrefetchCounters {
        self.shared.prefetches[core]
    }

    /// Counters of a device.
    pub fn device_counters(&self, device: usize) -> DeviceCounters {
        let groups = self.device_groups(device).iter();
        let leaked = self.shared.leaked[usize::from(DEVICE_OWNER) + device];
        let others = DeviceCounters { leaked, ..self.shared.device[device] };
        groups.fold(others, |all, group| DeviceCounters {
            write_hits: all.write_hits + group.write_hits,
            write_misses: all.write_misses + group.write_misses,
            read_hits: all.read_hits + group.read_hits,
            read_misses: all.read_misses + group.read_misses,
            ..all
        })
    }

    /// Hits and misses of a device per group of sets, as in [`Chip::core_groups`].
    pub fn device_groups(&self, device: usize) -> &[DcaCounters] {
        self.shared.dca_counters(device)
    }

    /// Counters of the chip.
    pub fn counters(&self) -> ChipCounters {
        self.shared.chip
    }

    /// Evictions since power-on per evictor, owner and reason; only those that occurred.
    pub fn evictions(&self) -> impl Iterator<Item = EvictionCount> + '_ {
        self.shared.evictions.counts()
    }

    /// Memory, for the loaded latency.
    #[inline(always)]
    pub fn dram(&self) -> &Dram {
        &self.shared.dram
    }

    /// Memory, to end a quantum of it.
    pub fn dram_mut(&mut self) -> &mut Dram {
        &mut self.shared.dram
    }

    /// Every line in the LLC (tests).
    pub fn residents(&self) -> Vec<Resident> {
        match &self.llc {
            Llc::NonInclusive(llc) => llc.residents().collect(),
            Llc::Inclusive(llc) => llc.residents().collect(),
        }
    }

    /// Every line in an MLC (tests).
    pub fn mlc_residents(&self) -> Vec<MlcResident> {
        let sets = (0..self.shared.cores()).flat_map(|c| (0..self.shared.mlc_sets()).map(move |s| (c, s)));
        sets.flat_map(|(core, set)| {
            let mlc = self.shared.mlc_ref(core, set);
            mlc.tags().map(move |(way, _)| {
                let held = mlc.occupant(way, set).expect("the way has a tag");
                let has = |flag| held.flags & flag != 0;
                let (dirty, reused) = (has(mlc::DIRTY), has(mlc::REUSED));
                MlcResident { line: held.line, core, dirty, reused, payload: held.marks & mlc::PAYLOAD != 0 }
            })
        })
        .collect()
    }

    /// Lines in the directory, with the number of cores that hold them: `None` for "several" (tests; empty on an
    /// inclusive LLC, which has no directory).
    pub fn tracked(&self) -> Vec<(Line, Option<usize>)> {
        match &self.llc {
            Llc::NonInclusive(llc) => llc
                .tracked()
                .map(|(line, holder)| match holder {
                    crate::directory::Holder::One { core, .. } => (line, Some(core)),
                    crate::directory::Holder::Several => (line, None),
                })
                .collect(),
            Llc::Inclusive(_) => Vec::new(),
        }
    }
}
