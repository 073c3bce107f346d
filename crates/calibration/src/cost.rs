//! From cycles per instruction and misses under several layouts to the cycles that a hit and a miss cost. It must not know
//! masks or other tenants.

use crate::Estimate;

/// Cycles per instruction and LLC misses per instruction under one layout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stall {
    pub cycles: Estimate,
    pub misses: f64,
    /// LLC references per instruction.
    pub references: f64,
}

/// What a tenant's time is spent on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CycleCosts {
    /// Cycles per instruction without LLC references.
    pub base: Estimate,
    /// Cycles of a hit.
    pub hit: Estimate,
    /// Cycles of a miss.
    pub miss: Estimate,
}

/// Cycles per instruction of a program that never waits for the LLC. Assumption: three to four instructions per cycle.
const BUSY: f64 = 0.3;
/// Cycles of an LLC hit relative to a memory access, loads that wait for each other: 31 and 98 ns (microarchitecture.md 2).
const HIT_SHARE: f64 = 31.0 / 98.0;
/// Cycles of a memory access on which a program waits fully: 98 ns at 2.3 GHz (microarchitecture.md 2), and half as much
/// again for faster cores and loaded memory. Assumption.
const MOST: f64 = 340.0;
/// Relative error of the cost that one layout alone says. Assumption: seen on programs of several kinds, 10 to 40 %.
const PRIOR_ERROR: f64 = 0.35;

impl CycleCosts {
    /// The costs that explain these layouts. `None` without references or cycles.
    pub fn of(stalls: &[Stall]) -> Option<CycleCosts> {
        let count = stalls.len() as f64;
        let mean = |value: fn(&Stall) -> f64| stalls.iter().map(value).sum::<f64>() / count;
        let (cycles, misses) = (mean(|stall| stall.cycles.value), mean(|stall| stall.misses));
        let references = mean(|stall| stall.references);
        if stalls.is_empty() || cycles <= 0.0 || references <= 0.0 {
            return None;
        }
        // All cycles beyond those of a busy core are spent on hits and misses.
        let waited = (cycles - BUSY).max(0.1 * cycles);
        let hits = (references - misses).max(0.0);
        let alone = (waited / (misses + HIT_SHARE * hits)).min(MOST);
        let prior = alone * (1.0 - HIT_SHARE);
        let prior_error = PRIOR_ERROR * prior;
        // The slope of cycles over misses, weighted against the prior.
        let (mut over, mut under) = (prior / prior_error.powi(2), prior_error.powi(-2));
        for stall in stalls {
            let error = stall.cycles.error.hypot(0.003 * cycles);
            let run = stall.misses - misses;
            over += run * (stall.cycles.value - cycles) / error.powi(2);
            under += run * run / error.powi(2);
        }
        let slope = (over / under).clamp(0.0, waited / misses.max(1e-12));
        let slope_error = under.sqrt().recip();
        // Hits cost their usual part of a miss.
        let miss = slope / (1.0 - HIT_SHARE);
        let hit = miss * HIT_SHARE;
        let base = (cycles - misses * miss - hits * hit).max(0.0);
        let error = slope_error / (1.0 - HIT_SHARE);
        Some(CycleCosts {
            base: Estimate { value: base, error: misses * error },
            hit: Estimate { value: hit, error: HIT_SHARE * error },
            miss: Estimate { value: miss, error },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(cycles: f64, misses: f64) -> Stall {
        Stall { cycles: Estimate { value: cycles, error: 0.001 }, misses, references: 0.02 }
    }

    #[test]
    fn two_layouts_say_what_a_miss_costs_beyond_a_hit() {
        // 0.01 misses per instruction more cost half a cycle more: 50 cycles a miss beyond a hit.
        let costs = CycleCosts::of(&[stall(1.0, 0.005), stall(1.5, 0.015)]).unwrap();
        let slope = costs.miss.value - costs.hit.value;
        assert!((slope - 50.0).abs() < 2.0, "{slope}");
        // Cycles are explained: base + 0.01 misses + 0.01 hits.
        let all = costs.base.value + 0.01 * costs.miss.value + 0.01 * costs.hit.value;
        assert!((all - 1.25).abs() < 0.01, "{all}");
    }

    #[test]
    fn one_layout_leaves_a_large_error() {
        let costs = CycleCosts::of(&[stall(1.5, 0.015)]).unwrap();
        assert!(costs.miss.error > 0.2 * costs.miss.value);
        assert!(CycleCosts::of(&[]).is_none());
    }
}
