//! The journal: the original value of every knob, on disk before the knob is set.
//!
//! Lines of JSON (`format`), appended and synced before [`Journal::record`] returns; then the number of the last line
//! is written to a seal beside the file, synced too (`seal`). The directory is synced when a file is created and when it is
//! removed. So after a power failure the journal contains at least every knob that was set, and a journal that lost a
//! line later, or was removed, says so ([`Journal::damage`]). A line after the sealed ones does not matter: its knob was
//! not set yet. Must not know how a knob is set or restored.

mod compact;
mod error;
mod format;
mod hand_over;
mod lock;
mod original;
mod seal;
mod summary;
mod unproved;

pub use error::{JournalDamage, JournalError};
pub use hand_over::{HandOver, HandedTenant};
pub use lock::is_managed;
pub use original::{Claim, Original, OriginalBits, OwnershipCheck, SchemataLine};
pub use summary::{JournalSummary, is_there, summarize, usual_path};
pub use unproved::is_search_due;

use crate::resctrl::Group;
use crate::root::Root;
use crate::system::{FileReader, OpenFile, SharedSystem, System, write_all_at};
use crate::trust;
use error::untrusted;
use format::{Content, Entry, HEAD_LINES, HostLine, Knobs, OLDEST, VERSION, head, line};
use lock::{Lock, ResctrlLock};
use rustix::fs::{Mode, OFlags};
use seal::Seal;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a journal: 64 groups of a few hundred bytes each, with tasks, are far below.
const MOST_BYTES: u64 = 64 << 20;

/// The journal's open file.
#[derive(Debug)]
struct JournalFile {
    file: Box<dyn OpenFile>,
    /// Its length in bytes.
    length: u64,
    /// Number of its lines.
    lines: u64,
    /// It must be written anew before a line is added: it has another format, or lines in another order.
    is_to_rewrite: bool,
    /// Its name is on disk. A process that was killed may have left a file whose name is not.
    is_named: bool,
}

/// An open journal with its locks: no other manager can set knobs of this host at the same time.
#[derive(Debug)]
pub struct Journal {
    system: SharedSystem,
    path: PathBuf,
    root: String,
    boot: Option<String>,
    written_in: Option<String>,
    knobs: Knobs,
    /// The mark of a hand-over.
    hand_over: Option<HandOver>,
    /// The file, once it exists.
    file: Option<JournalFile>,
    seal: Option<Seal>,
    /// The number of the last entry.
    last: u64,
    damage: Vec<JournalDamage>,
    broken: bool,
    /// Length in bytes from which compacting is considered.
    short_from: u64,
    /// The lock of this journal, and the lock of this host, which is independent of the journal's path.
    _locks: (Lock, Option<Lock>),
    /// The lock of the mounted resctrl, which is independent of the folder with the locks.
    resctrl_lock: ResctrlLock,
}

impl Journal {
    /// Opens the journal at `path` for the host under `root`. The directory is created now, the file on the first
    /// record.
    ///
    /// A damaged journal is opened too: [`Journal::damage`] says what is wrong with it, and nothing can be recorded until
    /// [`Journal::set_aside`].
    ///
    /// # Errors
    /// [`JournalError::Held`] if another manager uses it or manages this host; [`JournalError::NotAJournal`] for another
    /// file, beside which nothing is made; else what is wrong with its path.
    pub fn open(path: &Path, root: &Root) -> Result<Journal, JournalError> {
        if path.extension().is_some_and(|extension| extension == "lock") {
            return Err(JournalError::Name { path: path.to_path_buf() });
        }
        let unwritable = |source| JournalError::Write { path: path.to_path_buf(), source };
        let directory = directory_of(path);
        let system = root.system().clone();
        // Before a lock file is made beside a file that is not ours.
        summary::recognize(system.as_ref(), path)?;
        system.make_dirs(directory, Mode::from_raw_mode(0o755)).map_err(unwritable)?;
        trust::folder(system.as_ref(), directory).map_err(|why| untrusted(path, why, &unwritable))?;
        let lock = Lock::take(&system, &path.with_extension("lock"))?;
        let common = Lock::of_host(root, &lock)?;
        let shared = ResctrlLock::take(root)?;
        let boot = boot_id(root)?;
        let root = root.prefix().display().to_string();
        let mut journal = Journal {
            system,
            path: path.to_path_buf(),
            root,
            written_in: boot.clone(),
            boot,
            knobs: Knobs::default(),
            hand_over: None,
            file: None,
            seal: None,
            last: 0,
            damage: Vec::new(),
            broken: false,
            short_from: Journal::short_at_first(),
            _locks: (lock, common),
            resctrl_lock: shared,
        };
        journal.read()?;
        Ok(journal)
    }

    /// Originals of knobs set by this run or left by a crash, in that order, without kept ones.
    pub fn originals(&self) -> &[Original] {
        &self.knobs.originals
    }

    /// The originals of knobs that stay as set, in the order in which they were set. If a later run sets the same
    /// knob, it restores the value that it found; this is the value before that.
    pub fn kept(&self) -> &[Original] {
        &self.knobs.kept
    }

    /// True if it is from an earlier boot: every knob has its power-on value, and the journal's values must not be
    /// written. If either boot id is unknown, the journal counts as current.
    pub fn is_stale(&self) -> bool {
        is_other_boot(self.written_in.as_deref(), self.boot.as_deref())
    }

    /// Checks that these groups, which no journal has as made, are not those of a manager that cannot be identified, in a
    /// container with another /run. What the journal has as made is ours in any case. The first call waits for such a
    /// manager to end.
    ///
    /// # Errors
    /// [`JournalError::Unidentified`], or [`JournalError::Held`] if it can be identified meanwhile.
    pub fn check_alone(&mut self, groups: &[Group]) -> Result<(), JournalError> {
        self.resctrl_lock.check_alone(groups)
    }

    /// Releases the lock of a resctrl that another program unmounted. The next record takes that of the one mounted then.
    pub fn leave_resctrl(&mut self) {
        self.resctrl_lock.leave();
    }

    /// Takes the lock of a resctrl that was mounted anew.
    ///
    /// # Errors
    /// [`JournalError::Held`] if another manager has it.
    pub fn enter_resctrl(&mut self) -> Result<(), JournalError> {
        self.resctrl_lock.leave();
        self.resctrl_lock.retry()
    }

    /// What is wrong with it, a line each; empty if it is whole.
    pub fn damage(&self) -> &[JournalDamage] {
        &self.damage
    }

    /// What could not be proved about this host since its boot, after a journal was damaged or lost. It stays until a
    /// person removes the file beside the journal.
    ///
    /// # Errors
    /// That file cannot be read.
    pub fn unproved(&self) -> Result<Vec<String>, JournalError> {
        unproved::read(self.system.as_ref(), &self.path, self.boot.as_deref())
    }

    /// Writes down what could not be proved about this host.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_unproved(&self, lines: &[String]) -> Result<(), JournalError> {
        unproved::add(self.system.as_ref(), &self.path, self.boot.as_deref(), lines)
    }

    /// Counter programs of a lost run have been looked for, and those found are recorded: [`is_search_due`] no longer
    /// holds.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_search_done(&self) -> Result<(), JournalError> {
        unproved::drop_line(self.system.as_ref(), &self.path, self.boot.as_deref(), unproved::SEARCH_DUE)
    }

    /// The file with what could not be proved.
    pub fn unproved_path(&self) -> PathBuf {
        unproved::path_of(&self.path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the originals of these knobs to disk. Call it before the first of them is set. A knob that is already
    /// recorded keeps the older value, which is the original. (A kept knob is recorded anew.)
    ///
    /// # Errors
    /// They could not be written and synced, or another manager has the resctrl that was mounted since the start; then no
    /// knob may be set.
    pub fn record(&mut self, originals: &[Original]) -> Result<(), JournalError> {
        if self.is_stale() {
            return Err(JournalError::Stale { path: self.path.clone() });
        }
        let mut new: Vec<Original> = Vec::new();
        for original in originals {
            if !self.knobs.originals.iter().chain(&new).any(|other| other.is_same_knob(original)) {
                new.push(original.clone());
            }
        }
        if !new.is_empty() {
            self.resctrl_lock.retry()?;
        }
        self.append(new.iter().cloned().map(Entry::Original))?;
        self.knobs.originals.append(&mut new);
        Ok(())
    }

    /// Removes the record of a knob that was not set after all (for example, a group that another program made just
    /// before us must not be removed).
    ///
    /// # Errors
    /// The removal could not be written and synced.
    pub fn forget(&mut self, original: &Original) -> Result<(), JournalError> {
        self.forget_all(std::slice::from_ref(original))
    }

    /// The same for many knobs, with one sync.
    ///
    /// # Errors
    /// As [`Journal::forget`].
    pub fn forget_all(&mut self, originals: &[Original]) -> Result<(), JournalError> {
        let known = |original: &&Original| self.knobs.originals.iter().any(|own| own.is_same_knob(original));
        let entries: Vec<Entry> = originals.iter().filter(known).cloned().map(Entry::Forget).collect();
        self.append(entries)?;
        originals.iter().for_each(|original| self.knobs.forget(original));
        Ok(())
    }

    /// Replaces the recorded value of a knob, or records it if there is none, with one write.
    ///
    /// Only for a knob that is set step by step (CPUs that leave a group one by one): what changes next is added
    /// before, and what was restored meanwhile is removed.
    ///
    /// # Errors
    /// As [`Journal::record`]; the journal is then unchanged.
    pub fn replace(&mut self, original: &Original) -> Result<(), JournalError> {
        if self.is_stale() {
            return Err(JournalError::Stale { path: self.path.clone() });
        }
        // One line, so that a write that is cut off leaves the value before it.
        self.append([Entry::Original(original.clone())])?;
        self.knobs.forget(original);
        self.knobs.originals.push(original.clone());
        Ok(())
    }

    /// Marks recorded knobs to stay as set: no run restores them at its start or end; only a full restore does
    /// (`waykeeper restore`).
    ///
    /// # Errors
    /// The marks could not be written and synced.
    pub fn keep_all(&mut self, originals: &[Original]) -> Result<(), JournalError> {
        let asked = |own: &&Original| originals.iter().any(|original| own.is_same_knob(original));
        let kept: Vec<Original> = self.knobs.originals.iter().filter(asked).cloned().collect();
        self.append(kept.iter().cloned().map(Entry::Keep))?;
        kept.iter().for_each(|original| self.knobs.keep(original));
        Ok(())
    }

    /// Ends the damage: it is written down as unproved, the file is copied, and a new one has the entries that are
    /// intact. After a kill at any place the damage is found again, or is written down.
    ///
    /// # Errors
    /// The damage could not be written down, or the new file not be written; then the journal stays as it is.
    pub fn set_aside(&mut self) -> Result<(), JournalError> {
        let damage = self.damage.iter().map(|damage| format!("{}: {damage}", self.path.display()));
        let lines: Vec<String> = damage.chain([unproved::SEARCH_DUE.to_owned()]).collect();
        self.hand_over = None;
        self.note_unproved(&lines)?;
        self.keep_damaged()?;
        self.replace_content(self.knobs.clone())
    }

    /// Removes it: everything in it has been restored or no longer applies.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        let path = self.path.clone();
        let failed = |source| JournalError::Write { path: path.clone(), source };
        // The seal says first that no entry is needed any more; else a journal that is gone would count as lost.
        if let Some(seal) = &mut self.seal {
            seal.write(0).map_err(failed)?;
        }
        match self.system.remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => sync_directory(self.system.as_ref(), &self.path).map_err(failed)?,
        }
        self.forget_beside();
        // A seal that stays says that there is nothing.
        let _ = self.system.remove_file(&seal::path_of(&self.path));
        unproved::drop_stale(self.system.as_ref(), &self.path, self.boot.as_deref());
        (self.file, self.seal, self.last) = (None, None, 0);
        self.broken = false;
        self.damage.clear();
        (self.knobs, self.hand_over) = (Knobs::default(), None);
        self.written_in.clone_from(&self.boot);
        Ok(())
    }

    fn append(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), JournalError> {
        let mut entries = entries.into_iter().peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        if let Some(damage) = self.damage.first() {
            return Err(JournalError::Damaged { path: self.path.clone(), damage: damage.clone() });
        }
        self.shorten();
        let path = self.path.clone();
        let failed = |source| JournalError::Write { path: path.clone(), source };
        if self.broken {
            return Err(failed(io::Error::other("an earlier write to it failed and could not be undone")));
        }
        self.make_seal()?;
        if self.file.as_ref().is_some_and(|file| file.is_to_rewrite) {
            let knobs = self.knobs.clone();
            self.write_anew(&knobs).map_err(failed)?;
        }
        if self.file.is_none() {
            // Created with mode 0600: only its owner may read it.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let file = trust::open(self.system.as_ref(), &self.path, flags);
            let file = file.map_err(|why| untrusted(&path, why, &failed))?;
            self.file =
                Some(JournalFile { file, length: 0, lines: 0, is_to_rewrite: false, is_named: false });
        }
        let first = HostLine {
            version: VERSION,
            root: self.root.clone(),
            boot: self.boot.clone(),
            first: self.last + 1,
            complete_to: 0,
            hand_over: self.hand_over.clone(),
        };
        let (Some(JournalFile { file, length, lines, is_named, .. }), Some(seal)) =
            (&mut self.file, &mut self.seal)
        else {
            return Ok(());
        };
        let is_new = *length == 0;
        let mut text = if is_new { head(&first).map_err(failed)? } else { String::new() };
        let (mut number, mut count) = (self.last, if is_new { HEAD_LINES } else { 0 });
        for entry in entries {
            number += 1;
            count += 1;
            text.push_str(&line(number, &entry).map_err(failed)?);
        }
        let written = write_all_at(file.as_ref(), text.as_bytes(), *length).and_then(|()| file.sync());
        let written = written
            .and_then(|()| if *is_named { Ok(()) } else { sync_directory(self.system.as_ref(), &self.path) });
        if let Err(source) = written {
            // The partial write is cut off. If that fails too, the file's content is unknown: no more writes.
            self.broken = file.set_len(*length).and_then(|()| file.sync()).is_err();
            return Err(failed(source));
        }
        if let Err(source) = seal.write(number) {
            // The lines are cut off too: an entry that forgets a knob would count, although the caller gets an error and
            // keeps the knob in memory. The seal may have taken the number, so it gets the earlier one.
            self.broken = file.set_len(*length).and_then(|()| file.sync()).is_err();
            let _ = seal.write(self.last);
            return Err(failed(source));
        }
        *length += text.len() as u64;
        *lines += count;
        *is_named = true;
        self.last = number;
        Ok(())
    }

    /// Makes the seal, before the journal's file is made.
    fn make_seal(&mut self) -> Result<(), JournalError> {
        if self.seal.is_none() {
            self.seal = Some(Seal::create(&self.system, &self.path, self.boot.as_deref())?);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), JournalError> {
        let system = self.system.clone();
        self.seal = Seal::open(system.as_ref(), &self.path, self.boot.as_deref(), OFlags::RDWR)?;
        let sealed = self.seal.as_ref().and_then(Seal::last);
        let sealed_in = self.seal.as_ref().and_then(Seal::boot).map(ToOwned::to_owned);
        let Some((file, bytes)) = read_file(system.as_ref(), &self.path, OFlags::RDWR)? else {
            self.last = sealed.unwrap_or_default();
            // A seal of an earlier boot is about knobs that have been reset since.
            if self.last > 0 && !is_other_boot(sealed_in.as_deref(), self.boot.as_deref()) {
                self.damage.push(JournalDamage::Gone { entries: self.last });
            }
            return Ok(());
        };
        let content = format::read(&bytes, sealed);
        if let Some(host) = &content.host {
            check_host(&self.path, host, &self.root)?;
        }
        let Content { host, knobs, damage, last, appendable, .. } = content;
        self.hand_over = host.as_ref().and_then(|host| host.hand_over.clone());
        self.written_in = host.map_or(sealed_in, |host| host.boot);
        (self.knobs, self.damage, self.last) = (knobs, damage, last);
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let is_to_rewrite = appendable.is_none();
        let length = appendable.unwrap_or(bytes.len() as u64);
        if length < bytes.len() as u64 {
            let cut = file.set_len(length).and_then(|()| file.sync());
            cut.map_err(|source| JournalError::Write { path: self.path.clone(), source })?;
        }
        self.file = Some(JournalFile { file, length, lines, is_to_rewrite, is_named: false });
        Ok(())
    }
}

/// True if both boots are known and differ.
fn is_other_boot(then: Option<&str>, now: Option<&str>) -> bool {
    matches!((then, now), (Some(then), Some(now)) if then != now)
}

/// Checks that a journal is of a known format and of this host.
fn check_host(path: &Path, host: &HostLine, root: &str) -> Result<(), JournalError> {
    let path = path.to_path_buf();
    if !(OLDEST..=VERSION).contains(&host.version) {
        return Err(JournalError::Format { path, found: host.version });
    }
    if host.root != root {
        return Err(JournalError::OtherRoot { path, found: host.root.clone(), wanted: root.to_owned() });
    }
    Ok(())
}

/// An open file and its bytes.
type FileContent = (Box<dyn OpenFile>, Vec<u8>);

/// A journal's file and its bytes; `None` if there is none.
fn read_file(system: &dyn System, path: &Path, flags: OFlags) -> Result<Option<FileContent>, JournalError> {
    let unreadable = |source| JournalError::Read { path: path.to_path_buf(), source };
    let file = match trust::open(system, path, flags) {
        Err(error) if error.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound) => return Ok(None),
        file => file.map_err(|why| untrusted(path, why, &unreadable))?,
    };
    let mut bytes = Vec::new();
    FileReader(file.as_ref()).take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(unreadable(io::Error::other(format!("it is longer than {MOST_BYTES} bytes"))));
    }
    // A read that ends too early must not pass for the end of the journal: the rest would be cut off.
    let size = file.metadata().map_err(unreadable)?.size;
    if (bytes.len() as u64) < size {
        let why = format!("only {} of its {size} bytes could be read", bytes.len());
        return Err(unreadable(io::Error::other(why)));
    }
    Ok(Some((file, bytes)))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_directory(system: &dyn System, path: &Path) -> io::Result<()> {
    system.open(directory_of(path), OFlags::RDONLY, Mode::empty())?.sync()
}

/// The kernel's id of this boot; `None` if the tree has no such file.
fn boot_id(root: &Root) -> Result<Option<String>, JournalError> {
    let path = root.path("/proc/sys/kernel/random/boot_id");
    let mut text = String::new();
    // 64 bytes hold the 37 of a UUID and its newline.
    let opened = root.system().open(&path, OFlags::RDONLY, Mode::empty());
    match opened.and_then(|file| FileReader(file.as_ref()).take(64).read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(JournalError::Read { path, source }),
        Ok(_) => {}
    }
    let id = text.trim_end();
    if id.len() == 36 && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()) {
        return Ok(Some(id.to_owned()));
    }
    Err(JournalError::BootId { path, found: id.escape_debug().to_string() })
}
