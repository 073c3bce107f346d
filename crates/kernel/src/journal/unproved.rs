//! What could not be proved about a host after a journal was damaged or lost: lines in a file beside the journal.
//!
//! The file stays until a person has looked at the host and removes it, or until the next boot, which resets the knobs.
//! So a second restore does not pass for a proof. Must not know what the lines mean.

use super::error::{JournalError, untrusted};
use super::sync_directory;
use crate::system::{FileReader, System, write_all_at};
use crate::trust;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of the file: a line for each entry of a journal.
const MOST_BYTES: u64 = 64 << 20;

/// The line that stays until counter programs of a lost run have been looked for.
pub(super) const SEARCH_DUE: &str = "counter programs of the lost run may still be there; the next start or restore looks \
     for them, unless a process that cannot be identified holds the lock of resctrl/info";

/// Whether one of these lines says that counter programs of a lost run are still to be looked for, because the restore
/// that set the damaged journal aside was killed or was not alone.
pub fn is_search_due(unproved: &[String]) -> bool {
    unproved.iter().any(|line| line == SEARCH_DUE)
}

/// The path of the file that belongs to a journal.
pub(super) fn path_of(journal: &Path) -> PathBuf {
    let mut name = journal.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".unproved");
    journal.with_file_name(name)
}

fn heading(boot: Option<&str>) -> String {
    format!("boot {}", boot.unwrap_or("unknown"))
}

/// The lines of this boot; those of an earlier one no longer matter.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(
    system: &dyn System,
    journal: &Path,
    boot: Option<&str>,
) -> Result<Vec<String>, JournalError> {
    let path = path_of(journal);
    let unreadable = |source| JournalError::Read { path: path.clone(), source };
    let file = match trust::open(system, &path, OFlags::RDONLY) {
        Err(error) if error.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound) => {
            return Ok(Vec::new());
        }
        file => file.map_err(|why| untrusted(&path, why, &unreadable))?,
    };
    let mut bytes = Vec::new();
    FileReader(file.as_ref()).take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let is_of_this_boot = lines.next() == Some(&heading(boot));
    Ok(if is_of_this_boot { lines.map(ToOwned::to_owned).collect() } else { Vec::new() })
}

/// Adds lines at the end, on disk when this returns.
///
/// # Errors
/// The file cannot be written.
pub(super) fn add(
    system: &dyn System,
    journal: &Path,
    boot: Option<&str>,
    new: &[String],
) -> Result<(), JournalError> {
    let path = path_of(journal);
    let mut lines = read(system, journal, boot)?;
    let before = lines.len();
    for line in new {
        if !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    if lines.len() == before {
        return Ok(());
    }
    store(system, &path, boot, &lines)
}

/// Removes a line, on disk when this returns.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn drop_line(
    system: &dyn System,
    journal: &Path,
    boot: Option<&str>,
    old: &str,
) -> Result<(), JournalError> {
    let mut lines = read(system, journal, boot)?;
    let before = lines.len();
    lines.retain(|line| line != old);
    if lines.len() == before { Ok(()) } else { store(system, &path_of(journal), boot, &lines) }
}

/// Replaces the file. One of the two is complete after a kill.
fn store(system: &dyn System, path: &Path, boot: Option<&str>, lines: &[String]) -> Result<(), JournalError> {
    let failed = |source| JournalError::Write { path: path.to_path_buf(), source };
    let lines = lines.iter().map(String::as_str);
    let text: String =
        std::iter::once(heading(boot).as_str()).chain(lines).map(|line| format!("{line}\n")).collect();
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".new");
    let beside = path.with_file_name(name);
    let file = trust::open(system, &beside, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC);
    let file = file.map_err(|why| untrusted(&beside, why, &failed))?;
    let written = write_all_at(file.as_ref(), text.as_bytes(), 0).and_then(|()| file.sync());
    let written = written.and_then(|()| system.rename(&beside, path));
    if written.is_err() {
        let _ = system.remove_file(&beside);
    }
    written.and_then(|()| sync_directory(system, path)).map_err(failed)
}

/// Removes the file if its lines are of an earlier boot.
pub(super) fn drop_stale(system: &dyn System, journal: &Path, boot: Option<&str>) {
    let path = path_of(journal);
    // An error does not matter: the lines of an earlier boot are not shown.
    if system.exists(&path) && read(system, journal, boot).is_ok_and(|lines| lines.is_empty()) {
        let _ = system.remove_file(&path);
    }
}
