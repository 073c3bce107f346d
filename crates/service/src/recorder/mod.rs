//! The flight recorder: the steps of the last hours in a ring of files on disk.
//!
//! It takes steps from the step queue on its own thread. Disk failures do not affect the daemon;
//! [`Recorder::active_problem`] reports them. Must not know the loop or the use of a recording.

mod check;
mod foreign;
mod format;
mod read;
mod ring;
mod stream;
mod trace;

pub(crate) use check::check_numbers;
pub use format::{FORMAT, Header, OLDEST, RecordedStep, SUFFIX, VERSION, writable};
pub use read::{Item, ReadError, RecordingReader};
pub use ring::{RecorderError, RecordingRing};
pub use stream::{StreamLine, StreamReader, StreamWriter};
pub use trace::RecordingTrace;

use crate::{ActiveProblem, PublishedStep};
use crossbeam_channel::Receiver;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use waykeeper_kernel::system;

/// What is recorded, and how much of it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecorderConfig {
    /// Directory of the segments.
    pub directory: PathBuf,
    /// How long a step is kept.
    pub keep: Duration,
    /// Bytes that the segments may take on disk.
    pub most_bytes: u64,
    /// Steps per write: a kill -9 loses at most this many.
    pub flush_steps: u32,
}

impl RecorderConfig {
    /// Smallest limit: sixteen segments of a few frames.
    pub const LEAST_BYTES: u64 = 1 << 20;
    /// Longest time that a step is kept, a year: more is probably a mistake in the unit.
    pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

    /// One day, at most 256 MiB, 30 unwritten steps. Measured on the virtual server under `a4`, `waykeeper` and `iat`:
    /// a step of 11 tenants on 18 cores takes 0.5 KB on disk, so a day (1 s per step) 43 MB; one of 64 tenants on 64
    /// cores 1.9 KB, a day 166 MB.
    pub fn in_directory(directory: impl Into<PathBuf>) -> RecorderConfig {
        let keep = Duration::from_secs(24 * 3600);
        RecorderConfig { directory: directory.into(), keep, most_bytes: 256 << 20, flush_steps: 30 }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first invalid field, its value and what would be valid.
    pub fn check(&self) -> Result<(), String> {
        if self.keep < Duration::from_secs(60) || self.keep > RecorderConfig::LONGEST {
            return Err(format!("`keep` is {:?}; give a minute to 366 days", self.keep));
        }
        if self.most_bytes < RecorderConfig::LEAST_BYTES {
            return Err(format!("`most_bytes` is {}; give at least 1 MiB", self.most_bytes));
        }
        if !(1..=3600).contains(&self.flush_steps) {
            return Err(format!("`flush_steps` is {}; give 1 to 3600", self.flush_steps));
        }
        Ok(())
    }
}

/// State of the recording.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecorderStatus {
    /// Files on disk.
    pub files: u64,
    /// Bytes they take, in whole blocks.
    pub bytes: u64,
    /// Steps lost because they could not be written, without those that the step queue dropped.
    pub lost: u64,
    /// Why nothing is recorded now.
    pub active_problem: Option<ActiveProblem>,
}

/// A running recorder. It ends when the step queue's sender is dropped.
#[derive(Debug)]
pub struct Recorder {
    status: Arc<Mutex<RecorderStatus>>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts a recorder.
    ///
    /// # Errors
    /// If no thread can be started. Disk failures are not errors here: see [`Recorder::active_problem`].
    pub fn start(config: RecorderConfig, steps: Receiver<PublishedStep>) -> io::Result<Recorder> {
        let status = Arc::new(Mutex::new(RecorderStatus::default()));
        let shown = status.clone();
        let work = move || {
            let mut ring = RecordingRing::new(system::real(), config);
            let show = |ring: &RecordingRing| {
                let (files, bytes) = (ring.files() as u64, ring.bytes());
                let next =
                    RecorderStatus { files, bytes, lost: ring.lost(), active_problem: ring.active_problem() };
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = next;
            };
            for step in steps {
                ring.record(&step);
                show(&ring);
            }
            ring.finish();
            show(&ring);
        };
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(work)?;
        Ok(Recorder { status, thread })
    }

    /// State of the recording.
    pub fn status(&self) -> RecorderStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why nothing is recorded now; the published state shows it.
    pub fn active_problem(&self) -> Option<ActiveProblem> {
        // While the step queue is open the thread ends only by a panic.
        if self.thread.is_finished() {
            let text = "the recorder stopped: its thread has ended".to_owned();
            return Some(ActiveProblem { kind: "recorder".to_owned(), text });
        }
        self.status().active_problem
    }

    /// Waits until everything is on disk. The step queue's sender must have been dropped.
    pub fn join(self) -> RecorderStatus {
        let status = self.status.clone();
        // The panic hook has reported a panic.
        let _ = self.thread.join();
        status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests;
