//! Shared by several baselines: finding a device's ports, and knobs that read back as another value than was wanted.
//!
//! It must not know any policy's reasons.

use crate::settings::nearest;
use crate::{Cause, Event, PolicyError};
use std::collections::BTreeSet;
use waykeeper_host::{Inventory, Knob, KnobSetting, KnobValues, Plan, RootPort, Setting, Support};
use waykeeper_units::PortId;

/// The ports of a device given by its name or by the PCI address of its root port.
pub(crate) fn ports_of<'a>(inventory: &'a Inventory, name: &str) -> Vec<&'a RootPort> {
    let device = inventory.devices.iter().find(|device| device.name == name);
    let is_its = |port: &&RootPort| match device {
        Some(device) => device.ports.contains(&port.id),
        None => port.address == name,
    };
    inventory.ports.iter().filter(is_its).collect()
}

/// The ports of a device whose DCA is to be switched.
///
/// # Errors
/// An unknown name, or a port that cannot be switched; `key` is the setting that contains the name.
pub(crate) fn switchable_ports(
    policy: &str,
    key: &str,
    inventory: &Inventory,
    name: &str,
) -> Result<Vec<PortId>, PolicyError> {
    let ports = ports_of(inventory, name);
    if ports.is_empty() {
        let known: Vec<String> = inventory.devices.iter().map(|device| device.name.clone()).collect();
        return Err(PolicyError::UnknownTarget {
            policy: policy.to_owned(),
            kind: "device".to_owned(),
            name: name.to_owned(),
            nearest: nearest(name, known.iter().map(String::as_str)),
            known,
        });
    }
    match ports.iter().find_map(|port| no_switch(&port.dca_switch)) {
        Some(why) => Err(PolicyError::NoKnob { policy: policy.to_owned(), key: key.to_owned(), why }),
        None => Ok(ports.iter().map(|port| port.id).collect()),
    }
}

/// Why a switch cannot be used; `None` if it can.
pub(crate) fn no_switch(switch: &Support) -> Option<String> {
    match switch {
        Support::Yes => None,
        Support::ReadOnly => Some("it can be read, but a write is not known to have an effect".to_owned()),
        Support::No(why) => Some(why.clone()),
    }
}

/// Knobs that read back as something else, so that each is reported once and not asked for again.
#[derive(Default)]
pub(crate) struct RefusedKnobs(BTreeSet<Knob>);

impl RefusedKnobs {
    /// Compares the plan with what reads back. Takes each knob that differs out of the plan and reports it. Masks are
    /// not compared: the control loop restores them.
    pub fn drop_mismatches(&mut self, plan: &mut Plan, knobs: &KnobValues) -> Vec<Event> {
        let mut events = Vec::new();
        for wanted in plan.settings().filter(|wanted| wanted.knob.workload().is_none()) {
            let Some(found) = knobs.setting(wanted.knob).filter(|found| *found != wanted) else { continue };
            if self.0.insert(wanted.knob) {
                events.push(mismatch_event(wanted, found));
            }
        }
        self.leave_out(plan);
        events
    }

    /// Removes knobs that read back differently before from a plan.
    pub fn leave_out(&self, plan: &mut Plan) {
        plan.retain(|knob, _| !self.0.contains(&knob));
    }
}

fn mismatch_event(wanted: KnobSetting, found: KnobSetting) -> Event {
    let cause = |setting: KnobSetting, which: &str| {
        let (what, value) = setting.number();
        Cause { what: format!("{what}, {which}"), value, limit: None }
    };
    let stays = match found.setting {
        Setting::Switch(_) => format!("it stays {}", found.setting),
        found => format!("{found} reads back and is left"),
    };
    let text = match wanted {
        KnobSetting { knob: Knob::RxRing(port), setting } => format!("RX rings of {setting} on {port}"),
        wanted => wanted.to_string(),
    };
    Event {
        action: "knob-overruled".to_owned(),
        group: None,
        text: format!("{text} did not take effect: {stays}"),
        causes: vec![cause(wanted, "wanted"), cause(found, "in force")],
    }
}
