//! The virtual server's packages: classes of service, monitoring and the registers of DDIO, over the bare machine.
//!
//! Both resctrl (as a kernel's driver) and MSR writes use this, so that both see the same masks. The machine has one
//! package; a second one exists only for remote devices, and nothing runs on its CPUs. It must not know files nor the
//! addresses of registers. Marks: docs/reference/README.md#marks.

use crate::layout::Layout;
use crate::pmu::boxes::{BoxRegister, CounterBox, EventSelect};
use crate::pmu::core::{CorePmu, CoreRegister};
use crate::pmu::events::{GenerationEvents, share};
use crate::scheduler::Scheduler;
use waykeeper_generations::{BoxCount, Generation, Pmu};
use waykeeper_machine::{BareMachine, CoreCounts, DcaCounts, MAX_RMIDS, MemoryBytes, Process, ScenarioError};
use waykeeper_units::WayMask;

/// Bytes per count of the monitoring counters (CPUID 0xF.1:EBX); a usual value, and a whole number of lines.
pub const MONITORING_UNIT: u32 = 65536;

/// Width of the counters for memory traffic (CPUID 0xF.1:EAX bits 7:0 = 0 means 24; SDM vol. 3, 17.18).
const MONITORING_WIDTH: u32 = 24;

/// Kinds of uncore boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Uncore {
    /// Slices of the LLC.
    Cache,
    /// PCIe stacks.
    Iio,
    /// Memory channels.
    Memory,
    /// The whole LLC, for requests of all cores (AMD's L3 counters).
    Shared,
}

/// All kinds.
pub const UNCORE: [Uncore; 4] = [Uncore::Cache, Uncore::Iio, Uncore::Memory, Uncore::Shared];

impl Uncore {
    /// The tables of a generation for this kind.
    pub fn pmu(self, tables: &Generation) -> Option<&Pmu> {
        match self {
            Uncore::Cache => tables.cache.as_ref().map(|cache| &cache.pmu),
            Uncore::Iio => tables.iio.as_ref().map(|iio| &iio.pmu),
            Uncore::Memory => tables.memory.as_ref().map(|memory| &memory.pmu),
            Uncore::Shared => tables.shared_cache.as_ref().map(|cache| &cache.pmu),
        }
    }
}

/// The registers of one package.
#[derive(Debug)]
struct Package {
    /// L3 masks: by class, or with CDP data (2n) and code (2n + 1).
    masks: Vec<u64>,
    /// Delays of memory bandwidth allocation, by class. They read back; the model does not throttle.
    delays: Vec<u64>,
    /// IA32_L3_QOS_CFG: bit 0, code and data have separate masks.
    cdp: bool,
    /// Boxes by kind, in the order of [`Uncore`].
    boxes: [Vec<CounterBox>; 4],
    /// IIO_LLC_WAYS of a package that the machine does not have.
    ways: Option<u64>,
}

/// The registers of one CPU.
#[derive(Debug)]
struct Cpu {
    /// Class and RMID (IA32_PQR_ASSOC).
    class: u32,
    rmid: u32,
    /// IA32_QM_EVTSEL.
    monitored: u64,
    /// MSR_MISC_FEATURE_CONTROL: bits of the prefetchers that are off.
    prefetchers_off: u64,
    pmu: Option<CorePmu>,
}

/// The running server.
#[derive(Debug)]
pub struct Server {
    bare: BareMachine,
    layout: Layout,
    events: Option<GenerationEvents>,
    packages: Vec<Package>,
    cpus: Vec<Cpu>,
    scheduler: Scheduler,
    /// Classes of bandwidth allocation; 0 without it.
    bandwidth_classes: u32,
}

impl Server {
    /// The server after power-on.
    pub fn new(bare: BareMachine, layout: Layout, bandwidth_classes: u32) -> Server {
        let spec = bare.spec();
        let full = u64::from(WayMask::full(spec.llc.ways).bits());
        let tables = layout.generation;
        let boxes = |pmu: Option<&Pmu>| -> Vec<CounterBox> {
            pmu.map_or_else(Vec::new, |pmu| vec![CounterBox::new(pmu); boxes_of(pmu, &bare)])
        };
        let package = |number: usize| Package {
            // With one class there is no choice: such a chip has no CAT and no registers for it.
            masks: vec![full; if spec.llc.clos > 1 { spec.llc.clos as usize } else { 0 }],
            delays: vec![0; bandwidth_classes as usize],
            cdp: false,
            boxes: UNCORE.map(|kind| boxes(tables.and_then(|tables| kind.pmu(tables)))),
            ways: bare.dca_register().filter(|_| number > 0),
        };
        let packages = (0..layout.packages).map(package).collect();
        let cpu = |cpu: usize| Cpu {
            class: 0,
            rmid: 0,
            monitored: 0,
            prefetchers_off: if layout.package_of(cpu) == 0 && !bare.prefetchers_on(cpu) { 0xf } else { 0 },
            pmu: tables.map(|tables| CorePmu::new(&tables.core)),
        };
        let cpus = (0..layout.cpus()).map(cpu).collect();
        let events = tables.map(GenerationEvents::new);
        let mut scheduler = Scheduler::new(layout.cpus());
        // No thread has a class yet, so this changes none.
        scheduler.switch(threads(&bare).into_iter());
        Server { bare, layout, events, packages, cpus, scheduler, bandwidth_classes }
    }

    /// The server's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The machine, read-only.
    pub fn bare(&self) -> &BareMachine {
        &self.bare
    }

    /// Starts the interval that [`BareMachine::measured`] covers.
    pub fn begin_stretch(&mut self) {
        self.bare.begin_stretch();
    }

    /// The server's clock, ns.
    pub fn now_ns(&self) -> u64 {
        self.bare.now_ns()
    }

    /// The shortest time that the model can run: one of its quanta, ns of the server's clock.
    pub fn step_ns(&self) -> u64 {
        let scenario = self.bare.scenario();
        ((scenario.quantum_ns * scenario.time_factor).round() as u64).max(1)
    }

    /// Runs the machine until its clock shows `clock_ns`.
    ///
    /// # Errors
    /// If a program that starts meanwhile does not fit simulated memory.
    pub fn run_until(&mut self, clock_ns: u64) -> Result<(), Box<ScenarioError>> {
        let Server { bare, cpus, scheduler, .. } = self;
        let switched = |bare: &mut BareMachine| {
            for cpu in scheduler.switch(threads(bare).into_iter()) {
                let (class, rmid) = scheduler.class(cpu);
                // The scheduler's classes were checked when they were set.
                if bare.assign(cpu, class, rmid) {
                    (cpus[cpu].class, cpus[cpu].rmid) = (class, rmid);
                }
            }
        };
        bare.run_with(clock_ns, switched).map_err(Box::new)
    }

    /// Number of boxes of a kind in a package.
    pub fn boxes(&self, package: usize, kind: Uncore) -> usize {
        self.packages[package].boxes[kind as usize].len()
    }

    /// Counts of the core of a CPU; zeros in the second package.
    fn core_counts(&self, cpu: usize) -> CoreCounts {
        if self.layout.package_of(cpu) > 0 {
            return CoreCounts::default();
        }
        self.bare.cores(cpu..cpu + 1)
    }

    /// Cycles that a CPU was not halted.
    pub fn cycles(&self, cpu: usize) -> u64 {
        self.core_counts(cpu).cycles
    }

    /// Reads a register of a core's counters.
    pub fn read_core(&self, cpu: usize, register: CoreRegister) -> Option<u64> {
        let events = self.events.as_ref()?;
        let counts = self.core_counts(cpu);
        self.cpus[cpu].pmu.as_ref()?.read(register, |event| events.core.count(event, &counts))
    }

    /// Writes a register of a core's counters.
    pub fn write_core(&mut self, cpu: usize, register: CoreRegister, value: u64) -> Option<()> {
        let counts = self.core_counts(cpu);
        let events = self.events.as_ref()?;
        self.cpus[cpu].pmu.as_mut()?.write(register, value, |event| events.core.count(event, &counts))
    }

    /// Reads a register of a box.
    pub fn read_box(&self, package: usize, kind: Uncore, index: usize, register: BoxRegister) -> Option<u64> {
        let counts = self.counts_of(package, kind, index);
        let boxes = &self.packages[package].boxes[kind as usize];
        boxes.get(index)?.read(register, |event| counts.of(self.events.as_ref(), event))
    }

    /// Writes a register of a box.
    pub fn write_box(
        &mut self,
        package: usize,
        kind: Uncore,
        index: usize,
        register: BoxRegister,
        value: u64,
    ) -> Option<()> {
        let counts = self.counts_of(package, kind, index);
        let boxes = &mut self.packages[package].boxes[kind as usize];
        let events = self.events.as_ref();
        boxes.get_mut(index)?.write(register, value, |event| counts.of(events, event))
    }

    /// The present counts of everything that a box can count.
    fn counts_of(&self, package: usize, kind: Uncore, index: usize) -> BoxCounts {
        let first = package == 0;
        let of = self.boxes(package, kind);
        match kind {
            Uncore::Cache => {
                let dca = if first { self.bare.dca() } else { DcaCounts::default() };
                BoxCounts::Cache { dca, index, of }
            }
            Uncore::Iio => BoxCounts::Iio(self.parts(package, index as u16)),
            Uncore::Memory => {
                let bytes = if first { self.bare.memory() } else { MemoryBytes::default() };
                BoxCounts::Memory { bytes, index, of }
            }
            Uncore::Shared => {
                let cores = self.layout.cores;
                BoxCounts::Shared(if first { self.bare.cores(0..cores) } else { CoreCounts::default() })
            }
        }
    }

    /// Parts of a stack that have a port, with their inbound and outbound bytes.
    pub fn parts(&self, package: usize, stack: u16) -> Vec<(u8, u64, u64)> {
        let ports = self.layout.ports.iter().enumerate();
        let here = ports.filter(|(_, port)| port.package == package);
        here.filter_map(|(index, port)| {
            let (own, part) = port.counted?;
            let bytes = self.bare.port(index);
            (own == stack).then_some((part, bytes.inbound, bytes.outbound))
        })
        .collect()
    }

    /// The mask register `number` of a package (0xC90 + number).
    pub fn mask(&self, package: usize, number: usize) -> Option<u64> {
        self.packages[package].masks.get(number).copied()
    }

    /// Writes the mask register; `None` if the chip faults on the value.
    pub fn set_mask(&mut self, package: usize, number: usize, value: u64) -> Option<()> {
        let llc = &self.bare.spec().llc;
        let mask = WayMask::from_bits(u32::try_from(value).ok()?);
        let legal = mask.minus(WayMask::full(llc.ways)).is_empty()
            && (llc.sparse_masks || (mask.is_contiguous() && mask.count() >= llc.min_ways));
        let package_registers = &mut self.packages[package];
        if !legal || number >= package_registers.masks.len() {
            return None;
        }
        package_registers.masks[number] = value;
        self.enforce(package);
        Some(())
    }

    /// Whether code and data have separate masks.
    pub fn cdp(&self, package: usize) -> bool {
        self.packages[package].cdp
    }

    /// Sets that.
    pub fn set_cdp(&mut self, package: usize, cdp: bool) {
        if self.packages[package].cdp != cdp {
            self.packages[package].cdp = cdp;
            self.enforce(package);
        }
    }

    /// Applies the masks to the machine. Programs of the model touch data only, so with CDP the data masks count.
    fn enforce(&mut self, package: usize) {
        if package > 0 {
            return;
        }
        let Package { masks, cdp, .. } = &self.packages[package];
        let step = 1 + usize::from(*cdp);
        for (class, value) in masks.iter().step_by(step).enumerate() {
            // Every value was checked when it was written.
            let _ = self.bare.set_class_mask(class as u32, WayMask::from_bits(*value as u32));
        }
    }

    /// The bandwidth register `number` (0xD50 + number); it has no effect.
    pub fn delay(&self, package: usize, number: usize) -> Option<u64> {
        self.packages[package].delays.get(number).copied()
    }

    /// Writes the bandwidth register.
    pub fn set_delay(&mut self, package: usize, number: usize, value: u64) -> Option<()> {
        *self.packages[package].delays.get_mut(number)? = value;
        Some(())
    }

    /// Class and RMID of a CPU.
    pub fn class(&self, cpu: usize) -> (u32, u32) {
        (self.cpus[cpu].class, self.cpus[cpu].rmid)
    }

    /// Sets the class and RMID of tasks without their own on a CPU; `None` as for [`Server::set_class`].
    pub fn set_cpu(&mut self, cpu: usize, class: u32, rmid: u32) -> Option<()> {
        self.legal(class, rmid).then(|| self.scheduler.set_cpu(cpu, (class, rmid)))?;
        let (class, rmid) = self.scheduler.class(cpu);
        self.set_class(cpu, class, rmid)
    }

    /// Sets the class and RMID of a program's thread, by its number on the machine; 0 means none. `None` as for
    /// [`Server::set_class`], and if the thread has exited.
    pub fn set_thread(&mut self, thread: u64, class: u32, rmid: u32) -> Option<()> {
        let cpu = self.legal(class, rmid).then(|| self.scheduler.set_thread(thread, (class, rmid)))??;
        let (class, rmid) = self.scheduler.class(cpu);
        self.set_class(cpu, class, rmid)
    }

    fn legal(&self, class: u32, rmid: u32) -> bool {
        class < self.bare.spec().llc.clos.max(self.bandwidth_classes) && rmid < self.rmids()
    }

    /// Writes a CPU's register, which keeps the value until another thread runs there or resctrl sets it; `None` for a
    /// class or RMID that the chip does not have.
    pub fn set_class(&mut self, cpu: usize, class: u32, rmid: u32) -> Option<()> {
        if !self.legal(class, rmid) {
            return None;
        }
        if self.layout.package_of(cpu) == 0 && !self.bare.assign(cpu, class, rmid) {
            return None;
        }
        (self.cpus[cpu].class, self.cpus[cpu].rmid) = (class, rmid);
        Some(())
    }

    /// Which of a CPU's prefetchers are off: L2 streamer, L2 adjacent line, L1 streamer, L1 by instruction (SDM vol. 4,
    /// MSR 0x1A4).
    pub fn prefetchers_off(&self, cpu: usize) -> u64 {
        self.cpus[cpu].prefetchers_off
    }

    /// Switches them. The model has one prefetcher per core, which is on as long as the L2 streamer, bit 0, is on (X).
    pub fn set_prefetchers_off(&mut self, cpu: usize, bits: u64) {
        self.cpus[cpu].prefetchers_off = bits;
        if self.layout.package_of(cpu) == 0 {
            self.bare.set_prefetchers(cpu, bits & 1 == 0);
        }
    }

    /// RMIDs: eight per core, as an 18-core Skylake has 144 (X), but at most the model's `MAX_RMIDS`.
    pub fn rmids(&self) -> u32 {
        (8 * self.layout.cores as u32).min(MAX_RMIDS)
    }

    /// LLC bytes of an RMID.
    pub fn occupancy(&self, package: usize, rmid: u32) -> u64 {
        if package == 0 { self.bare.occupancy(rmid) } else { 0 }
    }

    /// Memory bytes of an RMID. All memory is local: a package's programs use its own.
    pub fn traffic(&self, package: usize, rmid: u32) -> u64 {
        if package == 0 { self.bare.memory_of(rmid) } else { 0 }
    }

    /// IA32_QM_EVTSEL of a CPU.
    pub fn monitored(&self, cpu: usize) -> u64 {
        self.cpus[cpu].monitored
    }

    /// Writes IA32_QM_EVTSEL of a CPU.
    pub fn set_monitored(&mut self, cpu: usize, value: u64) {
        self.cpus[cpu].monitored = value;
    }

    /// IA32_QM_CTR of a CPU: the event (bits 7:0) of the RMID (bits 41:32) in its EVTSEL, in units; bit 63 if one of
    /// them does not exist (SDM vol. 3, 17.18.5).
    pub fn monitor(&self, cpu: usize) -> u64 {
        let (event, rmid) = (self.monitored(cpu) & 0xff, (self.monitored(cpu) >> 32 & 0x3ff) as u32);
        let package = self.layout.package_of(cpu);
        let counts_traffic = self.layout.counts_traffic();
        match event {
            _ if rmid >= self.rmids() => 1 << 63,
            1 => self.occupancy(package, rmid) / u64::from(MONITORING_UNIT),
            2 | 3 if counts_traffic => {
                (self.traffic(package, rmid) / u64::from(MONITORING_UNIT)) & ((1 << MONITORING_WIDTH) - 1)
            }
            _ => 1 << 63,
        }
    }

    /// IIO_LLC_WAYS of a package; `None` if it has no such register.
    pub fn ways(&self, package: usize) -> Option<u64> {
        if package == 0 { self.bare.dca_register() } else { self.packages[package].ways }
    }

    /// Writes IIO_LLC_WAYS; `None` if the write faults.
    pub fn set_ways(&mut self, package: usize, value: u64) -> Option<()> {
        if package == 0 {
            return self.bare.write_dca_register(value).ok().map(drop);
        }
        let (registers, ways) = (self.bare.spec().dca?, self.bare.spec().llc.ways);
        let before = WayMask::from_bits(self.packages[package].ways? as u32);
        let wanted = WayMask::from_bits(u32::try_from(value).ok()?);
        let after = registers.write(before, wanted, ways).ok()?;
        self.packages[package].ways = Some(u64::from(after.bits()));
        Some(())
    }

    /// Whether root ports have perfctrlsts_0.
    pub fn has_port_registers(&self) -> bool {
        self.bare.has_port_registers()
    }

    /// A root port's perfctrlsts_0.
    pub fn port_register(&self, port: usize) -> u32 {
        self.bare.port_register(port)
    }

    /// Writes a root port's perfctrlsts_0.
    pub fn write_port_register(&mut self, port: usize, value: u32) {
        self.bare.write_port_register(port, value);
    }
}

/// The running threads, each with its CPU. All programs are in the first package.
fn threads(bare: &BareMachine) -> Vec<(usize, u64)> {
    let cores = |workload: usize| bare.scenario().workloads[workload].cores.cores().iter();
    let of = |process: &Process| -> Vec<(usize, u64)> {
        let numbers = process.first_thread..;
        cores(process.workload).zip(numbers).map(|(core, thread)| (core.index(), thread)).collect()
    };
    bare.processes().iter().flat_map(of).collect()
}

/// Number of boxes of a kind in a package. If the table reads it from PCI or an MSR, as many as slices, which these
/// registers here then report; if it reads it from sysfs, as many as its map has.
fn boxes_of(pmu: &Pmu, bare: &BareMachine) -> usize {
    let Some(registers) = &pmu.registers else { return 0 };
    let spec = bare.spec();
    let count = match pmu.boxes {
        BoxCount::Fixed { count } if pmu.perf.contains("imc") => u32::from(count).min(spec.dram.channels),
        BoxCount::Fixed { count } => u32::from(count),
        BoxCount::Cores => spec.cores,
        BoxCount::Msr { .. } | BoxCount::PciBits { .. } => spec.llc.slices,
        BoxCount::Sysfs => u32::from(registers.boxes()),
    };
    count.min(u32::from(registers.boxes())) as usize
}

/// What a box can count.
enum BoxCounts {
    Cache { dca: DcaCounts, index: usize, of: usize },
    Iio(Vec<(u8, u64, u64)>),
    Memory { bytes: MemoryBytes, index: usize, of: usize },
    Shared(CoreCounts),
}

impl BoxCounts {
    fn of(&self, events: Option<&GenerationEvents>, event: EventSelect) -> u64 {
        let Some(events) = events else { return 0 };
        match self {
            BoxCounts::Cache { dca, index, of } => {
                events.cache().map_or(0, |events| share(events.count(event, dca), *index, *of))
            }
            BoxCounts::Iio(parts) => {
                events.iio().map_or(0, |events| events.count(event, parts.iter().copied()))
            }
            BoxCounts::Memory { bytes, index, of } => {
                events.memory().map_or(0, |events| share(events.count(event, bytes), *index, *of))
            }
            BoxCounts::Shared(cores) => events.shared().map_or(0, |events| events.count(event, cores)),
        }
    }
}
