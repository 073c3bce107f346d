//! Handing the knobs over from one daemon to the next: what the one that ends leaves in force, and what the next one
//! takes for its own.
//!
//! The groups and the DCA knobs stay; counter registers are restored, and the next daemon programs its own. The journal
//! keeps all originals, so that the last daemon restores the state before the first one. Must not know when a hand-over
//! is asked for.

use super::io_knobs::IoKnobs;
use super::{LinuxHost, restore};
use std::time::Duration;
use waykeeper_host::{Knob, Plan};
use waykeeper_kernel::journal::{HandOver, HandedTenant, Journal, JournalError, Original};
use waykeeper_kernel::registers::RegisterFiles;
use waykeeper_kernel::resctrl::{Group, Resctrl};
use waykeeper_kernel::restore::{Report, Restorer};
use waykeeper_kernel::root::Root;

/// What the daemon before has left to this one.
#[derive(Debug)]
pub(super) struct TakenOver {
    /// Its groups.
    pub groups: Vec<Group>,
    /// Its tenants with their groups.
    pub tenants: Vec<HandedTenant>,
    /// What it has learnt.
    pub memory: Option<HandedMemory>,
    /// The records that stay in the journal.
    records: Vec<Original>,
}

impl TakenOver {
    /// What a journal has of the L3 with this id; `None` if no daemon has left its knobs to this one, or if it had
    /// another L3.
    pub fn of(
        journal: &Journal,
        l3: Option<u32>,
        knobs: &IoKnobs,
        may_set: impl Fn(Knob) -> bool,
    ) -> Option<TakenOver> {
        let mark = journal.valid_hand_over().filter(|mark| Some(mark.l3) == l3)?;
        let made = |own: &Original| match own {
            Original::NoGroup { group } => Some(group.clone()),
            _ => None,
        };
        let groups = journal.originals().iter().filter_map(made).collect();
        // CPUs are those of other programs' monitoring groups, which get them back from our groups.
        let stays = |own: &&Original| matches!(own, Original::NoGroup { .. } | Original::Cpus { .. });
        let mut records: Vec<Original> = journal.originals().iter().filter(stays).cloned().collect();
        records.extend(knobs.take_over(journal, may_set));
        let memory = mark.memory.clone().map(|content| HandedMemory { content, at_ns: mark.at_ns });
        Some(TakenOver { groups, tenants: mark.tenants.clone(), memory, records })
    }

    /// Restores the records that are not taken over.
    ///
    /// # Errors
    /// The journal cannot be changed.
    pub fn restore_rest(
        &self,
        root: &Root,
        resctrl: &Resctrl,
        registers: &RegisterFiles,
        journal: &mut Journal,
    ) -> Result<Report, JournalError> {
        let rest = journal.originals().iter().filter(|own| !self.records.contains(own));
        let rest: Vec<Original> = rest.cloned().collect();
        let mut report = Restorer { root, resctrl: Some(resctrl), registers }.restore_some(journal, &rest)?;
        report.unproved = journal.unproved()?;
        Ok(report)
    }

    /// A line about it for the user.
    pub fn note(&self) -> String {
        let (groups, knobs) = (self.groups.len(), self.records.iter().filter(|own| own.register().is_some()));
        format!(
            "the daemon before left its knobs to this one: {groups} resctrl groups and {} DCA knobs stay in force",
            knobs.count()
        )
    }
}

/// What the daemon before has learnt.
#[derive(Debug)]
pub(super) struct HandedMemory {
    /// As it was given to [`LinuxHost::hand_over`].
    content: serde_json::Value,
    /// When that was, on the clock of this boot, nanoseconds.
    at_ns: u64,
}

impl LinuxHost {
    /// Ends managing and leaves groups, masks and DCA knobs in force for the next daemon, which may come until this time of
    /// the system's clock, with `memory`, which that one finds at [`LinuxHost::memory_taken_over`]. Counter registers are
    /// restored. Afterwards the host is closed.
    ///
    /// # Errors
    /// The journal cannot be written. Then the host is open, but without counters, and is to be closed.
    pub fn hand_over(
        &mut self,
        until: Duration,
        memory: Option<serde_json::Value>,
    ) -> Result<(), JournalError> {
        let now = self.root.system().now();
        self.cores.close();
        self.counting.close();
        let Some(journal) = self.journal.as_mut().filter(|_| !self.closed) else { return Ok(()) };
        self.allocation.forget_replaced(journal);
        self.knobs.detect_external_changes(journal, &mut Vec::new());
        let is_counter = |own: &&Original| own.register().is_some() && !self.knobs.has(own);
        let counters: Vec<Original> = journal.originals().iter().filter(is_counter).cloned().collect();
        let (root, registers) = (&self.root, self.knobs.registers());
        // What cannot be restored now stays in the journal, and the next daemon restores it first.
        Restorer { root, resctrl: None, registers }.restore_some(journal, &counters)?;
        // A host without an id of its L3 has no groups, and is not handed over.
        match self.facts.l3.as_ref().and_then(|l3| l3.id).filter(|_| !journal.originals().is_empty()) {
            None => _ = restore(root, Some(self.allocation.resctrl()), registers, journal)?,
            Some(l3) => journal.mark_hand_over(HandOver {
                at_ns: nanoseconds(now),
                until_ns: nanoseconds(until),
                waited: false,
                l3,
                tenants: self.allocation.tenants_to_hand_over(),
                memory,
            })?,
        }
        // Its locks are free for the next daemon, and nothing is written any more.
        self.journal = None;
        self.closed = true;
        Ok(())
    }

    /// Whether groups that the daemon before left wait for the first call of [`LinuxHost::set_tenants`].
    pub fn awaits_tenants(&self) -> bool {
        self.allocation.awaits_tenants()
    }

    /// What the daemon before has learnt, and how long ago it ended. The next call has nothing.
    pub fn memory_taken_over(&mut self) -> Option<(serde_json::Value, Duration)> {
        let HandedMemory { content, at_ns } = self.memory.take()?;
        Some((content, self.root.system().now().saturating_sub(Duration::from_nanos(at_ns))))
    }

    /// The values that knobs had before the daemon before and this one, as far as this one took them over.
    pub fn originals_taken_over(&self) -> Plan {
        self.knobs.originals().with_masks(self.allocation.masks_before())
    }

    /// The tenants of the start are set: the mark of a hand-over has served its purpose. If it cannot be removed, the next
    /// change of tenants tries again; until then a kill leaves the knobs to the next daemon.
    pub(super) fn end_hand_over(&mut self) {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.allocation.awaits_tenants()) else {
            return;
        };
        if let Err(why) = journal.end_hand_over() {
            self.complaints.push(why.to_string());
        }
    }
}

/// A time of the system's clock, in nanoseconds.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
