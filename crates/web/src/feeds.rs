//! All feeds of the server: the main source, and the playgrounds, which are bounded in number.
//!
//! Must not know HTTP, nor how a source is opened.

use crate::feed::{FeedLife, LiveFeed};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waykeeper_view::Source;

/// Id of the main source's feed.
pub const MAIN: &str = "main";

/// A playground without a viewer ends after this time: a page that is loaded again finds it.
const IDLE: Duration = Duration::from_secs(30);

/// Most virtual servers at a time. One takes a few MB and a part of a core.
pub const PLAYGROUNDS_MOST: usize = 8;

/// Why there is no further playground.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The bound is reached.
    #[error("{PLAYGROUNDS_MOST} virtual servers run already; close a page of one, it ends 30 s later")]
    TooMany,
    /// No thread, or no random numbers.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// The feeds by id.
#[derive(Debug, Default)]
pub struct FeedSet(Mutex<BTreeMap<String, Arc<LiveFeed>>>);

impl FeedSet {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveFeed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the main source.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn add_main(&self, source: Box<dyn Source>) -> io::Result<()> {
        let feed = LiveFeed::start(source, FeedLife::Server)?;
        self.locked().insert(MAIN.to_owned(), Arc::new(feed));
        Ok(())
    }

    /// Refuses a playground that would be one too many, before it is made.
    ///
    /// # Errors
    /// [`FeedError::TooMany`].
    pub fn check_room(&self) -> Result<(), FeedError> {
        let mut feeds = self.locked();
        feeds.retain(|_, feed| !feed.is_over());
        let playgrounds = feeds.keys().filter(|id| *id != MAIN).count();
        if playgrounds < PLAYGROUNDS_MOST { Ok(()) } else { Err(FeedError::TooMany) }
    }

    /// Adds a playground; returns its id, which cannot be guessed.
    ///
    /// # Errors
    /// [`FeedError`].
    pub fn add_playground(&self, source: Box<dyn Source>) -> Result<String, FeedError> {
        self.check_room()?;
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let feed = LiveFeed::start(source, FeedLife::Viewers(IDLE))?;
        self.locked().insert(id.clone(), Arc::new(feed));
        Ok(id)
    }

    /// The feed with this id.
    pub fn get(&self, id: &str) -> Option<Arc<LiveFeed>> {
        self.locked().get(id).filter(|feed| !feed.is_over()).cloned()
    }

    /// Ends a playground; false if there is none with this id.
    pub fn end_playground(&self, id: &str) -> bool {
        id != MAIN && self.locked().remove(id).is_some()
    }

    /// Whether there is a main source.
    pub fn has_main(&self) -> bool {
        self.locked().contains_key(MAIN)
    }
}
