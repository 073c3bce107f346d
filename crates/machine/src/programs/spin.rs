//! Duration of a wait in which a program reads the clock until a given time has passed, as DPDK-T and FastClick's
//! ModifyPayload do. Must not know packets.

use super::poller::PacketWork;
use super::program::Site;
use crate::scenario::{Keys, ScenarioError};

/// Cycles of one `clock_gettime(CLOCK_MONOTONIC)` that the kernel's vDSO serves from the TSC. Assumption: the middle of
/// what was measured elsewhere, 12 ns on a Core i7-11800H, 23 ns on a Xeon Gold 5318Y (GitHub dendibakh/perf-book,
/// issue 84; 55 and 78 cycles at their turbo clocks of 4.6 and 3.4 GHz). 29 ns on a Gold 6140 without turbo.
const CLOCK_READING_CYCLES: f64 = 66.0;

/// The key `clock_cycles`: what one reading of the clock costs such a program, in cycles.
pub(super) fn read_clock_cycles(keys: &mut Keys<'_>) -> Result<f64, ScenarioError> {
    keys.number("clock_cycles", 0.0..=1e6, CLOCK_READING_CYCLES)
}

/// The work of a program on this chip whose delay is such a wait.
pub(super) fn spinning(work: PacketWork, clock_cycles: f64, site: &Site<'_>) -> PacketWork {
    PacketWork { delay_ns: waited_ns(work.delay_ns, clock_cycles / site.bus.ghz), ..work }
}

/// Time, ns, that such a wait for `asked_ns` takes where one reading of the clock takes `reading_ns`.
///
/// The program reads the clock once to begin with. Then it reads it again until a reading is at least `asked_ns` after
/// the first (A4's artifact, `delay_nanoseconds` in app/dpdk_microbench/main.h). Readings are `reading_ns` apart, so
/// the first one that is late enough is the one of number `asked_ns / reading_ns`, rounded up. What a call does before
/// and after it reads the counter adds up to one call more.
///
/// A program that waits for no time does not read the clock, and a clock that takes no time is exact.
fn waited_ns(asked_ns: f64, reading_ns: f64) -> f64 {
    if asked_ns == 0.0 || reading_ns == 0.0 {
        return asked_ns;
    }
    ((asked_ns / reading_ns).ceil() + 1.0) * reading_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_the_first_reading_that_is_late_enough() {
        // Readings every 30 ns: 120 ns are the 4th after the first, 150 the 5th; one more call around them.
        assert_eq!(waited_ns(100.0, 30.0), 150.0);
        assert_eq!(waited_ns(150.0, 30.0), 180.0);
        // Every 33 ns: 132 ns are the 4th, 165 the 5th.
        assert_eq!(waited_ns(100.0, 33.0), 165.0);
        assert_eq!(waited_ns(150.0, 33.0), 198.0);
        // A wait for a quarter of a reading still reads twice.
        assert_eq!(waited_ns(8.0, 32.0), 64.0);
    }

    #[test]
    fn no_wait_takes_no_time_and_a_clock_without_cost_is_exact() {
        assert_eq!(waited_ns(0.0, 30.0), 0.0);
        assert_eq!(waited_ns(150.0, 0.0), 150.0);
    }
}
