//! Power failures: the journal on a file system that loses, tears and reorders what was not synced.
//!
//! A run records and sets knobs. Before each of its system calls the power may fail: of the changes that no sync has
//! made durable any subset survives, each write perhaps only in part. The registers keep their values, which is worse
//! than a real power failure. Every such state must restore to the values before the run, and none may count as damaged.

use crate::journal::*;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use waykeeper_kernel::restore::Report;
use waykeeper_kernel::system::{DirEntry, FileKind, Metadata, OpenFile, System};
use waykeeper_testbed::is_long;

/// Where the journal is, and the host's boot id.
const FOLDER: &str = "/state";
pub(super) const JOURNAL: &str = "/state/journal";
const BOOT_ID: &str = "/host/proc/sys/kernel/random/boot_id";

/// A change that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { inode: usize, offset: usize, bytes: Vec<u8> },
    Length { inode: usize, length: usize },
    Link { path: PathBuf, inode: usize },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
}

/// Files: the content of each inode, and the inode of each path.
#[derive(Clone, Default, Debug)]
pub(super) struct Files {
    pub inodes: Vec<Vec<u8>>,
    pub paths: BTreeMap<PathBuf, usize>,
}

impl Files {
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { inode, offset, bytes } => {
                let content = &mut self.inodes[*inode];
                content.resize(content.len().max(offset + bytes.len()), 0);
                content[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Change::Length { inode, length } => self.inodes[*inode].resize(*length, 0),
            Change::Link { path, inode } => drop(self.paths.insert(path.clone(), *inode)),
            Change::Unlink { path } => drop(self.paths.remove(path)),
            Change::Rename { from, to } => {
                if let Some(inode) = self.paths.remove(from) {
                    self.paths.insert(to.clone(), inode);
                }
            }
        }
    }
}

/// A moment at which the power may fail: what is durable, what is not, and the registers.
pub(super) type Moment = (Files, Vec<Change>, BTreeMap<u16, u64>);

#[derive(Debug, Default)]
pub(super) struct State {
    durable: Files,
    /// What programs see.
    pub seen: Files,
    pending: Vec<Change>,
    registers: BTreeMap<u16, u64>,
    pub moments: Vec<Moment>,
    /// Syncs do nothing, as on a disk that keeps them in a cache.
    ignores_syncs: bool,
    /// No moments are wanted: all is as a while ago.
    is_dull: bool,
}

impl State {
    fn fail_here(&mut self) {
        if self.is_dull {
            return;
        }
        self.moments.push((self.durable.clone(), self.pending.clone(), self.registers.clone()));
    }

    fn change(&mut self, change: Change) {
        // What a lock file contains does not matter after a power failure.
        let is_lock = |inode: &usize| {
            let mut paths = self.seen.paths.iter();
            paths.any(|(path, own)| own == inode && path.extension().is_some_and(|end| end == "lock"))
        };
        let is_of_lock = match &change {
            Change::Write { inode, .. } | Change::Length { inode, .. } => is_lock(inode),
            Change::Link { path, .. } | Change::Unlink { path } => {
                path.extension().is_some_and(|end| end == "lock")
            }
            Change::Rename { .. } => false,
        };
        if is_of_lock {
            return self.seen.apply(&change);
        }
        self.fail_here();
        self.seen.apply(&change);
        self.pending.push(change);
    }

    fn sync(&mut self, is_done: impl Fn(&Change) -> bool) {
        self.fail_here();
        if self.ignores_syncs {
            return;
        }
        let (done, waiting): (Vec<Change>, Vec<Change>) =
            std::mem::take(&mut self.pending).into_iter().partition(is_done);
        self.durable.inodes.resize(self.seen.inodes.len(), Vec::new());
        done.iter().for_each(|change| self.durable.apply(change));
        self.pending = waiting;
    }
}

/// The file system as a system.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// A disk with these files, all of them durable.
    pub fn with(mut files: Files, registers: BTreeMap<u16, u64>) -> Disk {
        let inode = files.inodes.len();
        files.inodes.push(format!("{BOOT}\n").into_bytes());
        files.paths.insert(BOOT_ID.into(), inode);
        let state = State { durable: files.clone(), seen: files, registers, ..State::default() };
        Disk(Arc::new(Mutex::new(state)))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with it")
    }

    pub fn root(&self) -> Root {
        Root::on(Arc::new(self.clone()), "/host")
    }

    pub fn set(&self, cpu: u16, value: u64) {
        let mut state = self.state();
        state.registers.insert(cpu, value);
        state.fail_here();
    }

    /// What `waykeeper restore` does here. Returns its report and the registers; no report if it refuses the file.
    pub fn restore(&self) -> (Option<Report>, BTreeMap<u16, u64>) {
        let mut journal = match Journal::open(Path::new(JOURNAL), &self.root()) {
            Err(JournalError::NotAJournal { .. }) => return (None, self.state().registers.clone()),
            journal => journal.expect("opened"),
        };
        let root = self.root();
        let report =
            Restorer { root: &root, resctrl: None, registers: self }.restore(&mut journal).expect("restored");
        (Some(report), self.state().registers.clone())
    }
}

/// The registers of the host. Their power-failure moments are among the disk's.
impl RegisterIo for Disk {
    fn read(&self, register: &RegisterAddress) -> Result<u64, String> {
        let RegisterAddress::Msr { cpu, .. } = register else { return Err("no such register".to_owned()) };
        self.state().registers.get(&cpu.0).copied().ok_or_else(|| "no such register".to_owned())
    }

    fn write(&self, register: &RegisterAddress, value: u64) -> Result<(), String> {
        if let RegisterAddress::Msr { cpu, .. } = register {
            self.set(cpu.0, value);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    /// `None` is a folder.
    inode: Option<usize>,
    position: Mutex<u64>,
}

fn is_folder(path: &Path) -> bool {
    ["/", FOLDER, "/run", "/run/waykeeper", "/host"].iter().any(|folder| path == Path::new(folder))
}

fn metadata(kind: FileKind, inode: u64, size: u64) -> Metadata {
    let mode = if kind == FileKind::Directory { 0o755 } else { 0o600 };
    Metadata { kind, device: 1, inode, uid: 0, gid: 0, mode, size, modified: SystemTime::UNIX_EPOCH }
}

impl OpenFile for DiskFile {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock().expect("one thread");
        let done = self.read_at(buffer, *position)?;
        *position += done as u64;
        Ok(done)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let content = &state.seen.inodes[self.inode.ok_or(Errno::ISDIR)?];
        let rest = content.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock().expect("one thread");
        let done = self.write_at(bytes, *position)?;
        *position += done as u64;
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let inode = self.inode.ok_or(Errno::ISDIR)?;
        self.disk.state().change(Change::Write { inode, offset: offset as usize, bytes: bytes.to_vec() });
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        let own = self.inode;
        self.disk.state().sync(|change| match change {
            Change::Write { inode, .. } | Change::Length { inode, .. } => Some(*inode) == own,
            // There is one folder with files that change.
            _ => own.is_none(),
        });
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let inode = self.inode.ok_or(Errno::ISDIR)?;
        self.disk.state().change(Change::Length { inode, length: length as usize });
        Ok(())
    }

    fn set_mode(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(match self.inode {
            None => metadata(FileKind::Directory, 0, 0),
            Some(inode) => {
                metadata(FileKind::File, inode as u64, self.disk.state().seen.inodes[inode].len() as u64)
            }
        })
    }

    fn lock(&self, _: FlockOperation) -> io::Result<()> {
        Ok(())
    }
}

impl System for Disk {
    fn open(&self, path: &Path, flags: OFlags, _: Mode) -> io::Result<Box<dyn OpenFile>> {
        let file = |inode| Ok(Box::new(DiskFile { disk: self.clone(), inode, position: Mutex::new(0) }) as _);
        if is_folder(path) {
            return file(None);
        }
        let mut state = self.state();
        let known = state.seen.paths.get(path).copied();
        if let Some(inode) = known {
            if flags.contains(OFlags::TRUNC) {
                state.change(Change::Length { inode, length: 0 });
            }
            drop(state);
            return file(Some(inode));
        }
        if !flags.contains(OFlags::CREATE) {
            return Err(Errno::NOENT.into());
        }
        let inode = state.seen.inodes.len();
        state.seen.inodes.push(Vec::new());
        state.durable.inodes.push(Vec::new());
        state.change(Change::Link { path: path.to_path_buf(), inode });
        drop(state);
        file(Some(inode))
    }

    fn list(&self, _: &Path, _: &mut dyn FnMut(DirEntry) -> ControlFlow<()>) -> io::Result<()> {
        Err(Errno::NOENT.into())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        if is_folder(path) {
            return Ok(metadata(FileKind::Directory, 0, 0));
        }
        let state = self.state();
        let inode = *state.seen.paths.get(path).ok_or(Errno::NOENT)?;
        Ok(metadata(FileKind::File, inode as u64, state.seen.inodes[inode].len() as u64))
    }

    fn link_metadata(&self, path: &Path) -> io::Result<Metadata> {
        System::metadata(self, path)
    }

    fn read_link(&self, _: &Path) -> io::Result<PathBuf> {
        Err(Errno::INVAL.into())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn make_dir(&self, path: &Path, _: Mode) -> io::Result<()> {
        Err(if is_folder(path) { Errno::EXIST } else { Errno::ACCESS }.into())
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Err(Errno::ACCESS.into())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.seen.paths.contains_key(path) {
            return Err(Errno::NOENT.into());
        }
        state.change(Change::Unlink { path: path.to_path_buf() });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state().change(Change::Rename { from: from.to_path_buf(), to: to.to_path_buf() });
        Ok(())
    }

    fn user(&self) -> u32 {
        0
    }

    fn process_id(&self) -> u32 {
        1
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn wait_until(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn run_beside(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Err(Errno::AGAIN.into())
    }
}

/// The value of a CPU's register before the run.
fn found(cpu: u16) -> u64 {
    0x600 + u64::from(cpu)
}

const CPUS: u16 = 8;

/// The moments of a run that sets registers, restores some, compacts its journal `compacts` times, and ends.
fn moments(compacts: u32, ignores_syncs: bool) -> Vec<Moment> {
    let registers: BTreeMap<u16, u64> = (0..CPUS).map(|cpu| (cpu, found(cpu))).collect();
    let disk = Disk::with(Files::default(), registers.clone());
    disk.state().ignores_syncs = ignores_syncs;
    let mut journal = Journal::open(Path::new(JOURNAL), &disk.root()).expect("opened");
    let set = |journal: &mut Journal, cpus: &[u16]| {
        journal.record(&cpus.iter().map(|cpu| msr(*cpu, found(*cpu))).collect::<Vec<_>>()).expect("recorded");
        cpus.iter().for_each(|cpu| disk.set(*cpu, 0x7ff));
    };
    set(&mut journal, &[0]);
    set(&mut journal, &[1, 2, 3]);
    set(&mut journal, &[4]);
    disk.set(2, found(2));
    journal.forget(&msr(2, found(2))).expect("dropped");
    journal.keep_all(&[msr(3, found(3))]).expect("kept");
    set(&mut journal, &[3, 5]);
    let (mut short, mut length) = (0, 0);
    while short < compacts {
        set(&mut journal, &[6, 7]);
        for cpu in [6, 7] {
            disk.set(cpu, found(cpu));
        }
        journal.forget_all(&[msr(6, 0), msr(7, 0)]).expect("dropped");
        let mut state = disk.state();
        let now = state.seen.inodes[state.seen.paths[Path::new(JOURNAL)]].len();
        short += u32::from(now < length);
        length = now;
        // A journal is compacted from 32 KiB on; the moments long before are all alike.
        state.is_dull = (2048..31 << 10).contains(&length);
    }
    disk.state().is_dull = false;
    drop(journal);
    let (report, now) = disk.restore();
    assert!(report.is_some_and(|report| report.is_as_found()) && now == registers, "{now:?}");
    std::mem::take(&mut disk.state().moments)
}

/// The states that a power failure at a moment can leave: every subset of the pending changes, whole or with one write
/// cut off at some place or with zeros in its first half.
pub(super) fn states((durable, pending, _): &Moment) -> Vec<Files> {
    assert!(pending.len() <= 10, "{} changes wait for a sync", pending.len());
    let mut all = Vec::new();
    for subset in 0..1u32 << pending.len() {
        let some: Vec<&Change> = pending
            .iter()
            .enumerate()
            .filter(|(bit, _)| subset >> bit & 1 == 1)
            .map(|(_, own)| own)
            .collect();
        for torn in 0..=some.len() {
            let Some(Change::Write { inode, offset, bytes }) = some.get(torn) else {
                if torn == some.len() {
                    let mut files = durable.clone();
                    some.iter().for_each(|change| files.apply(change));
                    all.push(files);
                }
                continue;
            };
            let middle = bytes.len() / 2;
            let zeros = [vec![0; middle], bytes[middle..].to_vec()].concat();
            let parts =
                [&bytes[..middle / 2], &bytes[..middle], &bytes[..middle * 3 / 2], &bytes[..bytes.len() - 1]];
            for part in parts.into_iter().chain([zeros.as_slice()]) {
                let mut files = durable.clone();
                for (index, change) in some.iter().enumerate() {
                    match index == torn {
                        true => {
                            let (inode, offset) = (*inode, *offset);
                            files.apply(&Change::Write { inode, offset, bytes: part.to_vec() });
                        }
                        false => files.apply(change),
                    }
                }
                all.push(files);
            }
        }
    }
    all
}

/// The states of all moments: how many there are, how many are reported as not as found, how many are wrong unsaid.
fn judge(moments: &[Moment]) -> (usize, usize, usize) {
    let (mut count, mut reported, mut wrong) = (0, 0, 0);
    for moment in moments {
        for files in states(moment) {
            let (report, registers) = Disk::with(files, moment.2.clone()).restore();
            let is_right = registers.iter().all(|(cpu, value)| *value == found(*cpu));
            let is_as_found = report.as_ref().is_some_and(Report::is_as_found);
            count += 1;
            reported += usize::from(!is_as_found);
            wrong += usize::from(!is_right && is_as_found);
        }
    }
    (count, reported, wrong)
}

#[test]
fn a_power_failure_at_any_call_loses_no_knob() {
    let moments = moments(2, false);
    let (count, reported, wrong) = judge(&moments);
    assert!(count > 700, "{count} states of {} moments", moments.len());
    assert_eq!((reported, wrong), (0, 0), "of {count} states");
}

/// The test above can fail: on a disk that does not keep what was synced, knobs are lost, and some of that is seen.
#[test]
fn a_disk_that_ignores_syncs_loses_knobs() {
    let moments = moments(0, true);
    let short: Vec<Moment> = moments.into_iter().filter(|(_, pending, _)| pending.len() <= 10).collect();
    // One state that is lost shows it.
    let some: Vec<Moment> = short.into_iter().step_by(if is_long() { 1 } else { 8 }).collect();
    let (count, reported, wrong) = judge(&some);
    assert!(wrong > 0 && reported > 0, "{count} states, {reported} reported, {wrong} wrong unsaid");
}

/// The next process finds the file under its name, whether the name is on disk or not.
#[test]
fn a_line_is_on_disk_although_a_killed_process_left_a_name_that_is_not() {
    let disk = Disk::with(Files::default(), BTreeMap::new());
    let path = Path::new(JOURNAL);
    let mut journal = Journal::open(path, &disk.root()).unwrap();
    journal.record(&[msr(16, 1), msr(17, 2)]).unwrap();
    // It is killed after it has written the journal anew, before the folder is synced.
    disk.state().ignores_syncs = true;
    journal.keep_only(&[msr(16, 1)]).unwrap();
    drop(journal);
    disk.state().ignores_syncs = false;
    let mut journal = Journal::open(path, &disk.root()).unwrap();
    journal.record(&[msr(18, 3)]).unwrap();
    drop(journal);
    // The power fails: what is not on disk is lost.
    let durable = disk.state().durable.clone();
    let disk = Disk::with(durable, BTreeMap::new());
    let journal = Journal::open(path, &disk.root()).unwrap();
    assert_eq!(journal.originals(), [msr(16, 1), msr(18, 3)]);
}
