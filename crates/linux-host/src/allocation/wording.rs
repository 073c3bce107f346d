//! Turns errors of the kernel into the seam's outcomes of a knob. Must not know knobs.

use super::GroupsError;
use waykeeper_host::KnobOutcome;
use waykeeper_kernel::resctrl::{Action, ResctrlError, ResctrlErrorKind};

/// The outcome of a resctrl error: `Busy` if a retry may help, `Refused` if only another value may.
pub(super) fn refusal(error: &ResctrlError) -> KnobOutcome {
    let why = error.to_string();
    match error.kind {
        ResctrlErrorKind::Busy | ResctrlErrorKind::Locked | ResctrlErrorKind::Io => KnobOutcome::Busy(why),
        // Another program may give up a class or an RMID.
        ResctrlErrorKind::Exhausted if error.action == Action::Make => KnobOutcome::Busy(why),
        ResctrlErrorKind::Malformed => KnobOutcome::ReadsBack(why),
        _ => KnobOutcome::Refused(why),
    }
}

/// The outcome of any error about groups.
pub(super) fn groups_refusal(error: &GroupsError) -> KnobOutcome {
    match error {
        GroupsError::Resctrl(error) => refusal(error),
        // The disk may get free space; until then no knob is written.
        GroupsError::Journal(error) => KnobOutcome::Busy(error.to_string()),
        GroupsError::File(error) => KnobOutcome::Busy(error.to_string()),
        // The next sample reports it.
        GroupsError::Gone(_) => KnobOutcome::Busy(error.to_string()),
        GroupsError::ReadsBack(found) => KnobOutcome::ReadsBack(found.clone()),
        GroupsError::Foreign { .. } => KnobOutcome::Refused(error.to_string()),
    }
}
