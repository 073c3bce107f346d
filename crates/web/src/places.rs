//! The places of connections. Where they are short, the connection that has been silent for longest makes room, those of
//! strangers before those of holders of the token.
//!
//! A connection is silent while no request of it is answered: it has sent none, or only a part. So a stranger who connects
//! and says nothing keeps no other client out. Must not know sockets or requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The place of a connection.
#[derive(Debug)]
pub struct ConnectionPlace {
    now: Mutex<PlaceUse>,
    /// Another connection needs the place.
    leave: Notify,
}

#[derive(Clone, Copy, Debug)]
struct PlaceUse {
    /// Its last request had the token.
    is_holders: bool,
    /// Answers that are being made or sent.
    answers: usize,
    /// The last change of these.
    since: Instant,
}

impl Default for ConnectionPlace {
    fn default() -> ConnectionPlace {
        let now = PlaceUse { is_holders: false, answers: 0, since: Instant::now() };
        ConnectionPlace { now: Mutex::new(now), leave: Notify::new() }
    }
}

impl ConnectionPlace {
    fn locked(&self) -> MutexGuard<'_, PlaceUse> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another connection needs the place.
    pub async fn has_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Whether no request of it is answered.
    pub fn is_silent(&self) -> bool {
        self.locked().answers == 0
    }

    /// A request of it is answered, until what is returned is dropped.
    pub fn answer(self: &Arc<ConnectionPlace>, is_holders: bool) -> Answering {
        let mut now = self.locked();
        now.is_holders = is_holders;
        now.answers += 1;
        Answering(self.clone())
    }

    /// Since when it is silent, after whether it is that of a holder; the least has to leave first. None if it is answered.
    fn silence(&self) -> Option<(bool, Instant)> {
        let now = *self.locked();
        (now.answers == 0).then_some((now.is_holders, now.since))
    }
}

/// An answer on a connection, which is not silent meanwhile.
#[derive(Debug)]
pub struct Answering(Arc<ConnectionPlace>);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut now = self.0.locked();
        now.answers -= 1;
        now.since = Instant::now();
    }
}

/// Whether there is room for one more connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There is.
    Made,
    /// After this time.
    Later(Duration),
    /// No place is silent.
    No,
}

/// The places that are taken, each with the task that serves its connection.
#[derive(Debug)]
pub struct PlaceTable {
    most: usize,
    grace: Duration,
    taken: Vec<(Arc<ConnectionPlace>, AbortHandle)>,
}

impl PlaceTable {
    /// Time in which a connection may be silent even if places are short: its request is on the way, or has come and is not
    /// read yet. So a flood of connections is accepted more slowly than clients send.
    pub const GRACE: Duration = Duration::from_millis(20);

    /// No place is taken yet.
    pub fn new(most: usize, grace: Duration) -> PlaceTable {
        PlaceTable { most, grace, taken: Vec::new() }
    }

    /// Makes room for one more.
    pub fn make_room(&mut self) -> Room {
        if self.taken.len() >= self.most {
            self.taken.retain(|(_, task)| !task.is_finished());
        }
        if self.taken.len() < self.most {
            return Room::Made;
        }
        let silent = self.taken.iter().enumerate();
        let silent = silent.filter_map(|(index, (place, _))| place.silence().map(|since| (since, index)));
        let Some(((_, since), index)) = silent.min() else { return Room::No };
        let left = self.grace.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Room::Later(left);
        }
        self.taken.swap_remove(index).0.leave.notify_one();
        Room::Made
    }

    /// Takes a place.
    pub fn take(&mut self, place: Arc<ConnectionPlace>, task: AbortHandle) {
        self.taken.push((place, task));
    }
}

/// Places for anyone, and others for holders of the token alone.
#[derive(Debug)]
pub struct SplitPlaces {
    anyone: Arc<Semaphore>,
    holders: Arc<Semaphore>,
}

impl SplitPlaces {
    /// So many places of each kind.
    pub fn new(anyone: usize, holders: usize) -> SplitPlaces {
        SplitPlaces { anyone: Arc::new(Semaphore::new(anyone)), holders: Arc::new(Semaphore::new(holders)) }
    }

    /// A place, if one is free.
    pub fn take(&self, is_holder: bool) -> Option<OwnedSemaphorePermit> {
        let free = |places: &Arc<Semaphore>| places.clone().try_acquire_owned().ok();
        let own = if is_holder { free(&self.holders) } else { None };
        own.or_else(|| free(&self.anyone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silent_stranger_leaves_first_then_a_silent_holder_and_who_is_answered_never() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut table = PlaceTable::new(4, Duration::ZERO);
            let come = || {
                let place = Arc::<ConnectionPlace>::default();
                let own = place.clone();
                (place, tokio::spawn(async move { own.has_to_leave().await }))
            };
            let all = [come(), come(), come(), come()];
            let answered = all[0].0.answer(false);
            // A holder that was silent before the strangers.
            drop(all[1].0.answer(true));
            drop(all[3].0.answer(false));
            drop(all[2].0.answer(false));
            for (place, task) in &all {
                assert_eq!(table.make_room(), Room::Made);
                table.take(place.clone(), task.abort_handle());
            }
            table.grace = Duration::from_secs(3600);
            assert!(matches!(table.make_room(), Room::Later(_)), "their requests may be on the way");
            table.grace = Duration::ZERO;
            let mut gone = Vec::new();
            for expected in [3, 2, 1] {
                assert_eq!(table.make_room(), Room::Made);
                tokio::task::yield_now().await;
                gone.push(expected);
                let ended: Vec<usize> = (0..4).filter(|index| all[*index].1.is_finished()).collect();
                let mut wanted = gone.clone();
                wanted.sort_unstable();
                assert_eq!(ended, wanted);
                // The place is taken by a connection that is answered.
                let (place, task) = come();
                std::mem::forget(place.answer(false));
                table.take(place, task.abort_handle());
            }
            assert_eq!(table.make_room(), Room::No);
            drop(answered);
            assert_eq!(table.make_room(), Room::Made);
        });
    }

    #[test]
    fn holders_have_places_that_strangers_cannot_take() {
        let places = SplitPlaces::new(1, 1);
        let stranger = places.take(false).unwrap();
        assert!(places.take(false).is_none());
        let holder = places.take(true).unwrap();
        assert!(places.take(true).is_none());
        drop(stranger);
        // A holder may also take a place of anyone.
        let another = places.take(true).unwrap();
        assert!(places.take(false).is_none());
        drop((holder, another));
    }
}
