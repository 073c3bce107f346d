//! All feeds of the server: the main source, and the playgrounds, which are bounded in number.
//!
//! Where a playground would be one too many, the one that is used least ends: first those that no page has, then those of
//! hidden pages, which start theirs anew when they are shown. Must not know HTTP, nor how a source is opened.

use crate::feed::{FeedLife, FeedUse, LiveFeed};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use waykeeper_view::Source;

/// Id of the main source's feed.
pub const MAIN: &str = "main";

/// Why there is no further playground.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The bound is reached.
    #[error("pages show {0} virtual servers, which is the most at a time; hide or close one of these pages")]
    TooMany(usize),
    /// No thread, or no random numbers.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

type ById = BTreeMap<String, Arc<LiveFeed>>;

/// The feeds by id.
#[derive(Debug)]
pub struct FeedSet {
    feeds: Arc<Mutex<ById>>,
    most: usize,
    idle: Duration,
}

fn locked(feeds: &Mutex<ById>) -> MutexGuard<'_, ById> {
    feeds.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is room for one more, and the playground that has to end for it.
fn room(feeds: &ById, most: usize) -> Result<Option<String>, FeedError> {
    let playgrounds = || feeds.iter().filter(|(id, _)| *id != MAIN);
    if playgrounds().count() < most {
        return Ok(None);
    }
    let uses = playgrounds().map(|(id, feed)| (feed.in_use(), id));
    let least = uses.filter(|(used, _)| *used != FeedUse::Seen).min();
    least.map(|(_, id)| Some(id.clone())).ok_or(FeedError::TooMany(most))
}

impl FeedSet {
    /// No feeds yet. There will be at most `most` playgrounds; one that no page has ends after `idle`.
    pub fn new(most: usize, idle: Duration) -> FeedSet {
        FeedSet { feeds: Arc::default(), most, idle }
    }

    /// Adds the main source.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn add_main(&self, source: Box<dyn Source>) -> io::Result<()> {
        let feed = LiveFeed::start(source, FeedLife::Server, || {})?;
        locked(&self.feeds).insert(MAIN.to_owned(), Arc::new(feed));
        Ok(())
    }

    /// Refuses a playground that would be one too many, before it is made.
    ///
    /// # Errors
    /// [`FeedError::TooMany`].
    pub fn check_room(&self) -> Result<(), FeedError> {
        room(&locked(&self.feeds), self.most).map(|_| ())
    }

    /// Adds a playground; returns its id, which cannot be guessed.
    ///
    /// # Errors
    /// [`FeedError`].
    pub fn add_playground(&self, source: Box<dyn Source>) -> Result<String, FeedError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut feeds = locked(&self.feeds);
        if let Some(ends) = room(&feeds, self.most)? {
            feeds.remove(&ends);
        }
        let (set, own) = (Arc::downgrade(&self.feeds), id.clone());
        // It may end before it is in the set; the lock is held until then.
        let at_end = move || {
            if let Some(feeds) = Weak::upgrade(&set) {
                locked(&feeds).remove(&own);
            }
        };
        let feed = LiveFeed::start(source, FeedLife::Viewers(self.idle), at_end)?;
        feeds.insert(id.clone(), Arc::new(feed));
        Ok(id)
    }

    /// The feed with this id.
    pub fn get(&self, id: &str) -> Option<Arc<LiveFeed>> {
        locked(&self.feeds).get(id).cloned()
    }

    /// Ends a playground; false if there is none with this id.
    pub fn end_playground(&self, id: &str) -> bool {
        id != MAIN && locked(&self.feeds).remove(id).is_some()
    }

    /// Whether there is a main source.
    pub fn has_main(&self) -> bool {
        locked(&self.feeds).contains_key(MAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::testing::{Silent, wait_until};

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(3600);

    fn add(feeds: &FeedSet) -> String {
        feeds.add_playground(Box::new(Silent)).unwrap()
    }

    #[test]
    fn the_one_that_is_used_least_makes_room_and_one_that_is_seen_never_does() {
        let feeds = FeedSet::new(3, LONG);
        feeds.add_main(Box::new(Silent)).unwrap();
        let ids = [add(&feeds), add(&feeds), add(&feeds)];
        let viewer = |id: &str, is_seen| feeds.get(id).unwrap().viewer(is_seen);
        let is_there = |id: &str| feeds.get(id).is_some();
        let seen = viewer(&ids[0], true);
        let hidden = viewer(&ids[1], false);
        // No page has the third.
        let fourth = add(&feeds);
        assert!(!is_there(&ids[2]) && is_there(&fourth));
        // Of two that no page has, the one that was left first ends.
        drop(hidden);
        let fifth = add(&feeds);
        assert!(!is_there(&fourth) && is_there(&ids[1]), "the fourth never had a page since before");
        // A hidden page's ends only if all others are seen.
        let hidden = viewer(&ids[1], false);
        let also_seen = viewer(&fifth, true);
        let sixth = add(&feeds);
        assert!(!is_there(&ids[1]) && is_there(&fifth));
        // Its viewer notices.
        wait_until("the viewer of an ended playground", || hidden.is_over());
        let last = viewer(&sixth, true);
        assert!(matches!(feeds.check_room(), Err(FeedError::TooMany(3))));
        assert!(matches!(feeds.add_playground(Box::new(Silent)), Err(FeedError::TooMany(3))));
        // A page that closes makes room at once, however long its playground would wait for another page.
        drop(seen);
        add(&feeds);
        assert!(!is_there(&ids[0]) && feeds.has_main());
        drop((also_seen, last));
    }

    #[test]
    fn a_thousand_pages_that_come_and_go_leave_nothing() {
        let feeds = FeedSet::new(8, Duration::ZERO);
        feeds.add_main(Box::new(Silent)).unwrap();
        for _ in 0..1000 {
            let id = add(&feeds);
            drop(feeds.get(&id).map(|feed| feed.viewer(true)));
            assert!(locked(&feeds.feeds).len() <= 9);
        }
        wait_until("only the main source is left", || locked(&feeds.feeds).len() == 1);
    }
}
