//! Every fork of the machine on which the tree is mounted, from the records that its kernel writes.
//!
//! The kernel writes a record of each fork and clone into a ring of the CPU, before the new task runs and before the
//! call returns (linux kernel/fork.c: `copy_process` calls `perf_event_fork`). A record names the thread that made the
//! call, also for a thread and for CLONE_PARENT, where procfs and the proc connector name another task. This file must
//! not know groups.

use perf_event_open_sys::bindings as sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// Pages of a ring's data, a power of two: 8192 records. The kernel lets every user lock 129 pages for each CPU
/// (Documentation/admin-guide/sysctl/kernel.rst: `perf_event_mlock_kb`).
const DATA_PAGES: usize = 64;

/// A record's header: type, flags and size (perf_event_open(2): `struct perf_event_header`).
const HEADER: usize = 8;

/// One fork(2), vfork(2) or clone(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Thread id of the new task.
    pub task: u32,
    /// Thread id of the caller, whose class and RMID the new task has.
    pub from: u32,
}

/// The forks since the last look, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// The forks.
    pub seen: Vec<Fork>,
    /// Whether these are all forks that returned before the look. `false` without records, and after a ring was full.
    pub complete: bool,
}

/// A fork and when it was recorded, ns of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimedFork {
    time_ns: u64,
    fork: Fork,
}

/// Which CPUs of this machine are online.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The rings of all CPUs that are online.
pub struct ForkRecords {
    /// By CPU.
    rings: BTreeMap<i32, Ring>,
    /// Forks that were recorded after the time of the last look.
    held: Vec<TimedFork>,
    /// Gives the waiter the rings of CPUs that come online, and a byte for each; when it is closed, the waiter ends.
    waiter: Option<(OwnedFd, Sender<OwnedFd>)>,
}

impl ForkRecords {
    /// Lets the kernel record forks from now on.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON (or kernel.perf_event_paranoid of 0 or less), ENOSYS where perf is missing.
    pub fn open() -> Result<ForkRecords, Errno> {
        let mut records = ForkRecords { rings: BTreeMap::new(), held: Vec::new(), waiter: None };
        records.follow_cpus(&online())?;
        Ok(records)
    }

    /// Opens rings of CPUs that are online and closes those of others. Returns whether the CPUs are those of the last call.
    fn follow_cpus(&mut self, online: &[i32]) -> Result<bool, Errno> {
        let before = self.rings.len();
        for ring in self.rings.iter_mut().filter(|(cpu, _)| !online.contains(cpu)).map(|(_, ring)| ring) {
            ring.drain(&mut self.held);
        }
        self.rings.retain(|cpu, _| online.contains(cpu));
        let mut same = self.rings.len() == before;
        for cpu in online {
            if self.rings.contains_key(cpu) {
                continue;
            }
            let ring = match Ring::open(*cpu) {
                // It went offline meanwhile.
                Err(Errno::NODEV | Errno::NXIO) => continue,
                ring => ring?,
            };
            if let Some((wake, rings)) = &self.waiter {
                // A waiter that has ended needs no ring.
                let _ = rings.send(rustix::io::fcntl_dupfd_cloexec(&ring.file, 0)?);
                let _ = rustix::io::write(wake, b"r");
            }
            self.rings.insert(*cpu, ring);
            same = false;
        }
        if self.rings.is_empty() { Err(Errno::NODEV) } else { Ok(same) }
    }

    /// All forks that returned before this call and after the last one.
    pub fn take(&mut self) -> Forks {
        self.take_of(&online())
    }

    fn take_of(&mut self, online: &[i32]) -> Forks {
        // A CPU that came online has forked without records until now.
        let mut complete = self.follow_cpus(online).unwrap_or(false);
        // A task runs after its record is written. So if a task's record is not in its ring yet, then the records of
        // its own forks are later than `now`, and they are held until the next look, which sorts both.
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        for ring in self.rings.values_mut() {
            complete &= ring.drain(&mut self.held);
        }
        Forks { seen: until(&mut self.held, now_ns), complete }
    }

    /// What waits until a ring is half full. It ends when these records are dropped.
    ///
    /// # Errors
    /// Without descriptors.
    pub fn waiter(&mut self) -> Result<FullRings, Errno> {
        let (woken, wake) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let rings = self.rings.values().map(|ring| rustix::io::fcntl_dupfd_cloexec(&ring.file, 0));
        let (more, new) = std::sync::mpsc::channel();
        let waiter = FullRings { rings: rings.collect::<Result<_, _>>()?, woken, new };
        self.waiter = Some((wake, more));
        Ok(waiter)
    }
}

/// Waits for rings to fill.
pub struct FullRings {
    rings: Vec<OwnedFd>,
    woken: OwnedFd,
    new: Receiver<OwnedFd>,
}

impl FullRings {
    /// Waits until a ring is half full, or a CPU has come online. `false` when the records are closed.
    pub fn wait(&mut self) -> bool {
        let mut files: Vec<PollFd<'_>> =
            self.rings.iter().map(|ring| PollFd::new(ring, PollFlags::IN)).collect();
        files.push(PollFd::new(&self.woken, PollFlags::IN));
        if let Err(why) = poll(&mut files, None) {
            return why == Errno::INTR;
        }
        let woken = files.last().is_some_and(|woken| !woken.revents().is_empty());
        // A ring that is closed is ready for ever (linux kernel/events/core.c: `perf_poll`).
        let broken: Vec<bool> =
            files.iter().map(|file| file.revents().intersects(PollFlags::HUP | PollFlags::ERR)).collect();
        let mut broken = broken.into_iter();
        self.rings.retain(|_| !broken.next().unwrap_or(false));
        let open = !woken || rustix::io::read(&self.woken, &mut [0; 64]).is_ok_and(|count| count > 0);
        self.rings.extend(self.new.try_iter());
        open
    }
}

/// The CPUs that are online; the first one where sysfs is missing.
fn online() -> Vec<i32> {
    let text = std::fs::read_to_string(ONLINE).unwrap_or_default();
    let cpus: Vec<i32> = text.trim().split(',').filter_map(range).flatten().collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// `3` or `0-7`.
fn range(text: &str) -> Option<std::ops::RangeInclusive<i32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// The forks until a time, sorted; later ones stay in `held`.
fn until(held: &mut Vec<TimedFork>, now_ns: u64) -> Vec<Fork> {
    held.sort_by_key(|timed| timed.time_ns);
    let count = held.partition_point(|timed| timed.time_ns <= now_ns);
    held.drain(..count).map(|timed| timed.fork).collect()
}

/// Reads whole records. `false` if the kernel says that it has lost some.
fn parse(bytes: &[u8], forks: &mut Vec<TimedFork>) -> bool {
    let mut complete = true;
    let mut rest = bytes;
    while let Some((kind, size)) = header(rest) {
        let (record, others) = rest.split_at(size);
        rest = others;
        let word = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap_or_default());
        match kind {
            // struct { header; u32 pid, ppid; u32 tid, ptid; u64 time; } (perf_event_open(2)).
            sys::PERF_RECORD_FORK if size >= HEADER + 24 => {
                let fork = Fork { task: word(HEADER + 8), from: word(HEADER + 12) };
                let time =
                    u64::from_ne_bytes(record[HEADER + 16..HEADER + 24].try_into().unwrap_or_default());
                // A task outside the pid namespace of this process has the id 0.
                if fork.task != 0 {
                    forks.push(TimedFork { time_ns: time, fork });
                }
            }
            sys::PERF_RECORD_LOST => complete = false,
            _ => {}
        }
    }
    complete
}

/// Type and size of the first record; `None` at the end.
fn header(bytes: &[u8]) -> Option<(u32, usize)> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let size = usize::from(u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?));
    (size >= HEADER && size <= bytes.len()).then_some((kind, size))
}

/// The ring of one CPU: a page with positions, and [`DATA_PAGES`] of records.
struct Ring {
    file: OwnedFd,
    map: *mut u8,
    page: usize,
    buffer: Vec<u8>,
}

// SAFETY: the map belongs to the ring alone, and its methods take `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    fn open(cpu: i32) -> Result<Ring, Errno> {
        let page = rustix::param::page_size();
        let mut attr = sys::perf_event_attr::default();
        attr.type_ = sys::PERF_TYPE_SOFTWARE;
        attr.size = size_of::<sys::perf_event_attr>() as u32;
        attr.config = sys::PERF_COUNT_SW_DUMMY.into();
        attr.set_task(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = (DATA_PAGES * page / 2) as u32;
        let flags = sys::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `attr` is a whole, initialised structure of the size it names and outlives the call. pid -1 with a
        // CPU means all tasks on that CPU.
        let fd = unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, -1, cpu, -1, flags) };
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        // SAFETY: the kernel just gave us this descriptor, and no other code has it.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let (rights, length) = (ProtFlags::READ | ProtFlags::WRITE, (1 + DATA_PAGES) * page);
        // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped in `drop`.
        let map =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, rights, MapFlags::SHARED, &file, 0) }?;
        Ok(Ring { file, map: map.cast(), page, buffer: Vec::new() })
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is that of an aligned u64 in the first page of the map, which lives as long as `self`; the
        // kernel accesses it with atomic operations only.
        unsafe { AtomicU64::from_ptr(self.map.add(offset).cast()) }
    }

    /// Reads and frees all records. `false` if some were lost.
    fn drain(&mut self, forks: &mut Vec<TimedFork>) -> bool {
        let size = (DATA_PAGES * self.page) as u64;
        let tail_at = std::mem::offset_of!(sys::perf_event_mmap_page, data_tail);
        let head = self.position(std::mem::offset_of!(sys::perf_event_mmap_page, data_head));
        // perf_event_open(2): read the head before the records, and write the tail after them.
        let head = head.load(Ordering::Acquire);
        let tail = self.position(tail_at).load(Ordering::Relaxed);
        self.buffer.clear();
        let mut at = tail;
        while at < head {
            let within = at % size;
            let part = (head - at).min(size - within) as usize;
            // SAFETY: the data pages follow the first page; `within + part` is at most their size. The kernel does not
            // write between tail and head.
            let bytes =
                unsafe { std::slice::from_raw_parts(self.map.add(self.page + within as usize), part) };
            self.buffer.extend_from_slice(bytes);
            at += part as u64;
        }
        self.position(tail_at).store(head, Ordering::Release);
        parse(&self.buffer, forks)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping with this length, and no reference to it is left.
        let _ = unsafe { rustix::mm::munmap(self.map.cast(), (1 + DATA_PAGES) * self.page) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u32]) -> Vec<u8> {
        let size = (HEADER + 4 * words.len()) as u32;
        let head = [kind, size << 16];
        head.iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn records_name_the_new_task_and_the_caller() {
        // pid, ppid, tid, ptid, and a time of 2^32 + 7 ns in two words of a little-endian machine.
        let fork = record(sys::PERF_RECORD_FORK, &[10, 20, 11, 21, 7, 1]);
        let exit = record(sys::PERF_RECORD_EXIT, &[10, 20, 11, 21, 9, 1]);
        let outside = record(sys::PERF_RECORD_FORK, &[0, 20, 0, 21, 7, 1]);
        let lost = record(sys::PERF_RECORD_LOST, &[1, 0, 3, 0]);
        let mut forks = Vec::new();
        assert!(parse(&[exit, fork.clone(), outside].concat(), &mut forks));
        let expected = TimedFork { time_ns: (1 << 32) + 7, fork: Fork { task: 11, from: 21 } };
        assert_eq!(forks, [expected]);
        assert!(!parse(&[lost, fork].concat(), &mut forks));
        assert_eq!(forks, [expected, expected]);
        // Neither a cut record nor one of size 0 is read.
        assert!(parse(&record(sys::PERF_RECORD_FORK, &[1, 2])[..12], &mut forks));
        assert!(parse(&[7, 0, 0, 0, 0, 0, 0, 0, 9], &mut forks));
        assert_eq!(forks.len(), 2);
    }

    #[test]
    fn forks_of_all_cpus_are_sorted_and_later_ones_wait_for_the_next_look() {
        let at = |time_ns, task| TimedFork { time_ns, fork: Fork { task, from: 1 } };
        let tasks = |forks: Vec<Fork>| forks.iter().map(|fork| fork.task).collect::<Vec<_>>();
        let mut held = vec![at(5, 105), at(30, 130), at(1, 101), at(20, 120)];
        assert_eq!(tasks(until(&mut held, 20)), [101, 105, 120]);
        // A record that came late is earlier than the one that was held.
        held.push(at(19, 119));
        assert_eq!(tasks(until(&mut held, 40)), [119, 130]);
        assert_eq!(held, []);
    }

    #[test]
    fn a_thread_has_the_thread_that_started_it_as_its_origin() {
        let mut records =
            ForkRecords::open().unwrap_or_else(|why| panic!("not run: needs CAP_PERFMON: {why}"));
        let gettid = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let (outer, inner) = std::thread::spawn(move || {
            let inner = std::thread::spawn(gettid).join().unwrap();
            (gettid(), inner)
        })
        .join()
        .unwrap();
        let forks = records.take();
        assert!(forks.complete);
        let mine = |task: u32| forks.seen.iter().find(|fork| fork.task == task).copied();
        assert_eq!(mine(outer), Some(Fork { task: outer, from: gettid() }));
        assert_eq!(mine(inner), Some(Fork { task: inner, from: outer }));
        assert_eq!(
            records.take().seen.iter().find(|fork| fork.task == inner),
            None,
            "each fork is seen once"
        );
    }

    #[test]
    fn a_cpu_that_comes_online_is_followed_from_then_on() {
        let all = online();
        let mut records =
            ForkRecords::open().unwrap_or_else(|why| panic!("not run: needs CAP_PERFMON: {why}"));
        let mut waiter = records.waiter().unwrap();
        let few = &all[..1];
        assert_eq!(records.take_of(few).complete, all.len() == 1, "the rings of the others are closed");
        assert_eq!((records.rings.len(), records.take_of(few).complete), (1, true));
        // Their CPUs come online again: forks since then are recorded, earlier ones may be missing.
        assert_eq!(records.take_of(&all).complete, all.len() == 1);
        assert!(all.len() == 1 || waiter.wait(), "it is woken for the new rings");
        assert_eq!((records.rings.len(), waiter.rings.len()), (all.len(), all.len()));
        let gettid = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let started: Vec<u32> = (0..20).map(|_| std::thread::spawn(gettid).join().unwrap()).collect();
        let forks = records.take_of(&all);
        assert!(forks.complete);
        let seen: Vec<u32> = forks.seen.iter().map(|fork| fork.task).collect();
        assert!(started.iter().all(|task| seen.contains(task)), "{started:?} in {seen:?}");
    }

    #[test]
    fn lists_of_cpus_are_read_as_sysfs_writes_them() {
        let cpus = |text: &str| text.split(',').filter_map(range).flatten().collect::<Vec<_>>();
        assert_eq!(cpus("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(cpus(""), []);
    }

    #[test]
    fn the_waiter_ends_with_the_records() {
        let mut records =
            ForkRecords::open().unwrap_or_else(|why| panic!("not run: needs CAP_PERFMON: {why}"));
        let mut waiter = records.waiter().unwrap();
        let waits = std::thread::spawn(move || while waiter.wait() {});
        drop(records);
        waits.join().unwrap();
    }
}
