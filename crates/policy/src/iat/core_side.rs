//! The core-side allocator: a tenant whose LLC misses rise gains ways as long as they help (algorithms.md 2.3, skip
//! case 2). It must not know devices. IAT calls it when only cores need ways; the baselines core-only and io-iso are
//! built on it.

use super::config::Config;
use super::poll::{Sample, Trend, Trends};
use crate::Cause;

/// The tenant that gains ways at present.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Growth {
    slot: usize,
    /// Its misses before they rose; at this value it has enough ways.
    misses_before: f64,
    /// Its misses when it last gained a way.
    misses: f64,
}

/// The state of the allocator: the slot that gained the last way.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct CoreSide {
    growth: Option<Growth>,
}

impl CoreSide {
    /// Forgets that slot.
    pub fn reset(&mut self) {
        self.growth = None;
    }

    /// The slot that should gain one way, with causes: the last one if its way helped and it needs more, else the one
    /// of `eligible` whose LLC miss ratio rose most.
    pub fn choose(
        &mut self,
        eligible: &[usize],
        before: &Sample,
        now: &Sample,
        trends: &Trends,
        config: &Config,
    ) -> Option<(usize, Vec<Cause>)> {
        let misses = |index: usize| now.slots[index].misses;
        if let Some(last) = self.growth.take()
            && eligible.contains(&last.slot)
            && let Some(present) = misses(last.slot)
        {
            let stable = config.threshold_stable;
            let helped = Trend::of(Some(last.misses), Some(present), stable, config.llc_floor) == Trend::Down;
            let short =
                Trend::of(Some(last.misses_before), Some(present), stable, config.llc_floor) == Trend::Up;
            if helped && short {
                self.growth = Some(Growth { misses: present, ..last });
                let change = present / last.misses - 1.0;
                let cause = config.cause("relative change of its LLC misses", change, "threshold_stable");
                return Some((last.slot, vec![cause]));
            }
        }
        let rise = |index: usize| {
            let earlier = before.slots[index].miss_ratio().unwrap_or(0.0);
            now.slots[index].miss_ratio().unwrap_or(0.0) - earlier
        };
        let rising = eligible.iter().copied().filter(|index| trends.slots[*index].misses == Trend::Up);
        // Of equals the first: `max_by` returns the last of the reversed order.
        let chosen = rising.rev().max_by(|a, b| rise(*a).total_cmp(&rise(*b)))?;
        let (misses_before, present) = (before.slots[chosen].misses?, misses(chosen)?);
        self.growth = Some(Growth { slot: chosen, misses_before, misses: present });
        let change =
            super::poll::relative(Some(misses_before), Some(present), config.llc_floor).unwrap_or(0.0);
        let causes = vec![
            config.cause("relative change of its LLC misses", change, "threshold_stable"),
            Cause { what: "rise of its LLC miss ratio".to_owned(), value: rise(chosen), limit: None },
        ];
        Some((chosen, causes))
    }
}
