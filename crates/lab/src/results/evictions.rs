//! Who evicts whose lines, by name, and its mean over several seeds.
//!
//! Must not know how evictions are counted or shown.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_silicon::EvictionReason;

/// Evictions by one workload or device, of the lines of one workload or device, for one reason; per second of simulated
/// time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evictions {
    /// The workload or device whose access evicted the lines.
    pub by: String,
    /// The workload or device that owned the lines. A line that a device wrote is the device's until a core has read
    /// it.
    pub of: String,
    /// The reason.
    pub reason: EvictionReason,
    /// Lines.
    pub lines_per_s: f64,
    /// ... of these, device data that no core had read (DMA leak).
    pub unread_lines_per_s: f64,
}

/// The order of a result: the most lines first.
pub(crate) fn order(evictions: &mut [Evictions]) {
    evictions.sort_by(|a, b| {
        let names = |one: &Evictions| (one.by.clone(), one.of.clone(), one.reason);
        b.lines_per_s.total_cmp(&a.lines_per_s).then_with(|| names(a).cmp(&names(b)))
    });
}

/// The mean over the seeds; a seed without evictions of a kind had none.
pub(super) fn mean(seeds: &[&[Evictions]]) -> Vec<Evictions> {
    let mut sums: BTreeMap<(&str, &str, EvictionReason), [f64; 2]> = BTreeMap::new();
    for one in seeds.iter().copied().flatten() {
        let sum = sums.entry((&one.by, &one.of, one.reason)).or_default();
        sum[0] += one.lines_per_s;
        sum[1] += one.unread_lines_per_s;
    }
    let count = seeds.len() as f64;
    let means = sums.into_iter().map(|((by, of, reason), [lines, unread])| Evictions {
        by: by.to_owned(),
        of: of.to_owned(),
        reason,
        lines_per_s: lines / count,
        unread_lines_per_s: unread / count,
    });
    let mut means: Vec<Evictions> = means.collect();
    order(&mut means);
    means
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evictions(by: &str, of: &str, lines_per_s: f64, unread_lines_per_s: f64) -> Evictions {
        let (by, of) = (by.to_owned(), of.to_owned());
        Evictions { by, of, reason: EvictionReason::DeviceWrite, lines_per_s, unread_lines_per_s }
    }

    #[test]
    fn a_seed_without_evictions_of_a_kind_counts_as_none() {
        let first = [evictions("nic0", "x-mem", 4.0, 0.0)];
        let second = [evictions("nic0", "x-mem", 2.0, 0.0), evictions("nic0", "nic0", 8.0, 6.0)];
        let wanted = [evictions("nic0", "nic0", 4.0, 3.0), evictions("nic0", "x-mem", 3.0, 0.0)];
        assert_eq!(mean(&[&first, &second]), wanted);
        assert_eq!(mean(&[]), []);
    }
}
