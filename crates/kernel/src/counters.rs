//! Turns the values of a counter register or a perf event into a count that only rises: extends short registers over
//! their wrap, and scales perf events that shared a register.
//!
//! Arithmetic only; must not know the source of a value.

use waykeeper_host::Reading;

/// Why a raw value cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CounterError {
    /// The value has more bits than the register: another register, or an invalid answer.
    #[error("{raw:#x} does not fit a {bits}-bit counter")]
    TooWide {
        /// The value.
        raw: u64,
        /// Width of the register.
        bits: u32,
    },
    /// It moved by half its range or more: another program reset or programmed it, or it wrapped more than once.
    #[error(
        "the counter moved from {from:#x} to {to:#x}, half the range of a {bits}-bit counter or more: \
         another program set it, or it was read too seldom"
    )]
    Jumped {
        /// The last value.
        from: u64,
        /// The new one.
        to: u64,
        /// Width of the register.
        bits: u32,
    },
    /// It rose by more than it can have counted.
    #[error(
        "the counter moved from {from:#x} to {to:#x}, and no more than {most} can have been counted: another \
         program set it"
    )]
    TooFast {
        /// The last value.
        from: u64,
        /// The new one.
        to: u64,
        /// Most that can have been counted between the two values.
        most: u64,
    },
}

/// A counter register of up to 64 bits, extended to 64 bits by adding up the differences between readings.
///
/// It must be read before it has moved by half its range: a 36-bit counter of 4-byte units then covers 2^37 bytes,
/// 5.5 s at 25 GB/s (hardware.md 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrappingCounter {
    bits: u32,
    last: Option<u64>,
    /// The value before a jump, and the most that can have been counted since. If the next value fits this one, the
    /// jump was a single bad reading.
    before: Option<(u64, u64)>,
    total: u64,
}

impl WrappingCounter {
    /// A counter `bits` wide (1 to 64) that was not read yet; its total is 0 at the first reading.
    pub fn new(bits: u32) -> WrappingCounter {
        WrappingCounter { bits: bits.clamp(1, 64), last: None, before: None, total: 0 }
    }

    /// Takes a raw value and returns the count since the first one. `most` gets the difference to the last value and
    /// returns the most that can have been counted since; if it returns `None`, any difference below half the range
    /// is accepted.
    ///
    /// # Errors
    /// A value wider than the register (nothing changes), or a jump (counting continues from the new value, or from
    /// the old one if the next value fits that).
    pub fn advance(&mut self, raw: u64, most: impl FnOnce(u64) -> Option<u64>) -> Result<u64, CounterError> {
        let mask = u64::MAX >> (64 - self.bits);
        if raw & !mask != 0 {
            return Err(CounterError::TooWide { raw, bits: self.bits });
        }
        let Some(last) = self.last.replace(raw) else {
            return Ok(self.total);
        };
        let since = |earlier: u64| raw.wrapping_sub(earlier) & mask;
        let moved = since(last);
        let most = most(moved).unwrap_or(u64::MAX);
        let before = self
            .before
            .take()
            .filter(|(value, earlier)| since(*value) <= (mask / 2).min(earlier.saturating_add(most)));
        let moved = before.map_or(moved, |(value, _)| since(value));
        if before.is_none() && moved > (mask / 2).min(most) {
            self.before = Some((last, most));
            let (from, to) = (last, raw);
            return Err(match moved > mask / 2 {
                true => CounterError::Jumped { from, to, bits: self.bits },
                false => CounterError::TooFast { from, to, most },
            });
        }
        self.total = self.total.wrapping_add(moved);
        Ok(self.total)
    }
}

/// A perf event, scaled up for the time in which other events used its register.
///
/// Scaled per interval, not over its whole life: the count of an interval in which it ran half the time is doubled,
/// independent of earlier intervals (perf_event_open(2), `time_enabled` and `time_running`).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Scaled {
    last: Option<Shown>,
    total: f64,
}

/// The values of one read of a perf event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// Events counted while it ran.
    pub value: u64,
    /// Nanoseconds since it was enabled.
    pub enabled_ns: u64,
    /// Nanoseconds of those in which it had a register.
    pub running_ns: u64,
}

impl Scaled {
    /// Takes the values of a read and returns the count since the first read.
    ///
    /// `Unavailable` if the event had no register since the last read, or if a number decreased; the next valid read
    /// then covers the gap.
    pub fn advance(&mut self, shown: Shown) -> Reading<u64> {
        let Some(last) = self.last else {
            self.last = Some(shown);
            return Reading::Value(0);
        };
        let moved = (
            shown.value.checked_sub(last.value),
            shown.enabled_ns.checked_sub(last.enabled_ns),
            shown.running_ns.checked_sub(last.running_ns),
        );
        let (Some(value), Some(enabled), Some(running)) = moved else {
            return Reading::Unavailable;
        };
        match (enabled, running) {
            (0, _) if value == 0 => Reading::Value(self.total as u64),
            (_, 0) => Reading::Unavailable,
            _ => {
                self.total += value as f64 * (enabled as f64 / running as f64).max(1.0);
                self.last = Some(shown);
                Reading::Value(self.total as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn advance(counter: &mut WrappingCounter, raw: u64) -> Result<u64, CounterError> {
        counter.advance(raw, |_| None)
    }

    #[test]
    fn a_short_counter_continues_over_its_end() {
        let mut counter = WrappingCounter::new(36);
        assert_eq!(advance(&mut counter, 0xf_ffff_fff0), Ok(0));
        // 16 steps to the end, 4 beyond.
        assert_eq!(advance(&mut counter, 4), Ok(20));
        assert_eq!(advance(&mut counter, 4), Ok(20));
        assert_eq!(advance(&mut counter, 10), Ok(26));
    }

    #[test]
    fn what_the_register_cannot_hold_is_refused_and_changes_nothing() {
        let mut counter = WrappingCounter::new(48);
        advance(&mut counter, 100).unwrap();
        assert_eq!(
            advance(&mut counter, u64::MAX).unwrap_err().to_string(),
            "0xffffffffffffffff does not fit a 48-bit counter"
        );
        assert_eq!(advance(&mut counter, 130), Ok(30));
    }

    #[test]
    fn a_reset_is_reported_and_not_taken_for_a_wrap() {
        let mut counter = WrappingCounter::new(48);
        advance(&mut counter, 1_000_000).unwrap();
        advance(&mut counter, 1_000_500).unwrap();
        assert!(matches!(
            advance(&mut counter, 0),
            Err(CounterError::Jumped { from: 1_000_500, to: 0, bits: 48 })
        ));
        assert_eq!(advance(&mut counter, 25), Ok(525), "counting goes on from the new value");
    }

    #[test]
    fn one_bad_zero_does_not_count_everything_again() {
        let mut counter = WrappingCounter::new(48);
        advance(&mut counter, 1_000_000).unwrap();
        assert!(advance(&mut counter, 0).is_err());
        assert_eq!(advance(&mut counter, 1_000_500), Ok(500));
        assert_eq!(advance(&mut counter, 1_000_600), Ok(600));
    }

    #[test]
    fn what_cannot_have_been_counted_is_reported_and_not_taken_for_a_wrap() {
        let mut counter = WrappingCounter::new(48);
        let within = |most: u64| move |_: u64| Some(most);
        assert_eq!(counter.advance(1_000, within(0)), Ok(0));
        assert_eq!(counter.advance(1_500, within(500)), Ok(500));
        // Another program writes a value that is well within half the range.
        let error = counter.advance(5_000_000, within(500)).unwrap_err();
        assert_eq!(error, CounterError::TooFast { from: 1_500, to: 5_000_000, most: 500 });
        assert_eq!(counter.advance(5_000_100, within(500)), Ok(600), "it goes on from there");
        // One bad reading: 900 since the last good one, in two intervals of 500.
        assert!(counter.advance(7_000_000, within(500)).is_err());
        assert_eq!(counter.advance(5_001_000, within(500)), Ok(1_500));
        // A wrap within the bound is still accepted.
        let mut short = WrappingCounter::new(36);
        short.advance(0xf_ffff_fff0, within(0)).unwrap();
        assert_eq!(short.advance(4, within(20)), Ok(20));
    }

    #[test]
    fn an_event_that_ran_a_third_of_the_time_counts_three_times() {
        let mut event = Scaled::default();
        let at = |value, enabled_ns, running_ns| Shown { value, enabled_ns, running_ns };
        assert_eq!(event.advance(at(50, 1000, 1000)), Reading::Value(0));
        assert_eq!(event.advance(at(150, 4000, 2000)), Reading::Value(300));
        // In this interval it ran all the time: earlier intervals do not matter.
        assert_eq!(event.advance(at(160, 5000, 3000)), Reading::Value(310));
        assert_eq!(event.advance(at(160, 6000, 3000)), Reading::Unavailable);
        // Half of the last 2000 ns.
        assert_eq!(event.advance(at(170, 7000, 4000)), Reading::Value(330));
        assert_eq!(event.advance(at(3, 7500, 4500)), Reading::Unavailable, "ran backwards");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_walk_of_small_steps_is_counted_whole(
            bits in 8u32..=64,
            start in any::<u64>(),
            steps in prop::collection::vec(any::<u64>(), 1..40),
        ) {
            let mask = u64::MAX >> (64 - bits);
            let mut raw = start & mask;
            let mut counter = WrappingCounter::new(bits);
            advance(&mut counter, raw).unwrap();
            let mut sum = 0u64;
            for step in steps {
                let step = step & (mask / 2);
                raw = raw.wrapping_add(step) & mask;
                sum = sum.wrapping_add(step);
                prop_assert_eq!(advance(&mut counter, raw), Ok(sum));
            }
        }
    }
}
