//! The journal: the original value of every knob, on disk before the knob is set.
//!
//! JSON lines, each with a checksum over its number and its text, appended and synced before [`Journal::record`]
//! returns. The directory is synced when the file is created and when it is removed. So after a power failure the
//! journal contains at least every knob that was set. A line that was being written has no newline and is ignored:
//! its knob was not set yet. Must not know how a knob is set or restored.

mod compact;
mod lock;
mod original;
mod summary;

pub use original::{Claim, Original, OriginalBits, OwnershipCheck, SchemataLine};
pub use summary::{JournalSummary, summarize, usual_path};

use crate::root::Root;
use crate::system::{FileReader, OpenFile, SharedSystem, System, write_all_at};
use crate::trust::{self, TrustError};
use lock::Lock;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
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
    /// A line in it is damaged.
    #[error(
        "{}: line {line} is damaged ({}); nothing was restored; compare the lines before it with the host \
         by hand, then remove the file (after a reboot it can be removed unchecked)", .path.display(), one_line(.why)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
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

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Entry {
    /// The first line: the host that the originals belong to.
    Host { version: u32, root: String, boot: Option<String> },
    /// The original value of a knob that is about to be set. It takes the place of an earlier line about the knob.
    Original(Original),
    /// The knob was not set after all, or restored: earlier lines about it no longer apply.
    Forget(Original),
    /// The knob stays as set until its original is requested explicitly.
    Keep(Original),
}

/// The originals after all lines.
#[derive(Debug, Default)]
struct Knobs {
    /// Knobs set by this run, or by one that crashed.
    originals: Vec<Original>,
    /// Knobs that stay as set for now.
    kept: Vec<Original>,
}

impl Knobs {
    fn forget(&mut self, forgotten: &Original) {
        self.originals.retain(|own| !own.is_same_knob(forgotten));
    }

    fn keep(&mut self, kept: &Original) {
        self.forget(kept);
        // The older value is the original.
        if !self.kept.iter().any(|own| own.is_same_knob(kept)) {
            self.kept.push(kept.clone());
        }
    }
}

/// The format's version: 2 added the bits of an MSR and how to recognise a later change by others, 3 the distinction
/// of groups made and groups about to be made.
const VERSION: u32 = 3;
/// The oldest version that is read: version 1 has whole MSRs only, and any value of them counts as ours.
const OLDEST: u32 = 1;
/// Most bytes of a journal: 64 groups of a few hundred bytes each, with tasks, are far below.
const MOST_BYTES: u64 = 64 << 20;

/// The journal's open file, with the length in bytes and the number of its valid lines.
type JournalFile = (Box<dyn OpenFile>, u64, usize);

/// An open journal with its locks: no other manager can set knobs of this host at the same time.
#[derive(Debug)]
pub struct Journal {
    system: SharedSystem,
    path: PathBuf,
    root: String,
    boot: Option<String>,
    written_in: Option<String>,
    knobs: Knobs,
    /// The file, once it exists.
    file: Option<JournalFile>,
    broken: bool,
    /// Length in bytes from which compacting is considered.
    short_from: u64,
    /// The lock of this journal, and the lock of this host, which is independent of the journal's path.
    _locks: (Lock, Option<Lock>),
}

impl Journal {
    /// Opens the journal at `path` for the host under `root`. The directory is created now, the file on the first
    /// record.
    ///
    /// # Errors
    /// [`JournalError::Held`] if another manager uses it or manages this host; else what is wrong with its path or
    /// content.
    pub fn open(path: &Path, root: &Root) -> Result<Journal, JournalError> {
        if path.extension().is_some_and(|extension| extension == "lock") {
            return Err(JournalError::Name { path: path.to_path_buf() });
        }
        let unwritable = |source| JournalError::Write { path: path.to_path_buf(), source };
        let directory = directory_of(path);
        let system = root.system().clone();
        system.make_dirs(directory, Mode::from_raw_mode(0o755)).map_err(unwritable)?;
        trust::folder(system.as_ref(), directory).map_err(|why| untrusted(path, why, &unwritable))?;
        let lock = Lock::take(&system, &path.with_extension("lock"))?;
        let common = Lock::of_host(root, &lock)?;
        let boot = boot_id(root)?;
        let root = root.prefix().display().to_string();
        let mut journal = Journal {
            system,
            path: path.to_path_buf(),
            root,
            written_in: boot.clone(),
            boot,
            knobs: Knobs::default(),
            file: None,
            broken: false,
            short_from: Journal::short_at_first(),
            _locks: (lock, common),
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
        matches!((&self.written_in, &self.boot), (Some(then), Some(now)) if then != now)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the originals of these knobs to disk. Call it before the first of them is set. A knob that is already
    /// recorded keeps the older value, which is the original. (A kept knob is recorded anew.)
    ///
    /// # Errors
    /// They could not be written and synced; then no knob may be set.
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

    /// Removes it: everything in it has been restored or no longer applies.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        let failed = |source| JournalError::Write { path: self.path.clone(), source };
        match self.system.remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => sync_directory(self.system.as_ref(), &self.path).map_err(failed)?,
        }
        self.forget_beside();
        self.file = None;
        self.broken = false;
        self.knobs = Knobs::default();
        self.written_in.clone_from(&self.boot);
        Ok(())
    }

    fn append(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), JournalError> {
        let mut entries = entries.into_iter().peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        self.shorten();
        let path = self.path.clone();
        let failed = |source| JournalError::Write { path: path.clone(), source };
        if self.broken {
            return Err(failed(io::Error::other("an earlier write to it failed and could not be undone")));
        }
        if self.file.is_none() {
            // Created with mode 0600: only its owner may read it.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let file = trust::open(self.system.as_ref(), &self.path, flags);
            self.file = Some((file.map_err(|why| untrusted(&path, why, &failed))?, 0, 0));
        }
        let Some((file, length, lines)) = &mut self.file else { return Ok(()) };
        let is_new = *length == 0;
        let head = Entry::Host { version: VERSION, root: self.root.clone(), boot: self.boot.clone() };
        let head = is_new.then_some(head);
        let mut text = String::new();
        let mut number = *lines;
        for entry in head.into_iter().chain(entries) {
            number += 1;
            text.push_str(&line(number, &entry).map_err(failed)?);
        }
        let written = write_all_at(file.as_ref(), text.as_bytes(), *length).and_then(|()| file.sync());
        let written = written
            .and_then(|()| if is_new { sync_directory(self.system.as_ref(), &self.path) } else { Ok(()) });
        if let Err(source) = written {
            // The partial write is cut off. If that fails too, the file's content is unknown: no more writes.
            self.broken = file.set_len(*length).and_then(|()| file.sync()).is_err();
            return Err(failed(source));
        }
        *length += text.len() as u64;
        *lines = number;
        Ok(())
    }

    fn read(&mut self) -> Result<(), JournalError> {
        let unreadable = |source| JournalError::Read { path: self.path.clone(), source };
        let file = match trust::open(self.system.as_ref(), &self.path, OFlags::RDWR) {
            Err(error) if error.io().is_some_and(|why| why.kind() == io::ErrorKind::NotFound) => {
                return Ok(());
            }
            result => result.map_err(|why| untrusted(&self.path, why, &unreadable))?,
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
        // Text after the last newline is a line that a power failure cut off.
        let good = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut count = 0;
        for text in bytes[..good].split_inclusive(|byte| *byte == b'\n') {
            count += 1;
            let entry = parse_line(count, text);
            self.take(count, entry)?;
        }
        if good < bytes.len() {
            let cut = file.set_len(good as u64).and_then(|()| file.sync());
            cut.map_err(|source| JournalError::Write { path: self.path.clone(), source })?;
        }
        self.file = Some((file, good as u64, count));
        Ok(())
    }

    fn take(&mut self, number: usize, entry: Result<Entry, String>) -> Result<(), JournalError> {
        let damaged = |why: String| JournalError::Damaged { path: self.path.clone(), line: number, why };
        match entry.map_err(damaged)? {
            Entry::Host { version, root, boot } if number == 1 => {
                if !(OLDEST..=VERSION).contains(&version) {
                    return Err(damaged(format!(
                        "format {version}; this waykeeper reads {OLDEST} to {VERSION}"
                    )));
                }
                if root != self.root {
                    let wanted = self.root.clone();
                    return Err(JournalError::OtherRoot { path: self.path.clone(), found: root, wanted });
                }
                self.written_in = boot;
            }
            _ if number == 1 => return Err(damaged("its first line does not name the host".to_owned())),
            Entry::Host { .. } => return Err(damaged("a second first line".to_owned())),
            Entry::Original(original) => {
                self.knobs.forget(&original);
                self.knobs.originals.push(original);
            }
            Entry::Forget(original) => self.knobs.forget(&original),
            Entry::Keep(original) => self.knobs.keep(&original),
        }
        Ok(())
    }
}

/// A line of the file: checksum, space, JSON.
fn line(number: usize, entry: &Entry) -> io::Result<String> {
    let json = serde_json::to_string(entry)?;
    Ok(format!("{:08x} {json}\n", checksum(number, &json)))
}

/// Includes the line's number, so that a missing or misplaced line is noticed.
fn checksum(number: usize, json: &str) -> u32 {
    crc32fast::hash(format!("{number} {json}").as_bytes())
}

fn parse_line(number: usize, bytes: &[u8]) -> Result<Entry, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())?;
    let (sum, json) =
        text.trim_end_matches('\n').split_once(' ').ok_or("there is no checksum before the text")?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| "its checksum is not a hex number".to_owned())?;
    if sum != checksum(number, json) {
        return Err(format!("its checksum is {:08x}, not {sum:08x}", checksum(number, json)));
    }
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// Passes a system error to `system`; any other error means that others could change the path.
fn untrusted(path: &Path, why: TrustError, system: &dyn Fn(io::Error) -> JournalError) -> JournalError {
    match why {
        TrustError::Io { why, .. } => system(why),
        why => JournalError::Untrusted { path: path.to_path_buf(), why },
    }
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
