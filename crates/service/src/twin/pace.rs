//! The CPU time of the twin's thread against its share, and the size of its answers.
//!
//! Must not know questions.

use rustix::thread::ClockId;
use rustix::time::clock_gettime;
use std::time::{Duration, Instant};
use waykeeper_twin::Budget;

/// The share for which the twin's usual budget is made ([`Budget::default`]): an answer takes two intervals of a second.
const USUAL_SHARE: f64 = 0.2;
/// The period for which it is made, ns.
const USUAL_PERIOD_NS: f64 = 1e9;
/// Least part of the usual budget. Assumption: with less, no layout is simulated long enough to say anything.
const LEAST_PART: f64 = 0.125;

/// The budget of an answer: the usual one, and less where the share is smaller or the period shorter, so that an answer and
/// the rest after it take about two periods.
pub(super) fn budget(share: f64, period_ns: u64) -> Budget {
    let usual = Budget::default().events as f64;
    let part = share / USUAL_SHARE * (period_ns as f64 / USUAL_PERIOD_NS);
    Budget { events: (usual * part.clamp(LEAST_PART, 1.0)) as u64 }
}

/// CPU time of the calling thread.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    // The clock starts at 0.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// A piece of work in progress.
#[derive(Debug)]
pub(super) struct Piece {
    begun: Instant,
    cpu: Duration,
}

impl Piece {
    /// The calling thread begins to work.
    pub fn begin() -> Piece {
        Piece { begun: Instant::now(), cpu: thread_time() }
    }

    /// The CPU time since then.
    pub fn cpu(&self) -> Duration {
        thread_time().saturating_sub(self.cpu)
    }

    /// When the thread may work again, so that the piece's CPU time is no more than `share` of the time since its begin.
    pub fn rest_until(&self, share: f64) -> Instant {
        self.begun + whole(self.cpu(), share)
    }
}

/// The time in which so much CPU time is that share of a core.
fn whole(cpu: Duration, share: f64) -> Duration {
    cpu.div_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_a_core_is_four_times_as_long_a_rest() {
        // 0.4 s of CPU are a fifth of 2 s.
        assert_eq!(whole(Duration::from_millis(400), 0.2), Duration::from_secs(2));
        assert_eq!(whole(Duration::from_millis(400), 1.0), Duration::from_millis(400));
    }

    #[test]
    fn a_piece_that_takes_cpu_time_is_followed_by_a_rest_in_proportion() {
        let piece = Piece::begin();
        let mut sum = 0_u64;
        while piece.cpu() < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        // At least 2 ms of CPU at a tenth of a core: 20 ms from the begin on.
        assert!(piece.rest_until(0.1) >= piece.begun + Duration::from_millis(20), "{sum}");
    }

    #[test]
    fn an_answer_is_as_large_as_two_periods_at_the_share_allow() {
        let usual = Budget::default().events;
        let second = 1_000_000_000;
        assert_eq!(budget(0.2, second).events, usual);
        // More would not be used before it is needed.
        assert_eq!(budget(1.0, 60 * second).events, usual);
        assert_eq!(budget(0.1, second).events, usual / 2);
        assert_eq!(budget(0.2, second / 4).events, usual / 4);
        assert_eq!(budget(0.05, second / 100).events, usual / 8);
    }
}
