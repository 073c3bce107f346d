//! Counting through perf_event_open(2): the kernel programs the registers, shares them between users and extends
//! them.
//!
//! A [`PlannedGroup`] states as plain data which events are opened on which CPU; this module opens a plan and reads
//! it. perf counts the machine that the program runs on, so it is not used for a root other than `/`. Must not know
//! which generation this is.

mod call;
mod plan;
mod reader;
mod uncore;

pub use crate::event_source::EncodedEvent;
pub use call::{PerfGroup, PerfOpenError};
pub use plan::{PlannedEvent, PlannedGroup, Where, core_groups};
pub use uncore::{IioUnits, UncorePlan, number};

use crate::counters::Scaled;
use crate::counting::{Counting, Counts};
use crate::root::Root;
use reader::PinnedReader;
use rustix::io::Errno;
use std::path::Path;
use waykeeper_host::Reading;

/// Why perf cannot count here.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// Events of the cores cannot be opened.
    #[error(transparent)]
    Open(#[from] PerfOpenError),
    /// The thread that reads the uncore cannot be started.
    #[error("the thread that reads uncore counters cannot start: {0}")]
    Thread(std::io::Error),
}

/// Open events and their counts.
#[derive(Debug)]
pub struct PerfCounting {
    /// Events of the cores; reading one from another core interrupts that core.
    cores: Vec<(PerfGroup, Vec<Member>)>,
    uncore: Option<(PinnedReader, Vec<Vec<Member>>)>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Member {
    planned: PlannedEvent,
    scaled: Scaled,
}

impl PerfCounting {
    /// Opens all planned events. A refused uncore event is noted and left out. A refused core event is an error,
    /// because every policy needs core events.
    ///
    /// # Errors
    /// The first event of a core that is refused.
    pub fn open(plan: Vec<PlannedGroup>) -> Result<PerfCounting, PerfError> {
        let files = plan.iter().map(|group| group.members.len()).sum::<usize>();
        raise_file_limit(files as u64);
        let (mut cores, mut uncore, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader_cpu = None;
        for group in plan {
            let events: Vec<(&str, EncodedEvent)> =
                group.members.iter().map(|member| (member.name.as_str(), member.event)).collect();
            let opened = PerfGroup::open(&events, group.cpu);
            let members: Vec<Member> = group
                .members
                .into_iter()
                .map(|planned| Member { planned, scaled: Scaled::default() })
                .collect();
            match (opened, group.place) {
                (Ok(opened), Where::Core) => cores.push((opened, members)),
                (Ok(opened), Where::Uncore) => {
                    reader_cpu.get_or_insert(group.cpu);
                    uncore.push((opened, members));
                }
                (Err(why), Where::Core) => return Err(why.into()),
                (Err(why), Where::Uncore) => notes.push(why.to_string()),
            }
        }
        let uncore = match reader_cpu {
            None => None,
            Some(cpu) => {
                let (groups, members): (Vec<PerfGroup>, Vec<Vec<Member>>) = uncore.into_iter().unzip();
                let (reader, refused) = PinnedReader::start(groups, cpu).map_err(PerfError::Thread)?;
                if let Some(why) = refused {
                    notes.push(format!(
                        "the uncore reader cannot run on CPU {cpu} ({why}): each read interrupts that CPU"
                    ));
                }
                Some((reader, members))
            }
        };
        let mut counting = PerfCounting { cores, uncore, notes };
        // Totals start at the first reading.
        counting.count();
        Ok(counting)
    }

    /// System calls of one reading that reach the kernel's PMU code: one per group.
    pub fn reads_per_sample(&self) -> usize {
        self.cores.len() + self.uncore.as_ref().map_or(0, |(_, members)| members.len())
    }
}

impl Counting for PerfCounting {
    fn way(&self) -> &'static str {
        "perf"
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn count(&mut self) -> Counts {
        let mut counts = Counts::default();
        for (group, members) in &mut self.cores {
            let shown = group.read().map(Iterator::collect::<Vec<_>>);
            take(&mut counts, members, shown);
        }
        if let Some((reader, groups)) = &mut self.uncore {
            for (members, shown) in groups.iter_mut().zip(reader.read()) {
                take(&mut counts, members, shown);
            }
        }
        counts
    }

    fn close(&mut self) {
        // Closing the files releases the registers; the kernel clears them.
        self.cores.clear();
        self.uncore = None;
    }
}

/// Whether perf is used for the host under a root: only for `/`, because perf counts the machine that the program
/// runs on. If it can count core events, it counts everything: registers programmed beside it would conflict with its
/// scheduling.
pub fn is_asked(root: &Root) -> bool {
    root.prefix() == Path::new("/")
}

/// Adds what a group shows to the sums.
fn take(counts: &mut Counts, members: &mut [Member], shown: Result<Vec<crate::counters::Shown>, Errno>) {
    if let (Err(why), Some(first)) = (&shown, members.first()) {
        counts.complain(format!("perf event {} cannot be read: {why}", first.planned.name));
    }
    let mut shown = shown.unwrap_or_default().into_iter();
    for member in members {
        let part = shown.next().map_or(Reading::Unavailable, |shown| member.scaled.advance(shown));
        counts.add(member.planned.quantity, part, member.planned.stands_for);
    }
}

/// Raises this program's limit of open files to `needed` and some spare.
///
/// 128 cores of six events are more files than the usual soft limit of 1024; the hard limit is not raised.
pub fn raise_file_limit(needed: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// Files that this program has open for other purposes.
    const SPARE: u64 = 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed + SPARE) {
        let wanted = limit.maximum.map_or(needed + SPARE, |maximum| maximum.min(needed + SPARE));
        // If it cannot be raised, opening an event fails with an error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}
