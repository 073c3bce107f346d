//! Runs the machine in time: a thread that follows the wall clock, and the one lock through which files reach the
//! machine.
//!
//! A read shows the state up to now as far as the model has come, and waits for one slice at most. A model that is too
//! slow falls behind and reports its lag: its clock then runs slower, and its counts match that clock. It must not know
//! files or registers.

use crate::package::Server;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the model is computed before the lock is released.
const SLICE: Duration = Duration::from_millis(2);

/// How long the thread sleeps when the model is up to date: reads bring it up to date themselves.
const REST: Duration = Duration::from_millis(5);

/// The speed of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClockSpeed {
    /// Seconds of the server's clock per second of wall-clock time.
    Wall(f64),
    /// Stopped; [`MachineClock::run_until`] advances it.
    Stopped,
}

/// The running machine, shared by all files.
#[derive(Clone)]
pub struct MachineClock(Arc<Inner>);

struct Inner {
    driven: Mutex<Driven>,
    /// Readers that wait for the lock: the thread lets them have it first.
    waiting: AtomicUsize,
    speed: ClockSpeed,
    started: Instant,
    stopping: AtomicBool,
    failed: OnceLock<String>,
}

struct Driven {
    server: Server,
    /// Steps that are computed between two checks of the wall clock.
    stride: u64,
}

/// The thread that runs the machine; it ends when this is dropped.
pub struct MachineThread {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for MachineThread {
    fn drop(&mut self) {
        self.inner.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

impl MachineClock {
    /// Starts the machine's clock.
    pub fn start(server: Server, speed: ClockSpeed) -> (MachineClock, MachineThread) {
        let inner = Arc::new(Inner {
            driven: Mutex::new(Driven { server, stride: 1 }),
            waiting: AtomicUsize::new(0),
            speed,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            failed: OnceLock::new(),
        });
        let thread = matches!(speed, ClockSpeed::Wall(_)).then(|| {
            let inner = inner.clone();
            thread::spawn(move || inner.run())
        });
        (MachineClock(inner.clone()), MachineThread { inner, thread })
    }

    /// Calls `act` with the machine, up to date as far as one slice brings it.
    ///
    /// # Errors
    /// EIO if the model has stopped ([`MachineClock::failure`]).
    pub fn with<R>(&self, act: impl FnOnce(&mut Server) -> R) -> Result<R, Errno> {
        let inner = &self.0;
        inner.waiting.fetch_add(1, Ordering::AcqRel);
        let mut driven = inner.lock();
        inner.waiting.fetch_sub(1, Ordering::AcqRel);
        inner.catch_up(&mut driven);
        match inner.failed.get() {
            Some(_) => Err(Errno::IO),
            None => Ok(act(&mut driven.server)),
        }
    }

    /// Advances the server's clock to a time; for a stopped clock. EIO as in [`MachineClock::with`].
    ///
    /// # Errors
    /// EIO if the model has stopped.
    pub fn run_until(&self, clock_ns: u64) -> Result<(), Errno> {
        self.0.advance(&mut self.0.lock().server, clock_ns);
        self.0.failed.get().map_or(Ok(()), |_| Err(Errno::IO))
    }

    /// The server's clock, ns since its start.
    pub fn now_ns(&self) -> u64 {
        self.0.lock().server.now_ns()
    }

    /// How far the server's clock is behind its target, ns of that clock.
    pub fn lag_ns(&self) -> u64 {
        let now = self.now_ns();
        self.0.target_ns().saturating_sub(now)
    }

    /// Why the model stopped, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.0.failed.get().map(String::as_str)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Driven> {
        // A reader that panicked left valid registers behind.
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target of the server's clock.
    fn target_ns(&self) -> u64 {
        match self.speed {
            ClockSpeed::Wall(factor) => (self.started.elapsed().as_nanos() as f64 * factor) as u64,
            ClockSpeed::Stopped => 0,
        }
    }

    fn run(&self) {
        while !self.stopping.load(Ordering::Acquire) && self.failed.get().is_none() {
            if self.waiting.load(Ordering::Acquire) > 0 {
                thread::yield_now();
                continue;
            }
            let behind = {
                let mut driven = self.lock();
                self.catch_up(&mut driven);
                self.target_ns().saturating_sub(driven.server.now_ns())
            };
            if behind < REST.as_nanos() as u64 {
                thread::park_timeout(REST);
            }
        }
    }

    /// Computes until the clock reaches its target, or for one slice.
    fn catch_up(&self, driven: &mut Driven) {
        let begun = Instant::now();
        let step = driven.server.step_ns();
        loop {
            let now = driven.server.now_ns();
            // Only whole steps: the model's course must not depend on the times of reads.
            let due = self.target_ns().saturating_sub(now) / step;
            if due == 0 || begun.elapsed() >= SLICE || self.failed.get().is_some() {
                return;
            }
            let before = Instant::now();
            self.advance(&mut driven.server, now + due.min(driven.stride) * step);
            match before.elapsed() {
                took if took > SLICE / 2 => driven.stride = (driven.stride / 2).max(1),
                took if took < SLICE / 8 && due > driven.stride => driven.stride *= 2,
                _ => {}
            }
        }
    }

    fn advance(&self, server: &mut Server, clock_ns: u64) {
        if let Err(why) = server.run_until(clock_ns) {
            // Only the first reason is kept.
            let _ = self.failed.set(why.to_string());
        }
    }
}
