//! The time of each part of a step: a host and a policy that forward each call and measure its time.
//!
//! Must not know the host or the decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use waykeeper_host::{Applied, Host, HostError, Interval, Inventory, Lines, Plan, Snapshot, Workload};
use waykeeper_policy::{Decision, Description, Policy, PolicyError};
use waykeeper_units::WayMask;

/// Time of each part since the last call of `take`, ns.
#[derive(Default)]
pub struct Spent {
    sampling: AtomicU64,
    deciding: AtomicU64,
    turning: AtomicU64,
}

/// The parts of one step, ns.
pub struct Parts {
    /// Reading all counters and knobs.
    pub sampling: u64,
    /// In the policy.
    pub deciding: u64,
    /// Setting knobs and reading them back.
    pub turning: u64,
}

impl Spent {
    /// The times since the last call.
    pub fn take(&self) -> Parts {
        Parts {
            sampling: self.sampling.swap(0, Relaxed),
            deciding: self.deciding.swap(0, Relaxed),
            turning: self.turning.swap(0, Relaxed),
        }
    }
}

fn timed<T>(sum: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let value = work();
    sum.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
    value
}

/// A host whose calls are timed.
pub struct MeteredHost<H> {
    /// The host itself.
    pub host: H,
    /// Where the times are added up.
    pub spent: Arc<Spent>,
}

impl<H: Host> Host for MeteredHost<H> {
    fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.host.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        timed(&self.spent.sampling, || self.host.sample())
    }

    fn partial_writes(&mut self) -> Lines {
        self.host.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.host.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        timed(&self.spent.turning, || self.host.apply(plan))
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.host.wait_until(deadline_ns)
    }
}

/// A policy whose steps are timed.
pub struct MeteredPolicy {
    /// The policy itself.
    pub policy: Box<dyn Policy>,
    /// Where the times are added up.
    pub spent: Arc<Spent>,
}

impl Policy for MeteredPolicy {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn describe(&self) -> Description {
        self.policy.describe()
    }

    fn check(&self, inventory: &Inventory, workloads: &[&str]) -> Result<(), PolicyError> {
        self.policy.check(inventory, workloads)
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.policy.start(inventory, groups)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        timed(&self.spent.deciding, || self.policy.step(groups, seen))
    }
}
