//! A question about other layouts, and its answer. It must not know how an answer is found.

use crate::{Estimate, Goal, ServerDescription};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Progress of each tenant under the layout in force, relative to the server as found; a tenant without a number has 1.
    pub since_found: BTreeMap<WorkloadId, f64>,
    /// Tenants whose mask must stay as it is in force.
    pub kept: BTreeSet<WorkloadId>,
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
