//! The ring on disk: fills segments one after another and deletes the oldest when space or age exceed the limits.
//!
//! Any failure (disk full, read-only, no permission) stops the recording with a message; a minute later, on the steps'
//! clock, it retries with a new segment. Must not know threads or read the clock.

use super::RecorderConfig;
use super::format::{Header, LINE_MOST, RecordedStep, WrittenTenants, frame, name, number};
use crate::{ActiveProblem, Published};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use waykeeper_kernel::system::{DirEntry, FileWriter, OpenFile, SharedSystem};
use waykeeper_kernel::trust;

/// Segments per recording: the part deleted at once (assumption: a sixteenth is little).
const SEGMENTS: u32 = 16;
/// Most files, whatever their size: a daemon that restarts often leaves small ones. Assumption: a directory of so many
/// is listed in milliseconds.
const MOST_FILES: usize = 1024;
/// Pause after a failure. Assumption: a full or absent disk is seldom back sooner.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Block size for the space that a file takes on disk (ext4 and XFS by default).
const BLOCK: u64 = 4096;

/// Why recording stopped.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// The directory cannot be used.
    #[error("{}: {why}", .path.display())]
    Directory {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file cannot be created, written or deleted.
    #[error("{}: cannot {what}: {source}", .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A step that cannot be written as JSON.
    #[error("step {step} cannot be written as JSON: {why}")]
    Step {
        /// Its number.
        step: u64,
        /// Why.
        why: String,
    },
}

/// A complete segment.
#[derive(Debug)]
struct ClosedSegment {
    path: PathBuf,
    /// When it began, which is when the one before it ended at the latest.
    began: SystemTime,
    bytes: u64,
}

/// The segment that is being written.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: Box<dyn OpenFile>,
    header: Header,
    began: SystemTime,
    /// Length up to the last whole frame.
    bytes: u64,
    /// The last tenants and groupings that were written.
    written: Option<WrittenTenants>,
}

/// A wall clock that gains as much on the monotonic clock between two steps was set. Assumption: slewing gains less.
const JUMP: Duration = Duration::from_secs(60);

/// The lock on the directory.
#[derive(Debug)]
struct DirectoryLock(Box<dyn OpenFile>);

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // A child that another thread is just starting has the descriptor too: closing ours would not unlock.
        let _ = self.0.lock(FlockOperation::Unlock);
    }
}

/// The ring.
#[derive(Debug)]
pub struct RecordingRing {
    system: SharedSystem,
    config: RecorderConfig,
    /// Holds the lock on the directory, so that two daemons do not delete each other's segments.
    lock: Option<DirectoryLock>,
    closed: VecDeque<ClosedSegment>,
    next_number: u64,
    segment: Option<Segment>,
    /// Buffered lines of the next frame, and their number.
    lines: Vec<u8>,
    waiting: u32,
    failed: Option<(SystemTime, RecorderError)>,
    lost: u64,
    /// The last step's time on the wall clock and on the monotonic clock.
    last: Option<(SystemTime, Duration)>,
}

impl RecordingRing {
    /// An empty ring; nothing is read or written before the first step.
    pub fn new(system: SharedSystem, config: RecorderConfig) -> RecordingRing {
        RecordingRing {
            system,
            config,
            lock: None,
            closed: VecDeque::new(),
            next_number: 1,
            segment: None,
            lines: Vec::new(),
            waiting: 0,
            failed: None,
            lost: 0,
            last: None,
        }
    }

    /// Takes a step. It is on disk at the latest after [`RecorderConfig::flush_steps`] further steps.
    pub fn record(&mut self, step: &Published) {
        self.follow_clock(step);
        if let Some((since, _)) = &self.failed {
            // If the clock went backwards, retry at once.
            if step.at >= *since && step.at < *since + AGAIN_AFTER {
                self.lost += 1;
                return;
            }
            self.failed = None;
        }
        let done = self.write_down(step);
        self.fail(done, step.at, 1);
        if self.waiting >= self.config.flush_steps || self.lines.len() >= LINE_MOST {
            let done = self.flush(step.at);
            self.fail(done, step.at, 0);
        }
    }

    /// Adds what the wall clock jumped forward to the times of all segments: a clock that was set makes none of them older.
    fn follow_clock(&mut self, step: &Published) {
        let Some((at, clock)) = self.last.replace((step.at, step.at_clock)) else { return };
        let passed = step.at_clock.saturating_sub(clock);
        let by = step.at.duration_since(at).unwrap_or_default().saturating_sub(passed);
        if by < JUMP {
            return;
        }
        let began = self.closed.iter_mut().map(|segment| &mut segment.began);
        for began in began.chain(self.segment.as_mut().map(|segment| &mut segment.began)) {
            *began = began.checked_add(by).unwrap_or(step.at);
        }
        let s = by.as_secs();
        tracing::warn!(
            "the clock jumped forward by {s} s: recordings are kept as if they had been made that much later"
        );
    }

    /// Writes the buffered lines and closes the segment.
    pub fn finish(&mut self) {
        let at = self.segment.as_ref().map_or(SystemTime::UNIX_EPOCH, |segment| segment.began);
        let done = self.close();
        self.fail(done, at, 0);
    }

    /// Why nothing is recorded now.
    pub fn active_problem(&self) -> Option<ActiveProblem> {
        let (_, why) = self.failed.as_ref()?;
        // Without the number of lost steps, which changes every time and would look like a new problem.
        let text = format!("cannot record: {why}; the recorder retries every {} s", AGAIN_AFTER.as_secs());
        Some(ActiveProblem { kind: "recorder".to_owned(), text })
    }

    /// Steps that were lost because they could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes on disk, in whole blocks.
    pub fn bytes(&self) -> u64 {
        let current = self.segment.as_ref().map_or(0, |segment| blocks(segment.bytes));
        self.closed.iter().map(|segment| segment.bytes).sum::<u64>() + current
    }

    /// Files on disk.
    pub fn files(&self) -> usize {
        self.closed.len() + usize::from(self.segment.is_some())
    }

    /// Handles a failure: drops the buffered steps and cuts the file after its last whole frame. `step` is 1 if the
    /// current step is not buffered yet.
    fn fail(&mut self, done: Result<(), RecorderError>, at: SystemTime, step: u64) {
        let Err(why) = done else { return };
        self.lost += u64::from(self.waiting) + step;
        self.lines.clear();
        self.waiting = 0;
        if let Some(segment) = self.segment.take() {
            // If this fails too, the reader finds a torn tail and reports it.
            let _ = segment.file.set_len(segment.bytes);
            let bytes = blocks(segment.bytes);
            self.closed.push_back(ClosedSegment { path: segment.path, began: segment.began, bytes });
        }
        self.lock = None;
        self.failed = Some((at, why));
    }

    fn write_down(&mut self, step: &Published) -> Result<(), RecorderError> {
        let ended = |segment: &Segment| {
            let age = step.at.duration_since(segment.began).unwrap_or_default();
            !segment.header.covers(step)
                || age >= self.config.keep / SEGMENTS
                || segment.bytes >= self.config.most_bytes / u64::from(SEGMENTS)
        };
        if self.segment.as_ref().is_some_and(ended) {
            self.close()?;
        }
        if self.segment.is_none() {
            self.open(step)?;
        }
        let Some(segment) = self.segment.as_mut() else { return Ok(()) };
        let entry = RecordedStep::of(step, segment.written.as_ref());
        let from = self.lines.len();
        append(&mut self.lines, &entry).map_err(|why| RecorderError::Step { step: step.step, why })?;
        if self.lines.len() - from > LINE_MOST {
            let why = format!("{} bytes, more than {LINE_MOST}", self.lines.len() - from);
            return Err(RecorderError::Step { step: step.step, why });
        }
        if entry.groups.is_some() || entry.groupings.is_some() {
            segment.written =
                Some(WrittenTenants { groups: step.groups.clone(), groupings: step.groupings.clone() });
        }
        self.waiting += 1;
        Ok(())
    }

    /// Starts a segment: directory, lock, existing files, header.
    fn open(&mut self, step: &Published) -> Result<(), RecorderError> {
        let header = Header::of(step);
        let mut line = Vec::new();
        append(&mut line, &header).map_err(|why| RecorderError::Step { step: step.step, why })?;
        let packed = frame(&line).map_err(|why| self.failure("pack", why))?;
        if self.lock.is_none() {
            self.lock_directory()?;
        }
        self.make_room(packed.len() as u64, step.at)?;
        let path = self.config.directory.join(name(self.next_number, step.at));
        let cannot = |what| {
            let path = path.clone();
            move |source| RecorderError::File { path, what, source }
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = self.system.open(&path, flags, Mode::from_raw_mode(0o640));
        let file = file.map_err(cannot("create it"))?;
        self.next_number += 1;
        self.segment =
            Some(Segment { path: path.clone(), file, header, began: step.at, bytes: 0, written: None });
        let Some(segment) = self.segment.as_mut() else { return Ok(()) };
        // Independent of the umask: the group may read recordings.
        segment.file.set_mode(0o640).map_err(cannot("set its mode"))?;
        FileWriter(segment.file.as_ref()).write_all(&packed).map_err(cannot("write it"))?;
        segment.bytes = packed.len() as u64;
        Ok(())
    }

    /// Opens or creates the directory, locks it and lists its segments.
    fn lock_directory(&mut self) -> Result<(), RecorderError> {
        let path = self.config.directory.clone();
        let refuse = |why: String| RecorderError::Directory { path: path.clone(), why };
        let system = self.system.clone();
        let opened = || system.open(&path, OFlags::RDONLY, Mode::empty());
        if !system.exists(&path) {
            // Nothing is made in a folder in which another user could replace it.
            match trust::folder(system.as_ref(), &path) {
                Err(why) if !why.is_absent() => return Err(refuse(why.to_string())),
                _ => {}
            }
            let made = system.make_dirs(&path, Mode::from_raw_mode(0o750));
            made.and_then(|()| opened()?.set_mode(0o750))
                .map_err(|why| refuse(format!("cannot create the directory: {why}")))?;
        }
        trust::folder(system.as_ref(), &path).map_err(|why| refuse(why.to_string()))?;
        let directory = opened().map_err(|why| refuse(why.to_string()))?;
        let about = directory.metadata().map_err(|why| refuse(why.to_string()))?;
        if !about.is_dir() {
            return Err(refuse("not a directory".to_owned()));
        }
        directory.lock(FlockOperation::NonBlockingLockExclusive).map_err(|why| match why.kind() {
            io::ErrorKind::WouldBlock => refuse("another waykeeper records into it".to_owned()),
            _ => refuse(format!("cannot lock it: {why}")),
        })?;
        let mut names = Vec::new();
        let mut visit = |entry: DirEntry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        };
        system.list(&path, &mut visit).map_err(|why| refuse(why.to_string()))?;
        let mut found = Vec::new();
        for name in names {
            let Some(number) = name.to_str().and_then(number) else { continue };
            let path = path.join(&name);
            let about = system.link_metadata(&path).map_err(|why| refuse(why.to_string()))?;
            if about.is_file() {
                // The time of the last write is later than the beginning, but close enough.
                let (began, bytes) = (about.modified, blocks(about.size));
                found.push((number, ClosedSegment { path, began, bytes }));
            }
        }
        found.sort_by_key(|(number, _)| *number);
        let last = found.last().map_or(0, |(number, _)| *number);
        self.next_number = last
            .checked_add(1)
            .ok_or_else(|| refuse("the last segment has the highest possible number".to_owned()))?;
        self.closed = found.into_iter().map(|(_, segment)| segment).collect();
        self.lock = Some(DirectoryLock(directory));
        Ok(())
    }

    /// Deletes the oldest segments until `more` bytes fit and none is older than `keep`.
    fn make_room(&mut self, more: u64, now: SystemTime) -> Result<(), RecorderError> {
        loop {
            let follower = self.closed.get(1).map(|segment| segment.began);
            let follower = follower.or(self.segment.as_ref().map(|segment| segment.began));
            let current = self.segment.as_ref().map_or(0, |segment| segment.bytes);
            let rest: u64 = self.closed.iter().map(|segment| segment.bytes).sum();
            let stale = follower
                .is_some_and(|ended| now.duration_since(ended).is_ok_and(|age| age >= self.config.keep));
            let full =
                rest + blocks(current + more) > self.config.most_bytes || self.closed.len() + 1 > MOST_FILES;
            if !stale && !full {
                return Ok(());
            }
            let Some(oldest) = self.closed.front() else {
                let why = format!(
                    "the limit of {} bytes is too small for one frame of {more}",
                    self.config.most_bytes
                );
                return Err(RecorderError::Directory { path: self.config.directory.clone(), why });
            };
            match self.system.remove_file(&oldest.path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    let path = oldest.path.clone();
                    return Err(RecorderError::File { path, what: "delete it", source });
                }
                _ => drop(self.closed.pop_front()),
            }
        }
    }

    /// Writes the buffered lines as one frame.
    fn flush(&mut self, now: SystemTime) -> Result<(), RecorderError> {
        if self.lines.is_empty() || self.segment.is_none() {
            return Ok(());
        }
        let packed = frame(&self.lines).map_err(|why| self.failure("pack", why))?;
        self.make_room(packed.len() as u64, now)?;
        let Some(segment) = self.segment.as_mut() else { return Ok(()) };
        FileWriter(segment.file.as_ref()).write_all(&packed).map_err(|source| RecorderError::File {
            path: segment.path.clone(),
            what: "write it",
            source,
        })?;
        segment.bytes += packed.len() as u64;
        self.lines.clear();
        self.waiting = 0;
        Ok(())
    }

    /// Closes the current segment, if there is one.
    fn close(&mut self) -> Result<(), RecorderError> {
        let Some(now) = self.segment.as_ref().map(|segment| segment.began) else { return Ok(()) };
        self.flush(now)?;
        let Some(segment) = self.segment.take() else { return Ok(()) };
        let bytes = blocks(segment.bytes);
        self.closed.push_back(ClosedSegment { path: segment.path.clone(), began: segment.began, bytes });
        let cannot = |source| RecorderError::File { path: segment.path.clone(), what: "sync it", source };
        segment.file.sync().map_err(cannot)
    }

    fn failure(&self, what: &'static str, source: io::Error) -> RecorderError {
        RecorderError::File { path: self.config.directory.clone(), what, source }
    }
}

/// Rounds up to whole blocks.
fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK) * BLOCK
}

fn append(lines: &mut Vec<u8>, value: &impl serde::Serialize) -> Result<(), String> {
    let from = lines.len();
    match serde_json::to_writer(&mut *lines, value) {
        Ok(()) => lines.push(b'\n'),
        Err(why) => {
            lines.truncate(from);
            return Err(why.to_string());
        }
    }
    Ok(())
}
