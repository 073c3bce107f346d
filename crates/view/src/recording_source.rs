//! A recording as a source: a segment or a folder of them, played at a chosen speed, with stop and any place in it.
//!
//! Opening reads only the first and the last segment, to know the length. Must not know who wrote it, nor what is drawn.

use crate::source::{Abilities, Source, SourceEvent, SourceInfo, SourceKind, Turn, TurnError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use waykeeper_service::recorder::{Item, ReadError, RecordingReader};

/// A gap longer than so many periods (the daemon did not run) is played as one period.
const GAP_PERIODS: u32 = 10;

/// First and last step of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingSpan {
    /// Time of the first step.
    pub from: SystemTime,
    /// Time of the last step.
    pub to: SystemTime,
}

impl RecordingSpan {
    /// Seconds between the two.
    pub fn length_s(&self) -> f64 {
        self.to.duration_since(self.from).unwrap_or_default().as_secs_f64()
    }
}

/// A recording that is played.
#[derive(Debug)]
pub struct RecordingSource {
    path: PathBuf,
    span: RecordingSpan,
    reader: RecordingReader,
    /// An event that is due later.
    held: Option<SourceEvent>,
    /// Steps before this time are skipped: the place of a seek.
    from: Option<SystemTime>,
    speed: f64,
    stopped: bool,
    period: Duration,
    /// Time of the last step in the recording, and when it was given.
    last: Option<(SystemTime, Instant)>,
    ended: bool,
}

impl RecordingSource {
    /// Opens a segment or a folder.
    ///
    /// # Errors
    /// If it is missing or empty, or has no step that can be read.
    pub fn open(path: &Path, speed: f64) -> Result<RecordingSource, RecordingError> {
        let speed = Turn::check_speed(speed)?;
        let nothing = || RecordingError::NoStep(path.to_owned());
        let first = steps(RecordingReader::open(path)?).next().ok_or_else(nothing)?;
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        let last = steps(RecordingReader::open_at(path, far)?).last().unwrap_or(first);
        let span = RecordingSpan { from: first, to: last.max(first) };
        let reader = RecordingReader::open(path)?;
        Ok(RecordingSource {
            path: path.to_owned(),
            span,
            reader,
            held: None,
            from: None,
            speed,
            stopped: false,
            period: Duration::from_secs(1),
            last: None,
            ended: false,
        })
    }

    /// Its first and last step.
    pub fn span(&self) -> RecordingSpan {
        self.span
    }

    /// The next event of the file, whether it is due or not.
    fn read(&mut self) -> SourceEvent {
        for item in self.reader.by_ref() {
            match item {
                Item::Segment { header, .. } => {
                    self.period = Duration::from_nanos(header.period_ns);
                    return SourceEvent::Begin(header);
                }
                Item::Unreadable(why) => return SourceEvent::Lost { why },
                Item::Entry(step) if self.from.is_some_and(|from| step.at < from) => {}
                Item::Entry(step) => {
                    self.from = None;
                    return SourceEvent::Step(step);
                }
            }
        }
        SourceEvent::End
    }

    /// How long the held event has to wait.
    fn due_in(&self, event: &SourceEvent) -> Duration {
        let (SourceEvent::Step(step), Some((before, given))) = (event, self.last) else {
            return Duration::ZERO;
        };
        let gap = step.at.duration_since(before).unwrap_or_default();
        let gap = if gap > self.period * GAP_PERIODS { self.period } else { gap };
        gap.div_f64(self.speed).saturating_sub(given.elapsed())
    }
}

impl Source for RecordingSource {
    fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
        if self.ended || (self.stopped && self.last.is_some()) {
            std::thread::sleep(wait);
            return None;
        }
        let event = match self.held.take() {
            Some(event) => event,
            None => self.read(),
        };
        let due = self.due_in(&event);
        if due > wait {
            self.held = Some(event);
            std::thread::sleep(wait);
            return None;
        }
        std::thread::sleep(due);
        match &event {
            SourceEvent::Step(step) => self.last = Some((step.at, Instant::now())),
            SourceEvent::End => self.ended = true,
            SourceEvent::Begin(_) | SourceEvent::Lost { .. } => {}
        }
        Some(event)
    }

    fn turn(&mut self, turn: Turn) -> Result<String, TurnError> {
        match turn {
            Turn::Speed { factor } => {
                self.speed = Turn::check_speed(factor)?;
                Ok(format!("speed {factor}"))
            }
            Turn::Stop => {
                self.stopped = true;
                Ok("the recording is stopped".to_owned())
            }
            Turn::Play => {
                self.stopped = false;
                self.last = self.last.map(|(at, _)| (at, Instant::now()));
                Ok("the recording is played".to_owned())
            }
            Turn::Seek { to_s } => {
                if !to_s.is_finite() {
                    return Err(TurnError::Refused(format!("{to_s} is no place in a recording; give seconds")));
                }
                let to_s = to_s.clamp(0.0, self.span.length_s());
                let at = self.span.from + Duration::from_secs_f64(to_s);
                let reader = RecordingReader::open_at(&self.path, at);
                self.reader = reader.map_err(|why| TurnError::Lost(why.to_string()))?;
                (self.held, self.last, self.ended) = (None, None, false);
                self.from = Some(at);
                Ok(format!("at {to_s:.0} s of {:.0} s", self.span.length_s()))
            }
            Turn::Policy { .. } | Turn::Pause { .. } | Turn::Resume => Err(TurnError::Unsupported(
                "the policy of a recording cannot be changed; `waykeeper replay --policy` compares another one"
                    .to_owned(),
            )),
            Turn::Mask { .. } | Turn::DcaWays { .. } | Turn::Dca { .. } | Turn::Load { .. } => {
                Err(TurnError::Unsupported("nothing can be turned in a recording".to_owned()))
            }
        }
    }

    fn info(&self) -> SourceInfo {
        let place = self.last.and_then(|(at, _)| at.duration_since(self.span.from).ok());
        SourceInfo {
            kind: SourceKind::Recording,
            name: self.path.display().to_string(),
            live: false,
            abilities: Abilities { speed: true, seek: true, ..Abilities::default() },
            speed: Some(self.speed),
            stopped: self.stopped,
            length_s: Some(self.span.length_s()),
            place_s: place.map(|place| place.as_secs_f64()),
            loads: Vec::new(),
        }
    }
}

/// Times of the steps that can be read.
fn steps(reader: RecordingReader) -> impl Iterator<Item = SystemTime> {
    reader.filter_map(|item| if let Item::Entry(step) = item { Some(step.at) } else { None })
}

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be opened.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No step can be read.
    #[error("{}: no step of the recording can be read", .0.display())]
    NoStep(PathBuf),
    /// The speed is out of range.
    #[error(transparent)]
    Speed(#[from] TurnError),
}
