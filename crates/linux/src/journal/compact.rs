//! Making a long journal short: what was recorded and forgotten again says nothing any more.
//!
//! Tenants that come and go write a few lines each, and a manager runs for months. The short one is written beside the long
//! one, synced, and takes its name in one step: whenever the power fails, one of them is there whole. It must not know
//! what an original is of.

use super::{Entry, Journal, JournalError, Knobs, Original, VERSION, line, sync_directory};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Shorter ones are left alone: a page or two of disk, read in no time.
const SHORT_BYTES: u64 = 32 << 10;

/// So many lines for each that still says something make it worth the writing: then each line is written again at most
/// once in a few times (assumption).
const WORTH: usize = 4;

impl Journal {
    /// Makes it short if that is worth it. If it cannot be done nothing has changed: the long one is as good.
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
            // Whatever is in the way (a full disk) is not asked about at every line.
            Err(_) => {
                self.short_from = 2 * *length;
                self.forget_beside();
            }
        }
    }

    /// Makes it hold these originals and nothing else, in one step; with none of them it is removed.
    ///
    /// # Errors
    /// If that could not be written; then it holds what it held.
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

    /// From how many bytes on a new one is long.
    pub(super) const fn short_at_first() -> u64 {
        SHORT_BYTES
    }

    /// What a kill in the midst of it may have left.
    pub(super) fn forget_beside(&self) {
        // There seldom is one, and it means nothing.
        let _ = fs::remove_file(self.beside());
    }

    fn beside(&self) -> PathBuf {
        let mut name = self.path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".new");
        self.path.with_file_name(name)
    }

    fn write_short(&self, beside: &PathBuf) -> io::Result<(File, u64, usize)> {
        let head = Entry::Host { version: VERSION, root: self.root.clone(), boot: self.written_in.clone() };
        // A knob that is kept may have been turned again since: its older value comes first, as it was said.
        let kept = self.knobs.kept.iter().cloned();
        let kept = kept.flat_map(|own| [Entry::Original(own.clone()), Entry::Keep(own)]);
        let own = self.knobs.originals.iter().cloned().map(Entry::Original);
        let (mut text, mut number) = (String::new(), 0);
        for entry in std::iter::once(head).chain(kept).chain(own) {
            number += 1;
            text.push_str(&line(number, &entry)?);
        }
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, &self.path)?;
        // The long one may come back after a power failure if this fails; it says the same.
        let _ = sync_directory(&self.path);
        Ok((file, text.len() as u64, number))
    }
}
