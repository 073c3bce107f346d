//! Counting by programming MSRs (and PCI configuration words for memory channels): what perf does, without perf.
//!
//! Works on a file tree. A register that shows another user is left alone and reported; every value is handed to the
//! caller's journal before the first write and put back at the end. One system call reads one register: the msr device
//! repeats the same register for a longer read (hardware.md 10, msr.c). Must not know which generation this is.

mod boxes;
mod core;
mod job;

pub use self::core::core_job;
pub use boxes::{cache_jobs, memory_jobs, stack_jobs};
pub use job::{Bank, Counter, Guard, Job, Place, Write};

use crate::counters::Extended;
use crate::counting::{Counting, Counts, once_a_kind};
use std::collections::BTreeMap;
use waykeeper_host::Reading;

/// Programmed registers, read at every sample.
#[derive(Debug)]
pub struct MsrCounting {
    bank: Box<dyn Bank>,
    counters: Vec<(Counter, Extended)>,
    /// What was there before, in the order of the writes.
    originals: Vec<(Place, u64)>,
    /// What stands in those that were written.
    written: BTreeMap<Place, u64>,
    notes: Vec<String>,
}

/// Takes the originals of registers before the first is written, to bring them back after a crash.
pub type Keep<'a> = dyn FnMut(&[(Place, u64)]) -> Result<(), String> + 'a;

impl MsrCounting {
    /// Programs all jobs that nobody else is in the way of. `keep` gets every original before the first write; what it
    /// refuses ends the whole, and nothing was written.
    ///
    /// # Errors
    /// The journal's refusal.
    pub fn start(bank: Box<dyn Bank>, jobs: Vec<Job>, keep: &mut Keep) -> Result<MsrCounting, String> {
        let mut failures = Vec::new();
        let mut originals = Vec::new();
        let mut ready = Vec::new();
        for job in jobs {
            match look(bank.as_ref(), &job) {
                Ok(found) => {
                    for original in found {
                        if !originals.iter().any(|(place, _)| *place == original.0) {
                            originals.push(original);
                        }
                    }
                    ready.push(job);
                }
                Err(why) => failures.push((job.name, why)),
            }
        }
        if !originals.is_empty() {
            keep(&originals)?;
        }
        let written = BTreeMap::new();
        let mut counting = MsrCounting { bank, counters: Vec::new(), originals, written, notes: Vec::new() };
        for job in ready {
            match counting.program(&job) {
                Ok(()) => {
                    let extended = |counter: Counter| (Extended::new(counter.bits), counter);
                    let counters = job.counters.into_iter().map(extended);
                    counting.counters.extend(counters.map(|(extended, counter)| (counter, extended)));
                }
                Err(why) => failures.push((job.name, format!("{why}; it is not counted"))),
            }
        }
        counting.notes = once_a_kind(&failures);
        // The first reading is where totals start.
        let first = counting.count();
        counting.notes.extend(first.problems().iter().cloned());
        Ok(counting)
    }

    fn program(&mut self, job: &Job) -> Result<(), String> {
        for write in &job.writes {
            if let Err(why) = self.put(write) {
                // Half a program counts the wrong thing: what was there comes back.
                let ours = |place: &Place| job.writes.iter().any(|write| write.place == *place);
                for (place, original) in self.originals.iter().rev().filter(|(place, _)| ours(place)) {
                    // It may fail for the same reason; the close at the end tries again and says so.
                    if self.written.contains_key(place) && self.bank.write(place, *original).is_ok() {
                        self.written.remove(place);
                    }
                }
                return Err(why);
            }
        }
        Ok(())
    }

    fn put(&mut self, write: &Write) -> Result<(), String> {
        let place = &write.place;
        let found = match self.written.get(place) {
            Some(ours) => *ours,
            None => {
                let found = self.bank.read(place)?;
                let original = self.originals.iter().find(|(own, _)| own == place).map(|(_, value)| *value);
                if original != Some(found) {
                    let before = original.unwrap_or_default();
                    return Err(format!(
                        "{place} was {before:#x} and is {found:#x}: somebody else is at work there"
                    ));
                }
                found
            }
        };
        let value = write.over(found);
        if value != found {
            // A write that failed may have been done all the same.
            self.written.insert(place.clone(), value);
            self.bank.write(place, value)?;
        }
        Ok(())
    }

    /// Registers whose originals were kept and that were not written after all: they are not ours to put back.
    pub fn untouched(&self) -> Vec<(Place, u64)> {
        self.originals.iter().filter(|(place, _)| !self.written.contains_key(place)).cloned().collect()
    }

    /// Registers read at every sample: one system call each.
    pub fn reads_per_sample(&self) -> usize {
        self.counters.len()
    }
}

/// What a job will write over, if nobody is in its way.
fn look(bank: &dyn Bank, job: &Job) -> Result<Vec<(Place, u64)>, String> {
    for guard in &job.guards {
        let found = bank.read_still(&guard.place).map_err(|why| format!("{why}; it is not counted"))?;
        if found & guard.mask != 0 {
            return Err(format!(
                "somebody else counts there ({} is {found:#x}); it is left to them and not counted. End the other \
                 tool (perf, pcm, pqos), or let it be",
                guard.place
            ));
        }
    }
    let original = |write: &Write| Ok((write.place.clone(), bank.read_still(&write.place)?));
    let found: Result<Vec<(Place, u64)>, String> = job.writes.iter().map(original).collect();
    found.map_err(|why| format!("{why}; it is not counted"))
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
        for (counter, extended) in &mut self.counters {
            let read = self.bank.read(&counter.place);
            let part =
                read.and_then(|raw| extended.advance(raw).map_err(|why| format!("{}: {why}", counter.place)));
            let part = part.map_or_else(
                |why| {
                    counts.complain(why);
                    Reading::Unavailable
                },
                Reading::Value,
            );
            counts.add(counter.quantity, part, counter.stands_for);
        }
        counts
    }

    fn close(&mut self) -> Result<(), String> {
        self.counters.clear();
        let mut failed = Vec::new();
        let written = std::mem::take(&mut self.written);
        for (place, original) in
            self.originals.drain(..).rev().filter(|(place, _)| written.contains_key(place))
        {
            if let Err(why) = self.bank.write(&place, original) {
                failed.push(format!("{place} could not be put back to {original:#x}: {why}"));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }
}

impl Drop for MsrCounting {
    fn drop(&mut self) {
        // Nobody hears of a failure here; the journal still holds what could not be put back.
        let _ = self.close();
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

    /// Control at 1, shared control at 2, counter at 3.
    fn one_job() -> Job {
        Job {
            name: "box 0".to_owned(),
            guards: vec![Guard { place: at(1), mask: 0x40_0000 }],
            writes: vec![Write::whole(at(1), 0x40_0304), Write { place: at(2), mask: 1, value: 1 }],
            counters: vec![Counter { place: at(3), bits: 48, quantity: BYTES, stands_for: 64.0 }],
        }
    }

    fn bank(values: &[(u32, u64)]) -> Shared {
        let map = values.iter().map(|(address, value)| (at(*address), *value)).collect();
        Shared(Rc::new(RefCell::new(map)), Rc::default())
    }

    fn start(bank: &Shared, kept: &mut Vec<(Place, u64)>) -> MsrCounting {
        let mut keep = |originals: &[(Place, u64)]| {
            kept.extend_from_slice(originals);
            Ok(())
        };
        MsrCounting::start(Box::new(bank.clone()), vec![one_job()], &mut keep).unwrap()
    }

    #[test]
    fn originals_are_kept_first_and_come_back_last() {
        let bank = bank(&[(1, 0x7), (2, 0x10), (3, 1000)]);
        let mut kept = Vec::new();
        let mut counting = start(&bank, &mut kept);
        assert_eq!(kept, [(at(1), 0x7), (at(2), 0x10)]);
        assert_eq!(bank.0.borrow()[&at(2)], 0x11, "bits of others stay");
        bank.0.borrow_mut().insert(at(3), 1010);
        assert_eq!(counting.count().get(BYTES), Reading::Value(640));
        counting.close().unwrap();
        assert_eq!((bank.0.borrow()[&at(1)], bank.0.borrow()[&at(2)]), (0x7, 0x10));
        bank.0.borrow_mut().insert(at(1), 99);
        drop(counting);
        assert_eq!(bank.0.borrow()[&at(1)], 99, "what was closed is not put back twice");
    }

    #[test]
    fn somebody_elses_box_is_left_alone_and_named() {
        let bank = bank(&[(1, 0x40_0001), (2, 0), (3, 0)]);
        let mut kept = Vec::new();
        let mut counting = start(&bank, &mut kept);
        assert!(kept.is_empty());
        assert!(
            counting.notes()[0]
                .starts_with("box 0: somebody else counts there (MSR 0x1 of CPU 0 is 0x400001)")
        );
        assert_eq!(counting.count().get(BYTES), Reading::Unsupported);
        assert_eq!(bank.0.borrow()[&at(1)], 0x40_0001);
    }

    #[test]
    fn a_write_that_fails_takes_the_job_back() {
        let bank = bank(&[(1, 0x7), (2, 0x10), (3, 0)]);
        *bank.1.borrow_mut() = Some(at(2));
        let counting = start(&bank, &mut Vec::new());
        assert_eq!(bank.0.borrow()[&at(1)], 0x7);
        assert!(
            counting.notes()[0].contains("box 0: MSR 0x2 of CPU 0 cannot be written"),
            "{:?}",
            counting.notes()
        );
    }

    /// Registers of which one gives a bad answer once.
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
        // The guard is read twice, then the original twice, then once more before the write.
        for bad in 1..=5 {
            let bank = bank(&[(1, 0x7), (2, 0x10), (3, 0)]);
            let once = Once(bank.clone(), at(1), Cell::new(bad));
            let mut kept = Vec::new();
            let mut keep = |originals: &[(Place, u64)]| {
                kept.extend_from_slice(originals);
                Ok(())
            };
            let mut counting = MsrCounting::start(Box::new(once), vec![one_job()], &mut keep).unwrap();
            assert!(
                counting.notes()[0].contains("0x3") && counting.notes().len() == 1,
                "{:?}",
                counting.notes()
            );
            assert!(!kept.contains(&(at(1), 0x3)), "{bad}: {kept:?}");
            assert_eq!(counting.untouched(), kept);
            counting.close().unwrap();
            assert_eq!((bank.0.borrow()[&at(1)], bank.0.borrow()[&at(2)]), (0x7, 0x10), "{bad}");
        }
    }

    #[test]
    fn without_a_journal_nothing_is_written() {
        let bank = bank(&[(1, 0x7), (2, 0x10), (3, 0)]);
        let mut full = |_: &[(Place, u64)]| Err("no space".to_owned());
        assert_eq!(
            MsrCounting::start(Box::new(bank.clone()), vec![one_job()], &mut full).unwrap_err(),
            "no space"
        );
        assert_eq!(bank.0.borrow()[&at(1)], 0x7);
    }

    #[test]
    fn garbage_is_no_number_and_the_next_reading_goes_on() {
        let bank = bank(&[(1, 0), (2, 0), (3, 5)]);
        let mut counting = start(&bank, &mut Vec::new());
        bank.0.borrow_mut().insert(at(3), u64::MAX);
        let counts = counting.count();
        assert_eq!(counts.get(BYTES), Reading::Unavailable);
        assert_eq!(
            counts.problems(),
            ["MSR 0x3 of CPU 0: 0xffffffffffffffff is no value of a 48-bit counter"]
        );
        bank.0.borrow_mut().insert(at(3), 8);
        assert_eq!(counting.count().get(BYTES), Reading::Value(192));
    }
}
