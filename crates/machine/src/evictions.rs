//! Who evicted whose lines in a stretch of a run, by workload and device: the model's truth, which no counter shows.
//!
//! Apart from the measured numbers, which are one per name: these are pairs. Knows which workload a group is and which
//! number a device has; must not know why the chip evicts a line, nor how a report shows it.

use crate::measured::Mark;
use crate::server::Machine;
use waykeeper_silicon::{EvictionCount, EvictionReason, Owner};

/// Who evicts lines, or whose lines are evicted; numbered in the scenario's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Agent {
    /// A workload, by its cores.
    Workload(usize),
    /// A device: NICs first, then storage.
    Device(usize),
}

/// Evictions of one kind over a stretch, in lines of the real server per second of simulated traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EvictionRate {
    /// Whose access evicted the lines.
    pub by: Agent,
    /// Whose lines they were ([`EvictionCount::of`]).
    pub of: Agent,
    /// Why.
    pub reason: EvictionReason,
    /// All of them.
    pub lines_per_s: f64,
    /// ... of these, device data that no core had read.
    pub unread_lines_per_s: f64,
}

impl Mark {
    /// Who evicted whose lines since `self` was taken. Right only while cores are charged to their workloads.
    pub(crate) fn evictions(&self, machine: &Machine) -> Vec<EvictionRate> {
        let now = Mark::of(machine);
        let per_s = machine.scale() / ((now.at_ns - self.at_ns) * 1e-9);
        let rates = now.evictions.iter().filter_map(|seen| {
            let key = |count: &EvictionCount| (count.by, count.of, count.reason);
            let before = self.evictions.iter().find(|before| key(before) == key(seen));
            let (lines, unread) = before.map_or((0, 0), |before| (before.lines, before.unread));
            Some(EvictionRate {
                by: agent(seen.by)?,
                of: agent(seen.of)?,
                reason: seen.reason,
                lines_per_s: (seen.lines - lines) as f64 * per_s,
                unread_lines_per_s: (seen.unread - unread) as f64 * per_s,
            })
        });
        rates.filter(|rate| rate.lines_per_s > 0.0).collect()
    }
}

/// Group 0 is of cores that no workload has used yet.
fn agent(owner: Owner) -> Option<Agent> {
    match owner {
        Owner::Group(group) => Some(Agent::Workload(usize::from(group).checked_sub(1)?)),
        Owner::Device(device) => Some(Agent::Device(device)),
    }
}
