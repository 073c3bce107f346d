//! The flight recorder: the steps of the last hours in a ring of files on disk.
//!
//! It takes steps from the feed on a thread of its own. Whatever happens to the disk, the daemon goes on, and what is
//! wrong is told by [`Recorder::standing`]. Must not know the loop, nor what anybody does with a recording.

mod check;
mod format;
mod read;
mod ring;

pub use format::{Entry, FORMAT, Header, OLDEST, SUFFIX, VERSION, writable};
pub use read::{Item, ReadError, Reader};
pub use ring::RecorderError;

use crate::{Standing, Step};
use crossbeam_channel::Receiver;
use ring::Ring;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What is recorded, and how much of it stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecorderConfig {
    /// Where the segments are.
    pub directory: PathBuf,
    /// How long a step is kept.
    pub keep: Duration,
    /// Bytes the segments may take on disk.
    pub most_bytes: u64,
    /// Steps that are written at once: as many are lost by a kill -9 at most.
    pub flush_steps: u32,
}

impl RecorderConfig {
    /// Fewest bytes that make a ring: sixteen segments of a few frames.
    pub const LEAST_BYTES: u64 = 1 << 20;
    /// Longest time that a step is kept, a year: more is a mistake in the unit.
    pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

    /// The last day, at most 256 MiB, half a minute at risk (at a step a second). Measured on the virtual server under
    /// `a4`, `waykeeper` and `iat`: a step of 11 tenants on 18 cores takes 0.5 KB on disk, so a day of them 43 MB; one of
    /// 64 tenants on 64 cores 1.9 KB, a day 166 MB.
    pub fn in_directory(directory: impl Into<PathBuf>) -> RecorderConfig {
        let keep = Duration::from_secs(24 * 3600);
        RecorderConfig { directory: directory.into(), keep, most_bytes: 256 << 20, flush_steps: 30 }
    }

    /// What is wrong with it, if anything: the field, its value, what would do.
    ///
    /// # Errors
    /// The first such line.
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

/// How the recording goes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecorderStatus {
    /// Files on disk.
    pub files: u64,
    /// Bytes they take, in whole blocks.
    pub bytes: u64,
    /// Steps lost because they could not be written; those that the feed had no room for are not in it.
    pub lost: u64,
    /// Why nothing is recorded at present.
    pub standing: Option<Standing>,
}

/// A recorder at work. It ends when the feed's other end is dropped.
#[derive(Debug)]
pub struct Recorder {
    status: Arc<Mutex<RecorderStatus>>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts one.
    ///
    /// # Errors
    /// If there is no thread to be had. What goes wrong on the disk is no error: see [`Recorder::standing`].
    pub fn start(config: RecorderConfig, steps: Receiver<Step>) -> io::Result<Recorder> {
        let status = Arc::new(Mutex::new(RecorderStatus::default()));
        let shown = status.clone();
        let work = move || {
            let mut ring = Ring::new(config);
            let show = |ring: &Ring| {
                let (files, bytes) = (ring.files() as u64, ring.bytes());
                let next = RecorderStatus { files, bytes, lost: ring.lost(), standing: ring.standing() };
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = next;
            };
            for step in steps {
                ring.take(&step);
                show(&ring);
            }
            ring.finish();
            show(&ring);
        };
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(work)?;
        Ok(Recorder { status, thread })
    }

    /// How it goes.
    pub fn status(&self) -> RecorderStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why nothing is recorded at present; goes on the board with the rest that stands.
    pub fn standing(&self) -> Option<Standing> {
        // As long as there is a feed the thread ends by a panic only: a mistake of ours, which is told like the rest.
        if self.thread.is_finished() {
            let text = "the recorder stopped: its thread has ended".to_owned();
            return Some(Standing { kind: "recorder".to_owned(), text });
        }
        self.status().standing
    }

    /// Waits until everything is on disk. The feed's other end must have been dropped.
    pub fn join(self) -> RecorderStatus {
        let status = self.status.clone();
        // A panic has been told by the hook.
        let _ = self.thread.join();
        status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests;
