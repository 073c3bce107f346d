//! Compacts a long journal: entries that were recorded and forgotten again are dropped.
//!
//! Tenants that start and end write a few lines each, and a manager runs for months. The compact journal is written
//! beside the old one, synced and renamed over it, so after a power failure one of them is complete. Must not know
//! what an original means.

use super::{Entry, Journal, JournalError, JournalFile, Knobs, Original, VERSION, line, sync_directory};
use crate::system::FileWriter;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Shorter journals are not compacted: they take a few pages of disk and little time to read.
const SHORT_BYTES: u64 = 32 << 10;

/// Lines per line still needed from which compacting is worthwhile: each line is then rewritten only rarely
/// (assumption).
const WORTH: usize = 4;

impl Journal {
    /// Compacts the journal if that is worthwhile. If it fails, the old journal is kept.
    pub(super) fn shorten(&mut self) {
        let Some((_, length, lines)) = &self.file else { return };
        let live = 1 + self.knobs.originals.len() + 2 * self.knobs.kept.len();
        if *length < self.short_from || *lines < WORTH * live || self.broken || self.is_stale() {
            return;
        }
        let beside = self.beside();
        match self.write_short(&beside) {
            Ok((file, length, lines)) => {
                self.file = Some((file, length, lines));
                self.short_from = SHORT_BYTES.max(2 * length);
            }
            // The cause (a full disk) may persist, so the next attempt is made at twice the length.
            Err(_) => {
                self.short_from = 2 * *length;
                self.forget_beside();
            }
        }
    }

    /// Replaces the content by these originals, atomically; without any, the journal is removed.
    ///
    /// # Errors
    /// It could not be written; the journal is then unchanged.
    pub fn keep_only(&mut self, some: &[Original]) -> Result<(), JournalError> {
        if some.is_empty() {
            return self.clear();
        }
        let knobs = Knobs { originals: some.to_vec(), ..Knobs::default() };
        let before = std::mem::replace(&mut self.knobs, knobs);
        match self.write_short(&self.beside()) {
            Ok(file) => {
                self.file = Some(file);
                self.broken = false;
                Ok(())
            }
            Err(source) => {
                self.knobs = before;
                self.forget_beside();
                Err(JournalError::Write { path: self.path.clone(), source })
            }
        }
    }

    /// The length in bytes from which a new journal may be compacted.
    pub(super) const fn short_at_first() -> u64 {
        SHORT_BYTES
    }

    /// Removes the temporary file, which a killed process may have left.
    pub(super) fn forget_beside(&self) {
        // Usually there is none; an error does not matter.
        let _ = self.system.remove_file(&self.beside());
    }

    fn beside(&self) -> PathBuf {
        let mut name = self.path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".new");
        self.path.with_file_name(name)
    }

    fn write_short(&self, beside: &Path) -> io::Result<JournalFile> {
        let head = Entry::Host { version: VERSION, root: self.root.clone(), boot: self.written_in.clone() };
        // A kept knob may have been set again since: its older value comes first, as it was recorded.
        let kept = self.knobs.kept.iter().cloned();
        let kept = kept.flat_map(|own| [Entry::Original(own.clone()), Entry::Keep(own)]);
        let own = self.knobs.originals.iter().cloned().map(Entry::Original);
        let (mut text, mut number) = (String::new(), 0);
        for entry in std::iter::once(head).chain(kept).chain(own) {
            number += 1;
            text.push_str(&line(number, &entry)?);
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = self.system.open(beside, flags, Mode::from_raw_mode(0o600))?;
        FileWriter(file.as_ref()).write_all(text.as_bytes())?;
        file.sync()?;
        self.system.rename(beside, &self.path)?;
        // If this fails, the old file may reappear after a power failure; restoring from it has the same result.
        let _ = sync_directory(self.system.as_ref(), &self.path);
        Ok((file, text.len() as u64, number))
    }
}
