//! A question about other layouts, and its answer. It must not know how an answer is found.

use crate::{Estimate, ServerDescription};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use waykeeper_host::Plan;
use waykeeper_units::{PortId, WayMask, WorkloadId};

/// A question: which layouts serve this goal best on this server?
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LayoutQuestion {
    /// Its number; an answer has the number of its question.
    pub number: u64,
    /// The server.
    pub server: ServerDescription,
    /// The layouts that are possible.
    pub limits: LayoutLimits,
    /// What is better.
    pub goal: Goal,
    /// Layouts whose prediction is wanted in any case, besides those that are searched.
    pub asked: Vec<Plan>,
    /// Most layouts in the answer.
    pub most: usize,
}

/// The layouts that are possible: masks are one run of ways.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LayoutLimits {
    /// Fewest ways of a mask.
    pub min_ways: u32,
    /// Most different masks, the root class's among them.
    pub most_classes: u32,
    /// DCA masks that may be set; empty if they cannot be changed.
    pub dca_ways: Vec<WayMask>,
    /// Ports whose DCA can be switched.
    pub switches: Vec<PortId>,
}

/// What is better. Progress is relative to the layout in force: 1 is as now.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// Least progress of LPWs together (geometric mean, weighted by cores), where HPWs do not gain more than
    /// `gain_per_loss` times as much.
    pub lpw_floor: f64,
    /// HPWs must gain so many times what LPWs lose below the floor.
    pub gain_per_loss: f64,
    /// Least progress of each HPW.
    pub hpw_floor: f64,
    /// Cost of an LLC hit per packet line of a workload on a NIC, relative to the line's processing: its progress is lines
    /// per second, weighted by the cost of fetching them.
    pub llc_cost: f64,
    /// The same of an LLC miss.
    pub memory_cost: f64,
}

/// The answer to a question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LayoutAnswer {
    /// The number of the question.
    pub question: u64,
    /// Layouts simulated.
    pub simulated: u64,
    /// The best layouts, the best first.
    pub best: Vec<Candidate>,
    /// The layouts that were asked for, in their order.
    pub asked: Vec<Candidate>,
}

/// A layout and what it would bring. Progress is relative to the layout in force: 1 is as now.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// The knobs; those that it does not name stay as they are.
    pub plan: Plan,
    /// Progress of each tenant.
    pub tenants: BTreeMap<WorkloadId, Estimate>,
    /// Progress of HPWs together (geometric mean, weighted by cores).
    pub hpw: Estimate,
    /// Progress of LPWs together.
    pub lpw: Estimate,
}
