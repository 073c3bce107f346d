//! A mean that follows a quantity over intervals, with its standard error. It must not know what the quantity is.

use crate::Estimate;

/// Mean and spread of the values noted so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Running {
    count: f64,
    mean: f64,
    squares: f64,
}

/// Intervals that a mean remembers at most: older ones fade. Assumption: half a minute at one interval a second, long
/// against noise and short against changes of load.
const MOST: f64 = 32.0;

impl Running {
    /// Notes a value (Welford's update, with the count bounded).
    pub fn note(&mut self, value: f64) {
        if self.count >= MOST {
            self.squares *= (MOST - 1.0) / MOST;
            self.count = MOST - 1.0;
        }
        self.count += 1.0;
        let step = value - self.mean;
        self.mean += step / self.count;
        self.squares += step * (value - self.mean);
    }

    /// Values noted, at most as many as it remembers.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// The mean; 0 before the first value.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation of single values; 0 with fewer than two.
    pub fn deviation(&self) -> f64 {
        if self.count > 1.0 { (self.squares / (self.count - 1.0)).max(0.0).sqrt() } else { 0.0 }
    }

    /// The mean with its standard error; with fewer than two values the error is `single` times the mean.
    pub fn estimate(&self, single: f64) -> Estimate {
        let error =
            if self.count > 1.0 { self.deviation() / self.count.sqrt() } else { single * self.mean.abs() };
        Estimate { value: self.mean, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_few_values_has_their_standard_error() {
        let mut running = Running::default();
        for value in [1.0, 2.0, 3.0, 4.0] {
            running.note(value);
        }
        // Deviations from 2.5: 2.25 + 0.25 + 0.25 + 2.25 = 5; variance 5 / 3; error sqrt(5 / 3 / 4).
        let estimate = running.estimate(0.1);
        assert!((estimate.value - 2.5).abs() < 1e-12);
        assert!((estimate.error - (5.0_f64 / 12.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn old_values_fade() {
        let mut running = Running::default();
        (0..100).for_each(|_| running.note(1.0));
        (0..200).for_each(|_| running.note(3.0));
        assert!((running.mean() - 3.0).abs() < 0.01, "{}", running.mean());
        assert!(running.count() <= MOST);
    }
}
