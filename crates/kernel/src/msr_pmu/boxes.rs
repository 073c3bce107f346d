//! Register writes with which a box of the uncore counts: slices of the LLC, PCIe stacks, memory channels.
//!
//! A box with an enabled counter is used by another program (perf, PCM, pqos) and is left alone: freezing it would
//! stop that program's counters. Must not know how registers are accessed.

use super::counter_program::{
    BYTES_PER_TICK, CLOCKS_PER_TICK, CounterProgram, CounterRegister, RegisterBits, Write,
};
use crate::cha::SliceEvents;
use crate::counting::SampledQuantity;
use crate::iio::StackPart;
use crate::registers::RegisterAddress;
use crate::uncore::{BoxEvent, memory_events, stack_events};
use waykeeper_generations::{AddressSpace, FreeRunningSet, Iio, LlcCounterTable, MemoryCounterTable, Pmu};
use waykeeper_units::CoreId;

/// The counter program of a box with its events, each on its counter. An event counts at most `most_per_tick` times per
/// tick of the time stamp counter. `reach` turns a register number into its address; it gets whether the register is a
/// counter.
fn program(
    pmu: &Pmu,
    number: u16,
    events: impl IntoIterator<Item = (BoxEvent, u8)>,
    most_per_tick: u64,
    reach: &dyn Fn(u32, bool) -> Option<RegisterAddress>,
) -> Result<CounterProgram, String> {
    let name = format!("{} {number}", pmu.perf);
    let unknown = || format!("{name}: the table has no registers for it");
    let registers = pmu.registers.as_ref().ok_or_else(unknown)?;
    let base = registers.address(number).ok_or_else(unknown)?;
    let register = |address: u32| reach(address, false).ok_or_else(unknown);
    let mut program = CounterProgram { name: name.clone(), ..CounterProgram::default() };
    // Without an enable bit, a counter is idle as long as it has no event.
    let idle = registers.enable_bit.map_or(0xff, |bit| 1 << bit);
    for index in 0..pmu.counters {
        let control = registers.control_of(number, index).ok_or_else(unknown)?;
        program.in_use.push(RegisterBits { register: register(control)?, mask: idle });
    }
    // A later user of the box needs it running, and its filters, so the counters' controls identify their owner.
    let mut claims = program.in_use.clone();
    let box_control = registers.box_control.zip(registers.box_control_of(number));
    let (mut filter0, mut filter1) = (None, None);
    let mut controls = Vec::new();
    for (event, index) in events {
        let wrong = || format!("{name}: the event {} does not fit its registers", event.terms);
        let words = pmu.program(&event.terms).ok_or_else(wrong)?;
        for (ours, wanted) in [(&mut filter0, words.filter0), (&mut filter1, words.filter1)] {
            if wanted.is_some_and(|wanted| ours.is_some_and(|ours| ours != wanted)) {
                return Err(format!(
                    "{name}: the event {} needs a different filter than another event of the same box",
                    event.terms
                ));
            }
            *ours = ours.or(wanted);
        }
        let control = registers.control_of(number, index).ok_or_else(wrong)?;
        let control = register(control)?;
        claims.iter_mut().filter(|claim| claim.register == control).for_each(|claim| claim.mask = u64::MAX);
        controls.push(Write::whole(control, words.control));
        let counter = registers.counter_of(number, index).ok_or_else(wrong)?;
        program.counters.push(CounterRegister {
            register: reach(counter, true).ok_or_else(unknown)?,
            bits: pmu.width.into(),
            quantity: event.quantity,
            stands_for: event.stands_for,
            most_per_tick,
        });
    }
    let with = |register: RegisterAddress, value: u64| Write::with(register, value, claims.clone());
    if let Some((control, address)) = box_control {
        program.writes.push(with(register(address)?, control.freeze));
    }
    for (offset, value) in [(registers.filter0, filter0), (registers.filter1, filter1)] {
        if let Some(value) = value {
            program.writes.push(with(register(base + offset.ok_or_else(unknown)?)?, value));
        }
    }
    program.writes.extend(controls);
    if let Some((control, address)) = box_control {
        program.writes.push(with(register(address)?, control.run));
    }
    Ok(program)
}

fn through(cpu: CoreId) -> impl Fn(u32, bool) -> Option<RegisterAddress> {
    move |address, _| Some(RegisterAddress::Msr { cpu, address })
}

fn by_msr(pmu: &Pmu) -> bool {
    pmu.registers.as_ref().is_some_and(|registers| registers.space == AddressSpace::Msr)
}

/// Most counts per tick of a counter of bytes.
fn bytes_per_tick(unit_bytes: u32) -> u64 {
    BYTES_PER_TICK.div_ceil(u64::from(unit_bytes).max(1))
}

/// The counter programs for the LLC slices of one package, accessed through one of its CPUs, with the events of
/// [`cha::slice_events`](crate::cha::slice_events) or [`cha::device_events`](crate::cha::device_events).
///
/// # Errors
/// The table has no registers for them.
pub fn slice_programs(
    cache: &LlcCounterTable,
    slices: u16,
    cpu: CoreId,
    of: SliceEvents,
) -> Result<Vec<CounterProgram>, String> {
    if !by_msr(&cache.pmu) {
        return Err(format!("{}: the counter registers are not MSRs", cache.pmu.perf));
    }
    let slice = |number: u16| {
        let events = of(cache, number.into(), slices.into()).into_iter().zip(0u8..);
        // A slice accepts one request per clock.
        program(&cache.pmu, number, events, CLOCKS_PER_TICK, &through(cpu))
    };
    (0..slices).map(slice).collect()
}

/// The counter programs for the PCIe stacks of root ports; `parts` by the port's index. Bytes come from free-running
/// counters where they exist, else from programmed ones. The second result lists what cannot be counted.
pub fn stack_programs(
    iio: &Iio,
    parts: &[(u8, StackPart)],
    cpu: CoreId,
) -> (Vec<CounterProgram>, Vec<String>) {
    let running = |place: StackPart, set: &FreeRunningSet| set.address(place.stack, place.part);
    let bits = iio.free_running.as_ref().map_or(0, |free| free.width.into());
    let (mut programs, mut missing) = (Vec::new(), Vec::new());
    for events in stack_events(iio, parts, running, |_| by_msr(&iio.pmu)) {
        missing.extend(events.missing);
        let counter = |(address, quantity, stands_for): (u32, SampledQuantity, f64)| {
            let register = RegisterAddress::Msr { cpu, address };
            let most_per_tick = (BYTES_PER_TICK as f64 / stands_for).ceil() as u64;
            CounterRegister { register, bits, quantity, stands_for, most_per_tick }
        };
        if !events.running.is_empty() {
            let counters = events.running.into_iter().map(counter).collect();
            let name = format!("{} {}", iio.pmu.perf, events.stack);
            programs.push(CounterProgram { name, counters, ..CounterProgram::default() });
        }
        if !events.programmed.is_empty() {
            let own = events.programmed.into_iter().zip(iio.counters.iter().copied());
            match program(&iio.pmu, events.stack, own, bytes_per_tick(iio.unit_bytes), &through(cpu)) {
                Ok(program) => programs.push(program),
                Err(why) => missing.push(why),
            }
        }
    }
    (programs, missing)
}

/// The counter programs for the memory channels whose registers are in the configuration space of `devices`, in their
/// order.
///
/// # Errors
/// The table has no such registers.
pub fn memory_programs(
    memory: &MemoryCounterTable,
    devices: &[String],
) -> Result<Vec<CounterProgram>, String> {
    let pmu = &memory.pmu;
    if pmu.registers.as_ref().is_none_or(|registers| registers.space != AddressSpace::PciConfig) {
        return Err(format!("{}: the counter registers are not in PCI configuration space", pmu.perf));
    }
    let channel = |(number, device): (u16, &String)| {
        let reach = |address: u32, is_counter: bool| {
            // Control words are 32 bits wide, counters two of them (hardware.md 5).
            let bytes = if is_counter { 8 } else { 4 };
            Some(RegisterAddress::Pci { device: device.clone(), offset: u16::try_from(address).ok()?, bytes })
        };
        let events = memory_events(memory).into_iter().zip(0u8..);
        let program = program(pmu, number, events, bytes_per_tick(memory.unit_bytes), &reach)?;
        Ok(CounterProgram { name: format!("{} at {device}", pmu.perf), ..program })
    };
    (0u16..).zip(devices).map(channel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cha::slice_events;
    use crate::counting::TransferDirection;
    use waykeeper_generations::Generation;

    const CPU: CoreId = CoreId(0);

    fn generation(id: &str) -> &'static Generation {
        Generation::by_id(id).unwrap()
    }

    fn at(address: u32) -> RegisterAddress {
        RegisterAddress::Msr { cpu: CPU, address }
    }

    fn writes(program: &CounterProgram) -> Vec<(u32, u64)> {
        let address = |register: &RegisterAddress| match register {
            RegisterAddress::Msr { address, .. } => *address,
            RegisterAddress::Pci { offset, .. } => u32::from(*offset),
        };
        program.writes.iter().map(|write| (address(&write.register), write.value)).collect()
    }

    #[test]
    fn a_skylake_slice_is_frozen_filtered_programmed_and_run() {
        let programs =
            slice_programs(generation("skx").cache.as_ref().unwrap(), 18, CPU, slice_events).unwrap();
        assert_eq!(programs.len(), 18);
        // hardware.md 3.2 and 3.3: CHA 1 lies at 0xe10; PCIRdCur is Filter1 0x43c33; hits umask 0x14, misses 0x24.
        assert_eq!(
            writes(&programs[1]),
            [(0xe10, 0x10100), (0xe16, 0x43c33), (0xe11, 0x401435), (0xe12, 0x402435), (0xe10, 0x10000)]
        );
        assert_eq!(writes(&programs[0])[1], (0xe06, 0x49033), "ItoM on the even ones");
        let counters: Vec<&RegisterAddress> =
            programs[1].counters.iter().map(|counter| &counter.register).collect();
        assert_eq!(
            counters,
            [
                &RegisterAddress::Msr { cpu: CPU, address: 0xe18 },
                &RegisterAddress::Msr { cpu: CPU, address: 0xe19 }
            ]
        );
        assert_eq!(programs[1].in_use.len(), 4, "all four counters must be idle");
        assert!(programs[1].in_use.iter().all(|bits| bits.mask == 1 << 22));
        // The controls identify the owner of box control and filter: ours hold what we wrote, the other two are idle.
        for write in
            programs[1].writes.iter().filter(|write| [at(0xe10), at(0xe16)].contains(&write.register))
        {
            let parts = &write.parts;
            assert!(parts.len() == 1 && !parts[0].tells && write.telling() == 0);
            let masks: Vec<(RegisterAddress, u64)> =
                parts[0].claims.iter().map(|claim| (claim.register.clone(), claim.mask)).collect();
            let idle = 1 << 22;
            assert_eq!(
                masks,
                [(at(0xe11), u64::MAX), (at(0xe12), u64::MAX), (at(0xe13), idle), (at(0xe14), idle)]
            );
        }
    }

    #[test]
    fn a_skylake_port_is_read_and_nothing_is_written_for_it() {
        let iio = generation("skx").iio.as_ref().unwrap();
        let parts = [(0, StackPart { stack: 2, part: 0 }), (1, StackPart { stack: 2, part: 2 })];
        let (programs, missing) = stack_programs(iio, &parts, CPU);
        assert!(missing.is_empty());
        assert_eq!(programs.len(), 1);
        assert!(programs[0].writes.is_empty() && programs[0].in_use.is_empty());
        // hardware.md 4.2: 0xb00 + 0x10 a stack, in + part, out + 4 + part; 36 bits of 4 bytes.
        let read: Vec<(u32, SampledQuantity)> = programs[0]
            .counters
            .iter()
            .map(|counter| match counter.register {
                RegisterAddress::Msr { address, .. } => (address, counter.quantity),
                RegisterAddress::Pci { .. } => panic!("an MSR"),
            })
            .collect();
        assert_eq!(
            read,
            [
                (0xb20, SampledQuantity::Port(0, TransferDirection::Write)),
                (0xb24, SampledQuantity::Port(0, TransferDirection::Read)),
                (0xb22, SampledQuantity::Port(1, TransferDirection::Write)),
                (0xb26, SampledQuantity::Port(1, TransferDirection::Read)),
            ]
        );
        assert!(programs[0].counters.iter().all(|counter| counter.bits == 36 && counter.stands_for == 4.0));
    }

    #[test]
    fn what_does_not_run_by_itself_is_programmed_as_long_as_counters_last() {
        let mut iio = generation("skx").iio.clone().unwrap();
        iio.free_running = None;
        let parts: Vec<(u8, StackPart)> = (0..2).map(|part| (part, StackPart { stack: 1, part })).collect();
        let (programs, missing) = stack_programs(&iio, &parts, CPU);
        // hardware.md 4.1 and 4.3: stack 1 at 0xa60, controls + 8, event 0x83, umask, ch_mask from 36, fc_mask from 44.
        assert_eq!(
            writes(&programs[0]),
            [(0xa60, 0x10100), (0xa68, 0x7010_0040_0183), (0xa69, 0x7010_0040_0483), (0xa60, 0x10000)]
        );
        assert_eq!(missing.len(), 2, "the second port finds both counters taken: {missing:?}");
    }

    #[test]
    fn memory_channels_of_skylake_lie_in_pci_space() {
        let devices = ["0000:3a:0a.2".to_owned(), "0000:3a:0a.6".to_owned()];
        let programs = memory_programs(generation("skx").memory.as_ref().unwrap(), &devices).unwrap();
        assert_eq!(programs.len(), 2);
        assert_eq!(
            writes(&programs[1]),
            [(0xf4, 0x10100), (0xd8, 0x400304), (0xdc, 0x400c04), (0xf4, 0x10000)]
        );
        let RegisterAddress::Pci { device, offset, bytes } = &programs[1].counters[1].register else {
            panic!("PCI")
        };
        assert_eq!((device.as_str(), *offset, *bytes), ("0000:3a:0a.6", 0xa8, 8));
        assert!(
            memory_programs(generation("icx").memory.as_ref().unwrap(), &devices).is_err(),
            "MMIO from Ice Lake on"
        );
    }

    #[test]
    fn every_generation_with_slices_can_be_programmed() {
        for generation in Generation::all() {
            let Some(cache) = generation.cache.as_ref().filter(|cache| by_msr(&cache.pmu)) else { continue };
            let programs = slice_programs(cache, 4, CPU, slice_events)
                .unwrap_or_else(|why| panic!("{}: {why}", generation.id));
            assert!(programs.iter().all(|program| !program.counters.is_empty()), "{}", generation.id);
        }
    }
}
