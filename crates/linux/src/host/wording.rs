//! From what a kernel answers to what the seam says of a knob. Knows errors, not knobs.

use super::groups::GroupsError;
use crate::resctrl::{Kind, ResctrlError};
use waykeeper_host::KnobOutcome;

/// A refusal of resctrl: whether another value would help, or another moment.
pub(super) fn refusal(error: &ResctrlError) -> KnobOutcome {
    let why = error.to_string();
    match error.kind {
        Kind::Busy | Kind::Locked | Kind::Io => KnobOutcome::Busy(why),
        Kind::Malformed => KnobOutcome::ReadsBack(why),
        _ => KnobOutcome::Refused(why),
    }
}

/// The same of whatever stands in the way of a group.
pub(super) fn groups_refusal(error: &GroupsError) -> KnobOutcome {
    match error {
        GroupsError::Resctrl(error) => refusal(error),
        // A full disk may be emptied; until then nothing is turned.
        GroupsError::Journal(error) => KnobOutcome::Busy(error.to_string()),
        GroupsError::File(error) => KnobOutcome::Busy(error.to_string()),
        GroupsError::Beside(why) => KnobOutcome::Busy(why.clone()),
        GroupsError::Foreign { .. } => KnobOutcome::Refused(error.to_string()),
    }
}
