//! The machine in time: a thread that lets it run with the wall clock, and the one lock through which files reach it.
//!
//! A read shows everything up to now as far as the model has come, and waits for one slice of it at most. A model that
//! cannot keep up falls behind and says by how much: its clock then goes slower, its counts stay true to it. It must not
//! know files or registers.

use crate::package::Server;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the model is computed at a stretch before others get their turn.
const SLICE: Duration = Duration::from_millis(2);

/// How long the thread sleeps when the model is up to date: reads bring it up to date themselves.
const REST: Duration = Duration::from_millis(5);

/// How the server's clock goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many seconds of it per second of wall-clock time.
    Wall(f64),
    /// It stands; [`Engine::run_until`] moves it.
    Held,
}

/// The running machine, shared by all files.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    driven: Mutex<Driven>,
    /// Readers that want the lock: the thread lets them go first.
    waiting: AtomicUsize,
    pace: Pace,
    started: Instant,
    stopping: AtomicBool,
    failed: OnceLock<String>,
}

struct Driven {
    server: Server,
    /// Steps that are computed between two looks at the wall clock.
    stride: u64,
}

/// The thread that runs the machine; it ends when this is dropped.
pub struct Running {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inner.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in it has been told by the hook; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

impl Engine {
    /// Starts the machine's clock.
    pub fn start(server: Server, pace: Pace) -> (Engine, Running) {
        let inner = Arc::new(Inner {
            driven: Mutex::new(Driven { server, stride: 1 }),
            waiting: AtomicUsize::new(0),
            pace,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            failed: OnceLock::new(),
        });
        let thread = matches!(pace, Pace::Wall(_)).then(|| {
            let inner = inner.clone();
            thread::spawn(move || inner.run())
        });
        (Engine(inner.clone()), Running { inner, thread })
    }

    /// Does something with the machine, up to date as far as one slice brings it.
    ///
    /// # Errors
    /// EIO once the model has stopped for good ([`Engine::failure`]).
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

    /// Lets the server's clock come to a time; for a clock that is held. EIO as in [`Engine::with`].
    ///
    /// # Errors
    /// EIO once the model has stopped for good.
    pub fn run_until(&self, clock_ns: u64) -> Result<(), Errno> {
        self.0.advance(&mut self.0.lock().server, clock_ns);
        self.0.failed.get().map_or(Ok(()), |_| Err(Errno::IO))
    }

    /// The server's clock, ns since its start.
    pub fn now_ns(&self) -> u64 {
        self.0.lock().server.now_ns()
    }

    /// How far the server's clock is behind where it should be, ns of that clock.
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
        // A reader that panicked left registers behind that are as legal as any others.
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the server's clock should be.
    fn target_ns(&self) -> u64 {
        match self.pace {
            Pace::Wall(speed) => (self.started.elapsed().as_nanos() as f64 * speed) as u64,
            Pace::Held => 0,
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

    /// Computes until the clock is where it should be, or for one slice.
    fn catch_up(&self, driven: &mut Driven) {
        let begun = Instant::now();
        let step = driven.server.step_ns();
        loop {
            let now = driven.server.now_ns();
            // Whole steps only: the model's course must not depend on who reads when.
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
            // The first reason is the one that counts.
            let _ = self.failed.set(why.to_string());
        }
    }
}
