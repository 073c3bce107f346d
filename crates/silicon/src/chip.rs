//! The chip's interface for the machine: accesses, levels that served them, masks, switches, counters.
//!
//! Knows neither time nor programs. The calls go to the socket (socket.rs), of which there are two by the size of a
//! line's tag.

use crate::address::Sampling;
use crate::audit::{MlcResident, Resident};
use crate::counters::{ChipCounters, CoreCounters, DcaCounters, DeviceCounters, PrefetchCounters};
use crate::dca::{DcaRegisters, RegisterError};
use crate::dram::Dram;
use crate::evictions::EvictionCount;
use crate::line::Line;
use crate::shared::{DEVICE_OWNER, DcaMode};
use crate::socket::Socket;
use crate::spec::ChipSpec;
use crate::steering::{PayloadTarget, Placement, SteeringCounters, Tag};
use waykeeper_units::{MaskError, WayMask};

/// Devices a chip can tell apart. Assumption: more than any scenario has; owners leave room for 128.
pub const MAX_DEVICES: usize = 16;

/// Cores of a chip. Assumption: more than any socket that is sold; the directory numbers holders with 8 bits, of which it
/// needs two values itself.
pub const MAX_CORES: usize = 250;

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

/// An expression on the socket that a chip has.
macro_rules! of_socket {
    ($chip:expr, $socket:ident => $value:expr) => {
        if let Some($socket) = $chip.wide.as_deref() {
            $value
        } else {
            let $socket = &$chip.narrow;
            $value
        }
    };
    (mut $chip:expr, $socket:ident => $value:expr) => {
        if let Some($socket) = $chip.wide.as_deref_mut() {
            $value
        } else {
            let $socket = &mut $chip.narrow;
            $value
        }
    };
}

/// One socket: MLCs, LLC, memory.
#[derive(Clone, Debug)]
pub struct Chip {
    /// The socket of a chip whose lines have tags of 16 bits. Its MLCs are asked first, whatever the chip: those of a
    /// chip with wide tags are empty and stay so, and the hits of the other chips cost no branch.
    narrow: Socket<u16, 16>,
    /// The socket of a chip with tags of 32 bits.
    wide: Option<Box<Socket<u32, 32>>>,
    /// See [`Chip::is_large`].
    is_large: bool,
    ways: u32,
    min_ways: u32,
    sparse_masks: bool,
    dca_ways: Option<WayMask>,
    dca_registers: Option<DcaRegisters>,
}

impl Chip {
    /// A cold chip with every core on all ways and DCA on. `seed` drives its random choices.
    pub fn new(spec: &ChipSpec, sampling: Sampling, seed: u64) -> Chip {
        let rules = spec.rules.without_inclusive_ways_if(spec.llc.inclusive_ways.is_none());
        let (narrow, wide) = if spec.has_wide_tags() {
            let mut unused = spec.clone();
            unused.cores = 1;
            (unused.mlc.sets, unused.llc.sets, unused.llc.slices, unused.llc.ways) = (16, 16, 1, 1);
            (unused.llc.dca_ways, unused.llc.inclusive_ways) = (None, None);
            let mut narrow = Socket::new(&unused, rules, Sampling::EXACT, seed);
            narrow.shared.empty_for_ever();
            (narrow, Some(Box::new(Socket::new(spec, rules, sampling, seed))))
        } else {
            (Socket::new(spec, rules, sampling, seed), None)
        };
        Chip {
            is_large: wide.as_ref().map_or(narrow.shared.is_large(), |wide| wide.shared.is_large()),
            narrow,
            wide,
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
        match self.narrow.read_in_mlc(core, line) {
            Ok(level) => level,
            Err(index) => self.read_miss(core, index, line, fill),
        }
    }

    /// A program on `core` writes a line.
    #[inline]
    pub fn write(&mut self, core: usize, line: Line, fill: Fill) -> Level {
        match self.narrow.write_in_mlc(core, line) {
            Ok(0) => Level::Mlc,
            Ok(marks) => self.marked_write(core, line, marks),
            Err(index) => self.write_miss(core, index, line, fill),
        }
    }

    #[inline(never)]
    fn read_miss(&mut self, core: usize, index: usize, line: Line, fill: Fill) -> Level {
        if line.is_wide()
            && let Some(wide) = &mut self.wide
        {
            return read_wide(wide, core, line, fill);
        }
        self.narrow.read_miss(core, index, line, fill)
    }

    #[inline(never)]
    fn write_miss(&mut self, core: usize, index: usize, line: Line, fill: Fill) -> Level {
        if line.is_wide()
            && let Some(wide) = &mut self.wide
        {
            return write_wide(wide, core, line, fill);
        }
        self.narrow.write_miss(core, index, line, fill)
    }

    #[inline(never)]
    fn marked_write(&mut self, core: usize, line: Line, marks: u64) -> Level {
        self.narrow.marked_write(core, line, marks);
        Level::Mlc
    }

    /// Turns a core's hardware prefetchers on or off (MSR 0x1A4).
    pub fn set_prefetchers(&mut self, core: usize, on: bool) {
        of_socket!(mut self, socket => socket.shared.prefetchers_on[core] = on);
    }

    /// Whether a core's hardware prefetchers are on, as they are at power-on.
    #[inline(always)]
    pub fn prefetchers_on(&self, core: usize) -> bool {
        of_socket!(self, socket => socket.shared.prefetchers_on[core])
    }

    /// A prefetcher of `core` fetches a line into its MLC. Counts as an access that missed the MLC, as in the events of
    /// real chips (L2_RQSTS.MISS, LONGEST_LAT_CACHE), and separately from demand accesses
    /// ([`Chip::prefetch_counters`]). Does nothing if the MLC already has the line. `useful` says whether the core will
    /// access the line.
    #[inline]
    pub fn fetch_ahead(&mut self, core: usize, line: Line, useful: bool) -> Level {
        let Some(index) = self.narrow.lacks(core, line) else { return Level::Mlc };
        self.fetch_missing(core, index, line, useful)
    }

    #[inline(never)]
    fn fetch_missing(&mut self, core: usize, index: usize, line: Line, useful: bool) -> Level {
        if self.wide.as_mut().is_some_and(|wide| wide.lacks(core, line).is_none()) {
            return Level::Mlc;
        }
        let level = self.read_miss(core, index, line, Fill::Ordinary);
        let counters = of_socket!(mut self, socket => &mut socket.shared.prefetches[core]);
        counters.llc_misses += u64::from(level == Level::Memory);
        counters.llc_hits += u64::from(level != Level::Memory);
        counters.useless += u64::from(!useful);
        level
    }

    /// Counts accesses of `core` that its MLC served and that are not simulated line by line.
    pub fn count_mlc_hits(&mut self, core: usize, accesses: u64) {
        of_socket!(mut self, socket => socket.shared.hits_without_line[core] += accesses);
    }

    /// A device writes a full line. Returns whether it was cached before.
    pub fn dma_write(&mut self, device: usize, line: Line) -> bool {
        of_socket!(mut self, socket => socket.dma_write(device, line))
    }

    /// A device writes a part of a line. Returns whether it was cached before.
    ///
    /// Where DCA puts a line that was not cached into the LLC, memory is read first, for the rest of the line. Counted
    /// separately from full lines, as in the opcode events (RFO, not ItoM; nvme-memload s2.3).
    pub fn dma_write_partial(&mut self, device: usize, line: Line) -> bool {
        of_socket!(mut self, socket => socket.dma_write_partial(device, line))
    }

    /// A device reads a line. Returns whether the caches served it.
    pub fn dma_read(&mut self, device: usize, line: Line) -> bool {
        of_socket!(mut self, socket => socket.dma_read(device, line))
    }

    /// A device writes full lines, one after the other.
    pub fn dma_write_all(&mut self, device: usize, lines: &[Line]) {
        of_socket!(mut self, socket => socket.dma_write_all(device, lines));
    }

    /// A device reads lines, one after the other.
    pub fn dma_read_all(&mut self, device: usize, lines: &[Line]) {
        of_socket!(mut self, socket => socket.dma_read_all(device, lines));
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
        of_socket!(mut self, socket => socket.steered_write_all(device, lines, header, placement, tag));
    }

    /// A device reads lines of packets that were destined to `core`.
    pub fn steered_read_all(&mut self, device: usize, lines: &[Line], core: usize) {
        of_socket!(mut self, socket => socket.steered_read_all(device, lines, core));
    }

    /// Consumed buffers are invalidated without being written back. An inclusive LLC cannot.
    pub fn discard_all(&mut self, lines: &[Line]) {
        of_socket!(mut self, socket => socket.discard_all(lines));
    }

    /// Lines leave all caches, as CLFLUSH does it: dirty ones are written to memory.
    pub fn flush_all(&mut self, lines: &[Line]) {
        of_socket!(mut self, socket => lines.iter().for_each(|line| socket.flush(*line)));
    }

    /// The level that would serve a read of `core`. Changes nothing.
    pub fn level_of(&self, core: usize, line: Line) -> Level {
        of_socket!(self, socket => socket.level_of(core, line))
    }

    /// The register that says where IDIO sends payload for a core.
    pub fn steering_status(&self, core: usize) -> PayloadTarget {
        of_socket!(self, socket => socket.shared.steering.status(core))
    }

    /// Sets that register.
    pub fn set_steering_status(&mut self, core: usize, status: PayloadTarget) {
        of_socket!(mut self, socket => socket.shared.steering.set_status(core, status));
    }

    /// IDIO's counters of a core, and whether its MLC has too much pushed payload that was not touched.
    pub fn steering_counters(&self, core: usize) -> (SteeringCounters, bool) {
        let steering = of_socket!(self, socket => &socket.shared.steering);
        (steering.counters(core), steering.mlc_is_flooded(core))
    }

    /// Clears IDIO's counters of a core, as every epoch does.
    pub fn clear_steering_counters(&mut self, core: usize) {
        of_socket!(mut self, socket => socket.shared.steering.clear_counters(core));
    }

    /// Dirty lines that fills evicted from a core's MLC (non-inclusive LLC).
    pub fn mlc_writebacks(&self, core: usize) -> u64 {
        of_socket!(self, socket => socket.shared.steering.mlc_writebacks(core))
    }

    /// True if the chip's state is so big that prefetching it saves time ([`Chip::prefetch`]).
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    /// Hints that `core` will access `line` soon. Changes nothing but speed.
    #[inline(always)]
    pub fn prefetch(&mut self, core: usize, line: Line) {
        if !self.is_large {
            return;
        }
        of_socket!(mut self, socket => socket.prefetch(core, line));
    }

    /// Hints that a device will access `line` soon. Changes nothing but speed.
    #[inline(always)]
    pub fn prefetch_llc(&self, line: Line) {
        of_socket!(self, socket => socket.prefetch_llc(line));
    }

    /// Confines a core's allocations (CAT). Moves no line.
    ///
    /// # Errors
    /// A mask the chip would not take.
    pub fn set_core_mask(&mut self, core: usize, mask: WayMask) -> Result<(), MaskError> {
        self.check_mask(mask)?;
        of_socket!(mut self, socket => socket.set_core_mask(core, mask));
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
        of_socket!(self, socket => socket.core_mask(core))
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
            of_socket!(mut self, socket => socket.set_dca_ways(mask));
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
            of_socket!(mut self, socket => socket.set_dca_ways(after));
        }
        Ok(after)
    }

    /// What IIO_LLC_WAYS holds: the ways devices may allocate in; `None` on a chip without DCA.
    pub fn dca_ways(&self) -> Option<WayMask> {
        self.dca_ways
    }

    /// Sets how a device's writes reach the chip.
    pub fn set_dca(&mut self, device: usize, mode: DcaMode) {
        of_socket!(mut self, socket => socket.shared.dca[device] = mode);
    }

    /// How a device's writes reach the chip.
    pub fn dca(&self, device: usize) -> DcaMode {
        of_socket!(self, socket => socket.shared.dca[device])
    }

    /// Charges a core's future insertions to `group` (RMID; below 128).
    pub fn set_group(&mut self, core: usize, group: u8) {
        assert!(group < DEVICE_OWNER, "groups are numbered below {DEVICE_OWNER}");
        of_socket!(mut self, socket => socket.set_group(core, group));
    }

    /// Sampled LLC lines a group holds.
    pub fn group_occupancy(&self, group: u8) -> u32 {
        of_socket!(self, socket => socket.shared.occupancy[usize::from(group)])
    }

    /// Sampled LLC lines that a device owns.
    pub fn device_occupancy(&self, device: usize) -> u32 {
        of_socket!(self, socket => socket.shared.occupancy[usize::from(DEVICE_OWNER) + device])
    }

    /// Counters of a core.
    pub fn core_counters(&self, core: usize) -> CoreCounters {
        let mut all: CoreCounters = self.core_groups(core).sum();
        all.mlc_hits += of_socket!(self, socket => socket.shared.hits_without_line[core]);
        all
    }

    /// Counters of a core per group of simulated sets: eight groups, or as many as there are sets. The accesses of
    /// [`Chip::count_mlc_hits`] are in none of them.
    pub fn core_groups(&self, core: usize) -> impl Iterator<Item = CoreCounters> + '_ {
        let served = of_socket!(self, socket => socket.shared.served(core));
        served.iter().map(|&[mlc_hits, llc, peer, llc_misses]| {
            let llc_hits = llc + peer;
            CoreCounters { mlc_hits, mlc_misses: llc_hits + llc_misses, llc_hits, llc_misses }
        })
    }

    /// What a core's prefetchers fetched: part of [`Chip::core_counters`].
    pub fn prefetch_counters(&self, core: usize) -> PrefetchCounters {
        of_socket!(self, socket => socket.shared.prefetches[core])
    }

    /// Counters of a device.
    pub fn device_counters(&self, device: usize) -> DeviceCounters {
        let groups = self.device_groups(device).iter();
        let others = of_socket!(self, socket => socket.shared.counters_beside_groups(device));
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
        of_socket!(self, socket => socket.shared.dca_counters(device))
    }

    /// Counters of the chip.
    pub fn counters(&self) -> ChipCounters {
        of_socket!(self, socket => socket.shared.chip)
    }

    /// Evictions since power-on per evictor, owner and reason; only those that occurred.
    pub fn evictions(&self) -> impl Iterator<Item = EvictionCount> + '_ {
        of_socket!(self, socket => &socket.shared.evictions).counts()
    }

    /// Memory, for the loaded latency.
    #[inline(always)]
    pub fn dram(&self) -> &Dram {
        of_socket!(self, socket => &socket.shared.dram)
    }

    /// Memory, to end a quantum of it.
    pub fn dram_mut(&mut self) -> &mut Dram {
        of_socket!(mut self, socket => &mut socket.shared.dram)
    }

    /// Every line in the LLC (tests).
    pub fn residents(&self) -> Vec<Resident> {
        of_socket!(self, socket => socket.residents())
    }

    /// Every line in an MLC (tests).
    pub fn mlc_residents(&self) -> Vec<MlcResident> {
        of_socket!(self, socket => socket.mlc_residents())
    }

    /// Lines in the directory, with the number of cores that hold them: `None` for "several" (tests; empty on an
    /// inclusive LLC, which has no directory).
    pub fn tracked(&self) -> Vec<(Line, Option<usize>)> {
        of_socket!(self, socket => socket.tracked())
    }
}

/// [`Chip::read`] of a chip with wide tags.
#[inline(never)]
fn read_wide(socket: &mut Socket<u32, 32>, core: usize, line: Line, fill: Fill) -> Level {
    socket.read_in_mlc(core, line).unwrap_or_else(|index| socket.read_miss(core, index, line, fill))
}

/// [`Chip::write`] of a chip with wide tags.
#[inline(never)]
fn write_wide(socket: &mut Socket<u32, 32>, core: usize, line: Line, fill: Fill) -> Level {
    match socket.write_in_mlc(core, line) {
        Ok(marks) => {
            socket.marked_write(core, line, marks);
            Level::Mlc
        }
        Err(index) => socket.write_miss(core, index, line, fill),
    }
}
