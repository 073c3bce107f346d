//! One source for all its viewers: a thread takes its events, writes each picture once, and carries out turns.
//!
//! A viewer reads the latest picture when it can; the thread never waits for one. Must not know HTTP.

use axum::body::Bytes;
use serde_json::json;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// As long as it has a viewer. Its source is paused while no page shows it.
    Viewers(FeedPatience),
}

/// How long a feed that no page has waits for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedPatience {
    /// For the first one: the page has just asked for the feed, and its browser may be slow to open the stream.
    pub first: Duration,
    /// For another one, once it had one.
    pub next: Duration,
}

/// How much a feed is used; the least comes first, and of two that are used alike, the one that is so for longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FeedUse {
    /// No page has it, since then.
    Left(Instant),
    /// Only hidden pages have it, since then.
    Hidden(Instant),
    /// A page shows it.
    Seen,
}

/// The viewers of a feed.
#[derive(Debug)]
pub struct Audience(Mutex<Present>);

#[derive(Debug)]
struct Present {
    seen: usize,
    hidden: usize,
    had_any: bool,
    /// The last change.
    since: Instant,
}

impl Default for Audience {
    fn default() -> Audience {
        Audience(Mutex::new(Present { seen: 0, hidden: 0, had_any: false, since: Instant::now() }))
    }
}

impl Audience {
    fn locked(&self) -> MutexGuard<'_, Present> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_use(&self) -> FeedUse {
        match *self.locked() {
            Present { seen: 0, hidden: 0, since, .. } => FeedUse::Left(since),
            Present { seen: 0, since, .. } => FeedUse::Hidden(since),
            _ => FeedUse::Seen,
        }
    }

    /// How long it waits for a viewer when it has none.
    fn waits(&self, patience: FeedPatience) -> Duration {
        if self.locked().had_any { patience.next } else { patience.first }
    }

    /// Changes the number of viewers of one kind.
    fn count(&self, is_seen: bool, change: impl Fn(usize) -> usize) {
        let mut present = self.locked();
        let count = if is_seen { &mut present.seen } else { &mut present.hidden };
        *count = change(*count);
        present.had_any = true;
        present.since = Instant::now();
    }
}

/// A viewer of a feed: it keeps a playground alive.
#[derive(Debug)]
pub struct FeedViewer {
    /// What it gets.
    pub frames: watch::Receiver<FeedFrames>,
    /// A page shows it. Else the page is hidden and gets no pictures.
    pub is_seen: bool,
    audience: Arc<Audience>,
}

impl FeedViewer {
    /// One more viewer.
    pub fn new(frames: watch::Receiver<FeedFrames>, is_seen: bool, audience: Arc<Audience>) -> FeedViewer {
        audience.count(is_seen, |count| count + 1);
        FeedViewer { frames, is_seen, audience }
    }

    /// Whether the feed has ended.
    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.frames.has_changed().is_err()
    }
}

impl Drop for FeedViewer {
    fn drop(&mut self) {
        self.audience.count(self.is_seen, |count| count - 1);
    }
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
    audience: Arc<Audience>,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for LiveFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveFeed").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl LiveFeed {
    /// Starts the thread, which calls `at_end` when it ends.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(
        source: Box<dyn Source>,
        life: FeedLife,
        at_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<LiveFeed> {
        let (sender, frames) = watch::channel(FeedFrames::default());
        let (questions, asked) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let audience = Arc::<Audience>::default();
        let thread = FeedThread {
            at_end: AtEnd(Some(Box::new(at_end))),
            model: ViewModel::new(),
            source,
            asked,
            sender,
            audience: audience.clone(),
            stop: stop.clone(),
            life,
        };
        thread::Builder::new().name("waykeeper-feed".to_owned()).spawn(move || thread.run())?;
        Ok(LiveFeed { frames, asked: questions, audience, stop })
    }

    /// A new viewer.
    pub fn viewer(&self, is_seen: bool) -> FeedViewer {
        FeedViewer::new(self.frames.clone(), is_seen, self.audience.clone())
    }

    /// How much it is used.
    pub fn in_use(&self) -> FeedUse {
        self.audience.in_use()
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

/// Says that the thread has ended, after a panic too.
struct AtEnd(Option<Box<dyn FnOnce() + Send>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(at_end) = self.0.take() {
            at_end();
        }
    }
}

struct FeedThread {
    /// The first that is dropped: a feed whose viewers have noticed its end cannot be found again.
    #[expect(dead_code, reason = "it acts when it is dropped")]
    at_end: AtEnd,
    source: Box<dyn Source>,
    model: ViewModel,
    asked: Receiver<Asked>,
    sender: watch::Sender<FeedFrames>,
    audience: Arc<Audience>,
    stop: Arc<AtomicBool>,
    life: FeedLife,
}

impl FeedThread {
    fn run(mut self) {
        let mut was_seen = true;
        while !self.stop.load(Ordering::Relaxed) {
            self.take_events();
            self.carry_out();
            let FeedLife::Viewers(patience) = self.life else { continue };
            let used = self.audience.in_use();
            let is_seen = used == FeedUse::Seen;
            if is_seen != was_seen {
                self.source.watch(is_seen);
                was_seen = is_seen;
            }
            if let FeedUse::Left(since) = used
                && since.elapsed() >= self.audience.waits(patience)
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
pub mod testing {
    //! A source and patience for the tests of feeds.

    use super::*;
    use waykeeper_view::{Abilities, SourceInfo, SourceKind};

    /// A source without steps.
    pub struct Silent;

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

    /// Longest that a test waits for anything.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Longer than any test.
    pub const LONG: Duration = Duration::from_secs(3600);

    /// Waits for a condition.
    pub fn wait_until(what: &str, so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{LONG, Silent, wait_until};
    use super::*;
    use waykeeper_view::SourceInfo;

    /// A source that says whether it is watched.
    struct Watched(Arc<Mutex<Option<bool>>>);

    impl Source for Watched {
        fn next(&mut self, wait: Duration) -> Option<SourceEvent> {
            Silent.next(wait)
        }

        fn turn(&mut self, turn: Turn) -> Result<String, TurnError> {
            Silent.turn(turn)
        }

        fn info(&self) -> SourceInfo {
            Silent.info()
        }

        fn watch(&mut self, is_watched: bool) {
            *self.0.lock().unwrap() = Some(is_watched);
        }
    }

    #[test]
    fn a_playground_ends_some_time_after_its_last_viewer_and_the_main_source_does_not() {
        let idle = Duration::from_millis(200);
        let life = FeedLife::Viewers(FeedPatience { first: LONG, next: idle });
        let ended = Arc::new(AtomicBool::new(false));
        let at_end = ended.clone();
        let feed = LiveFeed::start(Box::new(Silent), life, move || {
            at_end.store(true, Ordering::Relaxed);
        });
        let feed = feed.unwrap();
        let main = LiveFeed::start(Box::new(Silent), FeedLife::Server, || {}).unwrap();
        let main = main.viewer(true);
        let (seen, hidden) = (feed.viewer(true), feed.viewer(false));
        drop(seen);
        let begin = Instant::now();
        while begin.elapsed() < 2 * idle {
            thread::sleep(LOOK);
            assert!(!hidden.is_over(), "a hidden page keeps it");
        }
        let left = Instant::now();
        drop(hidden);
        wait_until("it has no viewer and does not end", || ended.load(Ordering::Relaxed));
        assert!(left.elapsed() >= idle, "a page that is loaded again finds it");
        assert!(!main.is_over());
    }

    #[test]
    fn a_playground_waits_longer_for_its_first_viewer_than_for_the_next() {
        let idle = Duration::from_millis(50);
        let ended = Arc::new(AtomicBool::new(false));
        let at_end = ended.clone();
        let life = FeedLife::Viewers(FeedPatience { first: LONG, next: idle });
        let feed = LiveFeed::start(Box::new(Silent), life, move || at_end.store(true, Ordering::Relaxed));
        let feed = feed.unwrap();
        let begin = Instant::now();
        while begin.elapsed() < 4 * idle {
            thread::sleep(LOOK);
            assert!(!ended.load(Ordering::Relaxed), "no page has come yet");
        }
        drop(feed.viewer(true));
        wait_until("its viewer has gone, and it does not end", || ended.load(Ordering::Relaxed));
    }

    #[test]
    fn a_playground_that_no_page_ever_takes_ends_too() {
        let ended = Arc::new(AtomicBool::new(false));
        let at_end = ended.clone();
        let life = FeedLife::Viewers(FeedPatience { first: Duration::ZERO, next: LONG });
        let feed = LiveFeed::start(Box::new(Silent), life, move || at_end.store(true, Ordering::Relaxed));
        let _feed = feed.unwrap();
        wait_until("no page comes, and it does not end", || ended.load(Ordering::Relaxed));
    }

    #[test]
    fn a_playground_is_paused_while_no_page_shows_it() {
        let told = Arc::<Mutex<Option<bool>>>::default();
        let source = Box::new(Watched(told.clone()));
        let life = FeedLife::Viewers(FeedPatience { first: LONG, next: LONG });
        let feed = LiveFeed::start(source, life, || {}).unwrap();
        let is_told = |so| wait_until("the source is told", || *told.lock().unwrap() == Some(so));
        is_told(false);
        let hidden = feed.viewer(false);
        assert!(matches!(feed.in_use(), FeedUse::Hidden(_)));
        let seen = feed.viewer(true);
        is_told(true);
        assert_eq!(feed.in_use(), FeedUse::Seen);
        drop(seen);
        is_told(false);
        drop(hidden);
        assert!(matches!(feed.in_use(), FeedUse::Left(_)));
    }
}
