//! ddio-off: DCA off for all devices or for the named ones; all other knobs as at boot (ddio-bench s4.4, s7, s8.1).
//!
//! Reads no counter; must not know how a port is switched.

use crate::default::dca_on_everywhere;
use crate::describe::{SettingDescription, StateDescription, lines};
use crate::knobs::{RefusedKnobs, no_switch, switchable_ports};
use crate::settings::{refuse_unknown, wrong_type};
use crate::{Decision, Description, Event, Policy, PolicyError};
use toml::Table;
use waykeeper_host::{Interval, Inventory, Knob, Plan, Workload};
use waykeeper_units::{PortId, WayMask};

/// One line for the list of policies.
pub(crate) const IDEA: &str = "DCA off for all devices or for those named, all ways for all workloads";

const NAME: &str = "ddio-off";

/// Builds it. Setting `devices`.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    refuse_unknown(NAME, settings, &["devices"])?;
    let mut devices = Vec::new();
    if let Some(value) = settings.get("devices") {
        let refuse =
            |value| wrong_type(NAME, "devices", "a list of device names or root port addresses", value);
        for name in value.as_array().ok_or_else(|| refuse(value))? {
            devices.push(name.as_str().ok_or_else(|| refuse(name))?.to_owned());
        }
    }
    Ok(Box::new(DdioOff { devices, ..DdioOff::default() }))
}

#[derive(Default)]
struct DdioOff {
    /// Devices whose DCA is switched off; empty means all.
    devices: Vec<String>,
    plan: Plan,
    all_ways: WayMask,
    refused: RefusedKnobs,
}

impl DdioOff {
    /// The ports to switch off.
    fn ports(&self, inventory: &Inventory) -> Result<Vec<PortId>, PolicyError> {
        if self.devices.is_empty() {
            let all = dca_on_everywhere(inventory);
            let why = inventory.ports.iter().find_map(|port| no_switch(&port.dca_switch));
            let (policy, key) = (NAME.to_owned(), "devices".to_owned());
            return match why {
                Some(why) if all.is_empty() => Err(PolicyError::NoKnob { policy, key, why }),
                _ => Ok(all.into_keys().collect()),
            };
        }
        let ports = self.devices.iter().map(|name| switchable_ports(NAME, "devices", inventory, name));
        ports.collect::<Result<Vec<_>, _>>().map(|ports| ports.concat())
    }

    fn decide(&self, groups: &[Workload], events: Vec<Event>) -> Decision {
        let masks = groups.iter().map(|group| (group.id, self.all_ways));
        let off = self.plan.dca_by_port().any(|(_, on)| !on);
        let state = if off { "Off" } else { "Overruled" }.to_owned();
        Decision { plan: self.plan.clone().with_masks(masks), state, events }
    }
}

impl Policy for DdioOff {
    fn name(&self) -> &str {
        NAME
    }

    fn describe(&self) -> Description {
        let names: Vec<String> = self.devices.iter().map(|name| format!("{name:?}")).collect();
        Description {
            name: NAME.to_owned(),
            idea: "Devices write to memory and not into the LLC.".to_owned(),
            source: "ddio-bench s4.4, s7, s8.1".to_owned(),
            inputs: lines(&["what each port's switch reads back"]),
            knobs: lines(&["DCA per root port", "way mask per workload (all ways)"]),
            settings: vec![SettingDescription::new(
                "devices",
                format!("[{}]", names.join(", ")),
                "[]",
                (
                    "names, or PCI addresses of root ports",
                    "devices whose DCA is switched off; the other devices keep DCA on; an empty list means \
                     all devices",
                    "ddio-bench s7 (all), s8.1 (the second NIC alone)",
                ),
            )],
            states: vec![
                StateDescription::new("Off", "all ports that can be read are switched off"),
                StateDescription::new(
                    "Overruled",
                    "no port can be switched, or each port still reads back as on and is left on",
                ),
            ],
            deviations: lines(&[
                "for all devices every root port is switched: the socket's own switch (iiomiscctrl) has no bit with \
                 a public source (hardware.md 2.4)",
                "everything behind a root port is switched together",
            ]),
        }
    }

    fn check(&self, inventory: &Inventory, _workloads: &[&str]) -> Result<(), PolicyError> {
        self.ports(inventory).map(drop)
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        self.all_ways = WayMask::full(inventory.known_llc().ways);
        self.plan = Plan::of_dca(dca_on_everywhere(inventory));
        let mut events = Vec::new();
        match self.ports(inventory) {
            Ok(ports) => self.plan.extend(ports.into_iter().map(|port| (Knob::Dca(port), false))),
            Err(why) => {
                let action = "knob-unavailable".to_owned();
                events.push(Event { action, group: None, text: why.to_string(), causes: Vec::new() });
            }
        }
        self.decide(groups, events)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let events = self.refused.drop_mismatches(&mut self.plan, &seen.knobs);
        self.decide(groups, events)
    }
}
