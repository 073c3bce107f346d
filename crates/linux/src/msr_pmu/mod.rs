//! Counting by programming MSRs (and PCI configuration words for memory channels) directly, without perf.
//!
//! Works on a file tree. A register that another program uses is left alone and reported. Before the first write, the
//! caller's journal gets the original bits and how to recognise later changes by others; [`crate::restore`] restores
//! them. One system call reads one register: a longer read of the msr device repeats the same register (hardware.md
//! 10, msr.c). Must not know which generation this is.

mod boxes;
mod core;
mod job;

pub use self::core::core_job;
pub use boxes::{cache_jobs, device_jobs, memory_jobs, stack_jobs};
pub use job::{Bank, Counter, Guard, Job, Part, Place, Turned, Write};

use crate::counters::Extended;
use crate::counting::{Counting, Counts, once_a_kind};
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::Reading;

/// Programmed registers, read at every sample.
#[derive(Debug)]
pub struct MsrCounting {
    bank: Box<dyn Bank>,
    counters: Vec<(Counter, Extended)>,
    /// The register of the time stamp counter, and its last value.
    clock: Option<(Place, Option<u64>)>,
    notes: Vec<String>,
}

/// The time stamp counter, of every CPU (SDM vol. 4, table 2-2; APM vol. 2, appendix A).
const TSC: u32 = 0x10;

/// Saves the original values of registers before the first write, for restoring them at the end and after a crash.
pub type Keep<'a> = dyn FnMut(&[Turned]) -> Result<(), String> + 'a;

impl MsrCounting {
    /// Programs all jobs whose registers no other program uses. `keep` gets all bits that will change before the
    /// first write; if it fails, nothing is written. The second result are those not changed after all; they must not
    /// be restored.
    ///
    /// # Errors
    /// The error of `keep`.
    pub fn start(
        bank: Box<dyn Bank>,
        jobs: Vec<Job>,
        keep: &mut Keep,
    ) -> Result<(MsrCounting, Vec<Turned>), String> {
        let mut failures = Vec::new();
        let mut ready = Vec::new();
        for job in jobs {
            match look(bank.as_ref(), &job) {
                Ok(found) => ready.push((job, found)),
                Err(why) => failures.push((job.name, why)),
            }
        }
        let turned: Vec<Turned> = ready.iter().flat_map(|(_, found)| found.turned.clone()).collect();
        if !turned.is_empty() {
            keep(&turned)?;
        }
        let (mut counters, mut untouched) = (Vec::new(), Vec::new());
        for (job, found) in ready {
            match program(bank.as_ref(), &job, &found) {
                Ok(()) => {
                    let extended = |counter: Counter| (Extended::new(counter.bits), counter);
                    let own = job.counters.into_iter().map(extended);
                    counters.extend(own.map(|(extended, counter)| (counter, extended)));
                }
                Err((why, written)) => {
                    // A partly programmed box counts the wrong events. What cannot be undone now stays in the
                    // journal.
                    let back = take_back(bank.as_ref(), &found.turned, &written);
                    untouched.extend(back);
                    failures.push((job.name, format!("{why}; it is not counted")));
                }
            }
        }
        // The time stamp counter of any CPU bounds what can have been counted.
        let cpu = counters.iter().find_map(|(counter, _): &(Counter, Extended)| match counter.place {
            Place::Msr { cpu, .. } => Some(cpu),
            Place::Pci { .. } => None,
        });
        let clock = cpu.map(|cpu| (Place::Msr { cpu, address: TSC }, None));
        let mut counting = MsrCounting { bank, counters, clock, notes: once_a_kind(&failures) };
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

/// The registers' values before a job writes them.
struct Found {
    values: BTreeMap<Place, u64>,
    turned: Vec<Turned>,
}

/// Reads the registers that a job will write; an error if another program uses the job's registers.
fn look(bank: &dyn Bank, job: &Job) -> Result<Found, String> {
    let mut values: BTreeMap<Place, u64> = BTreeMap::new();
    let still = |place: &Place| bank.read_still(place).map_err(|why| format!("{why}; it is not counted"));
    for guard in &job.guards {
        let found = still(&guard.place)?;
        if found & guard.mask != 0 {
            return Err(format!(
                "another program counts there ({} is {found:#x}), so it is not counted here; end the other \
                 tool (perf, pcm, pqos) to have it counted",
                guard.place
            ));
        }
        values.insert(guard.place.clone(), found);
    }
    for write in &job.writes {
        if !values.contains_key(&write.place) {
            values.insert(write.place.clone(), still(&write.place)?);
        }
    }
    let mut turned: Vec<Turned> = Vec::new();
    for write in &job.writes {
        for part in write.parts() {
            let known = turned.iter().any(|own| own.place == write.place && own.mask == part.mask);
            if !known {
                turned.extend(turn(job, &values, write, &part));
            }
        }
    }
    Ok(Found { values, turned })
}

/// The record of bits that writes change; `None` if none does.
fn turn(job: &Job, values: &BTreeMap<Place, u64>, write: &Write, part: &Part) -> Option<Turned> {
    // The values that the job's writes give to these bits, in order.
    let made = |place: &Place, mask: u64| -> Vec<u64> {
        let writes = job.writes.iter().filter(|write| write.place == *place && write.mask & mask != 0);
        let found = values.get(place).copied().unwrap_or_default();
        let mut made: Vec<u64> = writes.map(|write| write.over(found) & mask).collect();
        made.dedup();
        made
    };
    let before = values.get(&write.place)? & part.mask;
    let ours = made(&write.place, part.mask);
    if ours.iter().all(|value| *value == before) {
        return None;
    }
    let claim = |guard: &Guard| {
        let found = values.get(&guard.place)? & guard.mask;
        let made = made(&guard.place, guard.mask).into_iter().filter(|value| *value != found);
        Some((guard.place.clone(), guard.mask, std::iter::once(found).chain(made).collect()))
    };
    Some(Turned {
        place: write.place.clone(),
        package: job.package,
        mask: part.mask,
        before,
        ours: if part.tells { ours } else { Vec::new() },
        claims: part.claims.iter().filter_map(claim).collect(),
    })
}

/// Writes a job's registers. An error comes with the places that may have been written by then.
fn program(bank: &dyn Bank, job: &Job, found: &Found) -> Result<(), (String, BTreeSet<Place>)> {
    let mut written: BTreeMap<Place, u64> = BTreeMap::new();
    for write in &job.writes {
        if let Err(why) = put(bank, write, found, &mut written) {
            return Err((why, written.into_keys().collect()));
        }
    }
    Ok(())
}

fn put(
    bank: &dyn Bank,
    write: &Write,
    found: &Found,
    written: &mut BTreeMap<Place, u64>,
) -> Result<(), String> {
    let place = &write.place;
    let now = match written.get(place) {
        Some(ours) => *ours,
        None => {
            let now = bank.read(place)?;
            let before = found.values.get(place).copied().unwrap_or_default();
            if (now ^ before) & write.mask != 0 {
                return Err(format!("{place} was {before:#x} and is {now:#x}: another program writes it"));
            }
            now
        }
    };
    let value = write.over(now);
    if value == now {
        return Ok(());
    }
    // A failed write may have taken effect.
    written.insert(place.clone(), value);
    bank.write(place, value)?;
    // Bits whose value identifies the owner later must hold it now.
    let telling = write.telling();
    if telling != 0 {
        let now = bank.read(place)?;
        if (now ^ value) & telling != 0 {
            return Err(format!("{place} reads {now:#x} after {value:#x} was written"));
        }
    }
    Ok(())
}

/// Undoes the writes to `written`, last first. Returns the bits that were not written or are restored.
fn take_back(bank: &dyn Bank, turned: &[Turned], written: &BTreeSet<Place>) -> Vec<Turned> {
    let back = |own: &&Turned| {
        let Turned { place, mask, before, .. } = own;
        !written.contains(place)
            || bank.read(place).and_then(|now| bank.write(place, now & !mask | before)).is_ok()
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
        let bank = self.bank.as_ref();
        // If the time stamp counter cannot be read, the counts are used without a bound.
        let time = |place: &Place| bank.read(place).ok();
        let now = self.clock.as_ref().and_then(|(place, _)| time(place));
        let clock = self.clock.as_ref().and_then(|(place, last)| Some((place, (*last)?)));
        for (counter, extended) in &mut self.counters {
            let most = |moved: u64| {
                let (place, last) = clock?;
                let within = |now: u64| Some(now.checked_sub(last)?.saturating_mul(counter.most_per_tick));
                // The counter is read after the clock; if the count exceeds the bound, the clock is read again.
                match within(now?)? {
                    most if moved <= most => Some(most),
                    _ => within(time(place)?),
                }
            };
            let read = bank.read(&counter.place);
            let part = read.and_then(|raw| {
                extended.advance(raw, most).map_err(|why| format!("{}: {why}", counter.place))
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
    use crate::counting::{Direction, Quantity};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use waykeeper_units::CoreId;

    /// Registers in a map that a test shares.
    #[derive(Clone, Debug, Default)]
    struct Shared(Rc<RefCell<BTreeMap<Place, u64>>>, Rc<RefCell<Option<Place>>>);

    impl Bank for Shared {
        fn read(&self, place: &Place) -> Result<u64, String> {
            self.0.borrow().get(place).copied().ok_or_else(|| format!("no {place}"))
        }

        fn write(&self, place: &Place, value: u64) -> Result<(), String> {
            if self.1.borrow().as_ref() == Some(place) {
                return Err(format!("{place} cannot be written"));
            }
            self.0.borrow_mut().insert(place.clone(), value);
            Ok(())
        }
    }

    fn at(address: u32) -> Place {
        Place::Msr { cpu: CoreId(0), address }
    }

    const BYTES: Quantity = Quantity::Memory(Direction::Read);

    /// Control at 1, shared control at 2, whose bits 0 and 1 are the control's, counter at 3.
    fn one_job() -> Job {
        let claims = vec![Guard { place: at(1), mask: u64::MAX }];
        let parts = [1, 2].map(|mask| Part { mask, tells: true, claims: claims.clone() });
        Job {
            name: "box 0".to_owned(),
            package: None,
            guards: vec![Guard { place: at(1), mask: 0x40_0000 }],
            writes: vec![
                Write::whole(at(1), 0x40_0304),
                Write { place: at(2), mask: 3, value: 3, parts: parts.into() },
            ],
            counters: vec![Counter {
                place: at(3),
                bits: 48,
                quantity: BYTES,
                stands_for: 64.0,
                most_per_tick: 4,
            }],
        }
    }

    fn bank(values: &[(u32, u64)]) -> Shared {
        let map = values.iter().map(|(address, value)| (at(*address), *value)).collect();
        Shared(Rc::new(RefCell::new(map)), Rc::default())
    }

    /// Starts; also returns what was kept, and what of it was not changed.
    fn start(bank: impl Bank + 'static) -> (MsrCounting, Vec<Turned>, Vec<Turned>) {
        let mut kept = Vec::new();
        let mut keep = |turned: &[Turned]| {
            kept.extend_from_slice(turned);
            Ok(())
        };
        let (counting, untouched) = MsrCounting::start(Box::new(bank), vec![one_job()], &mut keep).unwrap();
        (counting, kept, untouched)
    }

    #[test]
    fn what_is_turned_is_kept_first_bit_by_bit() {
        // Bit 1 of the shared control is already set: the job does not change it and does not own it.
        let bank = bank(&[(1, 0x7), (2, 0x12), (3, 1000)]);
        let (mut counting, kept, untouched) = start(bank.clone());
        let whole = Turned {
            place: at(1),
            package: None,
            mask: u64::MAX,
            before: 7,
            ours: vec![0x40_0304],
            claims: vec![],
        };
        let claims = vec![(at(1), u64::MAX, vec![7, 0x40_0304])];
        let bit = Turned { place: at(2), package: None, mask: 1, before: 0, ours: vec![1], claims };
        assert_eq!((kept, untouched), (vec![whole, bit], vec![]));
        assert_eq!(bank.0.borrow()[&at(2)], 0x13, "bits of others stay");
        bank.0.borrow_mut().insert(at(3), 1010);
        assert_eq!(counting.count().get(BYTES), Reading::Value(640));
        counting.close();
        assert_eq!(counting.count().get(BYTES), Reading::Unsupported);
    }

    #[test]
    fn somebody_elses_box_is_left_alone_and_named() {
        let bank = bank(&[(1, 0x40_0001), (2, 0), (3, 0)]);
        let (mut counting, kept, _) = start(bank.clone());
        assert!(kept.is_empty());
        assert!(
            counting.notes()[0]
                .starts_with("box 0: another program counts there (MSR 0x1 of CPU 0 is 0x400001)")
        );
        assert_eq!(counting.count().get(BYTES), Reading::Unsupported);
        assert_eq!(bank.0.borrow()[&at(1)], 0x40_0001);
    }

    #[test]
    fn a_write_that_fails_takes_the_job_back() {
        let bank = bank(&[(1, 0x7), (2, 0x10), (3, 0)]);
        *bank.1.borrow_mut() = Some(at(2));
        let (counting, kept, untouched) = start(bank.clone());
        assert_eq!(bank.0.borrow()[&at(1)], 0x7);
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
    struct Once(Shared, Place, Cell<u32>);

    impl Bank for Once {
        fn read(&self, place: &Place) -> Result<u64, String> {
            if *place == self.1 {
                self.2.set(self.2.get().wrapping_sub(1));
                if self.2.get() == 0 {
                    return Ok(0x3);
                }
            }
            self.0.read(place)
        }

        fn write(&self, place: &Place, value: u64) -> Result<(), String> {
            self.0.write(place, value)
        }
    }

    #[test]
    fn one_bad_answer_becomes_nobodys_original() {
        // The guard is read twice, then once more before the write and once after it.
        for bad in 1..=4 {
            let bank = bank(&[(1, 0x7), (2, 0x10), (3, 0)]);
            let (counting, kept, untouched) = start(Once(bank.clone(), at(1), Cell::new(bad)));
            let notes = counting.notes();
            assert!(notes[0].contains("0x3") && notes.len() == 1, "{bad}: {notes:?}");
            assert!(kept.iter().all(|own| own.before != 0x3), "{bad}: {kept:?}");
            assert_eq!(untouched.len(), kept.len());
            assert_eq!((bank.0.borrow()[&at(1)], bank.0.borrow()[&at(2)]), (0x7, 0x10), "{bad}");
        }
    }

    #[test]
    fn without_a_journal_nothing_is_written() {
        let bank = bank(&[(1, 0x7), (2, 0x10), (3, 0)]);
        let mut full = |_: &[Turned]| Err("no space".to_owned());
        assert_eq!(
            MsrCounting::start(Box::new(bank.clone()), vec![one_job()], &mut full).unwrap_err(),
            "no space"
        );
        assert_eq!(bank.0.borrow()[&at(1)], 0x7);
    }

    #[test]
    fn a_counter_that_somebody_sets_is_told_and_goes_on_from_there() {
        let bank = bank(&[(1, 0), (2, 0), (3, 1000), (TSC, 1_000_000)]);
        let (mut counting, _, _) = start(bank.clone());
        let at_time = |ticks: u64, count: u64| {
            bank.0.borrow_mut().extend([(at(TSC), ticks), (at(3), count)]);
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
    fn garbage_is_no_number_and_the_next_reading_goes_on() {
        let bank = bank(&[(1, 0), (2, 0), (3, 5)]);
        let (mut counting, _, _) = start(bank.clone());
        bank.0.borrow_mut().insert(at(3), u64::MAX);
        let counts = counting.count();
        assert_eq!(counts.get(BYTES), Reading::Unavailable);
        assert_eq!(counts.problems(), ["MSR 0x3 of CPU 0: 0xffffffffffffffff does not fit a 48-bit counter"]);
        bank.0.borrow_mut().insert(at(3), 8);
        assert_eq!(counting.count().get(BYTES), Reading::Value(192));
    }
}
