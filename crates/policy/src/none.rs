//! No policy: every knob stays as found, and values that a scenario sets by hand are measured.
//!
//! In contrast, `default` sets the knobs to their values at boot. It must not know any counter or knob.

use crate::describe::{StateDescription, lines};
use crate::{Decision, Description, Policy, PolicyError, settings};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "changes nothing: masks and DCA stay as the scenario sets them";

/// Builds it; it has no settings.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    settings::refuse_unknown("none", settings, &[])?;
    Ok(Box::new(NoPolicy))
}

struct NoPolicy;

impl Policy for NoPolicy {
    fn name(&self) -> &str {
        "none"
    }

    fn describe(&self) -> Description {
        Description {
            name: "none".to_owned(),
            idea: "Every knob keeps its value: for scenarios that set masks and DCA by hand.".to_owned(),
            source: "ours".to_owned(),
            knobs: lines(&["none"]),
            states: vec![StateDescription::new("None", "this policy makes no decisions")],
            ..Description::default()
        }
    }

    fn start(&mut self, _: &Inventory, _: &[Workload]) -> Decision {
        Decision { state: "None".to_owned(), ..Decision::default() }
    }

    fn step(&mut self, _: &[Workload], _: &Interval) -> Decision {
        Decision { state: "None".to_owned(), ..Decision::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_no_settings() {
        assert!(build(&Table::new()).is_ok());
        assert!(build(&"mask = 1".parse().unwrap()).is_err());
    }
}
