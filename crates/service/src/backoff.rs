//! Pauses before work that failed runs again: each is twice as long as the one before, up to a longest.
//!
//! Must not know the work.

use std::time::Duration;

/// The pauses of one kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, next: first }
    }

    /// The pause after work that lasted so long before it failed. Work that lasted as long as the longest pause was sound:
    /// the pauses begin again.
    pub fn pause_after(&mut self, lasted: Duration) -> Duration {
        if lasted >= self.longest {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (2 * pause).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_work_that_lasted() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, 5 * second);
        let pauses = [0; 4].map(|lasted| backoff.pause_after(second * lasted).as_secs());
        assert_eq!(pauses, [1, 2, 4, 5]);
        assert_eq!([5, 0].map(|lasted| backoff.pause_after(second * lasted).as_secs()), [1, 2]);
    }
}
