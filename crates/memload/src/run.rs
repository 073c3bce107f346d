//! A run: starts the workers, reports progress, stops them, and combines their results.
//!
//! Knows threads and the clock; must not know the content of commands, nor how results are shown.

use crate::admission::Admission;
use crate::check::PlanError;
use crate::engine::{CommandError, Direct, IoCommand, Ioctl, Passthrough};
use crate::error::PrepareError;
use crate::plan::{EngineKind, Touch};
use crate::ready::Ready;
use crate::verify::{Unverified, Verified, verify};
use crate::worker::{Logged, WorkerResults, work};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use waykeeper_load::{LoadTotals, Pattern};

/// Maximum time without a completion after a stop, while commands are outstanding. A guess: the kernel resets an NVMe
/// device after 30 s without an answer, which is too long after Ctrl-C.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Maximum threads of a load: more than any NVMe device has queues, and more than this kind of engine can use. A guess;
/// each thread has a stack.
const MOST_THREADS: u32 = 4096;

/// The current state of one worker, readable by other threads.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    pub outstanding: AtomicU64,
    results: Mutex<WorkerResults>,
}

impl WorkerState {
    /// Locks the worker's results so far; other threads do so once a second. A worker that waits for the device does
    /// not hold the lock.
    pub fn results(&self) -> MutexGuard<'_, WorkerResults> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub admission: Admission,
    pub workers: Vec<WorkerState>,
    start: OnceLock<Instant>,
    deadline_ns: u64,
    over: AtomicBool,
    gate: Mutex<StartGate>,
    turn: Condvar,
    failure: Mutex<Option<LoadFailure>>,
}

/// The start signal and the number of ended workers.
#[derive(Debug, Default)]
struct StartGate {
    open: bool,
    ended: u32,
}

/// The first error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadFailure {
    /// A command failed.
    Command(IoCommand, CommandError),
    /// The engine cannot send or collect commands.
    Way(CommandError),
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadFailure::Command(io, fault) if io.bytes == 0 => {
                write!(f, "a {} failed: {fault}", io.operation)
            }
            LoadFailure::Command(io, fault) => {
                write!(f, "a {} of {} B at byte {} failed: {fault}", io.operation, io.bytes, io.place)
            }
            LoadFailure::Way(fault) => write!(f, "no more commands could be sent: {fault}"),
        }
    }
}

impl LoadFailure {
    /// The cause, without the command.
    pub const fn fault(&self) -> CommandError {
        match self {
            LoadFailure::Command(_, fault) | LoadFailure::Way(fault) => *fault,
        }
    }
}

impl Shared {
    /// The state before the start.
    pub fn new(ready: &Ready) -> Shared {
        let plan = ready.plan();
        let deadline = plan.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Shared {
            admission: Admission::new(ready.shape(), ready.limits(), plan.blocks, plan.commands),
            workers: (0..ready.threads()).map(|_| WorkerState::default()).collect(),
            start: OnceLock::new(),
            deadline_ns: deadline.unwrap_or(u64::MAX),
            over: AtomicBool::new(false),
            gate: Mutex::default(),
            turn: Condvar::new(),
            failure: Mutex::default(),
        }
    }

    /// Time of the start; the current time before it.
    fn begun(&self) -> Instant {
        self.start.get().copied().unwrap_or_else(Instant::now)
    }

    /// Nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.begun().elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The same as an `Instant`.
    pub fn instant(&self, ns: u64) -> Instant {
        // On overflow the caller waits one second at a time.
        let far = || Instant::now() + Duration::from_secs(1);
        self.begun().checked_add(Duration::from_nanos(ns)).unwrap_or_else(far)
    }

    /// True if no more commands are to be sent.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns || self.over.load(Relaxed)
    }

    /// Sleeps until `until_ns`, the end of the run, or a stop request.
    pub fn sleep_until(&self, until_ns: u64) {
        let until_ns = until_ns.min(self.deadline_ns);
        let mut gate = self.gate();
        loop {
            let now_ns = self.now_ns();
            if now_ns >= until_ns || self.over.load(Relaxed) {
                return;
            }
            let left = Duration::from_nanos(until_ns - now_ns);
            gate = self.turn.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records a failed command and stops the run; the first failure is kept.
    pub fn failed(&self, io: IoCommand, fault: CommandError) {
        self.fail(LoadFailure::Command(io, fault));
    }

    /// Records a broken engine and stops the run.
    pub fn broken(&self, why: &io::Error) {
        self.fail(LoadFailure::Way(CommandError::Errno(why.raw_os_error().unwrap_or(libc::EIO))));
    }

    fn fail(&self, failure: LoadFailure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.stop();
    }

    fn failure(&self) -> Option<LoadFailure> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        // Under the lock, so that a thread that has just checked `over` does not miss the notification.
        let _gate = self.gate();
        self.over.store(true, Relaxed);
        self.turn.notify_all();
    }

    fn gate(&self) -> MutexGuard<'_, StartGate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_start(&self) {
        let mut gate = self.gate();
        while !gate.open && !self.over.load(Relaxed) {
            gate = self.turn.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ended(&self) {
        self.gate().ended += 1;
        self.turn.notify_all();
    }
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadProgress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Commands that completed without an error.
    pub commands: u64,
    /// Blocks as the program counts them.
    pub blocks: u64,
}

/// Stops a run from any thread, for example from a signal handler's thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops the sending of commands.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// As planned.
    Complete,
    /// After a stop request.
    Stopped,
    /// After an error.
    Failed(LoadFailure),
    /// With commands that did not complete.
    Lost {
        /// Their number.
        commands: u64,
        /// The error before that, if any.
        after: Option<LoadFailure>,
    },
}

/// Result of a run.
#[derive(Debug)]
pub struct LoadOutcome {
    /// Counts of the run.
    pub totals: LoadTotals,
    /// How the run ended.
    pub end: End,
    /// Result of the verification, if planned; an earlier or later stop request ends it.
    pub verified: Option<Result<Verified, Unverified>>,
    /// Every command by time of sending, if the plan requests a log.
    pub log: Vec<Logged>,
}

/// A run in progress.
#[derive(Debug)]
pub struct Running {
    ready: Arc<Ready>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    cpu_at_start: Duration,
}

impl Running {
    /// Starts the workers; returns when all have begun.
    ///
    /// # Errors
    /// If a worker cannot begin; no commands were sent then.
    pub fn start(ready: &Arc<Ready>) -> Result<Running, PrepareError> {
        let plan = ready.plan();
        let count = ready.threads();
        if count > MOST_THREADS {
            let wanted = format!(
                "with nvme-ioctl each of the {} workers needs a thread per outstanding command",
                plan.workers
            );
            let wanted = format!(
                "{wanted}, and at most {MOST_THREADS} threads are possible; take another engine, or \
                    a smaller depth"
            );
            return Err(PlanError::Value { option: "--depth", value: plan.depth.to_string(), wanted }.into());
        }
        let shared = Arc::new(Shared::new(ready));
        let (result_sender, heard) = mpsc::channel();
        let mut threads = Vec::new();
        let mut refused = None;
        for index in 0..count {
            let (ready, shared, result_sender) = (ready.clone(), shared.clone(), result_sender.clone());
            let thread = std::thread::Builder::new().name(format!("memload-{index}"));
            match thread.spawn(move || worker(&ready, &shared, index, &result_sender)) {
                Ok(thread) => threads.push(thread),
                Err(why) => refused = Some(why),
            }
        }
        drop(result_sender);
        for said in heard.iter().take(threads.len()) {
            refused = refused.or(said.err());
        }
        if let Some(why) = refused {
            shared.stop();
            for thread in threads {
                let _ = thread.join();
            }
            return Err(PrepareError::Worker(why));
        }
        let cpu_at_start = processor_time();
        let mut gate = shared.gate();
        let _ = shared.start.set(Instant::now());
        gate.open = true;
        shared.turn.notify_all();
        drop(gate);
        Ok(Running { ready: ready.clone(), shared, threads, cpu_at_start })
    }

    /// The progress so far.
    pub fn progress(&self) -> LoadProgress {
        let elapsed = Duration::from_nanos(self.shared.now_ns());
        LoadProgress {
            elapsed,
            commands: self.sum(|left| left.commands),
            blocks: self.sum(|left| left.blocks),
        }
    }

    /// Sum over all workers so far.
    fn sum(&self, of: fn(&LoadTotals) -> u64) -> u64 {
        self.shared.workers.iter().map(|live| of(&live.results().totals)).sum()
    }

    /// A handle that stops the run.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits until all workers have ended, for at most `patience`; true if they have.
    pub fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut gate = self.shared.gate();
        loop {
            if gate.ended as usize == self.threads.len() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            gate = self.shared.turn.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// True if the run is over and its outstanding commands do not complete.
    fn is_stuck(&self) -> bool {
        let back = || self.sum(|left| left.commands + left.errors);
        if !self.shared.is_over(self.shared.now_ns()) {
            return false;
        }
        let before = back();
        !self.wait(STUCK_AFTER) && back() == before
    }

    /// Waits for the end and combines the results. Calls `tick` every second.
    pub fn finish(self, tick: impl FnMut(LoadProgress)) -> LoadOutcome {
        self.finish_and(tick, || ())
    }

    /// The same; calls `over` after the last command of the load and before the first of the verification, for example
    /// to stop counters.
    pub fn finish_and(self, mut tick: impl FnMut(LoadProgress), over: impl FnOnce()) -> LoadOutcome {
        while !self.wait(Duration::from_secs(1)) {
            tick(self.progress());
            if self.is_stuck() {
                over();
                return self.give_up();
            }
        }
        over();
        let cpu = processor_time().saturating_sub(self.cpu_at_start);
        let Running { ready, shared, threads, .. } = self;
        for thread in threads {
            // A panic in a worker is a bug; its hook has reported it.
            let _ = thread.join();
        }
        let WorkerResults { mut totals, trail, forgot, log } = together(&shared);
        totals.cpu = Some(cpu);
        let end = end(&shared, totals.runtime);
        let looks = ready.plan().verify && !matches!(end, End::Failed(_));
        let is_over = || shared.over.load(Relaxed);
        let look = || if forgot { Err(Unverified::Forgotten) } else { verify(&ready, &trail, &is_over) };
        let verified = looks.then(look);
        LoadOutcome { totals, end, verified, log }
    }

    /// Combines the results so far of workers that do not end. They keep the buffer until the process exits. The
    /// runtime ends with the last completion, without the wait after it.
    fn give_up(self) -> LoadOutcome {
        let WorkerResults { totals, log, .. } = together(&self.shared);
        let commands = self.shared.workers.iter().map(|live| live.outstanding.load(Relaxed)).sum();
        let end = match (self.shared.failure(), commands) {
            (Some(failure), 0) => End::Failed(failure),
            (after, commands) => End::Lost { commands, after },
        };
        LoadOutcome { totals, end, verified: None, log }
    }
}

/// Combines the results of all workers so far; the log is sorted by time of sending.
fn together(shared: &Shared) -> WorkerResults {
    let mut all = WorkerResults::default();
    for live in &shared.workers {
        let left = std::mem::take(&mut *live.results());
        all.totals.add(&left.totals);
        all.trail.extend(left.trail);
        all.forgot |= left.forgot;
        all.log.extend(left.log);
    }
    all.log.sort_by_key(|logged| logged.sent_ns);
    all
}

fn end(shared: &Shared, runtime: Duration) -> End {
    if let Some(failure) = shared.failure() {
        return End::Failed(failure);
    }
    let in_time = u64::try_from(runtime.as_nanos()).unwrap_or(u64::MAX) < shared.deadline_ns;
    if shared.over.load(Relaxed) && in_time { End::Stopped } else { End::Complete }
}

/// Counts a thread as ended, also after a panic.
struct EndGuard<'a> {
    shared: &'a Shared,
    result_sender: &'a mpsc::Sender<io::Result<()>>,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic hook has reported details. The receiver is closed if the worker had already begun.
            let _ = self.result_sender.send(Err(io::Error::other("internal error in waykeeper")));
            self.shared.fail(LoadFailure::Way(CommandError::Errno(libc::ENOTRECOVERABLE)));
        }
        self.shared.ended();
    }
}

/// Thread of a worker: makes its engine, reports that, waits for the start, works.
fn worker(ready: &Ready, shared: &Shared, index: u32, result_sender: &mpsc::Sender<io::Result<()>>) {
    let _end_guard = EndGuard { shared, result_sender };
    if let Err(why) = set_up_and_work(ready, shared, index, result_sender) {
        // If the receiver is closed, another worker's error was reported already.
        let _ = result_sender.send(Err(why));
    }
}

fn set_up_and_work(
    ready: &Ready,
    shared: &Shared,
    index: u32,
    result_sender: &mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    let plan = ready.plan();
    // The threads that make up the depth of one worker share its CPU.
    let worker = index % plan.workers;
    if let Some(cpu) = plan.cpus.get(worker as usize % plan.cpus.len().max(1)) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*cpu as usize);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|errno| io::Error::other(format!("it cannot run on CPU {cpu}: {errno}")))?;
    }
    // For punctual slots: the default slack of 50 us would be a twentieth of a slot of 1 ms.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    if index == 0 && plan.touch == Touch::Once {
        ready.buffer().touch(0, ready.buffer().bytes());
    }
    let random = generator(plan.seed, index);
    let params = ready.engine_params();
    let begin = || {
        let _ = result_sender.send(Ok(()));
        shared.wait_for_start();
    };
    let index = index as usize;
    if plan.pattern == Pattern::Noop {
        begin();
        work(&mut Ioctl::new(&params), ready, shared, index, random);
        return Ok(());
    }
    match ready.engine() {
        EngineKind::NvmeUring => {
            let mut engine = Passthrough::new(&params)?;
            begin();
            work(&mut engine, ready, shared, index, random);
        }
        EngineKind::Uring => {
            let mut engine = Direct::new(&params)?;
            begin();
            work(&mut engine, ready, shared, index, random);
        }
        EngineKind::NvmeIoctl => {
            begin();
            work(&mut Ioctl::new(&params), ready, shared, index, random);
        }
    }
    Ok(())
}

/// Each worker has its own subsequence of one random sequence.
fn generator(seed: u64, index: u32) -> Xoshiro256PlusPlus {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..index {
        random.jump();
    }
    random
}

/// CPU time of the whole process, because only this includes the kernel's io_uring threads, which are part of the cost
/// of a command. The thread that waits for the run uses almost none.
fn processor_time() -> Duration {
    // SAFETY: the structure is plain integers, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        let (s, us) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_usec).unwrap_or(0));
        Duration::from_secs(s) + Duration::from_micros(us)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{CompletedIo, Engine};
    use crate::plan::LoadPlan;
    use crate::ready::tests::on_nothing;

    /// A device that completes `answers` commands and then none.
    struct Hangs {
        taken: Vec<u32>,
        answers: usize,
        end: mpsc::Receiver<()>,
    }

    impl Engine for Hangs {
        fn push(&mut self, _: IoCommand, number: u32) {
            self.taken.push(number);
        }

        fn carry(&mut self, _: Option<Instant>, done: &mut Vec<CompletedIo>) -> io::Result<()> {
            if self.answers == 0 {
                let _ = self.end.recv();
                return Err(io::Error::from_raw_os_error(libc::ENXIO));
            }
            let answered = self.taken.len().min(self.answers);
            self.answers -= answered;
            done.extend(self.taken.drain(..answered).map(|number| (number, Ok(()))));
            Ok(())
        }

        fn unsent(&mut self) -> usize {
            0
        }
    }

    #[test]
    fn a_mistake_of_ours_is_a_failure_and_no_wish_of_the_user() {
        let ready = on_nothing(LoadPlan::default());
        let shared = Shared::new(&ready);
        let (result_sender, _) = mpsc::channel();
        let fails = std::panic::AssertUnwindSafe(|| {
            let _end_guard = EndGuard { shared: &shared, result_sender: &result_sender };
            std::panic::resume_unwind(Box::new("a test"));
        });
        assert!(std::panic::catch_unwind(fails).is_err());
        assert!(matches!(end(&shared, Duration::ZERO), End::Failed(LoadFailure::Way(_))));
        assert_eq!(shared.gate().ended, 1, "and no worker waits for it");
    }

    #[test]
    fn completions_of_a_run_that_does_not_end_are_reported() {
        let ready = Arc::new(on_nothing(LoadPlan { depth: 3, log: true, ..LoadPlan::default() }));
        let shared = Arc::new(Shared::new(&ready));
        let (release, end) = mpsc::channel();
        let (of, on) = (shared.clone(), ready.clone());
        let hangs = move || {
            let mut engine = Hangs { taken: Vec::new(), answers: 7, end };
            work(&mut engine, &on, &of, 0, generator(1, 0));
        };
        let threads = vec![std::thread::spawn(hangs)];
        let running = Running { ready, shared, threads, cpu_at_start: Duration::ZERO };
        while running.progress().commands < 7 || running.shared.workers[0].outstanding.load(Relaxed) < 3 {
            std::thread::yield_now();
        }
        let fault = LoadFailure::Way(CommandError::Errno(libc::EIO));
        running.shared.fail(fault);
        let done = running.give_up();
        assert_eq!(done.end, End::Lost { commands: 3, after: Some(fault) });
        assert_eq!((done.totals.commands, done.totals.moved), (7, 7 * 31));
        assert_eq!((done.totals.latency_ns.len(), done.log.len()), (7, 7));
        drop(release);
    }
}
