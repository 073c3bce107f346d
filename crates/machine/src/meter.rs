//! What a workload achieved: operations, bytes, latencies. The truth for reports; policies never see it.

/// The meter of one workload, over the time since it was last cleared.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Operations completed: packets, I/Os, requests.
    pub operations: f64,
    /// Payload bytes of these.
    pub bytes: f64,
    /// Operations lost (dropped packets).
    pub dropped: f64,
    latency_ns: Histogram,
    latency_sum_ns: f64,
}

impl Meter {
    /// Notes a completed operation's latency.
    #[inline(always)]
    pub fn latency(&mut self, ns: f64) {
        self.latency_sum_ns += ns;
        self.latency_ns.note(ns);
    }

    /// Mean latency, ns; `None` if nothing completed.
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.latency_ns.count();
        (count > 0).then(|| self.latency_sum_ns / count as f64)
    }

    /// Latency at a quantile 0..1, ns, within 1 %.
    pub fn quantile_ns(&self, quantile: f64) -> Option<f64> {
        self.latency_ns.quantile(quantile).map(|ns| ns as f64)
    }

    /// Starts over.
    pub fn clear(&mut self) {
        *self = Meter::default();
    }
}

/// Buckets of a power of two: the upper half of so many steps from 0 to its end.
const STEPS: u64 = 256;
/// Doublings beyond the first steps: up to 2^34 ns, 17 s; what takes longer counts as that.
const DOUBLINGS: u64 = 26;
const BUCKETS: usize = ((DOUBLINGS + 2) * STEPS / 2) as usize;

/// Counts by latency: steps of 1 ns up to 256 ns, and 128 steps to each doubling beyond (an HDR histogram of two
/// digits, so lean that a packet can afford it).
#[derive(Clone, Debug)]
struct Histogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; BUCKETS]) }
    }
}

impl Histogram {
    #[inline(always)]
    fn note(&mut self, ns: f64) {
        let ns = (ns as i64).cast_unsigned();
        // 0 below STEPS, then one more for each doubling.
        let doubling = u64::from(57 - (ns | (STEPS - 1)).leading_zeros()) - 1;
        let bucket = doubling * (STEPS / 2) + (ns >> doubling);
        self.counts[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest latency that counts as much as the one at this rank.
    fn quantile(&self, quantile: f64) -> Option<u64> {
        let wanted = ((quantile * self.count() as f64).ceil() as u64).max(1);
        let mut below = 0;
        let bucket = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        })?;
        let doubling = (bucket as u64 / (STEPS / 2)).saturating_sub(1);
        Some(((bucket as u64 - doubling * (STEPS / 2) + 1) << doubling) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_step() {
        let mut meter = Meter::default();
        assert_eq!((meter.mean_ns(), meter.quantile_ns(0.5)), (None, None));
        for ns in 1..=100_000 {
            meter.latency(f64::from(ns));
        }
        assert_eq!(meter.mean_ns(), Some(50_000.5));
        // 50 000 lies between 2^15 and 2^16, where a step is 256 ns: the end of its step is 50 175.
        assert_eq!(meter.quantile_ns(0.5), Some(50_175.0));
        assert_eq!(meter.quantile_ns(0.001), Some(100.0));
        assert_eq!(meter.quantile_ns(1.0), Some(100_351.0));
        meter.latency(1e30);
        assert_eq!(meter.quantile_ns(1.0), Some((1u64 << 34) as f64 - 1.0));
        meter.clear();
        assert_eq!(meter.quantile_ns(1.0), None);
    }
}
