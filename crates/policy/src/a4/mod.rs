//! A4: I/O-aware LLC management (ISCA 2025), variants a to d (algorithms.md 3).
//!
//! The idea: let high-priority workloads (HPWs) use almost everything, let low-priority ones (LPWs) grow
//! from the right end of the cache as far as no HPW suffers, keep them off the ways devices write to and
//! off the inclusive ways, take DCA away from storage that leaks, and squeeze whoever misses anyway into
//! trash ways. Pure: it sees intervals and answers plans.
//!
//! * `config`: thresholds, two profiles. `zones`: where the zones lie. `roster`: who runs and as what.
//! * `measure`: counters over samples. `detect`: the tests. `machine`: the states. `search` and `watch`:
//!   what is done in them.

mod config;
mod describe;
mod detect;
mod machine;
mod measure;
mod roster;
mod search;
mod watch;
mod zones;

use crate::{Decision, Description, Policy, PolicyError};
use config::Config;
use machine::Machine;
use toml::Table;
use waykeeper_host::{Group, Interval, Inventory};

/// How much of A4 is on (A4 s7.2, algorithms.md 3.11).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Variant {
    /// The LP zone search alone, as if no I/O workload existed.
    A,
    /// ... and zones for I/O: a DCA zone, no inclusive ways for LPWs.
    B,
    /// ... and DCA off for storage that leaks.
    C,
    /// ... and pseudo LLC bypassing for antagonists: all of A4.
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

/// The policy: its settings, and from the start on a machine for the server it runs on.
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

    fn start(&mut self, inventory: &Inventory, groups: &[Group]) -> Decision {
        let mut machine = Machine::new(inventory, self.variant, self.config.clone());
        let decision = machine.start(groups);
        self.machine = Some(machine);
        decision
    }

    fn step(&mut self, groups: &[Group], seen: &Interval) -> Decision {
        // Before it was started it knows no chip and touches nothing.
        self.machine.as_mut().map_or_else(Decision::default, |machine| machine.step(groups, seen))
    }
}
