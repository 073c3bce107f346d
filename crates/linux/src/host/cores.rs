//! The counters of the tenants' cores: each core is counted apart, so that one can come or go and no other notices.
//!
//! Which way, perf or registers, was chosen for the package. What a register held is journaled before it is programmed, and
//! forgotten when it is back. Must not know whose a core is.

use super::count;
use crate::counting::{CoreEvents, Counting, Counts, once_a_kind};
use crate::journal::{Journal, Original};
use crate::registers::RegisterFiles;
use crate::restore::Restorer;
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_generations::Generation;
use waykeeper_units::CoreId;

/// The cores that are counted.
#[derive(Debug)]
pub(super) struct Cores {
    root: Root,
    generation: Option<&'static Generation>,
    by_perf: bool,
    each: BTreeMap<CoreId, Counted>,
}

/// One of them.
#[derive(Debug)]
struct Counted {
    counting: Box<dyn Counting>,
    /// What the journal holds of its registers.
    programmed: Vec<Original>,
}

/// What came of a change: what people should know, and why the journal refused.
pub(super) type Followed = (Vec<String>, Option<String>);

impl Cores {
    /// None yet. `by_perf` is whether the kernel counts.
    pub fn new(root: &Root, generation: Option<&'static Generation>, by_perf: bool) -> Cores {
        Cores { root: root.clone(), generation, by_perf, each: BTreeMap::new() }
    }

    /// Counts these cores from now on and no others. Those that were counted and still are notice nothing.
    /// A core that comes has counted nothing yet.
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
                Ok((counting, homeless)) => {
                    for note in counting.notes() {
                        // They begin with the core's name, which they have in common with those of others but for it.
                        match note.split_once(": ") {
                            Some((name, why)) => failures.push((name.to_owned(), why.to_owned())),
                            None => notes.push(note.clone()),
                        }
                    }
                    notes.extend(homeless);
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

    /// Ends counting one: its registers go back as they were found. What people should know of it.
    fn end(&mut self, core: CoreId, journal: Option<&mut Journal>) -> Vec<String> {
        let Some(counted) = self.each.remove(&core) else { return Vec::new() };
        let Some(journal) = journal else { return Vec::new() };
        let registers = RegisterFiles::new(&self.root, self.generation);
        let mut restorer = Restorer { root: &self.root, resctrl: None, registers: &registers };
        match restorer.restore_some(journal, &counted.programmed) {
            Err(why) => vec![why.to_string()],
            Ok(report) => {
                // What could not be put back stays in the journal, and is tried once more at the end.
                let failed = report.failures().map(|(knob, why)| format!("{knob}: {why}"));
                report.left().chain(report.away()).chain(failed).collect()
            }
        }
    }

    /// A core that was switched off while it was counted and is there again still has our program: it goes back first, or it
    /// would be taken for somebody else's.
    fn take_back(&self, core: CoreId, journal: &mut Journal) -> Option<String> {
        let of = |own: &&Original| matches!(own, Original::Msr { cpu, package: None, .. } if *cpu == core.0);
        let old: Vec<Original> = journal.originals().iter().filter(of).cloned().collect();
        if old.is_empty() {
            return None;
        }
        let registers = RegisterFiles::new(&self.root, self.generation);
        let mut restorer = Restorer { root: &self.root, resctrl: None, registers: &registers };
        restorer.restore_some(journal, &old).err().map(|why| why.to_string())
    }

    /// Ends counting them all. What was programmed is the journal's to bring back.
    pub fn close(&mut self) {
        self.each.clear();
    }

    /// Whether a core is counted.
    pub fn has(&self, core: CoreId) -> bool {
        self.each.contains_key(&core)
    }

    /// Reads all of them.
    pub fn count(&mut self, into: &mut Counts) {
        for counted in self.each.values_mut() {
            into.merge(counted.counting.count());
        }
    }

    /// Reads some of them.
    pub fn count_some(&mut self, cores: &BTreeSet<CoreId>) -> Counts {
        let mut counts = Counts::default();
        for (_, counted) in self.each.iter_mut().filter(|(core, _)| cores.contains(core)) {
            counts.merge(counted.counting.count());
        }
        counts
    }

    /// The events that are counted on each.
    pub fn events(&self) -> Option<CoreEvents> {
        self.generation.map(|generation| CoreEvents::of(&generation.core))
    }
}
