//! Writes a journal anew: a long one without the entries that were recorded and forgotten again, one of an earlier
//! format, a damaged one without the damage, or one that gets or loses the mark of a hand-over.
//!
//! Tenants that start and end write a few lines each, and a manager runs for months. The new file is written beside the
//! old one, synced and renamed over it, so after a power failure one of them is complete. Its entries go on with the
//! numbers of the old one, and its first line has the number of its last entry, so the seal fits both. Must not know
//! what an original means.

use super::format::{Entry, HEAD_LINES, HostLine, Knobs, VERSION, head, line};
use super::{Journal, JournalError, JournalFile, Original, read_file, sync_directory};
use crate::system::{FileWriter, OpenFile};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

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
        self.short_from = match self.write_anew(&knobs) {
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
        self.hand_over = None;
        self.replace_content(Knobs { originals: some.to_vec(), ..Knobs::default() })
    }

    /// The same for originals and kept ones.
    pub(super) fn replace_content(&mut self, knobs: Knobs) -> Result<(), JournalError> {
        if knobs.originals.is_empty() && knobs.kept.is_empty() {
            return self.clear();
        }
        self.make_seal()?;
        let written = self.write_anew(&knobs);
        written.map_err(|source| JournalError::Write { path: self.path.clone(), source })?;
        self.knobs = knobs;
        self.damage.clear();
        self.broken = false;
        Ok(())
    }

    /// Keeps a copy of a damaged file for a person. The file keeps its name until a new one replaces it: a kill in between
    /// leaves one of the two as the journal, never none.
    ///
    /// # Errors
    /// The copy could not be written.
    pub(super) fn keep_damaged(&self) -> Result<(), JournalError> {
        let Some((_, bytes)) = read_file(self.system.as_ref(), &self.path, OFlags::RDONLY)? else {
            return Ok(());
        };
        let mut name = self.path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".damaged");
        let first = self.path.with_file_name(&name);
        let numbered = (2..).map(|number: u32| first.with_extension(format!("damaged{number}")));
        for copy in std::iter::once(first.clone()).chain(numbered) {
            if !self.system.exists(&copy) {
                let written = self.write_whole(&bytes).and_then(|_| {
                    self.system.rename(&self.beside(), &copy)?;
                    sync_directory(self.system.as_ref(), &copy)
                });
                return written.map_err(|source| JournalError::Write { path: copy.clone(), source });
            }
            // A restore that was killed has made it already.
            let known = read_file(self.system.as_ref(), &copy, OFlags::RDONLY);
            if known.is_ok_and(|known| known.is_some_and(|(_, known)| known == bytes)) {
                break;
            }
        }
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

    /// Writes a file with these originals and opens it as the journal's. An error leaves the old file.
    pub(super) fn write_anew(&mut self, knobs: &Knobs) -> io::Result<()> {
        let written = self.write_beside(knobs);
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

    fn write_beside(&self, knobs: &Knobs) -> io::Result<(JournalFile, u64)> {
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
            hand_over: self.hand_over.clone(),
        };
        let mut text = head(&host)?;
        for (number, entry) in (host.first..).zip(&entries) {
            text.push_str(&line(number, entry)?);
        }
        let file = self.write_whole(text.as_bytes())?;
        self.system.rename(&self.beside(), &self.path)?;
        // If this fails, the old file may reappear after a power failure; restoring from it has the same result. It is tried
        // again before a line is added.
        let is_named = sync_directory(self.system.as_ref(), &self.path).is_ok();
        let (length, lines) = (text.len() as u64, HEAD_LINES + entries.len() as u64);
        Ok((JournalFile { file, length, lines, is_to_rewrite: false, is_named }, last))
    }

    /// Writes the temporary file, on disk when this returns.
    fn write_whole(&self, bytes: &[u8]) -> io::Result<Box<dyn OpenFile>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = self.system.open(&self.beside(), flags, Mode::from_raw_mode(0o600))?;
        FileWriter(file.as_ref()).write_all(bytes)?;
        file.sync()?;
        Ok(file)
    }
}
