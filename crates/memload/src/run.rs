//! A run: starts the workers, says how far they are, stops them, and puts together what they leave.
//!
//! Knows threads and the clock; must not know what a command is made of, nor how anything is shown.

use crate::admission::Admission;
use crate::check::PlanError;
use crate::engine::{Direct, Fault, Io, Ioctl, Passthrough};
use crate::error::PrepareError;
use crate::plan::{EngineKind, Touch};
use crate::ready::Ready;
use crate::verify::{Unverified, Verified, verify};
use crate::worker::{Left, Logged, work};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use waykeeper_load::{Pattern, Totals};

/// Who is told to stop waits so long for the next of the commands on their way. A guess: the kernel resets an NVMe
/// device after 30 s without an answer, which nobody waits for who pressed Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

/// Threads of a load: more than any NVMe device has queues or this kind of engine gets anything from. A guess; each has
/// a stack.
const MOST_THREADS: u32 = 4096;

/// What one worker has done so far, for whoever looks.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub outstanding: AtomicU64,
    left: Mutex<Left>,
}

impl Live {
    /// What it leaves, so far. Others ask once a second, and it lets go while it waits for the device: who never comes
    /// back holds nothing up.
    pub fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub admission: Admission,
    pub live: Vec<Live>,
    start: OnceLock<Instant>,
    deadline_ns: u64,
    over: AtomicBool,
    gate: Mutex<Gate>,
    turn: Condvar,
    failure: Mutex<Option<Failure>>,
}

/// What workers wait for, and are waited for.
#[derive(Debug, Default)]
struct Gate {
    open: bool,
    ended: u32,
}

/// The first thing that went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A command failed.
    Command(Io, Fault),
    /// The way to the device broke.
    Way(Fault),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Command(io, fault) if io.bytes == 0 => write!(f, "a {} failed: {fault}", io.deed),
            Failure::Command(io, fault) => {
                write!(f, "a {} of {} B at byte {} failed: {fault}", io.deed, io.bytes, io.place)
            }
            Failure::Way(fault) => write!(f, "no more commands could be sent: {fault}"),
        }
    }
}

impl Failure {
    /// What went wrong, alone.
    pub const fn fault(&self) -> Fault {
        match self {
            Failure::Command(_, fault) | Failure::Way(fault) => *fault,
        }
    }
}

impl Shared {
    /// Before the start.
    pub fn new(ready: &Ready) -> Shared {
        let plan = ready.plan();
        let deadline = plan.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Shared {
            admission: Admission::new(ready.shape(), ready.limits(), plan.blocks, plan.commands),
            live: (0..ready.threads()).map(|_| Live::default()).collect(),
            start: OnceLock::new(),
            deadline_ns: deadline.unwrap_or(u64::MAX),
            over: AtomicBool::new(false),
            gate: Mutex::default(),
            turn: Condvar::new(),
            failure: Mutex::default(),
        }
    }

    /// The start; now, before it.
    fn begun(&self) -> Instant {
        self.start.get().copied().unwrap_or_else(Instant::now)
    }

    /// Nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.begun().elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The same on the clock of the system.
    pub fn instant(&self, ns: u64) -> Instant {
        // What is past all clocks is waited for a second at a time.
        let far = || Instant::now() + Duration::from_secs(1);
        self.begun().checked_add(Duration::from_nanos(ns)).unwrap_or_else(far)
    }

    /// True if nothing more is to be sent.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns || self.over.load(Relaxed)
    }

    /// Sleeps until then, the end of the run, or until somebody says stop.
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

    /// A command failed: nothing more is sent, and the first says why.
    pub fn failed(&self, io: Io, fault: Fault) {
        self.fail(Failure::Command(io, fault));
    }

    /// The way is broken.
    pub fn broken(&self, why: &io::Error) {
        self.fail(Failure::Way(Fault::Errno(why.raw_os_error().unwrap_or(libc::EIO))));
    }

    fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.stop();
    }

    fn failure(&self) -> Option<Failure> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        // Under the lock, so that nobody who has just looked falls asleep over it.
        let _gate = self.gate();
        self.over.store(true, Relaxed);
        self.turn.notify_all();
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
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

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Commands that came back well.
    pub commands: u64,
    /// Blocks as counted.
    pub blocks: u64,
}

/// Stops a run from anywhere, a signal's thread for one.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Nothing more is sent.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// As planned.
    Complete,
    /// Somebody said stop.
    Stopped,
    /// Something went wrong.
    Failed(Failure),
    /// Commands did not come back.
    Lost {
        /// How many.
        commands: u64,
        /// What went wrong before, if anything did.
        after: Option<Failure>,
    },
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was done.
    pub totals: Totals,
    /// How it ended.
    pub end: End,
    /// What a look at what was moved has shown, if one was wanted; it is broken off as soon as somebody says stop, be
    /// it before the look.
    pub verified: Option<Result<Verified, Unverified>>,
    /// Every command in the order in which they went, if the plan wanted to know.
    pub log: Vec<Logged>,
}

/// A run that goes on.
#[derive(Debug)]
pub struct Running {
    ready: Arc<Ready>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    cpu_at_start: Duration,
}

impl Running {
    /// Starts the workers; returns when all are under way.
    ///
    /// # Errors
    /// A worker cannot begin; then none has sent anything.
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
        let (told, heard) = mpsc::channel();
        let mut threads = Vec::new();
        let mut refused = None;
        for index in 0..count {
            let (ready, shared, told) = (ready.clone(), shared.clone(), told.clone());
            let thread = std::thread::Builder::new().name(format!("memload-{index}"));
            match thread.spawn(move || worker(&ready, &shared, index, &told)) {
                Ok(thread) => threads.push(thread),
                Err(why) => refused = Some(why),
            }
        }
        drop(told);
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

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let elapsed = Duration::from_nanos(self.shared.now_ns());
        Progress { elapsed, commands: self.sum(|left| left.commands), blocks: self.sum(|left| left.blocks) }
    }

    /// Over all workers, so far.
    fn sum(&self, of: fn(&Totals) -> u64) -> u64 {
        self.shared.live.iter().map(|live| of(&live.left().totals)).sum()
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Waits so long, or until all workers have ended; true for the latter.
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

    /// True if it is over and all that is left are commands on their way of which none comes back any more.
    fn is_stuck(&self) -> bool {
        let back = || self.sum(|left| left.commands + left.errors);
        if !self.shared.is_over(self.shared.now_ns()) {
            return false;
        }
        let before = back();
        !self.wait(GRACE) && back() == before
    }

    /// Waits for its end and puts together what was done. `tick` is called every second.
    pub fn finish(self, tick: impl FnMut(Progress)) -> Outcome {
        self.finish_and(tick, || ())
    }

    /// The same, and does something when no more commands of the load go and none has yet been sent to look at what
    /// they did: the end of what is counted.
    pub fn finish_and(self, mut tick: impl FnMut(Progress), over: impl FnOnce()) -> Outcome {
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
            // A panic in a worker is a mistake of ours and has been told by its hook.
            let _ = thread.join();
        }
        let Left { mut totals, trail, forgot, log } = together(&shared);
        totals.cpu = Some(cpu);
        let end = end(&shared, totals.runtime);
        let looks = ready.plan().verify && !matches!(end, End::Failed(_));
        let is_over = || shared.over.load(Relaxed);
        let look = || if forgot { Err(Unverified::Forgotten) } else { verify(&ready, &trail, &is_over) };
        let verified = looks.then(look);
        Outcome { totals, end, verified, log }
    }

    /// Of workers that do not end: what they have left so far. They keep the buffer until the process ends. Waiting in
    /// vain is no part of the run, which lasted until the last command came back.
    fn give_up(self) -> Outcome {
        let Left { totals, log, .. } = together(&self.shared);
        let commands = self.shared.live.iter().map(|live| live.outstanding.load(Relaxed)).sum();
        let end = match (self.shared.failure(), commands) {
            (Some(failure), 0) => End::Failed(failure),
            (after, commands) => End::Lost { commands, after },
        };
        Outcome { totals, end, verified: None, log }
    }
}

/// What all workers leave, or have left so far; the log in the order in which commands went.
fn together(shared: &Shared) -> Left {
    let mut all = Left::default();
    for live in &shared.live {
        let left = std::mem::take(&mut *live.left());
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

/// Says that a thread has ended, however it did: nobody waits for one that panicked.
struct Ending<'a> {
    shared: &'a Shared,
    told: &'a mpsc::Sender<io::Result<()>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Its hook has said more. Whoever starts the workers has stopped listening if this one had begun.
            let _ = self.told.send(Err(io::Error::other("internal error in waykeeper")));
            self.shared.fail(Failure::Way(Fault::Errno(libc::ENOTRECOVERABLE)));
        }
        self.shared.ended();
    }
}

/// A thread of its own: makes its engine, says so, waits for the start, works.
fn worker(ready: &Ready, shared: &Shared, index: u32, told: &mpsc::Sender<io::Result<()>>) {
    let _ending = Ending { shared, told };
    if let Err(why) = set_up_and_work(ready, shared, index, told) {
        // Whoever starts it has heard of another's trouble already if nobody listens.
        let _ = told.send(Err(why));
    }
}

fn set_up_and_work(
    ready: &Ready,
    shared: &Shared,
    index: u32,
    told: &mpsc::Sender<io::Result<()>>,
) -> io::Result<()> {
    let plan = ready.plan();
    // A depth that is made of threads shares the worker's CPU.
    let worker = index % plan.workers;
    if let Some(cpu) = plan.cpus.get(worker as usize % plan.cpus.len().max(1)) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(*cpu as usize);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|errno| io::Error::other(format!("it cannot run on CPU {cpu}: {errno}")))?;
    }
    // Slots begin when they should: the usual 50 us of slack would be a twentieth of a slot of 1 ms.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    if index == 0 && plan.touch == Touch::Once {
        ready.buffer().touch(0, ready.buffer().bytes());
    }
    let random = generator(plan.seed, index);
    let ground = ready.ground();
    let begin = || {
        let _ = told.send(Ok(()));
        shared.wait_for_start();
    };
    let index = index as usize;
    if plan.pattern == Pattern::Noop {
        begin();
        work(&mut Ioctl::new(&ground), ready, shared, index, random);
        return Ok(());
    }
    match ready.engine() {
        EngineKind::NvmeUring => {
            let mut engine = Passthrough::new(&ground)?;
            begin();
            work(&mut engine, ready, shared, index, random);
        }
        EngineKind::Uring => {
            let mut engine = Direct::new(&ground)?;
            begin();
            work(&mut engine, ready, shared, index, random);
        }
        EngineKind::NvmeIoctl => {
            begin();
            work(&mut Ioctl::new(&ground), ready, shared, index, random);
        }
    }
    Ok(())
}

/// Each worker has a stretch of its own of one sequence.
fn generator(seed: u64, index: u32) -> Xoshiro256PlusPlus {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..index {
        random.jump();
    }
    random
}

/// Processor time of the whole process: the kernel's own io_uring threads are part of what a command costs, and only count
/// here. Whoever waits for the run takes next to none.
fn processor_time() -> Duration {
    // SAFETY: the structure is plain numbers, and the kernel fills it.
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
    use crate::engine::{Done, Engine};
    use crate::plan::Plan;
    use crate::ready::tests::on_nothing;

    /// A device that answers so many commands and then none.
    struct Hangs {
        taken: Vec<u32>,
        answers: usize,
        end: mpsc::Receiver<()>,
    }

    impl Engine for Hangs {
        fn push(&mut self, _: Io, number: u32) {
            self.taken.push(number);
        }

        fn carry(&mut self, _: Option<Instant>, done: &mut Vec<Done>) -> io::Result<()> {
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
        let ready = on_nothing(Plan::default());
        let shared = Shared::new(&ready);
        let (told, _) = mpsc::channel();
        let fails = std::panic::AssertUnwindSafe(|| {
            let _ending = Ending { shared: &shared, told: &told };
            std::panic::resume_unwind(Box::new("a test"));
        });
        assert!(std::panic::catch_unwind(fails).is_err());
        assert!(matches!(end(&shared, Duration::ZERO), End::Failed(Failure::Way(_))));
        assert_eq!(shared.gate().ended, 1, "and nobody waits for it");
    }

    #[test]
    fn what_came_back_is_told_of_a_run_that_does_not_end() {
        let ready = Arc::new(on_nothing(Plan { depth: 3, log: true, ..Plan::default() }));
        let shared = Arc::new(Shared::new(&ready));
        let (release, end) = mpsc::channel();
        let (of, on) = (shared.clone(), ready.clone());
        let hangs = move || {
            let mut engine = Hangs { taken: Vec::new(), answers: 7, end };
            work(&mut engine, &on, &of, 0, generator(1, 0));
        };
        let threads = vec![std::thread::spawn(hangs)];
        let running = Running { ready, shared, threads, cpu_at_start: Duration::ZERO };
        while running.progress().commands < 7 || running.shared.live[0].outstanding.load(Relaxed) < 3 {
            std::thread::yield_now();
        }
        let fault = Failure::Way(Fault::Errno(libc::EIO));
        running.shared.fail(fault);
        let done = running.give_up();
        assert_eq!(done.end, End::Lost { commands: 3, after: Some(fault) });
        assert_eq!((done.totals.commands, done.totals.moved), (7, 7 * 31));
        assert_eq!((done.totals.latency_ns.len(), done.log.len()), (7, 7));
        drop(release);
    }
}
