//! One point of a sweep in a line, while the sweep runs: the group means, or for a single policy its throughputs. Must not
//! know when a point is done.

use crate::results::SweepPoint;
use crate::show;

/// Workloads of a single policy that the line names; the others are in the table.
const WORKLOADS: usize = 4;

/// The line of a point: its values, then HPW and LPW means per policy.
pub fn point(point: &SweepPoint) -> String {
    let at: Vec<String> = point.at.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let ratio = |value: Option<f64>| value.map(|ratio| format!("{ratio:.2}"));
    let groups = point.run.policies.iter().filter_map(|(policy, result)| {
        let means = ["HPW", "LPW"].into_iter().filter_map(|name| {
            Some(format!("{name} {}", ratio(result.groups.get(name)?.performance_ratio)?))
        });
        let means: Vec<String> = means.collect();
        (!means.is_empty()).then(|| format!("{policy} {}", means.join(" ")))
    });
    let mut found: Vec<String> = groups.collect();
    if let (1, Some((policy, result))) = (point.run.policies.len(), point.run.policies.first()) {
        let throughputs = result.workloads.iter().filter_map(|(name, workload)| {
            Some(format!("{name} {}", show::throughput(workload, workload.metrics.throughput?)))
        });
        let throughputs: Vec<String> = throughputs.take(WORKLOADS).collect();
        found = vec![format!("{policy} {}", throughputs.join(", "))];
    }
    show::plain(&format!("{}: {}", at.join(", "), found.join("; ")))
}
