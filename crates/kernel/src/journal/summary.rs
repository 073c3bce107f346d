//! The journal's default path, and a summary of a journal that changes neither the file nor the lock.
//!
//! For information only. Must not decide whether a knob may be set: [`Journal::open`](super::Journal::open) does.

use super::seal::{self, Seal};
use super::{
    HandOver, JournalDamage, JournalError, Original, boot_id, format, is_other_boot, read_file, unproved,
};
use crate::root::Root;
use crate::system::{FileReader, System};
use crate::trust;
use rustix::fs::{FlockOperation, OFlags};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Directory of journals. A reboot clears it and resets the knobs.
const DIRECTORY: &str = "/run/waykeeper";

/// The default path of the journal of the host under `root`, one per host: `/run/waykeeper/journal` for `/`.
///
/// For another root the name contains the root's path: a virtual host has its own knobs. A slash becomes `-`; any
/// other character that is not a letter or digit becomes `_` and its hex digits. So different paths give different
/// names, and no name has a dot, after which the lock file's name would differ.
pub fn usual_path(root: &Root) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mut name = "journal".to_owned();
    for part in root.prefix().components() {
        match part {
            Component::RootDir | Component::Prefix(_) => {}
            part => {
                name.push('-');
                for byte in part.as_os_str().as_bytes() {
                    match byte.is_ascii_alphanumeric() {
                        true => name.push(char::from(*byte)),
                        false => name.push_str(&format!("_{byte:02x}")),
                    }
                }
            }
        }
    }
    Path::new(DIRECTORY).join(name)
}

/// Summary of a journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalSummary {
    /// The originals, kept ones included.
    pub originals: Vec<Original>,
    /// It is from an earlier boot: its values no longer apply.
    pub stale: bool,
    /// A manager holds its lock, with its pid if the lock file contains it.
    pub held: Option<Option<u32>>,
    /// What is wrong with it. Empty while a manager holds its lock, because it writes file and seal one after the other.
    pub damage: Vec<JournalDamage>,
    /// What could not be proved after an earlier journal was damaged or lost.
    pub unproved: Vec<String>,
    /// The mark of a hand-over, if no manager holds the lock.
    pub hand_over: Option<HandOver>,
}

/// Whether a journal, its seal, or a file with what could not be proved is there.
pub fn is_there(path: &Path, root: &Root) -> bool {
    [path.to_path_buf(), seal::path_of(path), unproved::path_of(path)]
        .iter()
        .any(|path| root.system().exists(path))
}

/// Refuses a file that is no journal: no line of it is one, and no seal lies beside it. Errors of reading are left to
/// [`Journal::open`](super::Journal::open).
pub(super) fn recognize(system: &dyn System, path: &Path) -> Result<(), JournalError> {
    let Ok(Some((_, bytes))) = read_file(system, path, OFlags::RDONLY) else { return Ok(()) };
    let is_one =
        bytes.is_empty() || system.exists(&seal::path_of(path)) || format::read(&bytes, None).intact > 0;
    if is_one { Ok(()) } else { Err(JournalError::NotAJournal { path: path.to_path_buf() }) }
}

/// Reads the journal at `path`; `None` if there is none and no manager holds the lock.
///
/// # Errors
/// It cannot be read, or is no journal. Format version and root are not checked.
pub fn summarize(path: &Path, root: &Root) -> Result<Option<JournalSummary>, JournalError> {
    let system = root.system().as_ref();
    let held = holder(system, &path.with_extension("lock"));
    if held.is_none() && !is_there(path, root) {
        return Ok(None);
    }
    recognize(system, path)?;
    let boot = boot_id(root)?;
    // The seal first: a manager writes it last.
    let seal = Seal::open(system, path, boot.as_deref(), OFlags::RDONLY)?;
    let sealed = seal.as_ref().and_then(Seal::last);
    let mut written_in = seal.as_ref().and_then(Seal::boot).map(ToOwned::to_owned);
    let mut summary = JournalSummary { held, ..JournalSummary::default() };
    match read_file(system, path, OFlags::RDONLY)? {
        Some((_, bytes)) => {
            let content = format::read(&bytes, sealed);
            if let Some(host) = content.host {
                (written_in, summary.hand_over) = (host.boot, host.hand_over);
            }
            summary.originals = content.knobs.kept.into_iter().chain(content.knobs.originals).collect();
            summary.damage = content.damage;
        }
        None => {
            let entries = sealed.unwrap_or_default();
            summary.damage.extend((entries > 0).then_some(JournalDamage::Gone { entries }));
        }
    }
    summary.stale = is_other_boot(written_in.as_deref(), boot.as_deref());
    if held.is_some() || summary.stale {
        summary.damage.clear();
    }
    if held.is_some() || summary.stale || !summary.damage.is_empty() {
        summary.hand_over = None;
    }
    summary.unproved = unproved::read(system, path, boot.as_deref())?;
    Ok(Some(summary))
}

/// Whether the lock beside a journal is held, and the holder's pid if the file contains it.
fn holder(system: &dyn System, path: &Path) -> Option<Option<u32>> {
    let file = trust::open(system, path, OFlags::RDONLY).ok()?;
    match file.lock(FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = file.lock(FlockOperation::Unlock);
            None
        }
        Err(_) => {
            let mut text = String::new();
            // If the pid cannot be read, it is unknown.
            let _ = FileReader(file.as_ref()).take(32).read_to_string(&mut text);
            Some(text.trim().parse().ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Journal;
    use super::*;

    #[test]
    fn every_host_has_a_journal_of_its_own() {
        assert_eq!(usual_path(&Root::at("/")), Path::new("/run/waykeeper/journal"));
        let names = ["/tmp/v h", "/tmp/a-b", "/tmp/a/b", "/tmp/a_2db", "/tmp/.a", "/tmp/.b", "/mnt/vhost/"];
        let journals = names.map(|name| usual_path(&Root::at(name)));
        let expected = ["v_20h", "a_2db", "a-b", "a_5f2db", "_2ea", "_2eb"].map(|name| format!("tmp-{name}"));
        for (journal, expected) in journals.iter().zip(expected) {
            assert_eq!(*journal, Path::new("/run/waykeeper").join(format!("journal-{expected}")));
        }
        assert_eq!(journals[6], Path::new("/run/waykeeper/journal-mnt-vhost"));
        let locks: std::collections::BTreeSet<_> =
            journals.iter().map(|path| path.with_extension("lock")).collect();
        assert_eq!(locks.len(), names.len(), "no two hosts lock each other out");
    }

    #[test]
    fn a_look_sees_what_lies_there_and_who_is_at_work_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let path = folder.path().join("run/journal");
        assert_eq!(summarize(&path, &root).unwrap(), None);
        let mut journal = Journal::open(&path, &root).unwrap();
        journal.record(&[Original::whole_msr(0, Some(0), 0xc8b, 0x600)]).unwrap();
        let knob = Original::whole_msr(0, Some(0), 0xc8b, 0x600);
        let look = |held| JournalSummary { originals: vec![knob.clone()], held, ..JournalSummary::default() };
        assert_eq!(summarize(&path, &root).unwrap(), Some(look(Some(Some(std::process::id())))));
        drop(journal);
        let before = std::fs::read(&path).unwrap();
        assert_eq!(summarize(&path, &root).unwrap(), Some(look(None)));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::write(&path, b"00000000 {}\n").unwrap();
        let damage = summarize(&path, &root).unwrap().unwrap().damage;
        assert_eq!(damage.first(), Some(&JournalDamage::Host));
    }
}
