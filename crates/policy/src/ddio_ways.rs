//! ddio-ways: a fixed number of DCA ways, all other knobs as at boot (DDIOTune, ddio-bench s4.4).
//!
//! Reads no counter; must not know which values a chip's register accepts: a refused value shows when it reads back.

use crate::default::dca_on_everywhere;
use crate::describe::{SettingDescription, StateDescription, lines};
use crate::knobs::{RefusedKnobs, no_switch};
use crate::settings::{refuse_unknown, whole};
use crate::{Decision, Description, Event, Policy, PolicyError};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Knob, Plan, Workload};
use waykeeper_units::WayMask;

/// One line for the list of policies.
pub(crate) const IDEA: &str = "a fixed number of DCA ways, all ways for all workloads";

const NAME: &str = "ddio-ways";
/// The number a Skylake boots with. microarchitecture.md 2.
const DEFAULT_WAYS: u32 = 2;

/// Builds it. Setting `ways`.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    refuse_unknown(NAME, settings, &["ways"])?;
    let ways = whole(NAME, settings, "ways", DEFAULT_WAYS, (2, 32, "ways"))?;
    Ok(Box::new(DdioWays {
        ways,
        plan: Plan::default(),
        all_ways: WayMask::EMPTY,
        refused: RefusedKnobs::default(),
    }))
}

struct DdioWays {
    ways: u32,
    /// The knobs that do not depend on the workloads.
    plan: Plan,
    all_ways: WayMask,
    refused: RefusedKnobs,
}

impl DdioWays {
    fn decide(&self, groups: &[Workload], state: &str, events: Vec<Event>) -> Decision {
        let masks = groups.iter().map(|group| (group.id, self.all_ways));
        Decision { plan: self.plan.clone().with_masks(masks), state: state.to_owned(), events }
    }

    fn state(&self) -> &'static str {
        if self.plan.dca_ways().is_some() { "Held" } else { "Overruled" }
    }
}

impl Policy for DdioWays {
    fn name(&self) -> &str {
        NAME
    }

    fn describe(&self) -> Description {
        Description {
            name: NAME.to_owned(),
            idea: "Devices may allocate in a fixed number of ways, counted from the leftmost.".to_owned(),
            source: "ddio-bench s4.4 and its DDIOTune".to_owned(),
            inputs: lines(&["what IIO_LLC_WAYS reads back"]),
            knobs: lines(&[
                "DCA ways (IIO_LLC_WAYS)",
                "way mask per workload (all ways)",
                "DCA per root port (on)",
            ]),
            settings: vec![SettingDescription::new(
                "ways",
                self.ways,
                DEFAULT_WAYS,
                (
                    "ways",
                    "how many of the leftmost ways devices may allocate in",
                    "hardware.md 1.2: two at power-on; DDIOTune refuses one and takes 0 for DCA off, which \
                     is ddio-off here",
                ),
            )],
            states: vec![
                StateDescription::new("Held", "the ways are set and, if they can be read, in force"),
                StateDescription::new(
                    "Overruled",
                    "the chip has no such register, or the register holds another value, which is left",
                ),
            ],
            deviations: lines(&[
                "DDIOTune restores the old value at exit; here the control loop restores it when another \
                 policy takes over",
            ]),
        }
    }

    fn check(&self, inventory: &Inventory, _workloads: &[&str]) -> Result<(), PolicyError> {
        let (policy, key) = (NAME.to_owned(), "ways".to_owned());
        if let Some(why) = no_switch(&inventory.dca_ways_switch) {
            return Err(PolicyError::NoKnob { policy, key, why });
        }
        if self.ways > inventory.known_llc().ways {
            let (value, high) = (f64::from(self.ways), f64::from(inventory.known_llc().ways));
            let unit = "ways of this chip".to_owned();
            return Err(PolicyError::OutOfRange { policy, key, value, low: 2.0, high, unit });
        }
        Ok(())
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let all = inventory.known_llc().ways;
        self.all_ways = WayMask::full(all);
        self.plan = Plan::of_dca(dca_on_everywhere(inventory));
        let mut events = Vec::new();
        match self.check(inventory, &[]) {
            Ok(()) => self.plan.insert(Knob::DcaWays, WayMask::span(all - self.ways, self.ways)),
            Err(why) => {
                let action = "knob-unavailable".to_owned();
                events.push(Event { action, group: None, text: why.to_string(), causes: Vec::new() });
            }
        }
        self.decide(groups, self.state(), events)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let events = self.refused.drop_mismatches(&mut self.plan, &seen.knobs);
        self.decide(groups, self.state(), events)
    }
}
