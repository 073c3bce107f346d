//! Assigns a core's events to counters that no other program uses.
//!
//! A counter is in use if its select register (or its four bits of the fixed control) enables it, as the kernel's
//! watchdog and any perf user do. Such counters are left alone, and each event gets the next free one. Must not know
//! how registers are accessed.

use super::counter_program::{
    CLOCKS_PER_TICK, CounterProgram, CounterRegister, EVENTS_PER_CLOCK, Part, RegisterBits, Write,
};
use crate::counting::{CoreEventPlan, SampledQuantity};
use crate::registers::{RegisterAddress, RegisterIo};
use waykeeper_generations::CoreCounterTable;
use waykeeper_units::CoreId;

/// Counts in all rings: user and kernel, bits 1 and 0 of a fixed counter's four (SDM vol. 4, IA32_FIXED_CTR_CTRL).
const FIXED_ALL_RINGS: u64 = 0b11;
/// Bits of the fixed control that belong to one counter.
const FIXED_FIELD: u64 = 0b1111;
/// Counters that can count every event: on big cores, L2 events count on these only (hardware.md 6.1).
const FOR_EVERY_EVENT: u8 = 4;
/// Where the fixed counters begin in the global control (SDM vol. 4, IA32_PERF_GLOBAL_CTRL).
const GLOBAL_FIXED: u32 = 32;

/// The counter program of one core, and the events for which no counter is left.
///
/// # Errors
/// A register that cannot be read.
pub fn core_program(
    counters: &CoreCounterTable,
    events: &CoreEventPlan,
    cpu: CoreId,
    access: &dyn RegisterIo,
) -> Result<(CounterProgram, Vec<String>), String> {
    let msr = |address: u32| RegisterAddress::Msr { cpu, address };
    let registers = &counters.registers;
    // The enable bit, bit 22, is in the `select_flags` of every generation.
    let enable = registers.select_flags & 1 << ENABLE_BIT;
    let mut free = Vec::new();
    for index in 0..counters.counters.min(FOR_EVERY_EVENT) {
        let select = msr(registers.select + u32::from(index) * registers.step);
        if access.read_still(&select)? & enable == 0 {
            free.push(index);
        }
    }
    let fixed_control =
        counters.fixed.map(|fixed| access.read_still(&msr(fixed.control))).transpose()?.unwrap_or(0);
    let mut free = free.into_iter();
    let mut program = CounterProgram { name: cpu.to_string(), ..CounterProgram::default() };
    let (mut without_counter, mut fixed_bits) = (Vec::new(), 0u64);
    // In the global control every enabled counter has the same value, so the counter's own control identifies its
    // owner.
    let (mut fixed_parts, mut global_parts): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    let of = |bit: u32, register: RegisterAddress, mask: u64| Part {
        mask: 1 << bit,
        tells: true,
        claims: vec![RegisterBits { register, mask }],
    };
    for (index, name) in events.names().iter().enumerate() {
        let quantity = SampledQuantity::Core(cpu, index as u8);
        let is_clock = counters.quantities.get("cycles").is_some_and(|cycles| cycles.plus.contains(name));
        let most_per_tick = CLOCKS_PER_TICK * if is_clock { 1 } else { EVENTS_PER_CLOCK };
        let Some(event) = counters.events.get(name) else {
            without_counter.push(format!("{name} (no such event in the table)"));
            continue;
        };
        let fixed = counters.fixed.zip(event.fixed).filter(|(fixed, number)| {
            *number < fixed.counters && fixed_control >> (4 * u32::from(*number)) & FIXED_FIELD == 0
        });
        if let Some((fixed, number)) = fixed {
            let shift = 4 * u32::from(number);
            let field = FIXED_FIELD << shift;
            fixed_bits |= FIXED_ALL_RINGS << shift;
            fixed_parts.push(Part { mask: field, tells: true, claims: Vec::new() });
            global_parts.push(of(GLOBAL_FIXED + u32::from(number), msr(fixed.control), field));
            let register = msr(fixed.counter + u32::from(number));
            let bits = fixed.width.into();
            program.counters.push(CounterRegister {
                register,
                bits,
                quantity,
                stands_for: 1.0,
                most_per_tick,
            });
            continue;
        }
        let Some(select) = counters.select(&event.terms) else {
            without_counter.push(format!("{name} (a term has no place in the select register)"));
            continue;
        };
        let Some(index) = free.next() else {
            without_counter.push(name.clone());
            continue;
        };
        let offset = u32::from(index) * registers.step;
        global_parts.push(of(index.into(), msr(registers.select + offset), u64::MAX));
        program.writes.push(Write::whole(msr(registers.select + offset), select));
        let register = msr(registers.counter + offset);
        let bits = counters.width.into();
        program.counters.push(CounterRegister { register, bits, quantity, stands_for: 1.0, most_per_tick });
    }
    let union = |parts: &[Part]| parts.iter().fold(0, |bits, part| bits | part.mask);
    if let Some(fixed) = counters.fixed.filter(|_| !fixed_parts.is_empty()) {
        let (register, mask) = (msr(fixed.control), union(&fixed_parts));
        program.writes.push(Write { register, mask, value: fixed_bits, parts: fixed_parts });
    }
    if !global_parts.is_empty() {
        let (register, mask) = (msr(registers.global_control), union(&global_parts));
        program.writes.push(Write { register, mask, value: mask, parts: global_parts });
    }
    Ok((program, without_counter))
}

/// Enable bit of an event select register (SDM vol. 4, IA32_PERFEVTSELx; AMD APM vol. 2, PERF_CTL).
const ENABLE_BIT: u32 = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use waykeeper_generations::Generation;

    /// Registers in a map; those not in it read 0.
    #[derive(Debug, Default)]
    struct Map(BTreeMap<RegisterAddress, u64>);

    impl RegisterIo for Map {
        fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
            Ok(self.0.get(register).copied().unwrap_or(0))
        }

        fn write(&self, register: &RegisterAddress, _: u64) -> Result<(), String> {
            Err(format!("{register} is not to be written here"))
        }
    }

    const CPU: CoreId = CoreId(3);

    fn at(address: u32) -> RegisterAddress {
        RegisterAddress::Msr { cpu: CPU, address }
    }

    fn skylake(taken: &[(u32, u64)]) -> (CounterProgram, Vec<String>) {
        let counters = &Generation::by_id("skx").unwrap().core;
        let registers = Map(taken.iter().map(|(address, value)| (at(*address), *value)).collect());
        core_program(counters, &CoreEventPlan::of(counters), CPU, &registers).unwrap()
    }

    fn written(program: &CounterProgram, address: u32) -> Option<&Write> {
        program.writes.iter().find(|write| write.register == at(address))
    }

    #[test]
    fn an_idle_skylake_core_counts_six_events_on_two_fixed_and_four_general_counters() {
        let (program, without_counter) = skylake(&[]);
        assert!(without_counter.is_empty());
        assert_eq!(program.counters.len(), 6);
        // Instructions and cycles: fixed 0 and 1, user and kernel: 0b0011_0011.
        assert_eq!(written(&program, 0x38d).map(|write| (write.mask, write.value)), Some((0xff, 0x33)));
        assert_eq!(written(&program, 0x38f).map(|write| write.value), Some(0x3_0000_000f));
        // LONGEST_LAT_CACHE.REFERENCE with USR, OS and EN: 0x43_4f2e.
        assert_eq!(written(&program, 0x186).map(|write| write.value), Some(0x43_4f2e));
        assert_eq!(program.writes.len(), 6, "four selects, two controls: nothing else");
        assert_eq!(
            program.writes.last().map(|write| &write.register),
            Some(&at(0x38f)),
            "running comes last"
        );
        // Each bit comes with the register that identifies its owner: fixed 0, then general 0.
        let parts = program.writes.last().map(|write| write.parts.clone()).unwrap_or_default();
        assert_eq!(parts.len(), 6);
        let part = |bit: u32| parts.iter().find(|part| part.mask == 1 << bit).map(|part| part.claims.clone());
        assert_eq!(part(32), Some(vec![RegisterBits { register: at(0x38d), mask: 0x0f }]));
        assert_eq!(part(0), Some(vec![RegisterBits { register: at(0x186), mask: u64::MAX }]));
    }

    #[test]
    fn what_others_count_is_left_alone() {
        // The watchdog uses the fixed cycle counter, a perf user general counter 1.
        let (program, without_counter) = skylake(&[(0x38d, 0xb0), (0x187, 0x53_003c)]);
        assert!(written(&program, 0x187).is_none());
        assert_eq!(written(&program, 0x38d).map(|write| (write.mask, write.value)), Some((0x0f, 0x03)));
        assert_eq!(
            written(&program, 0x38f).map(|write| write.value),
            Some(0x1_0000_000d),
            "0, 2, 3 and fixed 0"
        );
        // Cycles now need a general counter: five events for three free counters.
        assert_eq!(without_counter.len(), 2);
        assert_eq!(program.counters.len(), 4);
        assert_eq!(
            written(&program, 0x186).map(|write| write.value),
            Some(0x43_003c),
            "cycles, on counter 0"
        );
    }

    #[test]
    fn bits_of_others_survive_a_write() {
        let write = Write { register: at(0x38d), mask: 0x0f, value: 0x03, parts: Vec::new() };
        assert_eq!(write.over(0xb8), 0xb3);
        assert_eq!(Write::whole(at(0x186), 5).over(0xff), 5);
    }
}
