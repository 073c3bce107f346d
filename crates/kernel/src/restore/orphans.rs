//! Groups that have a name of ours and no journal entry: left by a run whose journal was cut or lost.
//!
//! They are adopted: entered in the journal as groups that did not exist, then restored, which removes them. So a kill
//! in between loses nothing, and a group that cannot be removed stays recorded. The same holds for registers that still
//! have our counter programs. Must not know which registers those are, nor what a lost journal contained.

use super::{Report, Restorer};
use crate::journal::{Journal, JournalError, Original};
use crate::resctrl::{Group, Resctrl, ResctrlError};

/// What a lost run left besides its groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftovers {
    /// Registers that hold our counter programs, with the value of an idle counter.
    pub registers: Vec<Original>,
    /// Knobs whose present value may be that of the lost run, a line each.
    pub unproved: Vec<String>,
}

/// The groups with a name of ours that are in none of these records: control groups, and monitoring groups of the
/// default group. A monitoring group in a control group of ours ends with that.
///
/// # Errors
/// If the groups cannot be listed.
pub fn orphans(resctrl: &Resctrl, known: &[Original]) -> Result<Vec<Group>, ResctrlError> {
    let control = resctrl.control_groups()?;
    let monitors = resctrl.monitor_groups(&Group::DEFAULT)?;
    let is_known = |group: &Group| {
        known.iter().any(|own| match own {
            Original::NoGroup { group: own } | Original::Planned { group: own } => own == group,
            _ => false,
        })
    };
    let ours = control.into_iter().chain(monitors).filter(|group| resctrl.is_ours(group));
    Ok(ours.filter(|group| !is_known(group)).collect())
}

impl Restorer<'_> {
    /// Removes orphans and counter programs of a run whose journal was damaged or lost, and adds to the report what was
    /// done and what cannot be proved. `known` are the records of all journals of this host. Call it after the
    /// journals are restored. Without damage, an orphan and an unfinished earlier call nothing is done, and `leftovers`
    /// is not called.
    ///
    /// Orphans and counter programs may be those of a manager that cannot be identified ([`Journal::check_alone`]). They are
    /// left then: orphans with an error, counter programs with a line that cannot be proved, and a later call removes them.
    ///
    /// # Errors
    /// The journal cannot be changed, or orphans are left. Failures of knobs are in the report.
    pub fn adopt_orphans(
        &mut self,
        journal: &mut Journal,
        known: &[Original],
        leftovers: &mut dyn FnMut() -> Leftovers,
        report: &mut Report,
    ) -> Result<(), JournalError> {
        let mut unproved = Vec::new();
        let found = self.resctrl.map_or(Ok(Vec::new()), |resctrl| orphans(resctrl, known));
        let groups = found.unwrap_or_else(|why| {
            unproved.push(format!("groups of an earlier run may be left: {why}"));
            Vec::new()
        });
        let is_due = report.is_search_due();
        let alone = if !groups.is_empty() || is_due { journal.check_alone(&groups) } else { Ok(()) };
        let is_alone = alone.is_ok();
        if !groups.is_empty() {
            alone?;
        } else if !is_due || !is_alone && report.damage.is_empty() {
            // An unreadable mount is no proof either, but it says nothing of this run: it is not written down.
            report.unproved.extend(unproved);
            return Ok(());
        }
        let names: Vec<String> = groups.iter().map(ToString::to_string).collect();
        if !groups.is_empty() && report.damage.is_empty() {
            unproved.push(format!(
                "no journal that was read has the resctrl groups {}: the original values of other knobs that their run \
                 set are not known",
                names.join(", ")
            ));
        }
        let Leftovers { mut registers, unproved: more } = leftovers();
        unproved.extend(more);
        let is_known = |own: &Original| known.iter().any(|other| other.is_same_knob(own));
        registers.retain(|own| is_alone && !is_known(own));
        if !registers.is_empty() {
            unproved.push(format!(
                "{} registers held counter programs of Waykeeper and were set to 0, as of an idle counter; what they had \
                 before, and the filters of their boxes, is not known",
                registers.len()
            ));
        }
        journal.note_unproved(&unproved)?;
        // Groups first, so that they are restored last: in the order in which a run makes them.
        let groups = groups.into_iter().map(|group| Original::NoGroup { group });
        let adopted: Vec<Original> = groups.chain(registers).collect();
        journal.record(&adopted)?;
        if is_alone {
            journal.note_search_done()?;
        }
        let done = self.restore_some(journal, &adopted)?;
        report.knobs.extend(done.knobs);
        report.adopted = adopted;
        report.unproved = journal.unproved()?;
        Ok(())
    }
}
