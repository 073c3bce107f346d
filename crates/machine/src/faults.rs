//! Fault injection: a virtual server on which the scenario's faults happen at set times.
//!
//! Faults are injected between the seam and the server, so a controller sees them as on real hardware. Deterministic:
//! the same scenario has the same faults at the same simulated time. Knows the seam and the server's knobs; must not
//! know any policy.

use crate::host::VirtualServer;
use crate::scenario::{Fault, FaultKind};
use std::collections::BTreeMap;
use waykeeper_host::{
    Applied, Host, HostCounter, HostError, Inventory, Knob, KnobOutcome, KnobValues, Lines, Plan, Reading,
    Snapshot, Workload, WorkloadCounters,
};
use waykeeper_units::{WayMask, WorkloadId};

/// The server and its faults.
#[derive(Clone, Debug)]
pub struct FaultyServer {
    server: VirtualServer,
    faults: Vec<Fault>,
    /// Per fault: whether it has happened, for faults without a duration.
    done: Vec<bool>,
    /// Offset of the visible clock from the server's clock, ns.
    ahead_ns: i64,
    /// Per restarted group: its counters at the restart, which are subtracted.
    restarted: BTreeMap<WorkloadId, WorkloadCounters>,
    /// Values that knobs without effect read back.
    sham: KnobValues,
}

impl FaultyServer {
    /// A server with the faults of its scenario, if there are any.
    pub fn new(server: VirtualServer) -> FaultyServer {
        let faults = server.scenario().faults.clone();
        FaultyServer {
            done: vec![false; faults.len()],
            faults,
            server,
            ahead_ns: 0,
            restarted: BTreeMap::new(),
            sham: KnobValues::default(),
        }
    }

    /// The server behind the faults.
    pub fn server(&self) -> &VirtualServer {
        &self.server
    }

    fn is(&self, wanted: impl Fn(FaultKind) -> bool) -> bool {
        let now_s = self.server.now_ns() as f64 * 1e-9;
        let mut active = self.faults.iter().filter(|f| f.at_s <= now_s && now_s < f.until_s);
        active.any(|fault| self.now(fault.kind).is_some_and(&wanted))
    }

    /// The fault with the workload's current group; `None` while the workload does not run.
    fn now(&self, kind: FaultKind) -> Option<FaultKind> {
        let group = |workload: WorkloadId| self.server.group_now(workload.index());
        Some(match kind {
            FaultKind::Unavailable(workload) => FaultKind::Unavailable(group(workload)?),
            FaultKind::CounterRestarts(workload) => FaultKind::CounterRestarts(group(workload)?),
            FaultKind::DeadMask(workload) => FaultKind::DeadMask(group(workload)?),
            FaultKind::Dies(workload) => FaultKind::Dies(group(workload)?),
            FaultKind::Outsider(workload, mask) => FaultKind::Outsider(group(workload)?, mask),
            FaultKind::SampleFails
            | FaultKind::Busy
            | FaultKind::DeadSwitch(_)
            | FaultKind::DeadDcaWays
            | FaultKind::ClockJumps(_) => kind,
        })
    }

    /// Stops workloads with a due `Dies` fault.
    fn bury(&mut self) {
        let now_s = self.server.now_ns() as f64 * 1e-9;
        for index in 0..self.faults.len() {
            let fault = self.faults[index];
            if let (FaultKind::Dies(_), false, true) = (fault.kind, self.done[index], fault.at_s <= now_s) {
                self.done[index] = true;
                if let Some(FaultKind::Dies(group)) = self.now(fault.kind) {
                    self.server.kill(group);
                }
            }
        }
    }

    /// The first pending fault without duration until `until_ns`, and its time, ns.
    fn next_moment(&self, until_ns: u64) -> Option<(usize, u64)> {
        let moments = self.faults.iter().enumerate().filter(|(index, fault)| {
            let moment = matches!(
                fault.kind,
                FaultKind::CounterRestarts(_) | FaultKind::ClockJumps(_) | FaultKind::Outsider(..)
            );
            moment && !self.done[*index]
        });
        let times = moments.map(|(index, fault)| (index, (fault.at_s * 1e9) as u64));
        times.filter(|(_, at)| *at <= until_ns).min_by_key(|(_, at)| *at)
    }

    /// The knob that a fault makes dead.
    fn dead_knob(kind: FaultKind) -> Option<Knob> {
        match kind {
            FaultKind::DeadMask(group) => Some(Knob::Mask(group)),
            FaultKind::DeadSwitch(port) => Some(Knob::Dca(port)),
            FaultKind::DeadDcaWays => Some(Knob::DcaWays),
            _ => None,
        }
    }

    /// Removes affected knobs from a plan: a dead knob stores its value for reading back, a busy one reports `Busy`.
    fn feign(&mut self, plan: &mut Plan, applied: &mut Applied) {
        for fault in self.faults.clone() {
            let Some(kind) = self.now(fault.kind).filter(|now| self.is(|kind| kind == *now)) else {
                continue;
            };
            if kind == FaultKind::Busy {
                let masks: Vec<Knob> = plan.knobs().filter(|knob| knob.workload().is_some()).collect();
                for mask in masks {
                    plan.remove(mask);
                    applied.insert(mask, KnobOutcome::Busy("device or resource busy".to_owned()));
                }
            }
            if let Some(dead) = Self::dead_knob(kind)
                && let Some(setting) = plan.remove(dead)
            {
                self.sham.insert(dead, setting);
                applied.insert(dead, KnobOutcome::Applied);
            }
        }
    }
}

impl Host for FaultyServer {
    fn inventory(&self) -> &Inventory {
        self.server.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.server.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        if self.is(|kind| kind == FaultKind::SampleFails) {
            let why = "input/output error".to_owned();
            return Err(HostError::Failed { what: "reading counters".to_owned(), why });
        }
        let mut snapshot = self.server.sample()?;
        snapshot.at_ns = self.now_ns();
        for (group, counters) in &mut snapshot.groups {
            if self.is(|kind| kind == FaultKind::Unavailable(*group)) {
                *counters = each(counters, counters, |_, _| Reading::Unavailable);
            } else if let Some(base) = self.restarted.get(group) {
                *counters = each(counters, base, |now, base| now.zip_with(base, u64::saturating_sub));
            }
        }
        let mut sham = std::mem::take(&mut self.sham);
        sham.retain(|knob, _| {
            let is_alive = knob.workload().is_none_or(|workload| snapshot.groups.contains_key(&workload));
            is_alive && self.is(|kind| Self::dead_knob(kind) == Some(knob))
        });
        self.sham = sham;
        self.restarted.retain(|group, _| snapshot.groups.contains_key(group));
        snapshot.knobs.extend(self.sham.clone());
        Ok(snapshot)
    }

    fn partial_writes(&mut self) -> Lines {
        self.server.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.server.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        self.bury();
        let (mut plan, mut feigned) = (plan.clone(), Applied::default());
        self.feign(&mut plan, &mut feigned);
        let mut applied = self.server.apply(&plan)?;
        applied.extend(feigned);
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        self.server.now_ns().saturating_add_signed(self.ahead_ns)
    }

    /// The wait ends if the clock jumps past the deadline, and also if it jumps back.
    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        // Workloads also die if no plan was applied since their fault was due.
        self.bury();
        loop {
            let until_ns = deadline_ns.saturating_add_signed(self.ahead_ns.saturating_neg());
            let Some((index, at_ns)) = self.next_moment(until_ns) else {
                return self.server.wait_until(until_ns);
            };
            self.server.wait_until(at_ns)?;
            self.done[index] = true;
            let Some(kind) = self.now(self.faults[index].kind) else { continue };
            match kind {
                FaultKind::CounterRestarts(group) => {
                    let now = self.server.sample()?;
                    self.restarted.extend(now.groups.get(&group).map(|counters| (group, *counters)));
                }
                FaultKind::Outsider(group, mask) => {
                    self.server.apply(&Plan::of_masks([(group, mask)]))?;
                }
                FaultKind::ClockJumps(by_s) => {
                    self.ahead_ns += (by_s * 1e9) as i64;
                    if by_s < 0.0 || self.now_ns() >= deadline_ns {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }
}

/// Combines two readings of each cumulative count with `f`; levels, such as the occupancy, stay.
fn each(
    now: &WorkloadCounters,
    base: &WorkloadCounters,
    f: impl Fn(Reading<u64>, Reading<u64>) -> Reading<u64>,
) -> WorkloadCounters {
    now.zip_with(base, |counter, now, base| if counter.is_level() { now } else { f(now, base) })
}
