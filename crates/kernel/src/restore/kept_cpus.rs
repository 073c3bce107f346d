//! CPUs that a monitoring group of another program lost to Waykeeper, as the journal has them until it gets them back.
//!
//! Must not know why a group loses CPUs.

use crate::journal::{Journal, JournalError, Original};
use crate::resctrl::Group;
use waykeeper_units::CoreList;

/// The CPUs of a group in the journal; empty if it has none.
pub fn kept_cpus(journal: &Journal, group: &Group) -> CoreList {
    let found = journal.originals().iter().find_map(|original| match original {
        Original::Cpus { group: own, cpus } if own == group => Some(cpus.clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// Sets the CPUs of a group in the journal; without CPUs the entry is dropped.
///
/// # Errors
/// The journal cannot be written; it is then unchanged.
pub fn keep_cpus(journal: &mut Journal, group: &Group, cpus: &CoreList) -> Result<(), JournalError> {
    let original = Original::Cpus { group: group.clone(), cpus: cpus.clone() };
    match cpus.is_empty() {
        true => journal.forget(&original),
        false if kept_cpus(journal, group) == *cpus => Ok(()),
        false => journal.replace(&original),
    }
}
