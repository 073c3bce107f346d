//! State that both kinds of LLC use: the MLCs, memory, counters, ownership and random numbers.
//!
//! Knows the private side of the chip and the counts of events; must not know a transition rule.

use crate::address::Sampling;
use crate::counters::{ChipCounters, DcaCounters, DeviceCounters, PrefetchCounters, SET_GROUPS};
use crate::dram::Dram;
use crate::evictions::{EvictionReason, Evictions};
use crate::history::History;
use crate::line::{Line, LineTag};
use crate::mlc::{self, MlcSet, MlcVictim};
use crate::rules::{Chance, Replacement, Rules};
use crate::spec::ChipSpec;
use crate::steering::Steering;
use crate::table::Table;
use crate::ways::{self, Evicted};
use crate::{Fill, MAX_DEVICES};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro128PlusPlus;

/// Owner ids from here on are devices; below it are groups of cores.
pub(crate) const DEVICE_OWNER: u8 = 128;

/// How a device's writes reach the chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DcaMode {
    /// Into the LLC (DCA, DDIO).
    On,
    /// To memory; cached copies are invalidated.
    Off,
    /// The device is attached to another socket: to memory, and not counted by this socket's I/O counters.
    Remote,
}

/// The state both LLC kinds share.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    pub rules: Rules,
    pub p_force: Chance,
    /// What is done with an MLC victim that has these flags, unless the inclusive ways hold a copy.
    pub victims: [VictimRule; 8],
    pub p_io_young: Chance,
    /// [`Rules::replacement`] for devices.
    pub device_replacement: Replacement,
    /// [`Rules::p_outside_dca`], if it is not 0.
    pub p_outside_dca: Option<Chance>,
    /// Tags of lines that left MLC and LLC. Only a non-inclusive LLC fills it.
    pub history: Option<History<T>>,
    pub rng: Xoshiro128PlusPlus,
    mlcs: Table<MlcSet<T>>,
    mlc_sets: usize,
    mlc_ways: u32,
    cores: usize,
    /// Accesses per core and [`Level`] that served them, prefetches included; [`SET_GROUPS`] entries per core, one for
    /// each group of sets.
    served: Table<[u64; 4]>,
    /// Accesses per core that its MLC served and that are in no set.
    pub hits_without_line: Table<u64>,
    /// Whether each core's prefetchers are on.
    pub prefetchers_on: Table<bool>,
    /// What the prefetchers of each core fetched.
    pub prefetches: Table<PrefetchCounters>,
    /// Device counters, except those in `dca_counters` and `leaked`.
    pub device: [DeviceCounters; MAX_DEVICES],
    /// [`SET_GROUPS`] entries per device.
    dca_counters: Table<DcaCounters>,
    /// Per owner, lines that left the LLC before a core read them; only devices have any.
    pub leaked: [u64; 256],
    pub chip: ChipCounters,
    pub evictions: Evictions,
    pub dram: Dram,
    channels: u32,
    /// Sampled LLC lines per owner: groups below [`DEVICE_OWNER`], devices from there on.
    pub occupancy: [u32; 256],
    /// Group that each core's insertions are charged to.
    pub group_of: Table<u8>,
    pub dca: [DcaMode; MAX_DEVICES],
    /// IDIO's registers.
    pub steering: Steering,
}

impl<T: LineTag> Shared<T> {
    pub(crate) fn new(spec: &ChipSpec, rules: Rules, sampling: Sampling, seed: u64) -> Shared<T> {
        let mlc_sets = (spec.mlc.sets / sampling.factor()).max(1) as usize;
        let cores = spec.cores as usize;
        Shared {
            rules,
            p_force: Chance::new(rules.p_force),
            victims: std::array::from_fn(|flags| VictimRule::new(&rules, flags as u8)),
            p_io_young: Chance::new(rules.p_io_young),
            device_replacement: match rules.replacement {
                Replacement::Qlru if rules.device_victim_random => Replacement::QlruRandom,
                kind => kind,
            },
            p_outside_dca: (rules.p_outside_dca > 0.0).then(|| Chance::new(rules.p_outside_dca)),
            history: None,
            rng: Xoshiro128PlusPlus::seed_from_u64(seed ^ 0x51_11c0),
            mlcs: Table::filled(mlc_sets * cores, MlcSet::EMPTY),
            mlc_sets,
            mlc_ways: spec.mlc.ways,
            cores,
            served: Table::filled(cores * SET_GROUPS, [0; 4]),
            hits_without_line: Table::filled(cores, 0),
            prefetchers_on: Table::filled(cores, true),
            prefetches: Table::filled(cores, PrefetchCounters::default()),
            device: [DeviceCounters::default(); MAX_DEVICES],
            dca_counters: Table::filled(MAX_DEVICES * SET_GROUPS, DcaCounters::default()),
            leaked: [0; 256],
            chip: ChipCounters::default(),
            evictions: Evictions::new(),
            dram: Dram::new(spec.dram, rules.dram_backlog.then_some(spec.dependent.memory_ns)),
            channels: spec.dram.channels,
            occupancy: [0; 256],
            group_of: Table::filled(cores, 0),
            dca: [DcaMode::On; MAX_DEVICES],
            steering: Steering::new(cores, mlc_sets as u64 * u64::from(spec.mlc.ways)),
        }
    }

    /// Ends the use of these MLCs: lines with wide tags are looked for in them and never found. Their handles have bit 30,
    /// which is the highest of a tag of 16 bits (line.rs), and this tag does not have it.
    pub(crate) fn empty_for_ever(&mut self) {
        self.mlc_sets = 0;
        self.mlcs = Table::filled(1 << T::SET_BITS, MlcSet::of_one_tag(T::of(T::pack(0, 0, 0))));
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    pub(crate) fn mlc_sets(&self) -> usize {
        self.mlc_sets
    }

    /// True if the chip's state is too big for the near caches of the machine that runs the model, so that prefetches
    /// save time. With few sampled sets they only cost instructions.
    #[inline(always)]
    pub(crate) fn is_large(&self) -> bool {
        self.mlc_sets > 64
    }

    /// Groups that have a set.
    pub(crate) fn set_groups(&self) -> usize {
        self.mlc_sets.min(SET_GROUPS)
    }

    /// Accesses per [`Level`] of a core in the line's group of sets. Neighbouring sets of the sample are in different
    /// groups, so that each group has sets from the whole index.
    #[inline(always)]
    pub(crate) fn served_at(&mut self, core: usize, line: Line) -> &mut [u64; 4] {
        &mut self.served[core * SET_GROUPS + line.group(SET_GROUPS)]
    }

    /// Accesses of a core per group and [`Level`].
    pub(crate) fn served(&self, core: usize) -> &[[u64; 4]] {
        &self.served.entries()[core * SET_GROUPS..][..self.set_groups()]
    }

    /// Hits and misses of a device in the line's group of sets.
    #[inline(always)]
    pub(crate) fn dca_at(&mut self, device: usize, line: Line) -> &mut DcaCounters {
        &mut self.dca_counters[device * SET_GROUPS + line.group(SET_GROUPS)]
    }

    /// Hits and misses of a device per group.
    pub(crate) fn dca_counters(&self, device: usize) -> &[DcaCounters] {
        &self.dca_counters.entries()[device * SET_GROUPS..][..self.set_groups()]
    }

    /// Counters of a device, without those that are counted by group.
    pub(crate) fn counters_beside_groups(&self, device: usize) -> DeviceCounters {
        let leaked = self.leaked[usize::from(DEVICE_OWNER) + device];
        DeviceCounters { leaked, ..self.device[device] }
    }

    /// Index of a core's MLC set in the table of all MLC sets.
    #[inline(always)]
    pub(crate) fn mlc_index(&self, core: usize, set: usize) -> usize {
        core * self.mlc_sets + set
    }

    #[inline(always)]
    pub(crate) fn mlc_at(&mut self, index: usize) -> &mut MlcSet<T> {
        &mut self.mlcs[index]
    }

    #[inline(always)]
    pub(crate) fn mlc(&mut self, core: usize, set: usize) -> &mut MlcSet<T> {
        let index = self.mlc_index(core, set);
        self.mlc_at(index)
    }

    pub(crate) fn mlc_ref(&self, core: usize, set: usize) -> &MlcSet<T> {
        &self.mlcs[core * self.mlc_sets + set]
    }

    /// The way that the next fill of this set will take, and the line in it.
    #[inline(always)]
    pub(crate) fn mlc_victim(&mut self, index: usize, set: usize) -> (u32, Option<MlcVictim>) {
        let ways = self.mlc_ways;
        let mlc = self.mlc_at(index);
        let way = mlc.least_recent(ways);
        (way, mlc.occupant(way, set))
    }

    #[inline(always)]
    pub(crate) fn mlc_fill(&mut self, index: usize, way: u32, line: Line, fill: Arrival) {
        self.chip.mlc_fills += 1;
        let ways = self.mlc_ways;
        self.mlc_at(index).fill(way, ways, line, fill.flags, fill.marks);
    }

    /// Invalidates a line in an MLC because another core or a device now owns it. Returns its flags.
    #[inline(always)]
    pub(crate) fn mlc_invalidate(&mut self, core: usize, set: usize, way: u32) -> u8 {
        self.chip.mlc_invalidations += 1;
        let ways = self.mlc_ways;
        self.mlc(core, set).invalidate(way, ways)
    }

    /// Evicts a line from an MLC because the directory or the LLC has no room for it. Unlike after
    /// [`Shared::mlc_invalidate`], the caller must put the line somewhere.
    pub(crate) fn mlc_push_out(&mut self, core: usize, line: Line) -> Option<MlcVictim> {
        let ways = self.mlc_ways;
        let mlc = self.mlc(core, T::set(line));
        let way = mlc.find(T::of(line))?;
        let victim = mlc.occupant(way, T::set(line));
        mlc.invalidate(way, ways);
        self.chip.mlc_evictions += 1;
        victim
    }

    #[inline(always)]
    pub(crate) fn memory_read(&mut self, line: Line) {
        self.chip.memory_reads += 1;
        self.dram.moved(line.channel(self.channels));
    }

    #[inline(always)]
    pub(crate) fn memory_write(&mut self, line: Line) {
        self.chip.memory_writes += 1;
        self.dram.moved(line.channel(self.channels));
    }

    /// A dirty line leaves the caches for memory, and no line of the LLC evicted it.
    pub(crate) fn write_back(&mut self, line: Line) {
        self.chip.write_backs += 1;
        self.memory_write(line);
    }

    /// A device write that bypasses the caches.
    #[inline(always)]
    pub(crate) fn uncached_write(&mut self, device: usize, line: Line) {
        self.device[device].writes_uncached += 1;
        self.chip.uncached_writes += 1;
        self.memory_write(line);
    }

    /// Counts an LLC insertion by `owner`.
    #[inline(always)]
    pub(crate) fn llc_filled(&mut self, owner: u8) {
        self.chip.llc_fills += 1;
        self.occupancy[usize::from(owner)] += 1;
    }

    /// Counts a line that left the LLC other than by eviction.
    #[inline(always)]
    pub(crate) fn llc_removed(&mut self, owner: u8) {
        self.chip.llc_removals += 1;
        self.occupancy[usize::from(owner)] -= 1;
    }

    /// Counts an LLC eviction of a line of the owner `of`: a dirty line is one memory write; an unconsumed I/O line is
    /// a leak.
    #[inline(always)]
    pub(crate) fn llc_evicted(&mut self, near: Line, gone: Evicted<T>, of: u8, why: EvictionReason) {
        let unread = gone.state & ways::UNCONSUMED != 0;
        self.evictions.count(of, why, unread);
        self.chip.llc_evictions += 1;
        self.occupancy[usize::from(gone.owner)] -= 1;
        if gone.state & ways::DIRTY != 0 {
            self.chip.dirty_evictions += 1;
            self.memory_write(gone.tag.in_set_of(near));
        }
        // Only devices own unread data. No branch: every other line of a full ring may be unread.
        self.leaked[usize::from(gone.owner)] += u64::from(unread);
    }

    #[inline(always)]
    pub(crate) fn random(&mut self) -> u32 {
        self.rng.next_u32()
    }
}

/// What is done with a line that leaves an MLC (microarchitecture.md 4 and 5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimRule {
    /// Its state in the LLC if it is inserted there.
    pub state: u8,
    /// It is never dropped.
    pub keep: bool,
    /// Else: the probability that it is kept,
    pub chance: Chance,
    /// and, if this is set, only where a way holds nothing of value.
    pub needs_room: bool,
}

impl VictimRule {
    fn new(rules: &Rules, flags: u8) -> VictimRule {
        let has = |flag| flags & flag != 0;
        let age = if has(mlc::REUSED) { rules.reused_age } else { rules.victim_age };
        VictimRule {
            state: age | if has(mlc::DIRTY) { ways::DIRTY } else { 0 },
            keep: has(mlc::REUSED) || has(mlc::DIRTY) && rules.p_insert_dirty == 1.0,
            chance: Chance::new(if has(mlc::DIRTY) { rules.p_insert_dirty } else { rules.p_insert }),
            needs_room: has(mlc::STREAM) && rules.stream_needs_room,
        }
    }
}

/// State with which a line is filled into an MLC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub flags: u8,
    /// Its marks: [`mlc::COPIED`], [`mlc::SHARED`], [`mlc::PAYLOAD`], [`mlc::PUSHED`].
    pub marks: u64,
}

impl Arrival {
    #[inline(always)]
    pub(crate) fn new(flags: u8, fill: Fill) -> Arrival {
        let stream = if fill == Fill::Stream { mlc::STREAM } else { 0 };
        Arrival { flags: flags | stream, marks: 0 }
    }

    #[inline(always)]
    pub(crate) fn also(self, marks: u64) -> Arrival {
        Arrival { marks: self.marks | marks, ..self }
    }
}
