//! IDIO's control plane: once per epoch it reads every core's counters and sets the placement of that core's payload.
//!
//! Runs in simulated time (IDIO s3.5; algorithms.md 4.4, whose decisions on what the paper leaves open are marked
//! ours). Knows counters and status registers; must not know how a line is moved.

use waykeeper_silicon::{Chip, PayloadTarget, SteeringCounters};

/// Period after which status and counters are reset (s3.5).
const EPOCH_NS: f64 = 1e6;
/// Minimum time of the status DRAM before the caches are tried again (s3.5).
const DRAM_HOLD_NS: f64 = 10e6;
/// Below this usage payload is written to DRAM (s3.5).
const LOW_USAGE: f64 = 0.1;
/// Above this usage payload is written to the MLC (s3.5).
const HIGH_USAGE: f64 = 0.9;
/// With fewer lines than this the status is the LLC (ours). The choice of algorithms.md 4.4.
const FEWEST_LINES: f64 = 64.0;

/// One controller for all root complexes, because all queues of a core are on one NIC.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    next_ns: f64,
    /// Per core: when the status DRAM ends.
    held_until_ns: Vec<Option<f64>>,
    /// Real lines per sampled line.
    scale: f64,
}

impl Controller {
    pub(crate) fn new(cores: usize, scale: f64) -> Controller {
        Controller { next_ns: EPOCH_NS, held_until_ns: vec![None; cores], scale }
    }

    /// Ends every epoch that is due at `now_ns`.
    pub(crate) fn advance(&mut self, chip: &mut Chip, now_ns: f64) {
        while self.next_ns <= now_ns {
            for (core, held) in self.held_until_ns.iter_mut().enumerate() {
                let (counters, flooded) = chip.steering_counters(core);
                let next = next_status(held, counters, flooded, self.scale, self.next_ns);
                chip.set_steering_status(core, next);
                chip.clear_steering_counters(core);
            }
            self.next_ns += EPOCH_NS;
        }
    }
}

/// The status of a core after an epoch. `held` is when its status DRAM ends, if set.
fn next_status(
    held: &mut Option<f64>,
    counters: SteeringCounters,
    flooded: bool,
    scale: f64,
    now_ns: f64,
) -> PayloadTarget {
    match *held {
        // The reset of every epoch does not end the 10 ms (ours: otherwise they would have no effect).
        Some(until_ns) if now_ns < until_ns => return PayloadTarget::Dram,
        // One epoch in the LLC with fresh counters, because counts from the status DRAM do not show the usage of cached
        // payload.
        Some(_) => {
            *held = None;
            return PayloadTarget::Llc;
        }
        None => {}
    }
    let status = by_usage(counters, flooded, scale);
    if status == PayloadTarget::Dram {
        *held = Some(now_ns + DRAM_HOLD_NS);
    }
    status
}

/// The tests of s3.5, in the order of the author's gem5 code (algorithms.md 4.4): untouched data in the MLC first, then
/// low usage, then high usage; otherwise the LLC, as after a reset.
fn by_usage(counters: SteeringCounters, flooded: bool, scale: f64) -> PayloadTarget {
    let cached = counters.cached() as f64;
    if flooded || cached * scale < FEWEST_LINES {
        return PayloadTarget::Llc;
    }
    let usage = counters.touched() as f64 / cached;
    if usage < LOW_USAGE {
        PayloadTarget::Dram
    } else if usage > HIGH_USAGE {
        PayloadTarget::Mlc
    } else {
        PayloadTarget::Llc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An epoch of 1000 lines, of which the core requested `touched` from the LLC.
    fn epoch(touched: u64) -> SteeringCounters {
        SteeringCounters { received: 1000, core_misses: touched, ..SteeringCounters::default() }
    }

    fn after(counters: SteeringCounters, flooded: bool) -> PayloadTarget {
        next_status(&mut None, counters, flooded, 1.0, EPOCH_NS)
    }

    #[test]
    fn from_llc_to_mlc_above_nine_tenths_of_usage() {
        assert_eq!(after(epoch(901), false), PayloadTarget::Mlc);
        assert_eq!(after(epoch(900), false), PayloadTarget::Llc);
    }

    #[test]
    fn from_llc_to_dram_below_a_tenth_of_usage() {
        assert_eq!(after(epoch(99), false), PayloadTarget::Dram);
        assert_eq!(after(epoch(100), false), PayloadTarget::Llc);
    }

    #[test]
    fn from_mlc_to_llc_when_the_mlc_is_flooded_whatever_the_usage() {
        for touched in [0, 500, 1000] {
            assert_eq!(after(epoch(touched), true), PayloadTarget::Llc);
        }
    }

    #[test]
    fn from_mlc_to_llc_when_usage_is_middling() {
        // The reset sets LLC every epoch; only high usage sets MLC again.
        let counters = SteeringCounters { received: 1000, pushed: 1000, pushed_hits: 890, ..epoch(0) };
        assert_eq!(after(counters, false), PayloadTarget::Llc);
    }

    #[test]
    fn in_mlc_stays_in_mlc_while_pushed_lines_are_hit() {
        let counters = SteeringCounters { received: 1000, pushed: 1000, pushed_hits: 950, ..epoch(0) };
        assert_eq!(after(counters, false), PayloadTarget::Mlc);
    }

    #[test]
    fn a_device_that_reads_payload_back_uses_it() {
        let counters = SteeringCounters { received: 1000, device_reads: 950, ..epoch(0) };
        assert_eq!(after(counters, false), PayloadTarget::Mlc);
    }

    #[test]
    fn dram_is_held_for_ten_milliseconds_and_then_llc_is_tried_for_one_epoch() {
        let mut held = None;
        let mut at = |ms: u32, counters| next_status(&mut held, counters, false, 1.0, f64::from(ms) * 1e6);
        assert_eq!(at(1, epoch(0)), PayloadTarget::Dram);
        // 1 ms + 10 ms: until then usage is ignored.
        for ms in 2..11 {
            assert_eq!(at(ms, epoch(1000)), PayloadTarget::Dram, "{ms} ms");
        }
        assert_eq!(at(11, epoch(1000)), PayloadTarget::Llc);
        assert_eq!(at(12, epoch(0)), PayloadTarget::Dram);
        assert_eq!(at(21, epoch(0)), PayloadTarget::Dram);
        assert_eq!(at(22, epoch(0)), PayloadTarget::Llc);
        assert_eq!(at(23, epoch(950)), PayloadTarget::Mlc);
    }

    #[test]
    fn lines_sent_to_memory_are_no_part_of_the_usage() {
        // 1000 received, 900 of them to memory: 95 of the 100 cached lines are 95 %.
        let counters = SteeringCounters { to_memory: 900, ..epoch(95) };
        assert_eq!(after(counters, false), PayloadTarget::Mlc);
    }

    #[test]
    fn an_epoch_of_few_lines_decides_nothing() {
        let few = |received| SteeringCounters { received, ..SteeringCounters::default() };
        assert_eq!(after(few(63), false), PayloadTarget::Llc);
        assert_eq!(after(few(64), false), PayloadTarget::Dram);
        // At a scale of 32, two sampled lines are 64 real ones.
        assert_eq!(next_status(&mut None, few(2), false, 32.0, EPOCH_NS), PayloadTarget::Dram);
        assert_eq!(next_status(&mut None, few(1), false, 32.0, EPOCH_NS), PayloadTarget::Llc);
    }
}
