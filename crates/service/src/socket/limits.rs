//! Limits for clients: connections, time, requests.
//!
//! Must not know the requests.

use super::access::Right;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The limits. Assumption for all defaults: enough for a dashboard and a few people, too little to hurt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SocketLimits {
    /// Connections at a time.
    pub connections: usize,
    /// How many of these are reserved for users who may give orders.
    pub reserved: usize,
    /// Connections of one user at a time.
    pub per_uid: usize,
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
            idle: Duration::from_secs(60),
            line: Duration::from_secs(10),
            write: Duration::from_secs(10),
            requests_per_s: 20.0,
            burst: 20.0,
            orders: 8,
        }
    }
}

/// Open connections per user.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimiter(Arc<Mutex<HashMap<u32, usize>>>);

/// An open connection; dropping it frees its slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    limiter: ConnectionLimiter,
    uid: u32,
}

impl ConnectionLimiter {
    /// Admits a connection.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn admit(&self, uid: u32, right: Right, limits: &SocketLimits) -> Result<ConnectionSlot, String> {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = connections.values().sum();
        let kept = if right == Right::Order { 0 } else { limits.reserved };
        if all + kept >= limits.connections {
            return Err(format!("{all} connections are open already; try again later"));
        }
        let own = connections.entry(uid).or_default();
        if *own >= limits.per_uid {
            return Err(format!("user {uid} has {own} connections already; close one"));
        }
        *own += 1;
        Ok(ConnectionSlot { limiter: self.clone(), uid })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self.limiter.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = connections.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                connections.remove(&self.uid);
            }
        }
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
        let admit = |uid, right| limiter.admit(uid, right, &limits);
        let first = admit(1000, Right::Read).unwrap();
        let _second = admit(1000, Right::Read).unwrap();
        assert_eq!(admit(1000, Right::Read).unwrap_err(), "user 1000 has 2 connections already; close one");
        let _third = admit(1001, Right::Read).unwrap();
        let full = "3 connections are open already; try again later";
        assert_eq!(admit(1002, Right::Read).unwrap_err(), full);
        let _root = [admit(0, Right::Order).unwrap(), admit(0, Right::Order).unwrap()];
        assert!(admit(1, Right::Order).is_err());
        drop(first);
        assert!(admit(1, Right::Order).is_ok());
        assert!(admit(1002, Right::Read).is_err());
    }

    #[test]
    fn users_that_are_gone_are_forgotten() {
        let limiter = ConnectionLimiter::default();
        for uid in 0..1000 {
            drop(limiter.admit(uid, Right::Read, &SocketLimits::default()).unwrap());
        }
        assert!(limiter.0.lock().unwrap().is_empty());
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
