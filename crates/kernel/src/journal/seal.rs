//! The seal: a small file beside a journal that holds the number of the journal's last entry, so that a journal that
//! was cut or removed is noticed.
//!
//! It is made before the journal, written and synced after each entry and before the entry's knob is set, and removed
//! after the journal. Two slots, in sectors of their own, are written in turn: a write that a power failure tears leaves
//! the other slot, whose number is that of an entry whose knob was set. Must not know what an entry means.

use super::error::{JournalError, untrusted};
use super::sync_directory;
use crate::system::{FileReader, OpenFile, SharedSystem, System, write_all_at};
use crate::trust;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Bytes from slot to slot: a disk writes whole sectors of 512 bytes or more (assumption: ATA and NVMe have no smaller
/// ones).
const SECTOR: u64 = 512;

/// The path of a journal's seal.
pub(super) fn path_of(journal: &Path) -> PathBuf {
    let mut name = journal.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".seal");
    journal.with_file_name(name)
}

/// A slot: which one was written later, the number of the last entry, and the boot in which it was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Slot {
    turn: u64,
    last: u64,
    boot: Option<String>,
}

/// A seal that is there.
#[derive(Debug)]
pub(super) struct Seal {
    file: Box<dyn OpenFile>,
    slot: Slot,
    /// The present boot.
    boot: Option<String>,
    /// No slot could be read.
    is_damaged: bool,
}

impl Seal {
    /// Opens the seal beside a journal; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or other users could have written it.
    pub fn open(
        system: &dyn System,
        journal: &Path,
        boot: Option<&str>,
        flags: OFlags,
    ) -> Result<Option<Seal>, JournalError> {
        let path = path_of(journal);
        let unreadable = |source| JournalError::Read { path: path.clone(), source };
        let file = match trust::open(system, &path, flags) {
            Err(error) if error.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound) => {
                return Ok(None);
            }
            file => file.map_err(|why| untrusted(&path, why, &unreadable))?,
        };
        let mut bytes = Vec::new();
        FileReader(file.as_ref()).take(2 * SECTOR).read_to_end(&mut bytes).map_err(unreadable)?;
        // A read that ends too early must not pass for a damaged seal.
        let size = file.metadata().map_err(unreadable)?.size;
        if (bytes.len() as u64) < size.min(2 * SECTOR) {
            let why = format!("only {} of its {size} bytes could be read", bytes.len());
            return Err(unreadable(io::Error::other(why)));
        }
        let slots = bytes.chunks(SECTOR as usize).filter_map(read_slot);
        let slot = slots.max();
        let boot = boot.map(ToOwned::to_owned);
        Ok(Some(Seal { file, is_damaged: slot.is_none(), slot: slot.unwrap_or_default(), boot }))
    }

    /// Makes the seal of a journal that has no entry, on disk when this returns.
    pub fn create(system: &SharedSystem, journal: &Path, boot: Option<&str>) -> Result<Seal, JournalError> {
        let path = path_of(journal);
        let failed = |source| JournalError::Write { path: journal.to_path_buf(), source };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = trust::open(system.as_ref(), &path, flags);
        let file = file.map_err(|why| untrusted(&path, why, &failed))?;
        let mut seal =
            Seal { file, slot: Slot::default(), boot: boot.map(ToOwned::to_owned), is_damaged: false };
        seal.write(0).and_then(|()| sync_directory(system.as_ref(), &path)).map_err(failed)?;
        Ok(seal)
    }

    /// The number of the last entry; `None` if the seal is damaged.
    pub fn last(&self) -> Option<u64> {
        (!self.is_damaged).then_some(self.slot.last)
    }

    /// The boot in which it was written, if that is known.
    pub fn boot(&self) -> Option<&str> {
        self.slot.boot.as_deref()
    }

    /// Writes the number of the last entry, on disk when this returns.
    pub fn write(&mut self, last: u64) -> io::Result<()> {
        let next = Slot { turn: self.slot.turn.wrapping_add(1), last, boot: self.boot.clone() };
        write_all_at(self.file.as_ref(), slot_line(&next).as_bytes(), next.turn % 2 * SECTOR)?;
        self.file.sync()?;
        self.slot = next;
        self.is_damaged = false;
        Ok(())
    }
}

/// An unknown boot id.
const NO_BOOT: &str = "-";

/// A slot's line; its length does not depend on the numbers. A boot id has 36 characters (`boot_id`).
fn slot_line(slot: &Slot) -> String {
    let Slot { turn, last, boot } = slot;
    let text = format!("{turn:020} {last:020} {:36}", boot.as_deref().unwrap_or(NO_BOOT));
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
}

fn read_slot(bytes: &[u8]) -> Option<Slot> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut words = text.split_whitespace().skip(1);
    let (turn, last, boot) = (words.next()?, words.next()?, words.next()?);
    let boot = Some(boot.to_owned()).filter(|boot| boot != NO_BOOT);
    let slot = Slot { turn: turn.parse().ok()?, last: last.parse().ok()?, boot };
    (slot_line(&slot).as_bytes() == &bytes[..=end]).then_some(slot)
}
