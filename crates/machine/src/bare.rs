//! The virtual server as bare hardware: counters per core, device and port, and writable registers.
//!
//! It is the layer below `host.rs`: what a kernel's drivers see. Its clock is the server's clock: one second of it is
//! `1 / time_factor` seconds of simulated traffic, and counts are scaled so that rates per second of the clock are
//! those of the traffic. It knows registers and classes of service; it must not know groups of workloads, nor files.
//! Marks: docs/reference/README.md#marks.

use crate::launch::{Launch, Process};
use crate::measured::{Mark, Measured};
use crate::root_port::PerfCtrlSts;
use crate::scenario::{Scenario, ScenarioError};
use crate::server::{Machine, RunOptions};
use std::sync::Arc;
use waykeeper_silicon::{ChipSpec, DcaMode, DeviceCounters, RegisterError};
use waykeeper_units::{LINE_BYTES, MaskError, WayMask};

/// Why the mask of a class of service cannot be set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClassError {
    /// The chip has fewer classes.
    #[error("class of service {class} does not exist; the chip has {classes}, numbered from 0")]
    NoSuchClass {
        /// The class.
        class: u32,
        /// Classes of the chip.
        classes: usize,
    },
    /// The chip does not take the mask.
    #[error(transparent)]
    Mask(#[from] MaskError),
}

/// Counts per core in [`BareMachine::counts`], and the offsets of some of them.
pub(crate) const CORE_COUNTS: usize = 6;
pub(crate) const INSTRUCTIONS: usize = 0;
pub(crate) const BUSY_NS: usize = 1;
const MLC_HITS: usize = 2;
const MLC_MISSES: usize = 3;
pub(crate) const LLC_HITS: usize = 4;
pub(crate) const LLC_MISSES: usize = 5;
/// Number of counts of all devices' lines together.
const DCA_COUNTS: usize = 6;

/// RMIDs with an occupancy count: a line's owner is one byte; values from 128 on are devices.
pub const MAX_RMIDS: u32 = 128;

/// Counts of cores since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreCounts {
    /// Instructions retired.
    pub instructions: u64,
    /// Unhalted cycles; turbo is off, so reference cycles are the same.
    pub cycles: u64,
    /// Demand accesses that the core's own MLC served.
    pub mlc_hits: u64,
    /// Demand accesses that missed it,
    pub mlc_misses: u64,
    /// ... of these, served by the LLC or another core's MLC,
    pub llc_hits: u64,
    /// ... and served by memory.
    pub llc_misses: u64,
}

/// Lines that devices of this socket moved through its LLC, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DcaCounts {
    /// Full-line writes that found their line cached (ItoM hit).
    pub write_hits: u64,
    /// Full-line writes that did not.
    pub write_misses: u64,
    /// Partial-line writes that found their line cached (RFO hit; ItoMCacheNear from Ice Lake on).
    pub partial_hits: u64,
    /// Partial writes that did not.
    pub partial_misses: u64,
    /// Reads that the caches served (PCIRdCur hit).
    pub read_hits: u64,
    /// Reads that memory served.
    pub read_misses: u64,
}

/// Bytes through a root port, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortBytes {
    /// From the device to memory or caches.
    pub inbound: u64,
    /// To the device.
    pub outbound: u64,
}

/// Bytes from and to memory, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryBytes {
    /// Bytes read, by cores and devices.
    pub read: u64,
    /// Bytes written, by cores and devices.
    pub written: u64,
}

/// A server without an operating system: registers and counters.
#[derive(Clone, Debug)]
pub struct BareMachine {
    pub(crate) machine: Machine,
    time_factor: f64,
    now_ns: u64,
    /// The part of the server's clock that was extrapolated, ns.
    extrapolated_ns: u64,
    /// Extrapolated growth of the counters in that time, in the order of [`BareMachine::counts`].
    extrapolated: Vec<f64>,
    /// Per port: value of its register.
    ports: Vec<PerfCtrlSts>,
    /// What IIO_LLC_WAYS reads before the first write, where this differs from the acting ways.
    dca_reads: Option<WayMask>,
    classes: Classes,
    /// Counts at the start of the measured interval.
    pub(crate) mark: Mark,
}

/// Classes of service and monitoring ids of the cores.
#[derive(Clone, Debug)]
struct Classes {
    /// Mask per class.
    masks: Vec<WayMask>,
    /// Class per core.
    of_core: Vec<u32>,
    /// RMID per core.
    rmids: Vec<u8>,
    /// Per core: its LLC misses when its RMID was set.
    since: Vec<u64>,
    /// Per RMID: LLC misses of cores while they had it earlier.
    credited: Vec<u64>,
}

impl BareMachine {
    /// The server of a scenario after power-on: every core in class 0, every class on all ways, RMID 0 everywhere. DCA
    /// is as the scenario says (`knobs.dca_ways`, `knobs.dca_off`), as if the BIOS had set it. The masks of the
    /// scenario's workloads are ignored.
    ///
    /// # Errors
    /// If the scenario does not fit simulated memory.
    pub fn new(scenario: Arc<Scenario>, options: RunOptions) -> Result<BareMachine, ScenarioError> {
        let mut bare = BareMachine::configured(scenario, options)?;
        let full = WayMask::full(bare.spec().llc.ways);
        bare.machine.charges_workloads = false;
        for core in 0..bare.classes.of_core.len() {
            bare.machine.bus.memory.chip.set_group(core, 0);
            bare.set_core_mask(core, full).expect("a chip takes all its ways");
        }
        Ok(bare)
    }

    /// The server with the masks of the scenario's workloads, and with each line charged to its workload.
    pub(crate) fn configured(
        scenario: Arc<Scenario>,
        options: RunOptions,
    ) -> Result<BareMachine, ScenarioError> {
        let machine = Machine::new(scenario.clone(), options)?;
        let chip = &machine.bus.memory.chip;
        let devices = scenario.nics.len() + scenario.storage.len();
        let port = |port| PerfCtrlSts::POWER_ON.with_dca(chip.dca(port) != DcaMode::Off);
        let spec = &scenario.chip;
        let cores = spec.cores as usize;
        Ok(BareMachine {
            time_factor: scenario.time_factor,
            now_ns: 0,
            extrapolated_ns: 0,
            extrapolated: vec![0.0; cores * CORE_COUNTS + DCA_COUNTS + devices * 2 + 2],
            ports: (0..devices).map(port).collect(),
            dca_reads: spec.dca.and_then(|registers| registers.reads).filter(|_| scenario.dca_ways.is_none()),
            classes: Classes {
                masks: vec![WayMask::full(spec.llc.ways); spec.llc.clos as usize],
                of_core: vec![0; cores],
                rmids: vec![0; cores],
                since: vec![0; cores],
                credited: vec![0; MAX_RMIDS as usize],
            },
            mark: Mark::of(&machine),
            machine,
        })
    }

    /// The scenario that it runs.
    pub fn scenario(&self) -> &Arc<Scenario> {
        &self.machine.scenario
    }

    /// The chip.
    pub fn spec(&self) -> &ChipSpec {
        &self.machine.scenario.chip
    }

    /// The server's clock, ns.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Runs until the server's clock reaches `until_ns`; no effect if that time is in the past.
    ///
    /// # Errors
    /// If a program that starts before then does not fit simulated memory.
    pub fn run_until(&mut self, until_ns: u64) -> Result<(), ScenarioError> {
        self.run_with(until_ns, |_| {})
    }

    /// As `run_until`. Each time programs have started or exited, it calls `switched` before anything else runs, as a
    /// kernel would run its scheduler.
    ///
    /// # Errors
    /// If a program that starts before then does not fit simulated memory.
    pub fn run_with(
        &mut self,
        until_ns: u64,
        mut switched: impl FnMut(&mut BareMachine),
    ) -> Result<(), ScenarioError> {
        let until = self.simulated_ns(until_ns);
        loop {
            let turns = self.machine.launches.turns;
            // The machine ends a quantum at each change anyway, so a stop there has no effect.
            let stop = self.machine.next_change_ns().map_or(until, |at| at.min(until));
            self.machine.run_until(stop)?;
            if self.machine.launches.turns != turns {
                switched(self);
            }
            if stop >= until {
                break;
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        Ok(())
    }

    /// The running programs, the oldest first.
    pub fn processes(&self) -> Vec<Process> {
        let machine = &self.machine;
        let clock = |simulated_ns: f64| (simulated_ns * machine.scenario.time_factor) as u64;
        let process = |(workload, launch): (usize, &Launch)| {
            let cores = machine.scenario.workloads[workload].cores.cores().iter();
            let busy_ns = cores
                .zip(&launch.busy_before_ns)
                .map(|(core, before)| clock(machine.core(core.index()).busy_ns - before));
            Process {
                workload,
                serial: launch.serial,
                first_thread: launch.first_thread,
                started_ns: clock(launch.started_ns),
                memory_bytes: launch.memory_bytes,
                busy_ns: busy_ns.collect(),
            }
        };
        let mut all: Vec<Process> = machine.launches.running().map(process).collect();
        all.sort_unstable_by_key(|process| process.serial);
        all
    }

    /// Sizes of the state that the machine keeps for programs, to find leaks from programs that have exited: bytes of
    /// free memory; scheduled changes; requests, buffers and queues of the arrays.
    pub fn footprint(&self) -> [u64; 3] {
        self.machine.footprint()
    }

    /// Starts the measured interval: meters and [`BareMachine::measured`] count from here.
    pub fn begin_stretch(&mut self) {
        for meter in &mut self.machine.bus.meters {
            meter.clear();
        }
        self.mark = Mark::of(&self.machine);
    }

    /// Results of the measured interval: true values, which no register shows.
    pub fn measured(&self) -> Measured {
        self.mark.until_now(&self.machine)
    }

    /// Simulated time at which the server's clock reads `at_ns`, without further extrapolation.
    fn simulated_ns(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.extrapolated_ns) as f64 / self.time_factor
    }

    /// Lines of the real server per simulated line: sampling scale times time factor.
    fn whole(&self) -> f64 {
        self.machine.scale() * self.time_factor
    }

    /// Value of a counter of lines, from its simulated and its extrapolated part.
    fn lines(&self, counted: f64, extrapolated: f64) -> u64 {
        ((counted + extrapolated) * self.whole()) as u64
    }

    /// Sum of the counts of some cores.
    pub fn cores(&self, cores: impl Iterator<Item = usize> + Clone) -> CoreCounts {
        let counted = |field: usize| -> f64 { cores.clone().map(|core| self.core_counts(core)[field]).sum() };
        let extrapolated = |field: usize| -> f64 {
            cores.clone().map(|core| self.extrapolated[core * CORE_COUNTS + field]).sum()
        };
        let lines = |field: usize| self.lines(counted(field), extrapolated(field));
        let instructions = counted(INSTRUCTIONS) + extrapolated(INSTRUCTIONS);
        let busy_ns = counted(BUSY_NS) + extrapolated(BUSY_NS);
        CoreCounts {
            instructions: (instructions * self.time_factor) as u64,
            cycles: (busy_ns * self.machine.bus.ghz * self.time_factor) as u64,
            mlc_hits: lines(MLC_HITS),
            mlc_misses: lines(MLC_MISSES),
            llc_hits: lines(LLC_HITS),
            llc_misses: lines(LLC_MISSES),
        }
    }

    /// Lines of all devices, through the LLC.
    pub fn dca(&self) -> DcaCounts {
        let (counted, at) = (self.dca_line_counts(), self.dca_counts_at());
        let lines: [u64; DCA_COUNTS] =
            std::array::from_fn(|field| self.lines(counted[field], self.extrapolated[at + field]));
        let [write_hits, write_misses, partial_hits, partial_misses, read_hits, read_misses] = lines;
        DcaCounts { write_hits, write_misses, partial_hits, partial_misses, read_hits, read_misses }
    }

    /// Bytes through a root port, by its index: NICs first, then arrays, as in the scenario.
    pub fn port(&self, port: usize) -> PortBytes {
        let at = self.dca_counts_at() + DCA_COUNTS + 2 * port;
        let counted = self.port_counts(port);
        let scaled = |side: usize| ((counted[side] + self.extrapolated[at + side]) * self.time_factor) as u64;
        PortBytes { inbound: scaled(0), outbound: scaled(1) }
    }

    /// Bytes from and to memory.
    pub fn memory(&self) -> MemoryBytes {
        let (counted, at) = (self.memory_counts(), self.extrapolated.len() - 2);
        let bytes = |side: usize| self.lines(counted[side], self.extrapolated[at + side]) * LINE_BYTES;
        MemoryBytes { read: bytes(0), written: bytes(1) }
    }

    /// All simulated counts, unscaled: per core, of all devices' lines, per port, of memory.
    pub(crate) fn counts(&self) -> Vec<f64> {
        let mut counts = Vec::with_capacity(self.extrapolated.len());
        counts.extend((0..self.classes.of_core.len()).flat_map(|core| self.core_counts(core)));
        counts.extend(self.dca_line_counts());
        counts.extend((0..self.ports.len()).flat_map(|port| self.port_counts(port)));
        counts.extend(self.memory_counts());
        counts
    }

    /// A core's instructions, busy ns, MLC hits and misses, LLC hits and misses.
    fn core_counts(&self, id: usize) -> [f64; CORE_COUNTS] {
        let core = self.machine.core(id);
        let lines = self.machine.bus.memory.chip.core_counters(id);
        let [mlc_hits, mlc_misses, llc_hits, llc_misses] =
            [lines.mlc_hits, lines.mlc_misses, lines.llc_hits, lines.llc_misses].map(|count| count as f64);
        [core.instructions, core.busy_ns, mlc_hits, mlc_misses, llc_hits, llc_misses]
    }

    /// Hits and misses of all devices' full writes, partial writes and reads.
    fn dca_line_counts(&self) -> [f64; DCA_COUNTS] {
        let chip = &self.machine.bus.memory.chip;
        let sum = |of: fn(DeviceCounters) -> u64| -> f64 {
            (0..self.ports.len()).map(|device| of(chip.device_counters(device))).sum::<u64>() as f64
        };
        [
            sum(|device| device.write_hits),
            sum(|device| device.write_misses),
            sum(|device| device.partial_hits),
            sum(|device| device.partial_misses),
            sum(|device| device.read_hits),
            sum(|device| device.read_misses),
        ]
    }

    /// Inbound and outbound bytes of a port.
    fn port_counts(&self, port: usize) -> [f64; 2] {
        let bus = &self.machine.bus;
        let bytes = match port.checked_sub(bus.nics.len()) {
            None => {
                let counters = bus.nics[port].counters;
                [counters.inbound_bytes, counters.outbound_bytes]
            }
            Some(array) => [bus.arrays[array].inbound_bytes, bus.arrays[array].outbound_bytes],
        };
        bytes.map(|bytes| bytes as f64)
    }

    /// Lines read from memory and written to it.
    fn memory_counts(&self) -> [f64; 2] {
        let counters = self.machine.bus.memory.chip.counters();
        [counters.memory_reads, counters.memory_writes].map(|lines| lines as f64)
    }

    /// Offset of the device lines in [`BareMachine::counts`].
    pub(crate) fn dca_counts_at(&self) -> usize {
        self.classes.of_core.len() * CORE_COUNTS
    }

    pub(crate) fn cores_of_programs(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        let specs = &self.machine.scenario.workloads;
        let running = self.machine.launches.running();
        running.map(|(workload, _)| specs[workload].cores.cores().iter().map(|core| core.index()).collect())
    }

    /// How full each NIC's RX rings are, 0 to 1.
    pub(crate) fn rings_in_use(&self) -> impl Iterator<Item = f64> + '_ {
        let queues = self.machine.bus.nics.iter().flat_map(|nic| &nic.queues);
        queues.map(|queue| f64::from(queue.waiting()) / f64::from(queue.ring()))
    }

    /// Whether the scenario has no change before the server's clock reads `until_ns`, and no program has a schedule of
    /// its own.
    pub(crate) fn is_quiet_until(&self, until_ns: u64) -> bool {
        self.machine.is_quiet_until(self.simulated_ns(until_ns))
    }

    /// Seconds of the server's clock per second of simulated traffic.
    pub(crate) fn time_factor(&self) -> f64 {
        self.time_factor
    }

    /// Moves the server's clock to `until_ns` without simulating. Counters grow by `growth` per `span_ns` of that
    /// clock, in the order of [`BareMachine::counts`].
    pub(crate) fn extrapolate(&mut self, until_ns: u64, growth: &[f64], span_ns: u64) {
        let rest_ns = until_ns.saturating_sub(self.now_ns);
        let times = rest_ns as f64 / span_ns as f64;
        for (sum, by) in self.extrapolated.iter_mut().zip(growth) {
            *sum += by * times;
        }
        self.extrapolated_ns += rest_ns;
        self.now_ns += rest_ns;
        self.machine.bring_forward(rest_ns as f64 / self.time_factor);
    }

    /// LLC bytes now charged to an RMID (CMT).
    pub fn occupancy(&self, rmid: u32) -> u64 {
        let Ok(group) = u8::try_from(rmid) else { return 0 };
        let lines = self.machine.bus.memory.chip.group_occupancy(group);
        (f64::from(lines) * self.machine.scale()) as u64 * LINE_BYTES
    }

    /// Bytes that cores with an RMID fetched from memory (MBM). Demand misses only: real chips also do not know the
    /// cause of a write-back.
    pub fn memory_of(&self, rmid: u32) -> u64 {
        let classes = &self.classes;
        let Some(credited) = classes.credited.get(rmid as usize) else { return 0 };
        let cores = (0..classes.rmids.len()).filter(|core| u32::from(classes.rmids[*core]) == rmid);
        let now: u64 = cores.map(|core| self.misses(core) - classes.since[core]).sum();
        self.lines((credited + now) as f64, 0.0) * LINE_BYTES
    }

    fn misses(&self, core: usize) -> u64 {
        self.machine.bus.memory.chip.core_counters(core).llc_misses
    }

    /// Sets a class's L3 mask (IA32_L3_QOS_MASK_n). A chip that accepts non-contiguous masks also accepts an empty
    /// mask; the model must place lines somewhere, so an empty mask acts as way 0 (X).
    ///
    /// # Errors
    /// If the chip refuses the mask or the class does not exist.
    pub fn set_class_mask(&mut self, class: u32, mask: WayMask) -> Result<(), ClassError> {
        let llc = &self.spec().llc;
        let acting = if mask.is_empty() && llc.sparse_masks { WayMask::full(1) } else { mask };
        let classes = self.classes.masks.len();
        if class as usize >= classes {
            return Err(ClassError::NoSuchClass { class, classes });
        }
        self.machine.bus.memory.chip.check_mask(acting)?;
        let cores = 0..self.classes.of_core.len();
        for core in cores.filter(|core| self.classes.of_core[*core] == class).collect::<Vec<_>>() {
            self.set_core_mask(core, acting)?;
        }
        self.classes.masks[class as usize] = acting;
        Ok(())
    }

    /// Sets a core's class and RMID (IA32_PQR_ASSOC). Returns false if the class or RMID does not exist.
    pub fn assign(&mut self, core: usize, class: u32, rmid: u32) -> bool {
        let Some(mask) = self.classes.masks.get(class as usize).copied() else { return false };
        let (Ok(group), true) = (u8::try_from(rmid), rmid < MAX_RMIDS) else { return false };
        let misses = self.misses(core);
        let classes = &mut self.classes;
        if classes.rmids[core] != group {
            classes.credited[usize::from(classes.rmids[core])] += misses - classes.since[core];
            classes.since[core] = misses;
            classes.rmids[core] = group;
            self.machine.bus.memory.chip.set_group(core, group);
        }
        self.classes.of_core[core] = class;
        self.set_core_mask(core, mask).is_ok()
    }

    /// Sets the mask of one core, independent of its class.
    pub(crate) fn set_core_mask(&mut self, core: usize, mask: WayMask) -> Result<(), MaskError> {
        self.machine.bus.memory.chip.set_core_mask(core, mask)
    }

    /// What IIO_LLC_WAYS (MSR 0xC8B) reads; `None` on a chip without it.
    pub fn dca_register(&self) -> Option<u64> {
        let holds = self.machine.bus.memory.chip.dca_ways()?;
        Some(u64::from(self.dca_reads.unwrap_or(holds).bits()))
    }

    /// Writes IIO_LLC_WAYS, under the rules of the generation.
    ///
    /// # Errors
    /// If the register faults on the value, or does not exist.
    pub fn write_dca_register(&mut self, value: u64) -> Result<WayMask, RegisterError> {
        // No chip has 32 ways, so a value beyond 32 bits is out of range in any case.
        let wanted = WayMask::from_bits(u32::try_from(value).unwrap_or(u32::MAX));
        let after = self.machine.bus.memory.chip.write_dca_register(wanted)?;
        self.dca_reads = None;
        Ok(after)
    }

    /// Whether a core's hardware prefetchers are on.
    pub fn prefetchers_on(&self, core: usize) -> bool {
        self.machine.bus.memory.chip.prefetchers_on(core)
    }

    /// Switches a core's prefetchers, as MSR 0x1A4 does on Intel's chips.
    pub fn set_prefetchers(&mut self, core: usize, on: bool) {
        self.machine.bus.memory.chip.set_prefetchers(core, on);
    }

    /// Whether root ports have the register perfctrlsts_0 (PCI config offset 0x180).
    pub fn has_port_registers(&self) -> bool {
        self.spec().dca.is_some_and(|registers| registers.port_switch)
    }

    /// Value of a port's perfctrlsts_0.
    pub fn port_register(&self, port: usize) -> u32 {
        self.ports[port].bits()
    }

    /// Writes a port's perfctrlsts_0. A device on another socket never writes into this LLC, whatever the register
    /// holds.
    pub fn write_port_register(&mut self, port: usize, value: u32) {
        let register = PerfCtrlSts::written(value);
        self.ports[port] = register;
        let chip = &mut self.machine.bus.memory.chip;
        if chip.dca(port) != DcaMode::Remote {
            chip.set_dca(port, if register.dca() { DcaMode::On } else { DcaMode::Off });
        }
    }

    /// Whether the devices behind a port write to the LLC.
    pub fn port_is_on(&self, port: usize) -> bool {
        let remote = self.machine.bus.memory.chip.dca(port) == DcaMode::Remote;
        !remote && self.ports[port].dca()
    }

    /// Switches DCA of a port as change-ddio.c does: one bit, the others unchanged.
    pub(crate) fn switch_port(&mut self, port: usize, on: bool) {
        self.write_port_register(port, self.ports[port].with_dca(on).bits());
    }
}
