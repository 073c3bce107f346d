//! Shared by several baselines: finding a device's ports, and knobs that read back as another value than was wanted.
//!
//! It must not know any policy's reasons.

use crate::settings::nearest;
use crate::{Cause, Event, PolicyError};
use std::collections::BTreeSet;
use waykeeper_host::{Inventory, KnobValues, Plan, RootPort, Support};
use waykeeper_units::{PortId, WayMask};

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

/// Knobs that read back as another value: each is logged once and left out of later plans.
#[derive(Default)]
pub(crate) struct Overruled {
    dca_ways: bool,
    dca: BTreeSet<PortId>,
    rx_ring: BTreeSet<PortId>,
}

impl Overruled {
    /// Compares the plan with the read-back values, removes differing knobs from the plan, and returns an event for
    /// each.
    pub fn yield_to(&mut self, plan: &mut Plan, knobs: &KnobValues) -> Vec<Event> {
        let mut events = Vec::new();
        if let (Some(wanted), Some(found)) = (plan.dca_ways, knobs.dca_ways) {
            let ways = |mask: WayMask| f64::from(mask.count());
            if wanted != found {
                self.dca_ways = true;
                let text = format!("DCA ways {wanted} did not take effect: {found} reads back and is left");
                events.push(told(text, "DCA ways", ways(wanted), ways(found)));
            }
        }
        for (port, wanted) in &plan.dca {
            if knobs.dca.get(port).is_some_and(|found| found != wanted) && self.dca.insert(*port) {
                let word = |on: bool| if on { "on" } else { "off" };
                let text = format!(
                    "DCA {} on {port} did not take effect: it stays {}",
                    word(*wanted),
                    word(!*wanted)
                );
                let number = |on: bool| f64::from(u8::from(on));
                events.push(told(text, "DCA switch", number(*wanted), number(!*wanted)));
            }
        }
        for (port, wanted) in &plan.rx_ring {
            let found = knobs.rx_ring.get(port).filter(|found| *found != wanted);
            if let Some(found) = found.filter(|_| self.rx_ring.insert(*port)) {
                let text = format!(
                    "RX rings of {wanted} on {port} did not take effect: {found} reads back and is left"
                );
                events.push(told(text, "RX ring descriptors", f64::from(*wanted), f64::from(*found)));
            }
        }
        self.leave_out(plan);
        events
    }

    /// Removes knobs that were overruled before from a plan.
    pub fn leave_out(&self, plan: &mut Plan) {
        plan.dca_ways = plan.dca_ways.filter(|_| !self.dca_ways);
        plan.dca.retain(|port, _| !self.dca.contains(port));
        plan.rx_ring.retain(|port, _| !self.rx_ring.contains(port));
    }
}

fn told(text: String, what: &str, wanted: f64, found: f64) -> Event {
    let cause = |which: &str, value| Cause { what: format!("{what}, {which}"), value, limit: None };
    let causes = vec![cause("wanted", wanted), cause("in force", found)];
    Event { action: "knob-overruled".to_owned(), group: None, text, causes }
}
