//! Limits for clients: connections, time, requests.
//!
//! Must not know the requests.

use super::access::Right;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// The limits. Assumption for all defaults: enough for a dashboard and a few people, too little to hurt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SocketLimits {
    /// Connections at a time.
    pub connections: usize,
    /// How many of these are reserved for users who may give orders.
    pub reserved: usize,
    /// Connections of one user at a time.
    pub per_uid: usize,
    /// Connections beyond these for a user who may give orders; nothing but orders is answered on them.
    pub for_orders: usize,
    /// How long a client may be idle between two requests.
    pub idle: Duration,
    /// From the first byte of a request to its newline.
    pub line: Duration,
    /// How long a client may take to read an answer.
    pub write: Duration,
    /// Requests per second on one connection; faster ones are delayed.
    pub requests_per_s: f64,
    /// Requests that may come in a burst.
    pub burst: f64,
    /// Orders of all connections together that may wait for the control thread.
    pub orders: usize,
}

impl Default for SocketLimits {
    fn default() -> SocketLimits {
        SocketLimits {
            connections: 64,
            reserved: 8,
            per_uid: 8,
            for_orders: 8,
            idle: Duration::from_secs(60),
            line: Duration::from_secs(10),
            write: Duration::from_secs(10),
            requests_per_s: 20.0,
            burst: 20.0,
            orders: 8,
        }
    }
}

/// The processes with open connections, one entry for each connection, by user. None is one of another namespace, which
/// has no number here.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimiter(Arc<Mutex<HashMap<u32, Vec<Option<i32>>>>>);

/// An open connection; dropping it frees its slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    limiter: ConnectionLimiter,
    uid: u32,
    pid: Option<i32>,
}

/// Process ids that a message has at most.
const NAMED: usize = 8;

/// The processes that hold connections: ` (processes 71, 72)`.
fn holders<'a>(pids: impl Iterator<Item = &'a Option<i32>>) -> String {
    let known: BTreeSet<i32> = pids.copied().flatten().collect();
    let named: Vec<String> = known.iter().take(NAMED).map(i32::to_string).collect();
    match known.len() {
        0 => String::new(),
        1 => format!(" (process {})", named[0]),
        count if count > NAMED => format!(" (processes {} and {} more)", named.join(", "), count - NAMED),
        _ => format!(" (processes {})", named.join(", ")),
    }
}

impl ConnectionLimiter {
    /// Admits a connection.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn admit(
        &self,
        uid: u32,
        pid: Option<i32>,
        right: Right,
        limits: &SocketLimits,
    ) -> Result<ConnectionSlot, String> {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = connections.values().map(Vec::len).sum();
        let kept = if right == Right::Order { 0 } else { limits.reserved };
        // The pids of other users are for root alone.
        let others =
            if right == Right::Order { holders(connections.values().flatten()) } else { String::new() };
        if all + kept >= limits.connections {
            return Err(format!("{all} connections are open already{others}; try again later"));
        }
        let own = connections.entry(uid).or_default();
        if own.len() >= limits.per_uid {
            let (count, holders) = (own.len(), holders(own.iter()));
            return Err(format!("user {uid} has {count} connections already{holders}; close one"));
        }
        own.push(pid);
        Ok(ConnectionSlot { limiter: self.clone(), uid, pid })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self.limiter.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = connections.get_mut(&self.uid) {
            if let Some(index) = own.iter().position(|pid| *pid == self.pid) {
                own.swap_remove(index);
            }
            if own.is_empty() {
                connections.remove(&self.uid);
            }
        }
    }
}

/// Time in which a connection for orders may be silent if another one needs its place. Assumption: a client that has
/// connected sends its order within it.
const ORDER_GRACE: Duration = Duration::from_secs(1);

/// A connection for orders.
#[derive(Debug)]
struct OrderPlace {
    task: AbortHandle,
    /// An order of it is carried out.
    has_order: Arc<AtomicBool>,
    since: Instant,
}

/// Connections beyond the limits, for orders alone: whatever other programs of the same user hold, an order arrives.
#[derive(Debug, Default)]
pub struct OrderPlaces(Vec<OrderPlace>);

impl OrderPlaces {
    /// Makes room for one more of at most `most`: the oldest that has no order leaves. False if there is none.
    pub fn make_room(&mut self, most: usize, now: Instant) -> bool {
        self.0.retain(|place| !place.task.is_finished());
        if self.0.len() < most {
            return true;
        }
        let is_silent = |place: &OrderPlace| {
            let silent = now.saturating_duration_since(place.since);
            !place.has_order.load(Ordering::Relaxed) && silent >= ORDER_GRACE
        };
        let Some(index) = self.0.iter().position(is_silent) else { return false };
        self.0.remove(index).task.abort();
        true
    }

    /// Takes a place.
    pub fn take(&mut self, task: AbortHandle, has_order: Arc<AtomicBool>, now: Instant) {
        self.0.push(OrderPlace { task, has_order, since: now });
    }
}

/// Token bucket for the requests of one connection: unused requests accumulate up to a burst.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    saved: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(limits: &SocketLimits, now: Instant) -> TokenBucket {
        TokenBucket { saved: limits.burst, at: now }
    }

    /// Takes a token; returns the delay of this request.
    pub fn next(&mut self, limits: &SocketLimits, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * limits.requests_per_s;
        self.saved = (self.saved + earned).min(limits.burst) - 1.0;
        self.at = now;
        Duration::from_secs_f64((-self.saved / limits.requests_per_s).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_cannot_fill_the_house() {
        let limits = SocketLimits { connections: 5, reserved: 2, per_uid: 2, ..SocketLimits::default() };
        let limiter = ConnectionLimiter::default();
        let admit = |uid, right| limiter.admit(uid, Some(uid.cast_signed() + 7), right, &limits);
        let first = admit(1000, Right::Read).unwrap();
        let _second = admit(1000, Right::Read).unwrap();
        let own = "user 1000 has 2 connections already (process 1007); close one";
        assert_eq!(admit(1000, Right::Read).unwrap_err(), own);
        let _third = admit(1001, Right::Read).unwrap();
        let full = "3 connections are open already; try again later";
        assert_eq!(admit(1002, Right::Read).unwrap_err(), full);
        let _root = [admit(0, Right::Order).unwrap(), admit(0, Right::Order).unwrap()];
        let all = "5 connections are open already (processes 7, 1007, 1008); try again later";
        assert_eq!(admit(1, Right::Order).unwrap_err(), all);
        drop(first);
        assert!(admit(1, Right::Order).is_ok());
        assert!(admit(1002, Right::Read).is_err());
    }

    #[test]
    fn users_that_are_gone_are_forgotten() {
        let limiter = ConnectionLimiter::default();
        for uid in 0..1000 {
            drop(limiter.admit(uid, Some(1), Right::Read, &SocketLimits::default()).unwrap());
        }
        assert!(limiter.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_place_for_an_order_is_kept_for_its_order_and_not_for_silence() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut places = OrderPlaces::default();
            let start = Instant::now();
            let take = |places: &mut OrderPlaces, has_order| {
                let task = tokio::spawn(std::future::pending::<()>());
                places.take(task.abort_handle(), Arc::new(AtomicBool::new(has_order)), start);
                task
            };
            let ordering = take(&mut places, true);
            let silent = take(&mut places, false);
            assert!(!places.make_room(2, start), "its order may be on the way");
            assert!(places.make_room(2, start + ORDER_GRACE));
            tokio::task::yield_now().await;
            assert!(silent.is_finished() && !ordering.is_finished());
            let ends = take(&mut places, true);
            assert!(!places.make_room(2, start + ORDER_GRACE));
            ends.abort();
            tokio::task::yield_now().await;
            assert!(places.make_room(2, start + ORDER_GRACE));
        });
    }

    #[test]
    fn the_processes_that_hold_connections_are_named_once_and_not_all_of_many() {
        let of = |pids: &[Option<i32>]| holders(pids.iter());
        assert_eq!(of(&[]), "");
        // Processes of another namespace have no number here.
        assert_eq!(of(&[None, None]), "");
        assert_eq!(of(&[Some(9), None, Some(9)]), " (process 9)");
        assert_eq!(of(&[Some(9), Some(3)]), " (processes 3, 9)");
        let many: Vec<Option<i32>> = (1..=10).map(Some).collect();
        assert_eq!(of(&many), " (processes 1, 2, 3, 4, 5, 6, 7, 8 and 2 more)");
    }

    #[test]
    fn a_burst_passes_and_then_one_waits_in_turn() {
        let limits = SocketLimits { requests_per_s: 10.0, burst: 2.0, ..SocketLimits::default() };
        let start = Instant::now();
        let mut bucket = TokenBucket::new(&limits, start);
        let waits: Vec<u128> = (0..4).map(|_| bucket.next(&limits, start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100, 200]);
        // After 300 ms the two delayed requests are paid for, and one more.
        let later = start + Duration::from_millis(300);
        assert_eq!(bucket.next(&limits, later).as_millis(), 0);
        // However long the pause, at most a burst has accumulated.
        let much_later = later + Duration::from_secs(3600);
        let waits: Vec<u128> = (0..3).map(|_| bucket.next(&limits, much_later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 100]);
    }
}
