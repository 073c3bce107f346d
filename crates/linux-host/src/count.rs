//! Chooses how this host is counted and plans the counters: perf where the kernel under the root counts this machine,
//! else registers.
//!
//! [`perf::is_asked`] is the rule. Must not know how the counts are used.

use super::facts::Facts;
use waykeeper_generations::{
    AddressSpace, BoxCount, Generation, Iio, LlcCounterTable, MemoryCounterTable, Pmu,
};
use waykeeper_host::CountersRead;
use waykeeper_kernel::cha;
use waykeeper_kernel::counting::{CoreEventPlan, Counting};
use waykeeper_kernel::event_source::{self, CounterUnit};
use waykeeper_kernel::host_clock::HostClock;
use waykeeper_kernel::iio::{self, StackBus, StackPart};
use waykeeper_kernel::journal::{Journal, Original};
use waykeeper_kernel::msr::{Allowed, MsrDevice, MsrError};
use waykeeper_kernel::msr_pmu::{self, CounterProgram, MsrCounting};
use waykeeper_kernel::perf::{self, IioUnits, PerfCounting, PlannedGroup, UncorePlan};
use waykeeper_kernel::registers::{RegisterAddress, RegisterFiles, RegisterIo};
use waykeeper_kernel::root::Root;
use waykeeper_kernel::topology::Topology;
use waykeeper_units::{CoreId, CoreList};

/// Why a core is not counted.
pub(super) enum CoreError {
    /// The journal cannot record its original register values.
    Journal(String),
    /// Its counters are not available.
    Failed(String),
    /// There is no journal, so no register may be programmed.
    OnlyLooking,
}

/// Starts counting on the managed package; the second part is notes for the user. Without a generation the events are
/// unknown, so nothing is counted. With `core`, perf is used only if it can open that core's events too. Without a
/// journal no register is programmed, and only free-running counters are read.
pub(super) fn start(
    root: &Root,
    facts: &Facts,
    core: Option<CoreId>,
    journal: Option<&mut Journal>,
) -> Result<(Box<dyn Counting>, Vec<String>), String> {
    let mut notes = Vec::new();
    let nothing =
        || MsrCounting::start(Box::new(RegisterFiles::new(root, None)), Vec::new(), &mut |_| Ok(()));
    let Some(generation) = facts.generation else {
        notes.push("no built-in table describes this CPU, so its counters are not read".to_owned());
        return Ok((Box::new(nothing()?.0), notes));
    };
    if perf::is_asked(root) {
        let mut reported = Vec::new();
        match by_perf(root, facts, generation, core, &mut reported) {
            Ok(counting) => return Ok((Box::new(counting), reported)),
            Err(why) if journal.is_none() => notes.push(format!("perf cannot count here: {why}")),
            Err(why) => {
                notes.push(format!("perf cannot count here, so Waykeeper programs counter registers: {why}"))
            }
        }
    }
    let reader = MsrDevice::open(root, facts.reader.0, Allowed::nothing());
    if facts.is_virtual && journal.is_none() && matches!(reader, Err(MsrError::NoModule { .. })) {
        notes.push("a virtual machine has no counters beside perf's, so nothing is counted".to_owned());
        return Ok((Box::new(nothing()?.0), notes));
    }
    let counting = by_registers(root, facts, generation, journal, &mut notes)?;
    Ok((Box::new(counting), notes))
}

fn by_perf(
    root: &Root,
    facts: &Facts,
    generation: &Generation,
    core: Option<CoreId>,
    notes: &mut Vec<String>,
) -> Result<PerfCounting, String> {
    let failed = |why: waykeeper_kernel::root::FileError| why.to_string();
    if CounterUnit::read(root, &generation.core.perf).map_err(failed)?.is_none() {
        return Err(format!("the kernel has no unit `{}`", generation.core.perf));
    }
    if let Some(core) = core {
        // Every policy needs core events, so they are opened once as a test and closed again.
        PerfCounting::open(core_plan(root, generation, core)?).map_err(|why| why.to_string())?;
    }
    let mut uncore = UncorePlan::default();
    let package = facts.topology.cpus_of(facts.socket);
    let units = |name: &str| event_source::units(root, name).map_err(failed);
    if let Some(cache) = &generation.cache {
        let slices = units(&cache.pmu.perf)?;
        notes.extend(no_unit(slices.len(), "requests of devices are", &cache.pmu));
        notes.extend(split_note(cache, slices.len()));
        uncore.add_slices(cache, &slices, &package, cha::slice_events);
    }
    if let Some(memory) = &generation.memory {
        let channels = units(&memory.pmu.perf)?;
        notes.extend(no_unit(channels.len(), "memory traffic is", &memory.pmu));
        uncore.add_memory(memory, &channels, &package);
    }
    if let Some(iio) = &generation.iio {
        let free = iio.free_running.as_ref().map(|free| units(&free.perf)).transpose()?;
        let stacks = IioUnits { programmed: units(&iio.pmu.perf)?, running: free.unwrap_or_default() };
        let parts = parts(facts, iio, &stack_buses(root, facts, iio, notes), notes);
        uncore.add_ports(root, iio, &parts, &stacks, &package);
    }
    notes.extend(uncore.notes);
    PerfCounting::open(uncore.groups).map_err(|why| why.to_string())
}

/// Counts only device requests on the managed package, partial writes included. Where perf does not count this machine,
/// registers are programmed, which needs a journal for their originals.
pub(super) fn start_devices(
    root: &Root,
    facts: &Facts,
    journal: Option<&mut Journal>,
) -> Result<(Box<dyn Counting>, Vec<String>), String> {
    let generation =
        facts.generation.ok_or("no built-in table describes this CPU, so its counters are not read")?;
    let cache = generation.cache.as_ref().ok_or("the LLC slices of this CPU count no device requests")?;
    if perf::is_asked(root) {
        let slices = event_source::units(root, &cache.pmu.perf).map_err(|why| why.to_string())?;
        if let Some(why) = no_unit(slices.len(), "requests of devices are", &cache.pmu) {
            return Err(why);
        }
        let mut uncore = UncorePlan::default();
        uncore.add_slices(cache, &slices, &facts.topology.cpus_of(facts.socket), cha::device_events);
        let notes = uncore.notes;
        let counting = PerfCounting::open(uncore.groups).map_err(|why| why.to_string())?;
        return Ok((Box::new(counting), notes));
    }
    let journal = journal.ok_or(
        "perf does not count the host under this root, and Waykeeper may not program registers \
            without a journal",
    )?;
    let registers = RegisterFiles::new(root, Some(generation));
    let mut notes = Vec::new();
    let slices = boxes(root, facts, &registers, &cache.pmu, &mut notes)?;
    let programs = msr_pmu::slice_programs(cache, slices, facts.reader, cha::device_events)?;
    let counting = start_msr_counting(registers, of_package(programs, facts.socket).collect(), journal)?;
    Ok((Box::new(counting), notes))
}

/// The clock on which these counters count, if it may be another than this machine's: registers have that of their host,
/// and perf has this machine's.
pub(super) fn clock(root: &Root, facts: &Facts, counting: &dyn Counting) -> Option<HostClock> {
    let generation = facts.generation.filter(|_| counting.way() != "perf")?;
    HostClock::open(Box::new(RegisterFiles::new(root, None)), generation, facts.reader)
}

/// When counters were read, if the clock could be read before (`from_ns`) and can be read after them.
pub(super) fn read_since(from_ns: Option<u64>, clock: Option<&HostClock>) -> Option<CountersRead> {
    Some(CountersRead { from_ns: from_ns?, to_ns: clock?.now_ns()? })
}

fn core_plan(root: &Root, generation: &Generation, core: CoreId) -> Result<Vec<PlannedGroup>, String> {
    let watchdog = root.read_optional("/proc/sys/kernel/nmi_watchdog").map_err(|why| why.to_string())?;
    let watchdog = watchdog.is_some_and(|text| text.trim() == "1");
    Ok(perf::core_groups(&generation.core, &CoreEventPlan::of(&generation.core), core, watchdog))
}

/// Raises the limit on open files for this many cores.
pub(super) fn raise_file_limit(generation: &Generation, cores: usize) {
    perf::raise_file_limit((CoreEventPlan::of(&generation.core).names().len() * cores) as u64);
}

/// Starts counting one core. The second part names its events that have no counter.
pub(super) fn start_core(
    root: &Root,
    generation: &'static Generation,
    core: CoreId,
    by_perf: bool,
    journal: Option<&mut Journal>,
) -> Result<(Box<dyn Counting>, Option<String>), CoreError> {
    if by_perf {
        let plan = core_plan(root, generation, core).map_err(CoreError::Failed)?;
        let counting = PerfCounting::open(plan).map_err(|why| CoreError::Failed(why.to_string()))?;
        return Ok((Box::new(counting), None));
    }
    let journal = journal.ok_or(CoreError::OnlyLooking)?;
    let registers = RegisterFiles::new(root, Some(generation));
    let events = CoreEventPlan::of(&generation.core);
    let program = msr_pmu::core_program(&generation.core, &events, core, &registers);
    let (program, without_counter) =
        program.map_err(|why| CoreError::Failed(format!("{why}; it is not counted")))?;
    let without_counter = (!without_counter.is_empty())
        .then(|| format!("{core}: no counter is free for {}", without_counter.join(", ")));
    let counting = start_msr_counting(registers, vec![program], journal).map_err(CoreError::Journal)?;
    Ok((Box::new(counting), without_counter))
}

/// Programs registers after their originals are journaled.
fn start_msr_counting(
    registers: RegisterFiles,
    programs: Vec<CounterProgram>,
    journal: &mut Journal,
) -> Result<MsrCounting, String> {
    let before = journal.originals().to_vec();
    let mut keep = |turned: &[Original]| journal.record(turned).map_err(|why| why.to_string());
    let (counting, untouched) = MsrCounting::start(Box::new(registers), programs, &mut keep)?;
    // Another program took these registers before we wrote them. Their originals leave the journal, so that a restore
    // does not overwrite that program's values.
    let untouched: Vec<Original> =
        untouched.into_iter().filter(|own| !before.iter().any(|other| other.is_same_knob(own))).collect();
    journal.forget_all(&untouched).map_err(|why| why.to_string())?;
    Ok(counting)
}

fn by_registers(
    root: &Root,
    facts: &Facts,
    generation: &'static Generation,
    journal: Option<&mut Journal>,
    notes: &mut Vec<String>,
) -> Result<MsrCounting, String> {
    let registers = RegisterFiles::new(root, Some(generation));
    let mut programs = package_programs(root, facts, generation, &registers, notes);
    match journal {
        Some(journal) => start_msr_counting(registers, programs, journal),
        None => {
            programs.retain(|program| program.writes.is_empty());
            notes.push(
                "Waykeeper only observes this host and programs no counter: only counters that already run \
                 are read (daemon.program_counters = true programs the others, and restores them)"
                    .to_owned(),
            );
            let mut refuse = |_: &[_]| Err("nothing may be written".to_owned());
            Ok(MsrCounting::start(Box::new(registers), programs, &mut refuse)?.0)
        }
    }
}

/// The counter programs of the managed package; the notes say what cannot be counted.
pub(super) fn package_programs(
    root: &Root,
    facts: &Facts,
    generation: &Generation,
    registers: &RegisterFiles,
    notes: &mut Vec<String>,
) -> Vec<CounterProgram> {
    let mut programs: Vec<CounterProgram> = Vec::new();
    let reader = facts.reader;
    if let Some(cache) = &generation.cache {
        let slices = boxes(root, facts, registers, &cache.pmu, notes);
        match slices.and_then(|slices| msr_pmu::slice_programs(cache, slices, reader, cha::slice_events)) {
            Err(why) => notes.push(format!("requests of devices are not counted: {why}")),
            Ok(slices) => {
                notes.extend(split_note(cache, slices.len()));
                programs.extend(of_package(slices, facts.socket));
            }
        }
    }
    if let Some(memory) = &generation.memory {
        match msr_pmu::memory_programs(memory, &channels(facts, memory)) {
            Err(why) => notes.push(format!("memory traffic is not counted: {why}")),
            Ok(channels) if channels.is_empty() => {
                notes.push(
                    "memory traffic is not counted: the PCI devices of the memory channels were not found"
                        .to_owned(),
                );
            }
            Ok(channels) => programs.extend(channels),
        }
    }
    if let Some(iio) = &generation.iio {
        let parts = parts(facts, iio, &stack_buses(root, facts, iio, notes), notes);
        let (stacks, missing) = msr_pmu::stack_programs(iio, &parts, reader);
        programs.extend(of_package(stacks, facts.socket));
        notes.extend(missing);
    }
    programs
}

/// Marks counter programs as those of registers that any CPU of the package reaches.
fn of_package(programs: Vec<CounterProgram>, socket: u16) -> impl Iterator<Item = CounterProgram> {
    programs.into_iter().map(move |program| CounterProgram { package: Some(socket), ..program })
}

/// A note if perf has no unit of this kind, although it counts cores. Registers are not used beside perf: perf
/// schedules the same counters and would overwrite them.
fn no_unit(units: usize, what: &str, pmu: &Pmu) -> Option<String> {
    (units == 0).then(|| {
        format!("{what} not counted: perf offers no {}_N (is intel_uncore or amd_uncore loaded?)", pmu.perf)
    })
}

fn split_note(cache: &LlcCounterTable, slices: usize) -> Option<String> {
    cha::is_split(cache, slices).then(|| {
        "each slice of this LLC has one filter: every second slice counts device writes, the others reads, \
         and counts are doubled"
            .to_owned()
    })
}

fn boxes(
    root: &Root,
    facts: &Facts,
    registers: &RegisterFiles,
    pmu: &Pmu,
    notes: &mut Vec<String>,
) -> Result<u16, String> {
    let units = || event_source::units(root, &pmu.perf).map(|units| units.len() as u64);
    let found = match &pmu.boxes {
        BoxCount::Fixed { count } => u64::from(*count),
        // The kernel's list includes the slices of offline cores (hardware.md 3.4).
        BoxCount::Cores => match units().map_err(|error| error.to_string())? {
            0 => {
                notes.extend(offline_note(&facts.topology));
                facts.topology.cores_of(facts.socket) as u64
            }
            units => units,
        },
        BoxCount::Msr { address, bits: [low, high] } => {
            let value = registers.read(&RegisterAddress::Msr { cpu: facts.reader, address: *address })?;
            value >> low & (u64::MAX >> (63 - (high - low)))
        }
        BoxCount::PciBits { vendor, device, offsets } => {
            let words = facts.devices_of(*vendor, *device).into_iter().take(1).flat_map(|address| {
                offsets.iter().map(move |offset| registers.read_config(&address, *offset, 4))
            });
            let words: Result<Vec<u64>, _> = words.collect();
            words.map_err(|error| error.to_string())?.iter().map(|word| u64::from(word.count_ones())).sum()
        }
        BoxCount::Sysfs => units().map_err(|error| error.to_string())?,
    };
    believable(pmu, found)
}

/// A note that slices are missing: where slices are counted by cores, the slice of a core without an online CPU is not
/// found. The kernel does not report the core of an offline CPU.
fn offline_note(topology: &Topology) -> Option<String> {
    let offline = CoreList::from(topology.offline().collect::<Vec<CoreId>>());
    (!offline.is_empty()).then(|| {
        format!(
            "CPUs {offline} are offline; the LLC slice of a core that is offline as a whole is not counted, \
             so the counts of device requests are too low"
        )
    })
}

/// Checks a number of boxes: at least 1 and at most what the chip's register map has room for (hardware.md 3.3). A part
/// that does not report the number reads 0.
fn believable(pmu: &Pmu, found: u64) -> Result<u16, String> {
    let most = pmu.registers.as_ref().map_or(0, |registers| registers.boxes());
    u16::try_from(found).ok().filter(|count| (1..=most).contains(count)).ok_or_else(|| {
        format!("this CPU reports {found} boxes {}, but its register map has room for {most}", pmu.perf)
    })
}

/// The managed package's memory channels whose counters are in configuration space.
fn channels(facts: &Facts, memory: &MemoryCounterTable) -> Vec<String> {
    let in_pci =
        memory.pmu.registers.as_ref().is_some_and(|registers| registers.space == AddressSpace::PciConfig);
    let all = memory.pci_devices.iter().filter(|_| in_pci);
    let mut found: Vec<String> =
        all.flat_map(|[vendor, device]| facts.devices_of(*vendor, *device)).collect();
    found.sort_unstable();
    found
}

/// The root buses of the managed package's stacks, from sysfs, or from the bus register if sysfs has none.
fn stack_buses(root: &Root, facts: &Facts, iio: &Iio, notes: &mut Vec<String>) -> Vec<StackBus> {
    let units = event_source::units(root, &iio.pmu.perf).unwrap_or_else(|error| {
        notes.push(error.to_string());
        Vec::new()
    });
    let mut buses = Vec::new();
    for unit in units {
        match unit.die_buses(root) {
            Err(error) => notes.push(error.to_string()),
            Ok(dies) => {
                let own = dies.get(&facts.die()).zip(perf::number(&unit));
                buses.extend(own.map(|(&(segment, bus), stack)| StackBus { stack, segment, bus }));
            }
        }
    }
    if let (true, Some(register)) = (buses.is_empty(), iio.bus_register) {
        let address = RegisterAddress::Msr { cpu: facts.reader, address: register.msr };
        match RegisterFiles::new(root, None).read(&address) {
            Err(why) => notes.push(why),
            Ok(value) => {
                let stacks = iio.pmu.registers.as_ref().map_or(0, |registers| registers.boxes());
                buses = iio::buses_of_register(value, register.valid, stacks);
            }
        }
    }
    buses
}

/// The IIO stack and part that count each root port of the managed package. Only ports with a device are listed.
fn parts(facts: &Facts, iio: &Iio, buses: &[StackBus], notes: &mut Vec<String>) -> Vec<(u8, StackPart)> {
    let mut parts = Vec::new();
    for (port, index) in facts.ports.iter().zip(0..=u8::MAX).filter(|(port, _)| port.is_local) {
        let address = port.address;
        match iio::stack_part(address.domain, address.bus, address.device, buses, iio.part_map) {
            Some(part) => parts.push((index, part)),
            None => notes.push(format!(
                "bytes of root port {} are not counted: its IIO stack and part are not known",
                port.address
            )),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_believed_up_to_what_the_register_map_has_room_for() {
        let pmu =
            |id: &str| &Generation::by_id(id).and_then(|chip| chip.cache.as_ref()).expect("a cache").pmu;
        // Granite Rapids: 144 boxes of 0x10 from 0x2000 up to 0x2900; Skylake: 28 slices (hardware.md 3.3).
        assert_eq!(believable(pmu("gnr"), 144), Ok(144));
        assert_eq!(believable(pmu("skx"), 28), Ok(28));
        for (id, found) in [("gnr", 145), ("gnr", 0), ("skx", 29), ("skx", 1 << 16)] {
            let why = believable(pmu(id), found).unwrap_err();
            assert!(
                why.contains(&format!("reports {found} boxes uncore_cha, but its register map has room for")),
                "{why}"
            );
        }
    }

    #[test]
    fn a_kind_of_which_the_kernel_drives_no_unit_is_reported() {
        let pmu = &Generation::by_id("skx").and_then(|chip| chip.cache.as_ref()).expect("a cache").pmu;
        assert_eq!(no_unit(1, "requests of devices are", pmu), None);
        let reported = no_unit(0, "requests of devices are", pmu).unwrap_or_default();
        assert!(
            reported.starts_with("requests of devices are not counted: perf offers no uncore_cha_N"),
            "{reported}"
        );
    }
}
