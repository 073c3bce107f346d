//! Performance counters as registers: which counters run, and what a write to a register changes.
//!
//! Knows control bits and widths. It must not know the source of counts: callers pass a function that returns the
//! present count of an event.

pub mod boxes;
pub mod core;
pub mod events;

/// One counter: it holds a written value and then follows its event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counter {
    /// Its value when it was last started, stopped or written.
    held: u64,
    /// The event's count at that time; `None` while it is stopped.
    since: Option<u64>,
}

impl Counter {
    /// Its value when the event's count is `now`; wraps above `most`.
    fn value(self, now: impl FnOnce() -> u64, most: u64) -> u64 {
        // An event's count never decreases; a wrapped difference is correct modulo the counter's width.
        let passed = self.since.map_or(0, |since| now().wrapping_sub(since));
        self.held.wrapping_add(passed) & most
    }

    /// Stops it.
    fn stop(&mut self, now: impl FnOnce() -> u64) {
        self.held = self.value(now, u64::MAX);
        self.since = None;
    }

    /// Starts it if `now`, the event's count, is given.
    fn start(&mut self, now: Option<u64>) {
        self.since = now;
    }

    /// Sets its value; it continues from there.
    fn write(&mut self, value: u64, now: impl FnOnce() -> u64) {
        self.held = value;
        self.since = self.since.map(|_| now());
    }
}

/// The largest number of `width` bits.
pub fn most(width: u8) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_follows_stops_takes_values_and_wraps() {
        let mut counter = Counter::default();
        assert_eq!(counter.value(|| 700, most(48)), 0, "it stands still");
        counter.start(Some(700));
        assert_eq!(counter.value(|| 1000, most(48)), 300);
        counter.write(most(48) - 9, || 1000);
        assert_eq!(counter.value(|| 1009, most(48)), most(48));
        assert_eq!(counter.value(|| 1010, most(48)), 0);
        counter.stop(|| 1030);
        assert_eq!(counter.value(|| 5000, most(48)), 20);
        assert_eq!(most(48), 0xffff_ffff_ffff);
        assert_eq!((most(36), most(64)), (0xf_ffff_ffff, u64::MAX));
    }
}
