//! Names of workloads and devices in texts that have only their numbers: the loop and the policies know numbers.
//!
//! The name is added where a text is shown, so that recorded texts stay the same. Must not know where that is.

use crate::Published;
use crate::recorder::Header;
use waykeeper_host::{Inventory, Knob, KnobSetting, Workload};
use waykeeper_units::{PortId, WorkloadId};

/// The names that apply to a step.
#[derive(Clone, Copy, Debug)]
pub struct HostNames<'a> {
    workloads: &'a [Workload],
    inventory: Option<&'a Inventory>,
}

impl<'a> HostNames<'a> {
    /// The names on a host.
    pub fn new(workloads: &'a [Workload], inventory: &'a Inventory) -> HostNames<'a> {
        HostNames { workloads, inventory: Some(inventory) }
    }

    /// The names of a published step.
    pub fn of(step: &'a Published) -> HostNames<'a> {
        HostNames::new(&step.groups, &step.inventory)
    }

    /// The names of a recorded step with these workloads; a recording whose header is missing has no names of devices.
    pub fn recorded(header: Option<&'a Header>, workloads: &'a [Workload]) -> HostNames<'a> {
        HostNames { workloads, inventory: header.map(|header| header.inventory.as_ref()) }
    }

    /// A workload's name, or its number after it ended.
    pub fn workload(&self, id: WorkloadId) -> String {
        self.workload_name(id).map_or_else(|| id.to_string(), str::to_owned)
    }

    /// A root port's number with the devices behind it: `port 0 (nic0)`.
    pub fn port(&self, id: PortId) -> String {
        with(&id.to_string(), self.devices(id).as_deref())
    }

    /// A knob and its value, with the workload's name in the place of its number.
    pub fn knob(&self, knob: KnobSetting) -> String {
        match knob.knob {
            Knob::Mask(id) => format!("mask {} of {}", knob.setting, self.workload(id)),
            _ => self.text(&knob.to_string()),
        }
    }

    /// A text with the name added to each `group 3` and `port 0`.
    pub fn text(&self, text: &str) -> String {
        let groups = add(text, "group ", |number| {
            self.workload_name(WorkloadId(number.parse().ok()?)).map(str::to_owned)
        });
        add(&groups, "port ", |number| self.devices(PortId(number.parse().ok()?)))
    }

    fn workload_name(&self, id: WorkloadId) -> Option<&'a str> {
        self.workloads.iter().find(|own| own.id == id).map(|own| own.name.as_str())
    }

    /// The names of the devices behind a port.
    fn devices(&self, id: PortId) -> Option<String> {
        let all = self.inventory?.devices.iter().filter(|device| device.ports.contains(&id));
        let all: Vec<&str> = all.map(|device| device.name.as_str()).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

fn with(what: &str, name: Option<&str>) -> String {
    name.map_or_else(|| what.to_owned(), |name| format!("{what} ({name})"))
}

/// Adds a name after each `word` that a number follows. Part of a longer word or number, as in the PCI address of `root
/// port 0000:3a:00.0`, is no such place.
fn add(text: &str, word: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, from) = rest.split_at(at);
        let after = &from[word.len()..];
        let digits = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
        let (number, next) = after.split_at(digits);
        let begins = !before.ends_with(char::is_alphanumeric);
        let next_word = next.strip_prefix(':').unwrap_or(next);
        let ends = !next_word.starts_with(char::is_alphanumeric);
        let is_plain =
            begins && ends && !next.starts_with(" (") && !(number.len() > 1 && number.starts_with('0'));
        let known = if is_plain { name(number) } else { None };
        out.push_str(before);
        out.push_str(&with(&format!("{word}{number}"), known.as_deref()));
        rest = next;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published_state::tests::published;
    use std::sync::Arc;
    use waykeeper_host::{Device, DeviceKind, Priority, WorkloadKind};
    use waykeeper_units::DeviceId;

    #[test]
    fn a_text_names_the_workloads_and_the_devices_behind_ports() {
        let workload = |id: u32, name: &str| Workload {
            id: WorkloadId(id),
            name: name.to_owned(),
            priority: Priority::Low,
            kind: WorkloadKind::NonIo,
            cores: Default::default(),
            devices: Vec::new(),
            stack: false,
            mask: None,
        };
        let device = |id: u8, name: &str, port: u8| Device {
            id: DeviceId(id),
            name: name.to_owned(),
            kind: DeviceKind::Network,
            ports: vec![PortId(port)],
        };
        let mut step = published();
        step.groups = vec![workload(1, "lbm"), workload(12, "redis")];
        let devices = vec![device(0, "nic0", 0), device(1, "nvme0", 1), device(2, "nvme1", 1)];
        step.inventory = Arc::new(Inventory { devices, ..(*step.inventory).clone() });
        let names = HostNames::of(&step);
        let texts = [
            ("mask 0x3 of group 12 was refused", "mask 0x3 of group 12 (redis) was refused"),
            ("mask 0x3 of group 5 was refused", "mask 0x3 of group 5 was refused"),
            ("bytes of port 0", "bytes of port 0 (nic0)"),
            (
                "DCA off on port 1, then port 0: no",
                "DCA off on port 1 (nvme0, nvme1), then port 0 (nic0): no",
            ),
            ("group 1 behind port 1.", "group 1 (lbm) behind port 1 (nvme0, nvme1)."),
            (
                "root port 0000:3a:00.0, transport 0, port 07, port 9, port",
                "root port 0000:3a:00.0, transport 0, port 07, port 9, port",
            ),
            ("port 0 (nic0)", "port 0 (nic0)"),
        ];
        for (text, wanted) in texts {
            assert_eq!(names.text(text), wanted);
        }
        assert_eq!(
            (names.port(PortId(1)), names.port(PortId(7))),
            ("port 1 (nvme0, nvme1)".into(), "port 7".into())
        );
        assert_eq!(
            (names.workload(WorkloadId(1)), names.workload(WorkloadId(2))),
            ("lbm".into(), "group 2".into())
        );
        let mask = waykeeper_units::WayMask::from_bits(0x3);
        let knobs = [Knob::Mask(WorkloadId(12)).at(mask), Knob::Dca(PortId(0)).at(false)];
        assert_eq!(knobs.map(|knob| names.knob(knob)), ["mask 0x003 of redis", "DCA off on port 0 (nic0)"]);
    }
}
