//! Counting by programming MSRs (and PCI configuration words for memory channels) directly, without perf.
//!
//! Works on a file tree. A register that another program uses is left alone and reported. Before the first write, the
//! caller's journal gets the original bits and how to recognise later changes by others; [`crate::restore`] restores
//! them. One system call reads one register: a longer read of the msr device repeats the same register (hardware.md
//! 10, msr.c). Must not know which generation this is.

mod boxes;
mod core;
mod counter_program;

pub use self::core::core_program;
pub use boxes::{memory_programs, slice_programs, stack_programs};
pub use counter_program::{CounterProgram, CounterRegister, Part, RegisterBits, Write};

use crate::counters::WrappingCounter;
use crate::counting::{Counting, Counts, once_a_kind};
use crate::journal::{Claim, Original, OwnershipCheck};
use crate::registers::{RegisterAddress, RegisterIo};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Reading;

/// Programmed registers, read at every sample.
#[derive(Debug)]
pub struct MsrCounting {
    registers: Box<dyn RegisterIo>,
    counters: Vec<(CounterRegister, WrappingCounter)>,
    /// The register of the time stamp counter, and its last value.
    clock: Option<(RegisterAddress, Option<u64>)>,
    notes: Vec<String>,
}

/// The time stamp counter, of every CPU (SDM vol. 4, table 2-2; APM vol. 2, appendix A).
const TSC: u32 = 0x10;

/// Saves the original values of registers before the first write, for restoring them at the end and after a crash.
pub type Keep<'a> = dyn FnMut(&[Original]) -> Result<(), String> + 'a;

impl MsrCounting {
    /// Writes all counter programs whose registers no other software uses. `keep` gets all bits that will change, before
    /// the first write; if it fails, nothing is written. The second result are those not changed after all; they must
    /// not be restored.
    ///
    /// # Errors
    /// The error of `keep`.
    pub fn start(
        registers: Box<dyn RegisterIo>,
        programs: Vec<CounterProgram>,
        keep: &mut Keep,
    ) -> Result<(MsrCounting, Vec<Original>), String> {
        let mut failures = Vec::new();
        let mut ready = Vec::new();
        for program in programs {
            match look(registers.as_ref(), &program) {
                Ok(found) => ready.push((program, found)),
                Err(why) => failures.push((program.name, why)),
            }
        }
        let turned: Vec<Original> = ready.iter().flat_map(|(_, found)| found.turned.clone()).collect();
        if !turned.is_empty() {
            keep(&turned)?;
        }
        let (mut counters, mut untouched) = (Vec::new(), Vec::new());
        for (program, found) in ready {
            match write_program(registers.as_ref(), &program, &found) {
                Ok(()) => {
                    let extended = |counter: CounterRegister| (WrappingCounter::new(counter.bits), counter);
                    let own = program.counters.into_iter().map(extended);
                    counters.extend(own.map(|(extended, counter)| (counter, extended)));
                }
                Err((why, written)) => {
                    // A partly programmed box counts the wrong events. What cannot be undone now stays in the
                    // journal.
                    let back = take_back(registers.as_ref(), &found.turned, &written);
                    untouched.extend(back);
                    failures.push((program.name, format!("{why}; it is not counted")));
                }
            }
        }
        // The time stamp counter of any CPU bounds what can have been counted.
        let cpu = counters.iter().find_map(|(counter, _): &(CounterRegister, WrappingCounter)| match counter
            .register
        {
            RegisterAddress::Msr { cpu, .. } => Some(cpu),
            RegisterAddress::Pci { .. } => None,
        });
        let clock = cpu.map(|cpu| (RegisterAddress::Msr { cpu, address: TSC }, None));
        let mut counting = MsrCounting { registers, counters, clock, notes: once_a_kind(&failures) };
        // Totals start at the first reading.
        let first = counting.count();
        counting.notes.extend(first.problems().iter().cloned());
        Ok((counting, untouched))
    }

    /// Registers read at every sample, the time stamp counter included: one system call each.
    pub fn reads_per_sample(&self) -> usize {
        self.counters.len() + usize::from(self.clock.is_some())
    }
}

/// The registers' values before a counter program writes them.
struct Found {
    values: BTreeMap<RegisterAddress, u64>,
    turned: Vec<Original>,
}

/// Reads the registers that a counter program will write; an error if other software uses them.
fn look(registers: &dyn RegisterIo, program: &CounterProgram) -> Result<Found, String> {
    let mut values: BTreeMap<RegisterAddress, u64> = BTreeMap::new();
    let still = |register: &RegisterAddress| {
        registers.read_still(register).map_err(|why| format!("{why}; it is not counted"))
    };
    for bits in &program.in_use {
        let found = still(&bits.register)?;
        if found & bits.mask != 0 {
            return Err(format!(
                "another program counts there ({} is {found:#x}), so it is not counted here; end the other \
                 tool (perf, pcm, pqos) to have it counted",
                bits.register
            ));
        }
        values.insert(bits.register.clone(), found);
    }
    for write in &program.writes {
        if !values.contains_key(&write.register) {
            values.insert(write.register.clone(), still(&write.register)?);
        }
    }
    let mut turned: Vec<Original> = Vec::new();
    for write in &program.writes {
        for part in &write.parts {
            let own = turn(program, &values, write, part);
            turned.extend(own.filter(|own| !turned.iter().any(|known| known.is_same_knob(own))));
        }
    }
    Ok(Found { values, turned })
}

/// The record of bits that writes change; `None` if none does.
fn turn(
    program: &CounterProgram,
    values: &BTreeMap<RegisterAddress, u64>,
    write: &Write,
    part: &Part,
) -> Option<Original> {
    // The values that the counter program's writes give to these bits, in order.
    let made = |register: &RegisterAddress, mask: u64| -> Vec<u64> {
        let writes =
            program.writes.iter().filter(|write| write.register == *register && write.mask & mask != 0);
        let found = values.get(register).copied().unwrap_or_default();
        let mut made: Vec<u64> = writes.map(|write| write.over(found) & mask).collect();
        made.dedup();
        made
    };
    let before = values.get(&write.register)? & part.mask;
    let ours = made(&write.register, part.mask);
    if ours.iter().all(|value| *value == before) {
        return None;
    }
    let claim = |bits: &RegisterBits| {
        let found = values.get(&bits.register)? & bits.mask;
        let made = made(&bits.register, bits.mask).into_iter().filter(|value| *value != found);
        let values = std::iter::once(found).chain(made).collect();
        Some(Claim { at: bits.register.number(), mask: bits.mask, values })
    };
    let ownership = OwnershipCheck {
        ours: if part.tells { ours } else { Vec::new() },
        claims: part.claims.iter().filter_map(claim).collect(),
    };
    Some(Original::of_register(&write.register, program.package, part.mask, before, ownership))
}

/// Writes a counter program's registers. An error comes with the registers that may have been written by then.
fn write_program(
    registers: &dyn RegisterIo,
    program: &CounterProgram,
    found: &Found,
) -> Result<(), (String, BTreeSet<RegisterAddress>)> {
    let mut written: BTreeMap<RegisterAddress, u64> = BTreeMap::new();
    for write in &program.writes {
        if let Err(why) = put(registers, write, found, &mut written) {
            return Err((why, written.into_keys().collect()));
        }
    }
    Ok(())
}

fn put(
    registers: &dyn RegisterIo,
    write: &Write,
    found: &Found,
    written: &mut BTreeMap<RegisterAddress, u64>,
) -> Result<(), String> {
    let register = &write.register;
    let now = match written.get(register) {
        Some(ours) => *ours,
        None => {
            let now = registers.read(register)?;
            let before = found.values.get(register).copied().unwrap_or_default();
            if (now ^ before) & write.mask != 0 {
                return Err(format!("{register} was {before:#x} and is {now:#x}: another program writes it"));
            }
            now
        }
    };
    let value = write.over(now);
    if value == now {
        return Ok(());
    }
    // A failed write may have taken effect.
    written.insert(register.clone(), value);
    registers.write(register, value)?;
    // Bits whose value identifies the owner later must hold it now.
    let telling = write.telling();
    if telling != 0 {
        let now = registers.read(register)?;
        if (now ^ value) & telling != 0 {
            return Err(format!("{register} reads {now:#x} after {value:#x} was written"));
        }
    }
    Ok(())
}

/// Undoes the writes to `written`, last first. Returns the bits that were not written or are restored.
fn take_back(
    registers: &dyn RegisterIo,
    turned: &[Original],
    written: &BTreeSet<RegisterAddress>,
) -> Vec<Original> {
    let back = |own: &&Original| {
        let Some(bits) = own.register() else { return true };
        !written.contains(&bits.address)
            || registers
                .read(&bits.address)
                .and_then(|now| registers.write(&bits.address, now & !bits.mask | bits.value))
                .is_ok()
    };
    turned.iter().rev().filter(back).cloned().collect()
}

impl Counting for MsrCounting {
    fn way(&self) -> &'static str {
        "MSR"
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn count(&mut self) -> Counts {
        let mut counts = Counts::default();
        let registers = self.registers.as_ref();
        // If the time stamp counter cannot be read, the counts are used without a bound.
        let time = |register: &RegisterAddress| registers.read(register).ok();
        let now = self.clock.as_ref().and_then(|(register, _)| time(register));
        let clock = self.clock.as_ref().and_then(|(register, last)| Some((register, (*last)?)));
        for (counter, extended) in &mut self.counters {
            let most = |moved: u64| {
                let (register, last) = clock?;
                let within = |now: u64| Some(now.checked_sub(last)?.saturating_mul(counter.most_per_tick));
                // The counter is read after the clock; if the count exceeds the bound, the clock is read again.
                match within(now?)? {
                    most if moved <= most => Some(most),
                    _ => within(time(register)?),
                }
            };
            let read = registers.read(&counter.register);
            let part = read.and_then(|raw| {
                extended.advance(raw, most).map_err(|why| format!("{}: {why}", counter.register))
            });
            let part = part.map_or_else(
                |why| {
                    counts.complain(why);
                    Reading::Unavailable
                },
                Reading::Value,
            );
            counts.add(counter.quantity, part, counter.stands_for);
        }
        if let Some((_, last)) = &mut self.clock {
            *last = now;
        }
        counts
    }

    fn close(&mut self) {
        self.counters.clear();
        self.clock = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::{SampledQuantity, TransferDirection};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use waykeeper_units::CoreId;

    /// Registers in a map that a test shares.
    #[derive(Clone, Debug, Default)]
    struct Shared(Rc<RefCell<BTreeMap<RegisterAddress, u64>>>, Rc<RefCell<Option<RegisterAddress>>>);

    impl RegisterIo for Shared {
        fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
            self.0.borrow().get(register).copied().ok_or_else(|| format!("no {register}"))
        }

        fn write(&self, register: &RegisterAddress, value: u64) -> Result<(), String> {
            if self.1.borrow().as_ref() == Some(register) {
                return Err(format!("{register} cannot be written"));
            }
            self.0.borrow_mut().insert(register.clone(), value);
            Ok(())
        }
    }

    fn at(address: u32) -> RegisterAddress {
        RegisterAddress::Msr { cpu: CoreId(0), address }
    }

    const BYTES: SampledQuantity = SampledQuantity::Memory(TransferDirection::Read);

    /// Control at 1, shared control at 2, whose bits 0 and 1 are the control's, counter at 3.
    fn one_program() -> CounterProgram {
        let claims = vec![RegisterBits { register: at(1), mask: u64::MAX }];
        let parts = [1, 2].map(|mask| Part { mask, tells: true, claims: claims.clone() });
        CounterProgram {
            name: "box 0".to_owned(),
            package: None,
            in_use: vec![RegisterBits { register: at(1), mask: 0x40_0000 }],
            writes: vec![
                Write::whole(at(1), 0x40_0304),
                Write { register: at(2), mask: 3, value: 3, parts: parts.into() },
            ],
            counters: vec![CounterRegister {
                register: at(3),
                bits: 48,
                quantity: BYTES,
                stands_for: 64.0,
                most_per_tick: 4,
            }],
        }
    }

    fn registers(values: &[(u32, u64)]) -> Shared {
        let map = values.iter().map(|(address, value)| (at(*address), *value)).collect();
        Shared(Rc::new(RefCell::new(map)), Rc::default())
    }

    /// Starts; also returns what was kept, and what of it was not changed.
    fn start(registers: impl RegisterIo + 'static) -> (MsrCounting, Vec<Original>, Vec<Original>) {
        let mut kept = Vec::new();
        let mut keep = |turned: &[Original]| {
            kept.extend_from_slice(turned);
            Ok(())
        };
        let (counting, untouched) =
            MsrCounting::start(Box::new(registers), vec![one_program()], &mut keep).unwrap();
        (counting, kept, untouched)
    }

    #[test]
    fn what_is_turned_is_kept_first_bit_by_bit() {
        // Bit 1 of the shared control is already set: the counter program leaves it and does not own it.
        let registers = registers(&[(1, 0x7), (2, 0x12), (3, 1000)]);
        let (mut counting, kept, untouched) = start(registers.clone());
        let ownership = OwnershipCheck { ours: vec![0x40_0304], claims: vec![] };
        let whole = Original::of_register(&at(1), None, u64::MAX, 7, ownership);
        let claims = vec![Claim { at: 1, mask: u64::MAX, values: vec![7, 0x40_0304] }];
        let bit = Original::of_register(&at(2), None, 1, 0, OwnershipCheck { ours: vec![1], claims });
        assert_eq!((kept, untouched), (vec![whole, bit], vec![]));
        assert_eq!(registers.0.borrow()[&at(2)], 0x13, "bits of others stay");
        registers.0.borrow_mut().insert(at(3), 1010);
        assert_eq!(counting.count().get(BYTES), Reading::Value(640));
        counting.close();
        assert_eq!(counting.count().get(BYTES), Reading::Unsupported);
    }

    #[test]
    fn another_programs_box_is_left_alone_and_named() {
        let registers = registers(&[(1, 0x40_0001), (2, 0), (3, 0)]);
        let (mut counting, kept, _) = start(registers.clone());
        assert!(kept.is_empty());
        assert!(
            counting.notes()[0]
                .starts_with("box 0: another program counts there (MSR 0x1 of CPU 0 is 0x400001)")
        );
        assert_eq!(counting.count().get(BYTES), Reading::Unsupported);
        assert_eq!(registers.0.borrow()[&at(1)], 0x40_0001);
    }

    #[test]
    fn a_write_that_fails_takes_the_job_back() {
        let registers = registers(&[(1, 0x7), (2, 0x10), (3, 0)]);
        *registers.1.borrow_mut() = Some(at(2));
        let (counting, kept, untouched) = start(registers.clone());
        assert_eq!(registers.0.borrow()[&at(1)], 0x7);
        // The write to 2 failed, and undoing it failed too: only a later read shows whether it took effect.
        assert_eq!((kept.len(), untouched.as_slice()), (3, &kept[..1]));
        assert!(
            counting.notes()[0].contains("box 0: MSR 0x2 of CPU 0 cannot be written"),
            "{:?}",
            counting.notes()
        );
    }

    /// Registers of which one returns one bad value.
    #[derive(Debug)]
    struct Once(Shared, RegisterAddress, Cell<u32>);

    impl RegisterIo for Once {
        fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
            if *register == self.1 {
                self.2.set(self.2.get().wrapping_sub(1));
                if self.2.get() == 0 {
                    return Ok(0x3);
                }
            }
            self.0.read(register)
        }

        fn write(&self, register: &RegisterAddress, value: u64) -> Result<(), String> {
            self.0.write(register, value)
        }
    }

    #[test]
    fn one_bad_answer_is_never_taken_for_an_original() {
        // The bits are read twice, then once more before the write and once after it.
        for bad in 1..=4 {
            let registers = registers(&[(1, 0x7), (2, 0x10), (3, 0)]);
            let (counting, kept, untouched) = start(Once(registers.clone(), at(1), Cell::new(bad)));
            let notes = counting.notes();
            assert!(notes[0].contains("0x3") && notes.len() == 1, "{bad}: {notes:?}");
            assert!(kept.iter().all(|own| own.register().unwrap().value != 0x3), "{bad}: {kept:?}");
            assert_eq!(untouched.len(), kept.len());
            assert_eq!((registers.0.borrow()[&at(1)], registers.0.borrow()[&at(2)]), (0x7, 0x10), "{bad}");
        }
    }

    #[test]
    fn without_a_journal_nothing_is_written() {
        let registers = registers(&[(1, 0x7), (2, 0x10), (3, 0)]);
        let mut full = |_: &[Original]| Err("no space".to_owned());
        assert_eq!(
            MsrCounting::start(Box::new(registers.clone()), vec![one_program()], &mut full).unwrap_err(),
            "no space"
        );
        assert_eq!(registers.0.borrow()[&at(1)], 0x7);
    }

    #[test]
    fn a_counter_that_another_program_sets_is_reported_and_continues_from_there() {
        let registers = registers(&[(1, 0), (2, 0), (3, 1000), (TSC, 1_000_000)]);
        let (mut counting, _, _) = start(registers.clone());
        let at_time = |ticks: u64, count: u64| {
            registers.0.borrow_mut().extend([(at(TSC), ticks), (at(3), count)]);
        };
        at_time(1_000_100, 1400);
        assert_eq!(counting.count().get(BYTES), Reading::Value(400 * 64));
        // 100 ticks more are 400 counts at most; 10^9 is far from half the range of 48 bits.
        at_time(1_000_200, 1_000_000_000);
        let counts = counting.count();
        assert_eq!(counts.get(BYTES), Reading::Unavailable);
        assert_eq!(
            counts.problems(),
            ["MSR 0x3 of CPU 0: the counter moved from 0x578 to 0x3b9aca00, and no more than 400 can have \
                 been counted: another program set it"]
        );
        at_time(1_000_300, 1_000_000_100);
        assert_eq!(counting.count().get(BYTES), Reading::Value(500 * 64));
    }

    #[test]
    fn garbage_is_no_number_and_the_next_reading_continues() {
        let registers = registers(&[(1, 0), (2, 0), (3, 5)]);
        let (mut counting, _, _) = start(registers.clone());
        registers.0.borrow_mut().insert(at(3), u64::MAX);
        let counts = counting.count();
        assert_eq!(counts.get(BYTES), Reading::Unavailable);
        assert_eq!(counts.problems(), ["MSR 0x3 of CPU 0: 0xffffffffffffffff does not fit a 48-bit counter"]);
        registers.0.borrow_mut().insert(at(3), 8);
        assert_eq!(counting.count().get(BYTES), Reading::Value(192));
    }
}
