//! Writes a journal anew: a long one without the entries that were recorded and forgotten again, or one of an earlier
//! format.
//!
//! Tenants that start and end write a few lines each, and a manager runs for months. The new file is written beside the
//! old one, synced and renamed over it, so after a power failure one of them is complete. Its entries go on with the
//! numbers of the old one, and its first line has the number of its last entry, so the seal fits both. Must not know
//! what an original means.

use super::format::{Entry, HEAD_LINES, HostLine, Knobs, VERSION, head, line};
use super::{Journal, JournalError, JournalFile, Original, sync_directory};
use crate::system::FileWriter;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Shorter journals are not compacted: they take a few pages of disk and little time to read.
const SHORT_BYTES: u64 = 32 << 10;

/// Lines per line still needed from which compacting is worthwhile: each line is then rewritten only rarely
/// (assumption).
const WORTH: u64 = 4;

impl Journal {
    /// Compacts the journal if that is worthwhile. If it fails, the old journal is kept.
    pub(super) fn shorten(&mut self) {
        let Some(JournalFile { length, lines, .. }) = &self.file else { return };
        let live = HEAD_LINES + (self.knobs.originals.len() + 2 * self.knobs.kept.len()) as u64;
        if *length < self.short_from || *lines < WORTH * live || self.broken || self.is_stale() {
            return;
        }
        let length = *length;
        let knobs = self.knobs.clone();
        self.short_from = match self.write_anew(&knobs, None) {
            Ok(()) => SHORT_BYTES.max(2 * self.file.as_ref().map_or(0, |file| file.length)),
            // The cause (a full disk) may persist, so the next attempt is made at twice the length.
            Err(_) => 2 * length,
        };
    }

    /// Replaces the content by these originals, atomically; without any, the journal is removed.
    ///
    /// # Errors
    /// It could not be written; the journal is then unchanged.
    pub fn keep_only(&mut self, some: &[Original]) -> Result<(), JournalError> {
        self.replace_content(Knobs { originals: some.to_vec(), ..Knobs::default() }, None)
    }

    /// The same for originals and kept ones. With `aside`, the old file gets that name.
    pub(super) fn replace_content(&mut self, knobs: Knobs, aside: Option<&Path>) -> Result<(), JournalError> {
        let failed = |path: &Path, source| JournalError::Write { path: path.to_path_buf(), source };
        if knobs.originals.is_empty() && knobs.kept.is_empty() {
            if let Some(aside) = aside {
                self.system.rename(&self.path, aside).map_err(|source| failed(aside, source))?;
            }
            return self.clear();
        }
        self.make_seal()?;
        self.write_anew(&knobs, aside).map_err(|source| failed(&self.path, source))?;
        self.knobs = knobs;
        self.damage.clear();
        self.broken = false;
        Ok(())
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

    /// Writes a file with these originals and opens it as the journal's. An error leaves the old file. With `aside`, the
    /// old file gets that name.
    pub(super) fn write_anew(&mut self, knobs: &Knobs, aside: Option<&Path>) -> io::Result<()> {
        let written = self.write_beside(knobs, aside);
        if written.is_err() {
            self.forget_beside();
        }
        let (file, last) = written?;
        (self.file, self.last) = (Some(file), last);
        // If this fails, the seal has an earlier number: the first line has the one that counts.
        if let Some(seal) = &mut self.seal {
            let _ = seal.write(last);
        }
        Ok(())
    }

    fn write_beside(&self, knobs: &Knobs, aside: Option<&Path>) -> io::Result<(JournalFile, u64)> {
        // A kept knob may have been set again since: its older value comes first, as it was recorded.
        let kept = knobs.kept.iter().cloned();
        let kept = kept.flat_map(|own| [Entry::Original(own.clone()), Entry::Keep(own)]);
        let own = knobs.originals.iter().cloned().map(Entry::Original);
        let entries: Vec<Entry> = kept.chain(own).collect();
        let last = self.last + entries.len() as u64;
        let host = HostLine {
            version: VERSION,
            root: self.root.clone(),
            boot: self.written_in.clone(),
            first: self.last + 1,
            complete_to: last,
        };
        let mut text = head(&host)?;
        for (number, entry) in (host.first..).zip(&entries) {
            text.push_str(&line(number, entry)?);
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let beside = self.beside();
        let file = self.system.open(&beside, flags, Mode::from_raw_mode(0o600))?;
        FileWriter(file.as_ref()).write_all(text.as_bytes())?;
        file.sync()?;
        if let Some(aside) = aside {
            self.system.rename(&self.path, aside)?;
        }
        if let Err(why) = self.system.rename(&beside, &self.path) {
            if let Some(aside) = aside {
                self.system.rename(aside, &self.path)?;
            }
            return Err(why);
        }
        // If this fails, the old file may reappear after a power failure; restoring from it has the same result.
        let _ = sync_directory(self.system.as_ref(), &self.path);
        let (length, lines) = (text.len() as u64, HEAD_LINES + entries.len() as u64);
        Ok((JournalFile { file, length, lines, is_to_rewrite: false }, last))
    }
}
