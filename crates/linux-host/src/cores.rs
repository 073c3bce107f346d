//! The counters of the tenants' cores. Each core is counted separately, so that adding or removing one does not disturb
//! the others.
//!
//! The package's method, perf or registers, applies to every core. The previous value of a register is journaled before
//! the register is programmed, and removed from the journal when it is restored. Must not know which tenant has a core.

use super::count;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_generations::Generation;
use waykeeper_kernel::counting::{CoreEventPlan, Counting, Counts, once_a_kind};
use waykeeper_kernel::journal::{Journal, JournalError, Original};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::restore::{Report, Restorer};
use waykeeper_kernel::root::Root;
use waykeeper_units::CoreId;

#[derive(Debug)]
pub(super) struct Cores {
    root: Root,
    generation: Option<&'static Generation>,
    by_perf: bool,
    each: BTreeMap<CoreId, Counted>,
}

#[derive(Debug)]
struct Counted {
    counting: Box<dyn Counting>,
    /// The originals of its registers, as the journal has them.
    programmed: Vec<Original>,
}

/// Result of [`Cores::follow`]: notes for the user, and the reason if the journal refused.
pub(super) type Followed = (Vec<String>, Option<String>);

impl Cores {
    /// Counts no core yet. `by_perf`: the kernel counts, not registers.
    pub fn new(root: &Root, generation: Option<&'static Generation>, by_perf: bool) -> Cores {
        Cores { root: root.clone(), generation, by_perf, each: BTreeMap::new() }
    }

    /// Counts exactly these cores from now on. Cores that stay keep counting. A new core starts from 0.
    pub fn follow(&mut self, wanted: &BTreeSet<CoreId>, mut journal: Option<&mut Journal>) -> Followed {
        let mut notes = Vec::new();
        let gone: Vec<CoreId> = self.each.keys().filter(|core| !wanted.contains(core)).copied().collect();
        for core in gone {
            notes.extend(self.end(core, journal.as_deref_mut()));
        }
        let Some(generation) = self.generation else { return (notes, None) };
        let mut failures = Vec::new();
        let mut refused = None;
        let come: Vec<CoreId> = wanted.iter().filter(|core| !self.each.contains_key(core)).copied().collect();
        count::raise_file_limit(generation, self.each.len() + come.len());
        for core in come {
            if let Some(journal) = journal.as_deref_mut() {
                notes.extend(self.take_back(core, journal));
            }
            let before = journal.as_ref().map_or(0, |journal| journal.originals().len());
            match count::start_core(&self.root, generation, core, self.by_perf, journal.as_deref_mut()) {
                Ok((counting, without_counter)) => {
                    for note in counting.notes() {
                        // Notes begin with the core's name; without it, equal notes of several cores can be merged.
                        match note.split_once(": ") {
                            Some((name, why)) => failures.push((name.to_owned(), why.to_owned())),
                            None => notes.push(note.clone()),
                        }
                    }
                    notes.extend(without_counter);
                    let originals = journal.as_ref().map(|journal| journal.originals()).unwrap_or_default();
                    let programmed = originals.get(before..).unwrap_or_default().to_vec();
                    self.each.insert(core, Counted { counting, programmed });
                }
                Err(count::CoreError::Journal(why)) => refused = refused.or(Some(why)),
                Err(count::CoreError::OnlyLooking) => {}
                Err(count::CoreError::Failed(why)) => failures.push((core.to_string(), why)),
            }
        }
        notes.extend(once_a_kind(&failures));
        (notes, refused)
    }

    /// Stops counting a core and restores its registers. Returns notes for the user.
    fn end(&mut self, core: CoreId, journal: Option<&mut Journal>) -> Vec<String> {
        let Some(counted) = self.each.remove(&core) else { return Vec::new() };
        let Some(journal) = journal else { return Vec::new() };
        match self.restore(journal, &counted.programmed) {
            Err(why) => vec![why.to_string()],
            Ok(report) => {
                // What could not be restored stays in the journal. Closing the host tries it once more.
                let failed = report.failures().map(|(knob, why)| format!("{knob}: {why}"));
                report.left().chain(report.away()).chain(failed).collect()
            }
        }
    }

    /// A core that went offline while it was counted and is online again still has our program. It is restored first,
    /// or the program would be taken for another tool's.
    fn take_back(&self, core: CoreId, journal: &mut Journal) -> Option<String> {
        let of = |own: &&Original| matches!(own, Original::Msr { cpu, package: None, .. } if *cpu == core.0);
        let old: Vec<Original> = journal.originals().iter().filter(of).cloned().collect();
        if old.is_empty() {
            return None;
        }
        self.restore(journal, &old).err().map(|why| why.to_string())
    }

    fn restore(&self, journal: &mut Journal, some: &[Original]) -> Result<Report, JournalError> {
        let registers = RegisterFiles::new(&self.root, self.generation);
        Restorer { root: &self.root, resctrl: None, registers: &registers }.restore_some(journal, some)
    }

    /// Stops counting all cores. The journal still has the originals of their registers.
    pub fn close(&mut self) {
        self.each.clear();
    }

    pub fn has(&self, core: CoreId) -> bool {
        self.each.contains_key(&core)
    }

    pub fn count(&mut self, into: &mut Counts) {
        for counted in self.each.values_mut() {
            into.merge(counted.counting.count());
        }
    }

    pub fn count_some(&mut self, cores: &BTreeSet<CoreId>) -> Counts {
        let mut counts = Counts::default();
        for (_, counted) in self.each.iter_mut().filter(|(core, _)| cores.contains(core)) {
            counts.merge(counted.counting.count());
        }
        counts
    }

    /// The events that are counted on each.
    pub fn events(&self) -> Option<CoreEventPlan> {
        self.generation.map(|generation| CoreEventPlan::of(&generation.core))
    }
}
