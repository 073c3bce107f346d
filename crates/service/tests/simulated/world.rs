//! The simulated machine: the virtual server's files, a disk, clocks, locks, and the daemon's processes.
//!
//! Every system call of a daemon passes [`World::call`], where events happen, faults strike and a kill ends the process.
//! Must not know how the daemon works.

use crate::disk::{Disk, Inode};
use crate::following::Following;
use crate::history::{Event, History, What};
use crate::journaled::Journaled;
use crate::mailbox::Mailbox;
use crate::picture;
use crate::touched::Touched;
use crate::usage::Usage;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use waykeeper_machine::Scenario;
use waykeeper_vhost::faults::{Calls, FaultRule, Faults, FileFault, Operation};
use waykeeper_vhost::file_tree::FileTree;
use waykeeper_vhost::machine_clock::{ClockSpeed, MachineClock, MachineThread};
use waykeeper_vhost::node::Caller;
use waykeeper_vhost::virtual_host::{self, VirtualHostOptions};

/// The daemon and the observer are root; tasks that resctrl moves are named by their pids, never by this one.
pub const CALLER: Caller = Caller { pid: 1, uid: 0 };

/// The process that looks and acts from outside: no fault strikes it.
pub const OBSERVER: u32 = 0;

/// Uptime of the machine when its simulated clock is 0, ns.
const UPTIME_NS: u64 = 1_000_000_000_000;

/// Where the host's tree is.
pub const PREFIX: &str = "/host";

/// The journal's path on the disk.
pub const JOURNAL: &str = "/run/waykeeper/journal-host";

/// The payload with which a killed process unwinds.
pub struct Killed;

/// What an open file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A node of the host's tree.
    Tree(u64),
    /// An inode of the disk.
    Disk(u64),
    /// A text of the kernel outside the tree.
    Text(Vec<u8>),
}

/// An open file.
#[derive(Debug)]
struct Descriptor {
    process: u32,
    target: Target,
    /// Its number in the tree.
    handle: u64,
}

/// A held lock.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptor: u64,
    exclusive: bool,
}

/// Everything that changes.
pub struct State {
    pub files: FileTree,
    pub clock: MachineClock,
    thread: MachineThread,
    pub disk: Disk,
    pub now_ns: u64,
    /// When the machine booted.
    pub booted_ns: u64,
    scenario: Arc<Scenario>,
    pub wall_offset_ns: i64,
    pub history: History,
    events: VecDeque<Event>,
    /// Calls since the first waiting event became due.
    since_due: u64,
    /// The daemon's process, while it lives.
    live: Option<u32>,
    processes: u32,
    descriptors: BTreeMap<u64, Descriptor>,
    next_descriptor: u64,
    locks: BTreeMap<LockedFile, Vec<Held>>,
    /// Another program's lock on resctrl: until when, and its rights.
    pub foreign_lock: Option<(u64, u64)>,
    pub faults: Faults,
    pub mailbox: Mailbox,
    trace: u64,
    pub calls: u64,
    pub marks: BTreeMap<&'static str, u64>,
    pub violations: Vec<String>,
    journaled: Journaled,
    pub touched: Touched,
    /// What was in use, once an hour.
    pub usage: Vec<Usage>,
    /// CPUs of a package.
    pub cores: u16,
    verbose: bool,
    /// What is noted where one process follows another.
    pub following: Following,
}

/// The file that a lock is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum LockedFile {
    Tree(u64),
    Disk(u64),
}

/// The machine, shared by all that use it.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// The machine of a history.
    pub fn new(history: History, scenario: Arc<Scenario>) -> World {
        let cores = scenario.chip.cores as u16;
        let (files, clock, thread) = power_on(&scenario, history.seed, 0);
        World(Arc::new(Mutex::new(State {
            files,
            clock,
            thread,
            disk: Disk::new(),
            now_ns: 0,
            booted_ns: 0,
            scenario,
            wall_offset_ns: 1_795_000_000_000_000_000,
            events: history.events.iter().cloned().collect(),
            history,
            since_due: 0,
            live: None,
            processes: OBSERVER,
            descriptors: BTreeMap::new(),
            next_descriptor: 1,
            locks: BTreeMap::new(),
            foreign_lock: None,
            faults: Faults::new(),
            mailbox: Mailbox::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            calls: 0,
            marks: BTreeMap::new(),
            violations: Vec::new(),
            journaled: Journaled::default(),
            touched: Touched::default(),
            usage: Vec::new(),
            cores,
            verbose: std::env::var_os("WAYKEEPER_TRACE").is_some(),
            following: Following::default(),
        })))
    }

    /// The state. Nothing panics with it locked, except the test itself.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One system call of a process: events happen, then a fault strikes or `act` runs.
    pub fn call<T>(
        &self,
        process: u32,
        operation: Operation,
        path: &str,
        act: impl FnOnce(&mut State, Option<FileFault>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut state = self.lock();
        if process == OBSERVER {
            return act(&mut state, None);
        }
        state.enter(process)?;
        if state.live != Some(process) {
            drop(state);
            // A process that is ending already, or that is unwinding, finds that nothing works.
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new(Killed));
            }
            return Err(Errno::IO);
        }
        let fault = state.faults.strike(path.trim_start_matches('/'), operation);
        let done = match fault {
            // An entry whose removal answers ENOENT is gone: another program was faster, or a network file system asked
            // twice (unlink(2)).
            Some(FileFault::Refuse(Errno::NOENT)) if operation == Operation::RemoveDirectory => {
                state.mark("fault-refuse");
                act(&mut state, None).and(Err(Errno::NOENT))
            }
            Some(FileFault::Refuse(errno)) => {
                state.mark("fault-refuse");
                Err(errno)
            }
            fault => act(&mut state, fault),
        };
        let outcome = done.as_ref().map_or_else(|why| why.raw_os_error() as u64, |_| 0);
        state.note(&format!("{operation:?} {path}"), outcome);
        if matches!(operation, Operation::Write | Operation::MakeDirectory | Operation::RemoveDirectory) {
            state.look();
        }
        done
    }
}

impl World {
    /// A process waits.
    pub fn wait(&self, process: u32, uptime_ns: u64) -> Result<(), Errno> {
        let mut state = self.lock();
        let until = state.clock_of(uptime_ns);
        if process == OBSERVER {
            state.advance(until);
            return Ok(());
        }
        state.enter(process)?;
        if state.live == Some(process) {
            state.advance(until);
        }
        state.touched.unseen.clear();
        state.note("wait", until);
        let killed = state.live != Some(process);
        drop(state);
        if killed {
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new(Killed));
            }
            return Err(Errno::IO);
        }
        Ok(())
    }
}

impl State {
    /// Whether this process lives.
    pub fn is_process(&self, process: u32) -> bool {
        self.live == Some(process)
    }

    /// The wall clock.
    pub fn wall_clock(&self) -> SystemTime {
        let now = self.wall_offset_ns.saturating_add(self.now_ns as i64);
        SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(now).unwrap_or(0))
    }

    /// Counts what happened.
    pub fn mark(&mut self, name: &'static str) {
        *self.marks.entry(name).or_default() += 1;
    }

    /// Adds to the trace.
    pub fn note(&mut self, what: &str, outcome: u64) {
        if self.verbose {
            #[expect(clippy::print_stderr, reason = "WAYKEEPER_TRACE asks for every call")]
            let () = eprintln!("{:>6} {:>9.3} ms {what} -> {outcome}", self.calls, self.now_ns as f64 / 1e6);
        }
        for byte in what.bytes().chain(outcome.to_le_bytes()) {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// A hash of all calls, events and outcomes, and the number of calls.
    pub fn trace(&self) -> (u64, u64) {
        (self.trace, self.calls)
    }

    /// Something that must not happen.
    pub fn violation(&mut self, text: String) {
        if self.violations.len() < 20 {
            self.violations.push(format!(
                "at {:.3} ms, call {}: {text}",
                self.now_ns as f64 / 1e6,
                self.calls
            ));
        }
    }

    /// Starts a process of the daemon.
    pub fn start_process(&mut self) -> u32 {
        self.processes += 1;
        self.live = Some(self.processes);
        self.processes
    }

    /// Whether the last started process lives.
    pub fn is_alive(&self) -> bool {
        self.live.is_some()
    }

    /// Ends the process: its descriptors and locks are released.
    pub fn end_process(&mut self) {
        let Some(process) = self.live.take() else { return };
        let own = self.descriptors.iter().filter(|(_, own)| own.process == process);
        let own: Vec<u64> = own.map(|(descriptor, _)| *descriptor).collect();
        own.into_iter().for_each(|descriptor| self.close(descriptor));
        if self.open_descriptors() == 0 {
            self.disk.drop_removed();
        }
        self.mailbox = Mailbox::default();
    }

    /// A call begins.
    fn enter(&mut self, process: u32) -> Result<(), Errno> {
        if self.live != Some(process) {
            return Err(Errno::IO);
        }
        self.calls += 1;
        self.since_due += 1;
        if self.following.kill_at.take_if(|at| *at <= self.calls).is_some() {
            self.carry_out(&What::Kill { lose: self.calls.is_multiple_of(2), torn: 0 });
        }
        self.happen();
        Ok(())
    }

    /// Carries out the events that are due.
    fn happen(&mut self) {
        while let Some(event) = self.events.front() {
            if self.now_ns < event.at_ms * 1_000_000 {
                self.since_due = 0;
                return;
            }
            if self.since_due <= event.calls {
                return;
            }
            let Some(Event { what, .. }) = self.events.pop_front() else { return };
            self.since_due = 0;
            self.carry_out(&what);
        }
    }

    /// The time of the next event that needs the clock, ns.
    fn next_event_ns(&self) -> Option<u64> {
        self.events.front().map(|event| event.at_ms * 1_000_000).filter(|at| *at > self.now_ns)
    }

    /// Advances all clocks to a time. Events on the way that wait for no call happen.
    pub fn advance(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            let at = self.next_event_ns().map_or(until_ns, |at| at.min(until_ns));
            self.now_ns = at;
            if let Err(why) = self.clock.run_until(at - self.booted_ns) {
                self.violation(format!("the model stopped: {why}"));
                return;
            }
            if self.foreign_lock.is_some_and(|(until, _)| at >= until) {
                self.foreign_lock = None;
            }
            if self.live.is_some() {
                self.since_due += 1;
                self.happen();
                if self.live.is_none() {
                    return;
                }
            }
        }
    }

    /// Time since a boot.
    pub fn uptime_ns(&self, booted_ns: u64) -> u64 {
        UPTIME_NS + self.now_ns - booted_ns
    }

    /// The clock's time for a time since boot.
    pub fn clock_of(&self, uptime_ns: u64) -> u64 {
        uptime_ns.saturating_sub(UPTIME_NS) + self.booted_ns
    }

    /// Drops all events: the machine is quiet from now on, and all its CPUs are on. True if some were off.
    pub fn calm(&mut self) -> bool {
        self.events.clear();
        self.faults.lift();
        self.foreign_lock = None;
        let online = picture::online(&self.files);
        let off: Vec<u16> = (0..self.cores).filter(|cpu| !online.contains(cpu)).collect();
        let before = picture::take(&self.files, &self.clock);
        off.iter().for_each(|cpu| assert!(picture::switch_cpu(&self.files, *cpu, Some(true))));
        let after = picture::take(&self.files, &self.clock);
        self.touched.note(&before, &after);
        !off.is_empty()
    }

    /// Power fails and returns.
    fn reboot(&mut self, keeps_run: bool) {
        self.end_process();
        self.disk.lose(0);
        if !keeps_run {
            self.disk.remove_files("/run/waykeeper");
        }
        self.note_journal();
        self.booted_ns = self.now_ns;
        let (files, clock, thread) = power_on(&self.scenario, self.history.seed, self.now_ns);
        (self.files, self.clock, self.thread) = (files, clock, thread);
        // No group of another program is left, nor a value that it wrote.
        (self.touched, self.foreign_lock) = (Touched::default(), None);
    }

    fn carry_out(&mut self, what: &What) {
        self.mark(what.name());
        self.note(&format!("{what:?}"), 0);
        let rule = |path: &str, calls: u64, operation: Option<Operation>, fault: FileFault| FaultRule {
            path: path.to_owned(),
            operation,
            calls: if calls == 0 { Calls::All } else { Calls::Nth(calls) },
            fault,
        };
        match what {
            What::Refuse { path, operation, calls, errno } => {
                let operation = match operation.as_str() {
                    "open" => Some(Operation::Open),
                    "read" => Some(Operation::Read),
                    "write" => Some(Operation::Write),
                    "list" => Some(Operation::List),
                    "make" => Some(Operation::MakeDirectory),
                    "remove" => Some(Operation::RemoveDirectory),
                    "rename" => Some(Operation::Rename),
                    "change" => Some(Operation::Change),
                    _ => None,
                };
                let fault = FileFault::Refuse(Errno::from_raw_os_error(*errno));
                self.faults.inject(rule(path, *calls, operation, fault));
            }
            What::ShortRead { path, calls, most } => {
                self.faults.inject(rule(path, *calls, Some(Operation::Read), FileFault::ShortRead(*most)));
            }
            What::ShortWrite { path, calls, most } => {
                self.faults.inject(rule(path, *calls, Some(Operation::Write), FileFault::ShortWrite(*most)));
            }
            What::Garbage { path, calls, text } => {
                let fault = FileFault::Garbage(text.clone().into_bytes());
                self.faults.inject(rule(path, *calls, Some(Operation::Read), fault));
            }
            What::Lift => self.faults.lift(),
            What::Kill { lose, torn } => {
                self.end_process();
                if *lose {
                    self.mark("lost-unsynced");
                    self.disk.lose(*torn);
                }
                self.note_journal();
            }
            What::Reboot { keeps_run } => self.reboot(*keeps_run),
            What::Jump { seconds } => {
                self.wall_offset_ns = self.wall_offset_ns.saturating_add(seconds * 1_000_000_000);
            }
            What::HoldLock { ms, rights } => {
                let free = self.locks.iter().all(|(on, held)| {
                    held.is_empty() || !matches!(on, LockedFile::Tree(number) if *number == self.mount())
                });
                if free {
                    self.foreign_lock = Some((self.now_ns + ms * 1_000_000, *rights));
                }
            }
            What::Declare { .. }
            | What::SetPolicy { .. }
            | What::Pause { .. }
            | What::Resume
            | What::HandOver { .. }
            | What::Stop => self.mailbox.put(what.clone()),
            outside => self.act_outside(outside),
        }
    }

    /// The number of resctrl's mount point.
    pub fn mount(&self) -> u64 {
        self.files.walk("sys/fs/resctrl", true).unwrap_or_default()
    }

    /// The target of an absolute path.
    pub fn resolve(&self, path: &str, follow: bool) -> Result<Target, Errno> {
        if let Some(inner) = path.strip_prefix(PREFIX).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        {
            return self.files.walk(inner, follow).map(Target::Tree);
        }
        match path {
            "/proc/locks" => Ok(Target::Text(self.locks_text().into_bytes())),
            "/proc/77/comm" => Ok(Target::Text(b"pqos\n".to_vec())),
            "/proc/77/status" => match self.foreign_lock {
                Some((_, 2)) => Err(Errno::NOENT),
                Some((_, rights)) => {
                    let uid = if rights == 0 { 0 } else { 65534 };
                    Ok(Target::Text(format!("Name:\tpqos\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n").into_bytes()))
                }
                None => Err(Errno::NOENT),
            },
            path => self.disk.find(path).map(Target::Disk),
        }
    }

    fn locks_text(&self) -> String {
        match self.foreign_lock {
            Some(_) => format!("1: FLOCK  ADVISORY  WRITE 77 00:{TREE_DEVICE:02x}:{} 0 EOF\n", self.mount()),
            None => String::new(),
        }
    }

    /// Opens a target.
    pub fn keep(&mut self, process: u32, target: Target, handle: u64) -> u64 {
        let descriptor = self.next_descriptor;
        self.next_descriptor += 1;
        self.descriptors.insert(descriptor, Descriptor { process, target, handle });
        descriptor
    }

    /// What a descriptor is, and its handle in the tree.
    pub fn target(&self, descriptor: u64) -> Result<(Target, u64), Errno> {
        let open = self.descriptors.get(&descriptor).ok_or(Errno::BADF)?;
        Ok((open.target.clone(), open.handle))
    }

    /// Number of open files of all processes of the daemon.
    pub fn open_descriptors(&self) -> usize {
        self.descriptors.values().filter(|open| open.process != OBSERVER).count()
    }

    /// Closes a descriptor.
    pub fn close(&mut self, descriptor: u64) {
        if let Some(open) = self.descriptors.remove(&descriptor) {
            if matches!(open.target, Target::Tree(_)) && open.handle != 0 {
                self.files.release(open.handle);
            }
            self.locks.values_mut().for_each(|held| held.retain(|own| own.descriptor != descriptor));
        }
    }

    /// flock(2).
    pub fn flock(&mut self, descriptor: u64, operation: FlockOperation) -> Result<(), Errno> {
        let on = match self.target(descriptor)?.0 {
            Target::Tree(number) => LockedFile::Tree(number),
            Target::Disk(number) => LockedFile::Disk(number),
            Target::Text(_) => return Err(Errno::BADF),
        };
        let held = self.locks.entry(on).or_default();
        held.retain(|own| own.descriptor != descriptor);
        let exclusive = match operation {
            FlockOperation::Unlock | FlockOperation::NonBlockingUnlock => return Ok(()),
            FlockOperation::LockExclusive | FlockOperation::NonBlockingLockExclusive => true,
            _ => false,
        };
        let busy = held.iter().any(|own| exclusive || own.exclusive);
        let foreign = self.foreign_lock.is_some() && on == LockedFile::Tree(self.mount());
        if busy || foreign {
            self.mark("lock-busy");
            return Err(Errno::AGAIN);
        }
        self.locks.entry(on).or_default().push(Held { descriptor, exclusive });
        Ok(())
    }

    /// The journal on the disk may have changed.
    pub fn note_journal(&mut self) {
        let State { disk, journaled, .. } = self;
        journaled.update(disk.durable(JOURNAL).unwrap_or_default());
    }

    /// The originals that are durable.
    pub fn journaled(&self) -> &Journaled {
        &self.journaled
    }

    /// Whether an inode is a directory of the disk.
    pub fn is_disk_directory(&self, number: u64) -> bool {
        matches!(self.disk.inode(number), Ok(Inode::Directory { .. }))
    }
}

/// The files of a machine that has just booted, its clock and the clock's thread.
fn power_on(scenario: &Arc<Scenario>, seed: u64, now_ns: u64) -> (FileTree, MachineClock, MachineThread) {
    let boot = format!("00000000-0000-4000-{:04x}-{:012x}", now_ns >> 16 & 0xffff, seed & 0xffff_ffff_ffff);
    let options = VirtualHostOptions {
        speed: ClockSpeed::Stopped,
        run: waykeeper_testbed::run_options(crate::scenarios::ONE_SET_IN),
        host_proc: None,
        boot_id: Some(boot),
        ..VirtualHostOptions::default()
    };
    let (tree, clock, thread) =
        virtual_host::tree(scenario.clone(), &options).unwrap_or_else(|why| panic!("the scenario: {why}"));
    (FileTree::new(tree, Faults::new(), 0, 0), clock, thread)
}

/// The number of the tree's device.
pub const TREE_DEVICE: u64 = 0x40;

/// The number of the disk's device.
pub const DISK_DEVICE: u64 = 0x41;
