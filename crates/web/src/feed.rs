//! One source for all its viewers: a thread takes its events, writes each picture once, and carries out turns.
//!
//! A viewer reads the latest picture when it can; the thread never waits for one. Must not know HTTP.

use axum::body::Bytes;
use serde_json::json;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use waykeeper_view::{HistoryColumns, Series, Source, SourceEvent, Turn, TurnError, ViewModel};

/// Longest that the thread waits for an event before it looks for turns.
const LOOK: Duration = Duration::from_millis(50);
/// Most events that one picture takes together: a source that is faster than this does not keep turns waiting.
const EVENTS_MOST: usize = 64;

/// How long a feed lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedLife {
    /// As long as the server.
    Server,
    /// As long as it has a viewer, and so much longer.
    Viewers(Duration),
}

/// The latest events for viewers, as they are sent. The numbers grow with each change.
#[derive(Clone, Debug, Default)]
pub struct FeedFrames {
    /// The latest picture; empty before the first.
    pub picture: Bytes,
    /// How many pictures there were.
    pub pictures: u64,
    /// What happened to the source last; empty if nothing did.
    pub source: Bytes,
    /// How often something happened to it.
    pub sources: u64,
}

/// What viewers ask of the thread, and where the answer is sent.
enum Asked {
    Turn(Turn, oneshot::Sender<Result<String, TurnError>>),
    History(oneshot::Sender<Vec<HistoryColumns>>),
}

/// A source with its viewers. It ends when this is dropped.
pub struct LiveFeed {
    frames: watch::Receiver<FeedFrames>,
    asked: Sender<Asked>,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for LiveFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveFeed").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl LiveFeed {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(source: Box<dyn Source>, life: FeedLife) -> io::Result<LiveFeed> {
        let (sender, frames) = watch::channel(FeedFrames::default());
        let (questions, asked) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = FeedThread { model: ViewModel::new(), source, asked, sender, stop: stop.clone(), life };
        thread::Builder::new().name("waykeeper-feed".to_owned()).spawn(move || thread.run())?;
        Ok(LiveFeed { frames, asked: questions, stop })
    }

    /// The frames of a new viewer.
    pub fn viewer(&self) -> watch::Receiver<FeedFrames> {
        self.frames.clone()
    }

    /// Whether its thread has ended.
    pub fn is_over(&self) -> bool {
        self.frames.has_changed().is_err()
    }

    /// Carries out a turn.
    ///
    /// # Errors
    /// Why it was not carried out.
    pub async fn turn(&self, turn: Turn) -> Result<String, TurnError> {
        let lost = || TurnError::Lost("the source has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        self.asked.send(Asked::Turn(turn, answer)).map_err(|_| lost())?;
        answered.await.map_err(|_| lost())?
    }

    /// The history of all series; `None` if the source has ended.
    pub async fn history(&self) -> Option<Vec<HistoryColumns>> {
        let (answer, answered) = oneshot::channel();
        self.asked.send(Asked::History(answer)).ok()?;
        answered.await.ok()
    }
}

impl Drop for LiveFeed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct FeedThread {
    source: Box<dyn Source>,
    model: ViewModel,
    asked: Receiver<Asked>,
    sender: watch::Sender<FeedFrames>,
    stop: Arc<AtomicBool>,
    life: FeedLife,
}

impl FeedThread {
    fn run(mut self) {
        let mut watched = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            self.take_events();
            self.carry_out();
            // One receiver belongs to the feed itself.
            if self.sender.receiver_count() > 1 {
                watched = Instant::now();
            } else if let FeedLife::Viewers(idle) = self.life
                && watched.elapsed() > idle
            {
                return;
            }
        }
    }

    /// Takes the events that are there; several steps are one picture.
    fn take_events(&mut self) {
        let mut is_changed = false;
        let mut wait = LOOK;
        for _ in 0..EVENTS_MOST {
            let Some(event) = self.source.next(wait) else { break };
            wait = Duration::ZERO;
            match &event {
                SourceEvent::Begin(_) | SourceEvent::Step(_) => is_changed = true,
                SourceEvent::Lost { why } => self.say("lost", why),
                SourceEvent::End => self.say("finished", "no step follows"),
            }
            self.model.take(event);
        }
        if is_changed {
            self.show();
        }
    }

    fn carry_out(&mut self) {
        let mut is_changed = false;
        // A client may be gone when its answer is there.
        while let Ok(asked) = self.asked.try_recv() {
            match asked {
                Asked::Turn(turn, answer) => {
                    let _ = answer.send(self.source.turn(turn));
                    is_changed = true;
                }
                Asked::History(answer) => {
                    let all = Series::ALL.into_iter().map(|series| self.model.history(series, 0.0, f64::MAX));
                    let _ = answer.send(all.collect());
                }
            }
        }
        if is_changed {
            self.show();
        }
    }

    /// Publishes the picture of now.
    fn show(&mut self) {
        let Some(picture) = self.model.picture(self.source.info()) else { return };
        // A picture has no keys that are not text and no numbers that are not finite.
        let Ok(json) = serde_json::to_string(&picture) else { return };
        let frame = Bytes::from(format!("event: picture\ndata: {json}\n\n"));
        self.sender.send_modify(|frames| {
            frames.picture = frame;
            frames.pictures += 1;
        });
    }

    /// Publishes what happened to the source.
    fn say(&mut self, state: &str, why: &str) {
        let frame =
            Bytes::from(format!("event: source\ndata: {}\n\n", json!({ "state": state, "why": why })));
        self.sender.send_modify(|frames| {
            frames.source = frame;
            frames.sources += 1;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_view::{Abilities, SourceInfo, SourceKind};

    /// A source without steps.
    struct Silent;

    impl Source for Silent {
        fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
            thread::sleep(wait);
            None
        }

        fn turn(&mut self, _: Turn) -> Result<String, TurnError> {
            Ok("turned".to_owned())
        }

        fn info(&self) -> SourceInfo {
            SourceInfo {
                kind: SourceKind::Scenario,
                name: "silent".to_owned(),
                live: true,
                abilities: Abilities::default(),
                speed: None,
                stopped: false,
                length_s: None,
                place_s: None,
                loads: Vec::new(),
            }
        }
    }

    /// Waits until the feed is over; false if it is not within this time.
    fn ends(feed: &LiveFeed, within: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < within && !feed.is_over() {
            thread::sleep(LOOK);
        }
        feed.is_over()
    }

    #[test]
    fn a_playground_ends_some_time_after_its_last_viewer_and_the_main_source_does_not() {
        let idle = Duration::from_millis(300);
        let feed = LiveFeed::start(Box::new(Silent), FeedLife::Viewers(idle)).unwrap();
        let main = LiveFeed::start(Box::new(Silent), FeedLife::Server).unwrap();
        let viewer = feed.viewer();
        assert!(!ends(&feed, 3 * idle), "it ended beside a viewer");
        drop(viewer);
        assert!(ends(&feed, Duration::from_secs(60)), "it has no viewer and does not end");
        assert!(!main.is_over());
    }
}
