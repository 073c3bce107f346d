//! A4: I/O-aware LLC management (ISCA 2025), variants a to d (algorithms.md 3).
//!
//! High-priority workloads (HPWs) may use almost all ways. The zone of low-priority ones (LPWs) grows from the right
//! end of the LLC until an HPW loses hits; it excludes the DCA ways and the inclusive ways. DCA is off for storage
//! whose DMA leaks. Antagonists are confined to trash ways. Pure: intervals in, plans out; it must not know the host or
//! its clock.
//!
//! * `config`: thresholds, two profiles. `zones`: masks of the zones. `workloads`: the workloads and their classes.
//! * `measure`: counters over samples. `detect`: the tests. `machine`: the states. `search` and `watch`: their actions.

mod config;
mod describe;
mod detect;
mod machine;
mod measure;
mod search;
mod watch;
mod workloads;
mod zones;

use crate::{Decision, Description, Policy, PolicyError};
use config::Config;
use machine::Machine;
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};

/// Which parts of A4 are active (A4 s7.2, algorithms.md 3.11). Each variant includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Variant {
    /// The LP zone search alone, as if no I/O workload existed.
    A,
    /// A plus zones for I/O: a DCA zone, no inclusive ways for LPWs.
    B,
    /// B plus selective DCA off: no DCA for storage that leaks.
    C,
    /// C plus pseudo LLC bypassing for antagonists: all of A4.
    D,
}

impl Variant {
    /// One line for the list of policies.
    pub(crate) const fn idea(self) -> &'static str {
        match self {
            Variant::A => {
                "A4's LP zone search only: low-priority ways grow until a high-priority hit ratio falls"
            }
            Variant::B => {
                "a4-a plus zones for I/O: low-priority workloads keep off the DCA and inclusive ways"
            }
            Variant::C => "a4-b plus selective DCA: off for storage devices whose data leak to memory",
            Variant::D => {
                "a4-c plus pseudo LLC bypassing: workloads that miss anyway shrink into trash ways (full A4)"
            }
        }
    }

    /// Zones for I/O (3.3, second row).
    fn has_io_zones(self) -> bool {
        self >= Variant::B
    }

    /// Selective DCA off (3.5).
    fn has_selective_dca(self) -> bool {
        self >= Variant::C
    }

    /// Non-I/O antagonists and trash ways (3.6, 3.7).
    fn has_bypass(self) -> bool {
        self >= Variant::D
    }
}

/// Builds a variant under the name it was selected by.
///
/// # Errors
/// Settings that A4 does not have or that are out of range.
pub(crate) fn build(
    name: &'static str,
    variant: Variant,
    settings: &Table,
) -> Result<Box<dyn Policy>, PolicyError> {
    let config = Config::read(name, settings)?;
    Ok(Box::new(A4 { name, variant, config, machine: None }))
}

/// The policy: its settings, and after `start` the state machine for one server.
struct A4 {
    name: &'static str,
    variant: Variant,
    config: Config,
    machine: Option<Machine>,
}

impl Policy for A4 {
    fn name(&self) -> &str {
        self.name
    }

    fn describe(&self) -> Description {
        describe::describe(self.name, self.variant, &self.config)
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut machine = Machine::new(inventory, self.variant, self.config.clone());
        let decision = machine.start(groups);
        self.machine = Some(machine);
        decision
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        // Without `start` there is no chip to plan for: the plan is empty.
        self.machine.as_mut().map_or_else(Decision::default, |machine| machine.step(groups, seen))
    }
}
