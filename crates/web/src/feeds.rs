//! All feeds of the server: the main source, and the playgrounds, which are bounded in number.
//!
//! Where a playground would be one too many, the one that is used least ends: first those that no page has, then those of
//! hidden pages, which start theirs anew when they are shown. A playground has its place before it is made, and until its
//! memory is given back, which is some time after it has ended here. Must not know HTTP, nor how a source is opened.

use crate::feed::{FeedLife, FeedPatience, FeedUse, LiveFeed};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use waykeeper_view::Source;

/// Id of the main source's feed.
pub const MAIN: &str = "main";

/// Longest that a start waits for the memory of one that ends. Assumption: a step of a slow machine takes seconds.
const ENDING: Duration = Duration::from_secs(20);

/// Why there is no further playground.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The bound is reached.
    #[error("pages show {0} virtual servers, which is the most at a time; hide or close one of these pages")]
    TooMany(usize),
    /// Those that have ended still have their memory.
    #[error("the virtual servers that have ended still have their memory; try again")]
    Ending,
    /// No thread, or no random numbers.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

#[derive(Debug, Default)]
struct Present {
    feeds: BTreeMap<String, Arc<LiveFeed>>,
    /// Playgrounds that are being made.
    reserved: usize,
}

impl Present {
    /// Reserves a place; returns the playground that has to end for it.
    fn reserve(&mut self, most: usize) -> Result<Option<Arc<LiveFeed>>, FeedError> {
        let playgrounds = || self.feeds.iter().filter(|(id, _)| *id != MAIN);
        let ends = if playgrounds().count() + self.reserved < most {
            None
        } else {
            let uses = playgrounds().map(|(id, feed)| (feed.in_use(), id));
            let least = uses.filter(|(used, _)| *used != FeedUse::Seen).min();
            let id = least.map(|(_, id)| id.clone()).ok_or(FeedError::TooMany(most))?;
            self.feeds.remove(&id)
        };
        self.reserved += 1;
        Ok(ends)
    }
}

fn locked(present: &Mutex<Present>) -> MutexGuard<'_, Present> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a playground that is being made.
#[derive(Debug)]
pub struct Reservation {
    present: Arc<Mutex<Present>>,
    is_used: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_used {
            locked(&self.present).reserved -= 1;
        }
    }
}

/// The feeds by id.
#[derive(Debug)]
pub struct FeedSet {
    present: Arc<Mutex<Present>>,
    most: usize,
    patience: FeedPatience,
    /// Places of playgrounds, each until the memory of its server is given back.
    places: Arc<Semaphore>,
}

impl FeedSet {
    /// No feeds yet. There will be at most `most` playgrounds, which wait with `patience` for a page.
    pub fn new(most: usize, patience: FeedPatience) -> FeedSet {
        FeedSet { present: Arc::default(), most, patience, places: Arc::new(Semaphore::new(most)) }
    }

    /// Adds the main source.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn add_main(&self, source: Box<dyn Source>) -> io::Result<()> {
        let feed = LiveFeed::start(source, FeedLife::Server, || {})?;
        locked(&self.present).feeds.insert(MAIN.to_owned(), Arc::new(feed));
        Ok(())
    }

    /// A place for a playground, before it is made; the one that is used least ends if there is none. The second part of it
    /// is to be kept until the playground's memory is given back.
    ///
    /// # Errors
    /// [`FeedError::TooMany`], [`FeedError::Ending`].
    pub async fn reserve(&self) -> Result<(Reservation, OwnedSemaphorePermit), FeedError> {
        drop(locked(&self.present).reserve(self.most)?);
        let reservation = Reservation { present: self.present.clone(), is_used: false };
        match timeout(ENDING, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok((reservation, place)),
            _ => Err(FeedError::Ending),
        }
    }

    /// Adds a playground; returns its id, which cannot be guessed.
    ///
    /// # Errors
    /// [`FeedError`].
    pub fn add_playground(
        &self,
        source: Box<dyn Source>,
        mut reservation: Reservation,
    ) -> Result<String, FeedError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut present = locked(&self.present);
        let (set, own) = (Arc::downgrade(&self.present), id.clone());
        // It may end before it is in the set; the lock is held until then.
        let at_end = move || {
            if let Some(present) = Weak::upgrade(&set) {
                locked(&present).feeds.remove(&own);
            }
        };
        let feed = LiveFeed::start(source, FeedLife::Viewers(self.patience), at_end)?;
        present.feeds.insert(id.clone(), Arc::new(feed));
        present.reserved -= 1;
        reservation.is_used = true;
        Ok(id)
    }

    /// The feed with this id.
    pub fn get(&self, id: &str) -> Option<Arc<LiveFeed>> {
        locked(&self.present).feeds.get(id).cloned()
    }

    /// Ends a playground; false if there is none with this id.
    pub fn end_playground(&self, id: &str) -> bool {
        id != MAIN && locked(&self.present).feeds.remove(id).is_some()
    }

    /// Whether there is a main source.
    pub fn has_main(&self) -> bool {
        locked(&self.present).feeds.contains_key(MAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::testing::{LONG, Silent, wait_until};

    const ANY: FeedPatience = FeedPatience { first: LONG, next: LONG };

    /// Runs what does not have to wait long.
    fn now<T>(what: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(what)
    }

    fn add(feeds: &FeedSet) -> String {
        let (reservation, place) = now(feeds.reserve()).unwrap();
        // A source without memory gives its place back at once.
        drop(place);
        feeds.add_playground(Box::new(Silent), reservation).unwrap()
    }

    #[test]
    fn the_one_that_is_used_least_makes_room_and_one_that_is_seen_never_does() {
        let feeds = FeedSet::new(3, ANY);
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
        assert!(matches!(now(feeds.reserve()), Err(FeedError::TooMany(3))));
        // A page that closes makes room at once, however long its playground would wait for another page.
        drop(seen);
        add(&feeds);
        assert!(!is_there(&ids[0]) && feeds.has_main());
        drop((also_seen, last));
    }

    #[test]
    fn a_thousand_pages_that_come_and_go_leave_nothing() {
        let feeds = FeedSet::new(8, FeedPatience { next: Duration::ZERO, ..ANY });
        feeds.add_main(Box::new(Silent)).unwrap();
        for _ in 0..1000 {
            let id = add(&feeds);
            drop(feeds.get(&id).map(|feed| feed.viewer(true)));
            assert!(locked(&feeds.present).feeds.len() <= 9);
        }
        wait_until("only the main source is left", || locked(&feeds.present).feeds.len() == 1);
    }

    #[test]
    fn a_place_is_taken_before_a_playground_is_made_and_until_its_memory_is_given_back() {
        let feeds = FeedSet::new(2, ANY);
        let (first, memory_of_first) = now(feeds.reserve()).unwrap();
        let (second, memory_of_second) = now(feeds.reserve()).unwrap();
        // None of the two is there yet, and there is no room for a third.
        assert!(matches!(now(feeds.reserve()), Err(FeedError::TooMany(2))));
        let first = feeds.add_playground(Box::new(Silent), first).unwrap();
        // One that is not made after all leaves its place.
        drop((second, memory_of_second));
        let (third, memory_of_third) = now(feeds.reserve()).unwrap();
        assert!(feeds.get(&first).is_some(), "there was room");
        now(async {
            let mut fourth = Box::pin(feeds.reserve());
            let waits = tokio::select! {
                biased;
                _ = &mut fourth => false,
                () = std::future::ready(()) => true,
            };
            assert!(waits && feeds.get(&first).is_none(), "the first has ended, and still has its memory");
            drop(memory_of_first);
            drop(fourth.await.unwrap());
        });
        drop((third, memory_of_third));
    }
}
