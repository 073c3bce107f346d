//! Slowdown of a program by DMA load beside it: runs in cycles of plain, random and single, and the slowdown by each
//! pattern with a confidence interval (thesis s5.5; algorithms.md 7.5).
//!
//! Arithmetic on measured values. Must not know how the load was made, nor what the program was.

use crate::stats::{margin_at, mean, median};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

/// Probability that a confidence interval contains the true value: 95 %. Assumption: the usual value for a comparison
/// of two patterns, not of dozens.
pub const CONFIDENCE: f64 = 0.95;
/// Minimum cycles. Arithmetic: one value has no standard deviation.
pub const LEAST_CYCLES: u32 = 2;

/// The load beside the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// No load, the reference of the others.
    Plain,
    /// Large commands at random positions of the buffer.
    Random,
    /// One block per command, in order.
    Single,
}

impl Arm {
    /// All arms, in the order in which they are shown.
    pub const ALL: [Arm; 3] = [Arm::Plain, Arm::Random, Arm::Single];

    /// Name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Arm::Plain => "plain",
            Arm::Random => "random",
            Arm::Single => "single",
        }
    }
}

/// The arms of each cycle in random order, so that drift and the effect of the preceding arm are the same for all arms.
/// The same seed gives the same orders on every machine.
pub fn order(cycles: u32, seed: u64) -> Vec<[Arm; 3]> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let cycle = |_| {
        let mut arms = Arm::ALL;
        for last in (1..arms.len()).rev() {
            // The upper 32 bits times the count, shifted right: uniform up to a bias of 2^-32.
            let other = ((random.next_u64() >> 32) * (last as u64 + 1)) >> 32;
            arms.swap(last, other as usize);
        }
        arms
    };
    (0..cycles).map(cycle).collect()
}

/// The measured values of one cycle, in the order of [`Arm::ALL`].
pub type Cycle = [f64; 3];

/// Whether a higher measured value is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sense {
    /// Time: less is better.
    #[default]
    Time,
    /// A rate: more is better.
    Rate,
}

/// The slowdown of the program by one pattern.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Slowdown {
    /// The pattern.
    pub pattern: Arm,
    /// Median of the values measured under the pattern.
    pub median: f64,
    /// Relative slowdown: 0.1 is a tenth slower than plain, below 0 is faster. The geometric mean of the cycles'
    /// ratios, less 1.
    pub slowdown: f64,
    /// Lower end of its confidence interval at [`CONFIDENCE`].
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Slowdown {
    /// True if the interval excludes 0.
    pub fn is_clear(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Slowdowns over all cycles; `None` below [`LEAST_CYCLES`], and if a value is not above 0.
///
/// Each cycle gives one ratio per pattern to its own plain run, so drift between cycles (temperature, other tenants)
/// cancels. The logarithms of ratios are closer to normal, so Student's t is applied to these. A bootstrap of ten pairs
/// would be too narrow, because its tails end at the ten values.
pub fn slowdowns(cycles: &[Cycle], sense: Sense) -> Option<[Slowdown; 2]> {
    if cycles.len() < LEAST_CYCLES as usize {
        return None;
    }
    if cycles.iter().flatten().any(|value| !(value.is_finite() && *value > 0.0)) {
        return None;
    }
    let of = |arm: usize| {
        let logs: Vec<f64> = cycles
            .iter()
            .map(|cycle| match sense {
                Sense::Time => (cycle[arm] / cycle[0]).ln(),
                Sense::Rate => (cycle[0] / cycle[arm]).ln(),
            })
            .collect();
        let mean = mean(&logs)?;
        let margin = margin_at(&mean, CONFIDENCE)?;
        let measured: Vec<f64> = cycles.iter().map(|cycle| cycle[arm]).collect();
        Some(Slowdown {
            pattern: Arm::ALL[arm],
            median: median(&measured)?,
            slowdown: mean.value.exp_m1(),
            low: (mean.value - margin).exp_m1(),
            high: (mean.value + margin).exp_m1(),
        })
    };
    Some([of(1)?, of(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowdown_is_the_mean_of_ratios_within_cycles() {
        // Plain doubles from cycle to cycle; random is 1.1, 1.21 and 1.1 times that, so the logarithms are 1, 2 and 1
        // times ln 1.1 = 0.09531: mean 0.12708, deviation 0.05503, error 0.03177; t(0.975; 2) = 4.3027, margin 0.13671.
        let cycles = [[1.0, 1.1, 1.0], [2.0, 2.42, 2.0], [4.0, 4.4, 4.0]];
        let [random, single] = slowdowns(&cycles, Sense::Time).unwrap();
        assert!((random.slowdown - 0.12708_f64.exp_m1()).abs() < 1e-4, "{random:?}");
        assert!((random.low - (0.12708_f64 - 0.13671).exp_m1()).abs() < 1e-4, "{random:?}");
        assert!((random.high - (0.12708_f64 + 0.13671).exp_m1()).abs() < 1e-4, "{random:?}");
        assert_eq!((random.median, random.is_clear()), (2.42, false), "three cycles are few");
        assert_eq!((single.slowdown, single.low, single.high), (0.0, 0.0, 0.0));
        // A rate that falls to 1 / 1.1 is the same slowdown as a time that grows to 1.1.
        let rates = cycles.map(|cycle| cycle.map(|time| 1.0 / time));
        let [turned, _] = slowdowns(&rates, Sense::Rate).unwrap();
        assert!((turned.slowdown - random.slowdown).abs() < 1e-12 && (turned.low - random.low).abs() < 1e-12);
    }

    #[test]
    fn too_little_or_nothing_measured_says_nothing() {
        assert_eq!(slowdowns(&[[1.0, 1.1, 1.2]], Sense::Time), None);
        assert_eq!(slowdowns(&[[1.0, 1.1, 1.2], [0.0, 1.0, 1.0]], Sense::Time), None);
        assert_eq!(slowdowns(&[[1.0, 1.1, 1.2], [1.0, f64::NAN, 1.0]], Sense::Rate), None);
    }

    #[test]
    fn every_cycle_has_every_arm_and_orders_differ() {
        let cycles = order(60, 1);
        assert_eq!((cycles.len(), &cycles), (60, &order(60, 1)));
        assert_ne!(cycles, order(60, 2));
        let mut first = [0; 3];
        for cycle in &cycles {
            for (arm, count) in Arm::ALL.iter().zip(&mut first) {
                assert_eq!(cycle.iter().filter(|other| *other == arm).count(), 1);
                *count += u32::from(cycle[0] == *arm);
            }
        }
        // 20 each are expected, with a deviation of about 4.
        assert!(first.iter().all(|count| (8..=32).contains(count)), "{first:?}");
    }

    /// The interval contains the true value in about 95 of 100 cases, counted over 2000 experiments of ten cycles with
    /// noise of a tenth, a drift to almost double and a true slowdown of 5 %.
    #[test]
    fn the_interval_holds_the_truth() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut held = 0;
        for _ in 0..2000 {
            let cycles: Vec<Cycle> = (0..10)
                .map(|index| {
                    let level = 1.0 + f64::from(index) / 10.0;
                    // The sum of twelve uniform numbers less 6 is nearly normal.
                    let mut noise = || (0.1 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0)).exp();
                    [level * noise(), level * 1.05 * noise(), level * noise()]
                })
                .collect();
            let [random, _] = slowdowns(&cycles, Sense::Time).unwrap();
            held += usize::from(random.low <= 0.05 && 0.05 <= random.high);
        }
        // 1900 are expected, with a deviation of 10.
        assert!((1860..=1940).contains(&held), "{held}");
    }
}
