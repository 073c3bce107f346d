//! Policies: what to do about what was seen. Pure: no I/O, no clock, no random numbers.
//!
//! A policy receives the inventory, the workloads and one [`Interval`] after another, and returns a [`Decision`]:
//! wanted knob values and the numbers that caused them. It must not know whether the server is real.

mod a4;
mod baseline;
mod core_only;
mod ddio_off;
mod ddio_ways;
mod default;
mod describe;
mod dma_dynamic;
mod error;
mod fixed;
mod iat;
mod io_iso;
mod isolate;
mod knobs;
mod none;
mod registry;
mod resq;
mod settings;
mod thresholds;
mod waykeeper;
mod ways;

pub use describe::{Description, SettingDescription, StateDescription};
pub use error::PolicyError;
pub use registry::{BEST_POLICY, PolicyEntry, build, check_own_name, registry};

use serde::{Deserialize, Serialize};
use waykeeper_calibration::{Candidate, LayoutAnswer, LayoutQuestion};
use waykeeper_host::{Interval, Inventory, Plan, Workload};

/// One number that caused a decision, and the threshold it was compared with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cause {
    /// What was measured, for example `DCA write miss ratio`.
    pub what: String,
    /// Its value; ratios are 0..1.
    pub value: f64,
    /// The limit it was compared with, by the name of the threshold, if there is one.
    pub limit: Option<(String, f64)>,
}

/// One action of a policy, in words for an operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// A stable machine name, for example `lp-zone-grow` or `storage-antagonist`.
    pub action: String,
    /// The workload it concerns, if any.
    pub group: Option<String>,
    /// One readable line.
    pub text: String,
    /// The numbers behind it.
    pub causes: Vec<Cause>,
}

/// The answer of a policy to one interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Decision {
    /// Knobs to set; empty leaves everything as it is.
    pub plan: Plan,
    /// The state the policy is in afterwards, by the paper's name.
    pub state: String,
    /// Events in order; empty if nothing happened.
    pub events: Vec<Event>,
}

/// A policy. One file each; listed in [`registry`].
pub trait Policy: Send {
    /// The name by which users select it.
    fn name(&self) -> &str;

    /// Its idea, inputs, knobs, and settings with their values. The default contains only the name.
    fn describe(&self) -> Description {
        Description { name: self.name().to_owned(), ..Description::default() }
    }

    /// Whether its settings fit a server with these workloads, running or not. The caller checks this before the start,
    /// so that a wrong name is an input error and not a line in a log.
    ///
    /// # Errors
    /// The first setting that does not fit.
    fn check(&self, _inventory: &Inventory, _workloads: &[&str]) -> Result<(), PolicyError> {
        Ok(())
    }

    /// What it has learnt, for a policy of the same name and settings that takes its place on the same workloads; `None` if
    /// nothing, or nothing that helps.
    fn memory(&self) -> Option<serde_json::Value> {
        None
    }

    /// Called before [`Policy::start`] with the memory of such a policy, whose last knobs are in force. Another version may
    /// have written it: one that cannot be read is as none.
    fn remember(&mut self, _memory: serde_json::Value) {}

    /// Called once before the first interval; returns the initial knobs.
    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision;

    /// Called after every interval with its counters. `groups` are the workloads alive now; a launch or an exit shows
    /// as a change in it.
    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision;

    /// How many classes of service there are now, the default group's included; called before the next step when other
    /// programs have taken or released some.
    fn classes(&mut self, _clos_count: u32) {}

    /// A question about other layouts, if it has a new one; asked after the start and after every step. The answer comes
    /// before a later step, or never. A question takes the place of an earlier one that is not answered.
    fn question(&mut self) -> Option<LayoutQuestion> {
        None
    }

    /// The answer to its last question.
    fn hear(&mut self, _answer: &LayoutAnswer) {}

    /// A policy that sets no knob and only says what this one would do and what that would bring; `None` if this one cannot
    /// tell without trying.
    fn advisor(&self) -> Option<Box<dyn Policy>> {
        None
    }

    /// Of an advisor: the layout that it would set, and what is foreseen of it. `None` if it has found none yet, or none
    /// better than the one in force.
    fn advice(&self) -> Option<&Candidate> {
        None
    }
}

/// A mutable reference to a policy is a policy.
impl<P: Policy + ?Sized> Policy for &mut P {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn describe(&self) -> Description {
        (**self).describe()
    }

    fn check(&self, inventory: &Inventory, workloads: &[&str]) -> Result<(), PolicyError> {
        (**self).check(inventory, workloads)
    }

    fn memory(&self) -> Option<serde_json::Value> {
        (**self).memory()
    }

    fn remember(&mut self, memory: serde_json::Value) {
        (**self).remember(memory);
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        (**self).start(inventory, groups)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        (**self).step(groups, seen)
    }

    fn classes(&mut self, clos_count: u32) {
        (**self).classes(clos_count);
    }

    fn question(&mut self) -> Option<LayoutQuestion> {
        (**self).question()
    }

    fn hear(&mut self, answer: &LayoutAnswer) {
        (**self).hear(answer);
    }

    fn advisor(&self) -> Option<Box<dyn Policy>> {
        (**self).advisor()
    }

    fn advice(&self) -> Option<&Candidate> {
        (**self).advice()
    }
}
