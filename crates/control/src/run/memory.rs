//! What a loop has learnt, for the loop of the next daemon on the same server.
//!
//! All of it is known of certain workloads: with others, the next loop begins without it. What the policy has learnt also
//! depends on its settings. Must not know host and policy except by their traits.

use super::Loop;
use crate::worth::WorthMemory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use waykeeper_host::{Host, Plan, Workload};
use waykeeper_policy::{Cause, Event, Policy};

/// What a loop has learnt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoopMemory {
    workloads: Vec<Workload>,
    policy: PolicyMemory,
    worth: WorthMemory,
}

/// What an earlier loop has left to this one.
#[derive(Clone, Debug, Default)]
pub struct TakenOver {
    /// The values of knobs before that one turned them: they are what this loop restores at its end.
    pub originals: Plan,
    /// What it has learnt, and how long ago it ended.
    pub memory: Option<(LoopMemory, Duration)>,
}

/// What its policy has learnt.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct PolicyMemory {
    name: String,
    settings: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learnt: Option<serde_json::Value>,
}

impl PolicyMemory {
    fn of(policy: &dyn Policy) -> PolicyMemory {
        let settings = policy.describe().settings.into_iter();
        PolicyMemory {
            name: policy.name().to_owned(),
            settings: settings.map(|setting| (setting.name, setting.value)).collect(),
            learnt: policy.memory(),
        }
    }

    fn is_of_same_policy(&self, other: &PolicyMemory) -> bool {
        (&self.name, &self.settings) == (&other.name, &other.settings)
    }
}

impl<H: Host + ?Sized> Loop<'_, H> {
    /// What this loop has learnt, for [`Loop::take_over`].
    pub fn memory(&self) -> LoopMemory {
        LoopMemory {
            workloads: self.host.workloads(),
            policy: PolicyMemory::of(self.policy.as_ref()),
            worth: self.worth.memory(),
        }
    }

    /// Begins with what another loop has learnt, which ended so long ago. The event says what is used of it; there is none
    /// if nothing is.
    pub(super) fn recall(&mut self, memory: LoopMemory, ago: Duration) -> Option<Event> {
        if memory.workloads != self.host.workloads() {
            return None;
        }
        self.worth.recall(memory.worth, self.host.now_ns(), ago);
        let is_same_policy = memory.policy.is_of_same_policy(&PolicyMemory::of(self.policy.as_ref()));
        let learnt = memory.policy.learnt.filter(|_| is_same_policy);
        let text = match &learnt {
            Some(_) => {
                "the daemon before had the same workloads: what it measured and what its policy learnt is used"
            }
            None => "the daemon before had the same workloads: what it measured is used",
        };
        if let Some(learnt) = learnt {
            self.policy.remember(learnt);
        }
        let cause =
            Cause { what: "seconds since it ended".to_owned(), value: ago.as_secs_f64(), limit: None };
        Some(Event { action: "memory".to_owned(), group: None, text: text.to_owned(), causes: vec![cause] })
    }
}
