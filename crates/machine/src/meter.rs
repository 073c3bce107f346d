//! What a workload achieved: operations, bytes, latencies. The truth for reports; policies never see it.

use hdrhistogram::Histogram;

/// Longest latency told apart, ns (10 s); longer ones count as this.
const LONGEST_NS: u64 = 10_000_000_000;

/// The meter of one workload, over the time since it was last cleared.
#[derive(Clone, Debug)]
pub struct Meter {
    /// Operations completed: packets, I/Os, requests.
    pub operations: f64,
    /// Payload bytes of these.
    pub bytes: f64,
    /// Operations lost (dropped packets).
    pub dropped: f64,
    latency_ns: Histogram<u64>,
    latency_sum_ns: f64,
    latency_count: f64,
}

impl Default for Meter {
    fn default() -> Meter {
        let latency_ns = Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are legal");
        Meter {
            operations: 0.0,
            bytes: 0.0,
            dropped: 0.0,
            latency_ns,
            latency_sum_ns: 0.0,
            latency_count: 0.0,
        }
    }
}

impl Meter {
    /// Notes a completed operation's latency.
    #[inline(always)]
    pub fn latency(&mut self, ns: f64) {
        self.latency_sum_ns += ns;
        self.latency_count += 1.0;
        self.latency_ns.saturating_record(ns as u64);
    }

    /// Mean latency, ns; `None` if nothing completed.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.latency_count > 0.0).then(|| self.latency_sum_ns / self.latency_count)
    }

    /// Latency at a quantile 0..1, ns, within 1 %.
    pub fn quantile_ns(&self, quantile: f64) -> Option<f64> {
        (self.latency_count > 0.0).then(|| self.latency_ns.value_at_quantile(quantile) as f64)
    }

    /// Starts over.
    pub fn clear(&mut self) {
        self.operations = 0.0;
        self.bytes = 0.0;
        self.dropped = 0.0;
        self.latency_ns.reset();
        self.latency_sum_ns = 0.0;
        self.latency_count = 0.0;
    }
}
