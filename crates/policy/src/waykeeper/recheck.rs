//! When the policy tries something again although no layout was left to try. It must not know layouts or counters.

/// Intervals in a row in which a counter must ask for a layout that was not tried. Assumption: two rule out a single
/// jump.
const REQUEST_STREAK: u32 = 2;

/// Counts the intervals since the search ended.
pub(super) struct Recheck {
    /// Intervals until the next restriction is undone on trial.
    pause: u32,
    /// Intervals since the search ended.
    stable_for: u32,
    /// Intervals in a row in which a counter asked for a layout that was not tried.
    request_streak: u32,
}

impl Recheck {
    pub fn new(pause: u32) -> Recheck {
        Recheck { pause, stable_for: 0, request_streak: 0 }
    }

    /// A search ended.
    pub fn settled(&mut self) {
        (self.stable_for, self.request_streak) = (0, 0);
    }

    /// True if a counter has asked for a layout long enough.
    pub fn confirm_request(&mut self, requested: bool) -> bool {
        self.request_streak = if requested { self.request_streak + 1 } else { 0 };
        self.request_streak >= REQUEST_STREAK
    }

    /// Counts an interval. When the pause is over, a number that selects the restriction to undo; the next pause is
    /// twice as long.
    pub fn due(&mut self) -> Option<usize> {
        self.stable_for += 1;
        if self.stable_for < self.pause {
            return None;
        }
        self.pause = self.pause.saturating_mul(2);
        self.stable_for = 0;
        Some(self.pause as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_a_request_counts_the_second_time() {
        let mut recheck = Recheck::new(2);
        let due: Vec<bool> = (0..6).map(|_| recheck.due().is_some()).collect();
        // After two intervals, then after four more.
        assert_eq!(due, [false, true, false, false, false, true]);
        assert_eq!(
            [true, false, true, true].map(|asked| recheck.confirm_request(asked)),
            [false, false, false, true]
        );
        recheck.settled();
        assert!(!recheck.confirm_request(true));
    }
}
