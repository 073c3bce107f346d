//! Errors of a journal, and what can be wrong with one that is read. Must not know how a journal is read or written.

use super::Original;
use super::format::{OLDEST, VERSION};
use crate::trust::TrustError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use waykeeper_units::one_line;

/// An error of a journal. When it is returned, no knob has been set.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another manager holds the lock.
    #[error(
        "{}: another waykeeper process{} manages this host; end it first (two managers would undo each \
         other's changes)", .path.display(),
        .holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The other manager's pid, if the lock file contains it.
        holder: Option<u32>,
    },
    /// A process that cannot be identified holds the lock of resctrl, and only that lock would prove that groups are ours.
    #[error(
        "{}: a process that cannot be identified holds this lock, and no journal proves that waykeeper made the resctrl \
         groups {groups}: they may be those of another manager; end that process, then run `waykeeper restore`",
        .path.display()
    )]
    Unidentified {
        /// The directory that is locked.
        path: PathBuf,
        /// The groups.
        groups: String,
    },
    /// Its name is that of a lock file.
    #[error("{}: a journal's name must not end in .lock, because its lock file has that ending; take another \
        ending", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("{}: cannot read the journal: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It cannot be written: disk full, read-only, no permission.
    #[error("{}: cannot journal the original values: {source}; their knobs have not been touched", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is damaged, and must be restored from before anything is recorded.
    #[error(
        "{}: it is damaged: {damage}; run `waykeeper restore`, which restores what is intact and says what is not",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, the first of several.
        damage: JournalDamage,
    },
    /// Nothing in the file is of a journal.
    #[error(
        "{}: this is not a journal of waykeeper: no line of it is one, and no seal lies beside it; the file is left \
         as it is", .path.display()
    )]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// A later waykeeper wrote it.
    #[error("{}: it has format {found}, and this waykeeper reads {OLDEST} to {VERSION}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It belongs to a host under another root.
    #[error("{}: it holds original values of the host under {}, not of the one under {wanted}", .path.display(), one_line(.found))]
    OtherRoot {
        /// The file.
        path: PathBuf,
        /// The root prefix it was written for.
        found: String,
        /// The root prefix in use.
        wanted: String,
    },
    /// It is of an earlier boot and must be cleared before anything is recorded.
    #[error("{}: it is from an earlier boot, whose values no longer apply; run `waykeeper restore` to clear it", .path.display())]
    Stale {
        /// The file.
        path: PathBuf,
    },
    /// Other users could change it, and its contents are written to registers.
    #[error("{}: a journal must not be here: {why}", .path.display())]
    Untrusted {
        /// The journal.
        path: PathBuf,
        /// What other users could change.
        why: TrustError,
    },
    /// The kernel's boot id has the wrong form.
    #[error("{}: expected a boot id like 01234567-89ab-cdef-0123-456789abcdef, not `{found}`", .path.display())]
    BootId {
        /// The file.
        path: PathBuf,
        /// The text found.
        found: String,
    },
}

/// Passes a system error to `system`; any other error means that others could change the path.
pub(super) fn untrusted(
    path: &Path,
    why: TrustError,
    system: &dyn Fn(io::Error) -> JournalError,
) -> JournalError {
    match why {
        TrustError::Io { why, .. } => system(why),
        why => JournalError::Untrusted { path: path.to_path_buf(), why },
    }
}

/// Damage of a journal: one line says what cannot be known any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalDamage {
    /// A line is damaged.
    Line {
        /// Its number in the file, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
        /// What it reads.
        text: String,
    },
    /// Entries are missing that were on disk before a knob was set.
    Missing {
        /// The number of the first.
        first: u64,
        /// The number of the last.
        last: u64,
    },
    /// Neither copy of the first line is intact, so it is not known which host and which boot its values are of.
    Host,
    /// An original that was not restored, because its host and boot are not known.
    NotRestored(Original),
    /// The seal is missing or damaged, so nothing says how many entries the journal had.
    NoSeal,
    /// The file is missing, and its seal says that it had so many entries.
    Gone {
        /// Entries, with those that had been restored or dropped.
        entries: u64,
    },
}

impl fmt::Display for JournalDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalDamage::Line { line, why, text } => {
                write!(f, "line {line} is damaged ({}); it reads `{}`", one_line(why), one_line(text))
            }
            JournalDamage::Missing { first, last } if first == last => {
                write!(f, "entry {first} is missing, so an original value is not known")
            }
            JournalDamage::Missing { first, last } => {
                write!(f, "entries {first} to {last} are missing, so their original values are not known")
            }
            JournalDamage::Host => f.write_str(
                "the lines that name its host and boot are damaged, so nothing was restored from it",
            ),
            JournalDamage::NotRestored(original) => write!(f, "{original}: not restored"),
            JournalDamage::NoSeal => {
                f.write_str("its seal is missing or damaged, so entries may be missing at its end")
            }
            JournalDamage::Gone { entries } => {
                write!(
                    f,
                    "the file is missing, and it had {entries} entries, so the original values are not known"
                )
            }
        }
    }
}
