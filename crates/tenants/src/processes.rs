//! The processes of a machine, remembered from look to look, so that a look reads few of them.
//!
//! The kernel reuses pids; pid and start time identify one process until the machine restarts. New pids are read at
//! once, the tenants' own at each look, all others in turn. Must not know tenants.

use super::reader::Reader;
use super::roster::{About, Notes};
use std::collections::BTreeMap;
use waykeeper_kernel::content::{self, ContentError};
use waykeeper_kernel::root::FileError;
use waykeeper_units::CoreList;

/// A stat line has 52 fields of at most 20 digits (proc(5)).
const STAT_BYTES: usize = 4096;

/// A status file has about 60 short lines, and one with up to 65536 groups.
const STATUS_BYTES: usize = 1 << 20;

/// Most processes that are known at the same time. Eight times what a busy server has (assumption).
pub(super) const MOST_KNOWN: usize = 1 << 15;

/// Most new processes read at one look; the others are read at the next.
pub(super) const MOST_NEW: usize = 1 << 12;

/// Processes that are read again at each look, in turn, to find those that now run another program or reuse the pid of
/// one that ended.
pub(super) const AGAIN: usize = 256;

/// A new process is read at this many successive looks: most programs are executed within the first two.
const YOUNG: u32 = 3;

/// A process with more threads than this counts as not pinned.
const MOST_THREADS: usize = 512;

/// Most thread lists and thread files read per look for CPUs: enough for at least one process with the most threads.
pub(super) const MOST_ALLOWED: usize = 2 * MOST_THREADS;

/// Longest time between two readings of a process's CPUs, in looks. Assumption: CPUs of a running process change
/// seldom.
const CPUS_KEPT: u64 = 8;

/// Flag of kernel threads (PF_KTHREAD, include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Id {
    pub pid: u32,
    /// Clock ticks from boot to its start.
    pub started: u64,
}

/// CPUs that a process's threads may run on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Allowed {
    /// Not read yet.
    #[default]
    Unknown,
    /// More than a part of one socket, or more threads than are read.
    Loose,
    /// These, all threads together.
    On(CoreList),
}

/// What is known of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Process {
    pub id: Id,
    pub parent: u32,
    /// Name of its first thread.
    pub name: String,
    /// Name of the file it runs, without the directory.
    pub program: Option<String>,
    pub is_kernels: bool,
    pub allowed: Allowed,
    /// The look at which it was last listed or read; the last look that read it, and the number of reads; the last look
    /// that read its CPUs, and the number of those reads.
    seen: u64,
    read: u64,
    reads: u32,
    asked: u64,
    asks: u32,
}

/// Fields of a stat line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stat {
    name: String,
    parent: u32,
    flags: u64,
    /// In user and kernel mode, of all its threads.
    cpu_ticks: u64,
    nice: i32,
    started: u64,
    /// It is a zombie: it has ended, and its parent has not reaped it.
    is_over: bool,
}

impl Stat {
    /// A name may contain parentheses, spaces and newlines; it ends at the last parenthesis.
    fn parse(line: &str) -> Option<Stat> {
        let (_, rest) = line.split_once('(')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().take(20).collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        // The first thread may end before others; then it is a zombie among several threads.
        let is_over = matches!(*fields.first()?, "Z" | "X" | "x") && number(20)? <= 1;
        Some(Stat {
            name: name.to_owned(),
            parent: u32::try_from(number(4)?).ok()?,
            flags: number(9)?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            nice: fields.get(19 - 3)?.parse().ok()?,
            started: number(22)?,
            is_over,
        })
    }
}

/// What the stat line of a process says beside its identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Figures {
    pub name: String,
    pub is_kernels: bool,
    /// Clock ticks of CPU time of all its threads.
    pub cpu_ticks: u64,
    pub nice: i32,
    /// Clock ticks from boot to its start.
    pub started: u64,
}

/// The figures of a process; `None` if it is gone or cannot be read.
pub(super) fn figures(reader: &mut Reader, pid: u32) -> Option<Figures> {
    let text = reader.text(&format!("/proc/{pid}/stat"), STAT_BYTES).ok().flatten()?;
    let stat = Stat::parse(&text).filter(|stat| !stat.is_over)?;
    let is_kernels = stat.flags & KERNEL_THREAD != 0;
    let Stat { name, cpu_ticks, nice, started, .. } = stat;
    Some(Figures { name, is_kernels, cpu_ticks, nice, started })
}

#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<u32, Process>,
    look: u64,
    /// The pid at which reading in turn continues.
    next: u32,
    /// Whether the names of executed files are needed.
    programs: bool,
    /// Reads for CPUs that are left in this look.
    allowed_left: usize,
}

impl Processes {
    /// Starts a look; `programs`: read the names of executed files.
    pub fn begin(&mut self, programs: bool) {
        self.look += 1;
        self.programs = programs;
        self.allowed_left = MOST_ALLOWED;
    }

    /// Ends a look: forgets processes that it did not find.
    pub fn end(&mut self) {
        let look = self.look;
        self.known.retain(|_, process| process.seen == look);
    }

    /// Lists all processes, and reads the new ones and some others.
    pub fn scan(&mut self, reader: &mut Reader, notes: &mut Notes) {
        let (names, more) = match reader.folders("/proc", MOST_KNOWN) {
            Ok(Some(found)) => found,
            Ok(None) => {
                notes.tell(None, About::Unreadable, "proc", || {
                    "there is no /proc, so no process is found".to_owned()
                });
                return;
            }
            Err(error) => return unreadable(notes, &error),
        };
        if more {
            notes.tell(None, About::TooMany, "known", || {
                format!("there are more than {MOST_KNOWN} processes; those with the highest pids are ignored")
            });
        }
        let (mut fresh, mut young) = (Vec::new(), Vec::new());
        for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
            match self.known.get_mut(&pid) {
                Some(process) => {
                    process.seen = self.look;
                    if process.reads < YOUNG {
                        young.push(pid);
                    }
                }
                None => fresh.push(pid),
            }
        }
        for pid in fresh.into_iter().chain(young).take(MOST_NEW) {
            self.refresh(reader, pid, notes);
        }
        let after = self.known.range(self.next..).chain(self.known.range(..self.next));
        let turn: Vec<u32> = after.map(|(pid, _)| *pid).take(AGAIN).collect();
        self.next = turn.last().map_or(0, |last| last.wrapping_add(1));
        for pid in turn {
            self.refresh(reader, pid, notes);
        }
    }

    /// Reads a process, unless this look already has; `None` if it is gone.
    pub fn refresh(&mut self, reader: &mut Reader, pid: u32, notes: &mut Notes) -> Option<Id> {
        if let Some(process) = self.known.get(&pid).filter(|process| process.read == self.look) {
            return Some(process.id);
        }
        let stat = self.stat(reader, pid).unwrap_or_else(|error| {
            unreadable(notes, &error);
            None
        });
        let Some(stat) = stat.filter(|stat| !stat.is_over) else {
            self.known.remove(&pid);
            return None;
        };
        let id = Id { pid, started: stat.started };
        let is_kernels = stat.flags & KERNEL_THREAD != 0;
        // Kernel threads run no file. If the link cannot be read, the process is still known by its name.
        let program = match self.programs && !is_kernels {
            true => reader.link(&format!("/proc/{pid}/exe")).ok().flatten(),
            false => None,
        };
        let program = program.and_then(|path| {
            let name = path.file_name()?.to_string_lossy();
            Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
        });
        let before = self.known.remove(&pid).filter(|before| before.id == id);
        let mut process = before.unwrap_or_else(|| Process { id, is_kernels, ..Process::default() });
        process.parent = stat.parent;
        process.name = stat.name;
        process.program = program;
        process.seen = self.look;
        process.read = self.look;
        process.reads = process.reads.saturating_add(1);
        self.known.insert(pid, process);
        Some(id)
    }

    fn stat(&self, reader: &mut Reader, pid: u32) -> Result<Option<Stat>, FileError> {
        let path = format!("/proc/{pid}/stat");
        let Some(text) = reader.text(&path, STAT_BYTES)? else { return Ok(None) };
        let stat = Stat::parse(&text);
        // The malformed part may be a process's name, which any user can choose, so it is not quoted.
        let bad = || ContentError::new(&reader.root().path(&path), 0, "", "52 fields as in proc(5)").into();
        stat.map(Some).ok_or_else(bad)
    }

    pub fn all(&self) -> impl Iterator<Item = &Process> {
        self.known.values()
    }

    /// The children of each process, by the parent's pid.
    pub fn children(&self) -> BTreeMap<u32, Vec<Id>> {
        let mut children: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
        for process in self.known.values() {
            children.entry(process.parent).or_default().push(process.id);
        }
        children
    }

    /// The process with this pid.
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.known.get(&pid)
    }

    /// The look at which a process's CPUs were last read, if another read is due: after 1 look, then 2, up to 8.
    pub fn due(&self, pid: u32) -> Option<u64> {
        let process = self.known.get(&pid)?;
        let wait = u64::from(process.asks).min(CPUS_KEPT);
        (self.look >= process.asked + wait).then_some(process.asked)
    }

    /// Reads the CPUs of a process's threads, as long as this look has reads left. `pinned` returns the CPUs that a
    /// list pins a thread to; if one thread is not pinned, the process is not.
    pub fn read_allowed(
        &mut self,
        reader: &mut Reader,
        pid: u32,
        pinned: impl Fn(&CoreList) -> Option<CoreList>,
        notes: &mut Notes,
    ) {
        if self.allowed_left == 0 {
            return;
        }
        self.allowed_left -= 1;
        let allowed = match self.allowed(reader, pid, pinned) {
            Ok(allowed) => allowed,
            Err(error) => {
                unreadable(notes, &error);
                Some(Allowed::Loose)
            }
        };
        if let (Some(allowed), Some(process)) = (allowed, self.known.get_mut(&pid)) {
            process.allowed = allowed;
            process.asked = self.look;
            process.asks = process.asks.saturating_add(1);
        }
    }

    /// `None` if too few reads are left, or if the process is gone.
    fn allowed(
        &mut self,
        reader: &mut Reader,
        pid: u32,
        pinned: impl Fn(&CoreList) -> Option<CoreList>,
    ) -> Result<Option<Allowed>, FileError> {
        let Some((threads, more)) = reader.folders(&format!("/proc/{pid}/task"), MOST_THREADS)? else {
            return Ok(None);
        };
        let mut cores = Vec::new();
        for thread in &threads {
            if self.allowed_left == 0 {
                return Ok(None);
            }
            self.allowed_left -= 1;
            let path = format!("/proc/{pid}/task/{thread}/status");
            let Some(text) = reader.text(&path, STATUS_BYTES)? else { continue };
            let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let list = content::cpu_list(&reader.root().path(&path), list.unwrap_or_default())?;
            match pinned(&list) {
                Some(list) => cores.extend_from_slice(list.cores()),
                None => return Ok(Some(Allowed::Loose)),
            }
        }
        Ok(Some(if more || cores.is_empty() { Allowed::Loose } else { Allowed::On(cores.into()) }))
    }
}

fn unreadable(notes: &mut Notes, error: &FileError) {
    notes.tell(None, About::Unreadable, "process", || {
        format!("{error}; processes that cannot be read are ignored")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_ends_at_the_last_parenthesis() {
        let line =
            format!("42 (a) R (b\n c) S 7 1 1 0 -1 {} {}3 20 0 1 0 1000 0\n", 0x20_0040, "0 ".repeat(7));
        let stat = Stat::parse(&line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.started), ("a) R (b\n c", 7, 1000));
        assert!(stat.flags & KERNEL_THREAD != 0 && !stat.is_over);
        assert!(Stat::parse(&line.replace(") S", ") Z")).unwrap().is_over);
        let threads = line.replace(") S", ") Z").replace("20 0 1 0", "20 0 3 0");
        assert!(!Stat::parse(&threads).unwrap().is_over, "its other threads run");
        for bad in [
            "",
            "42",
            "42 (a",
            "42 a)",
            ")(",
            "42 (a) S 1",
            "42 (a) S -1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 9",
        ] {
            assert_eq!(Stat::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_line_makes_it_panic(line in "\\PC*|[0-9() SZ\\n-]{0,120}") {
            let _ = Stat::parse(&line);
        }
    }
}
