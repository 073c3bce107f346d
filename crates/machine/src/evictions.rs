//! Evictions by evictor and owner over an interval, for workloads and devices: true values, which no counter shows.
//!
//! Separate from `measured.rs`, because these results are per pair of agents. Knows the workload of a group and the
//! number of a device; must not know why the chip evicts a line, nor how a report shows it.

use crate::measured::Mark;
use crate::server::Machine;
use waykeeper_silicon::{EvictionCount, EvictionReason, Owner};

/// Evictor or owner of lines; numbered in the scenario's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Agent {
    /// A workload, by its cores.
    Workload(usize),
    /// A device: NICs first, then storage.
    Device(usize),
}

/// Evictions of one kind over an interval, in lines of the real server per second of simulated traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EvictionRate {
    /// The evictor: its access evicted the lines.
    pub by: Agent,
    /// The owner of the lines ([`EvictionCount::of`]).
    pub of: Agent,
    /// Reason of the evictions.
    pub reason: EvictionReason,
    /// All evicted lines.
    pub lines_per_s: f64,
    /// ... of these, device data that no core had read.
    pub unread_lines_per_s: f64,
}

impl Mark {
    /// Evictions since `self` was taken. Correct only while each core is charged to its workload.
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

/// `None` for group 0: cores that no workload has used yet.
fn agent(owner: Owner) -> Option<Agent> {
    match owner {
        Owner::Group(group) => Some(Agent::Workload(usize::from(group).checked_sub(1)?)),
        Owner::Device(device) => Some(Agent::Device(device)),
    }
}
