//! The workloads: as declared, and how A4 classifies them now (algorithms.md 3.1, 3.5, 3.6, 3.9).
//!
//! Storage workloads that share a root port form a unit: the port has one DCA switch, so they are tested and flagged
//! together (algorithms.md 3.5). It must not know masks or thresholds.

use crate::Event;
use std::collections::{BTreeMap, BTreeSet};
use waykeeper_host::{DeviceKind, Inventory, Priority, Support, Workload, WorkloadKind};
use waykeeper_units::{DeviceId, PortId, WorkloadId};

/// The devices and ports of a server that A4 uses.
#[derive(Clone, Default, Debug)]
pub(super) struct Wiring {
    /// PCI address per port, for messages.
    addresses: BTreeMap<PortId, String>,
    /// Ports with a device behind them; their inbound bytes are needed.
    pub known_ports: BTreeSet<PortId>,
    /// Ports with a NIC behind them.
    pub network_ports: BTreeSet<PortId>,
    /// Storage ports whose DCA can be switched. Ports that also carry a NIC are excluded.
    pub switchable: BTreeSet<PortId>,
    /// Ports per storage device, without those shared with a NIC.
    storage: BTreeMap<DeviceId, BTreeSet<PortId>>,
}

impl Wiring {
    /// Reads the ports from the inventory.
    pub fn of(inventory: &Inventory) -> Wiring {
        let ports_of = |kind: DeviceKind| {
            let devices = inventory.devices.iter().filter(move |device| device.kind == kind);
            devices.flat_map(|device| device.ports.iter().copied()).collect::<BTreeSet<_>>()
        };
        let network_ports = ports_of(DeviceKind::Network);
        let storage_ports = ports_of(DeviceKind::Storage);
        let pure: BTreeSet<PortId> = storage_ports.difference(&network_ports).copied().collect();
        let can_switch = inventory.ports.iter().filter(|port| port.dca_switch == Support::Yes);
        let storage = inventory.devices.iter().filter(|device| device.kind == DeviceKind::Storage);
        let own_ports = |ports: &[PortId]| ports.iter().filter(|port| pure.contains(port)).copied().collect();
        Wiring {
            addresses: inventory.ports.iter().map(|port| (port.id, port.address.clone())).collect(),
            known_ports: storage_ports.union(&network_ports).copied().collect(),
            switchable: can_switch.map(|port| port.id).filter(|port| pure.contains(port)).collect(),
            storage: storage.map(|device| (device.id, own_ports(&device.ports))).collect(),
            network_ports,
        }
    }

    /// Addresses of `ports`, for messages.
    pub fn addresses(&self, ports: &BTreeSet<PortId>) -> String {
        let names =
            ports.iter().map(|port| self.addresses.get(port).cloned().unwrap_or_else(|| port.to_string()));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Miss ratios of a workload, where known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Misses {
    /// Its LLC miss ratio.
    pub llc: Option<f64>,
    /// Its MLC miss ratio.
    pub mlc: Option<f64>,
}

/// One workload.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// As declared.
    pub group: Workload,
    /// Set while it is a non-I/O antagonist: its miss ratios when it was flagged.
    pub antagonist: Option<Misses>,
    /// True until its first measurement after launch.
    pub fresh: bool,
    /// LLC hit ratio under the initial partitions: the initial record.
    pub hit_initial: Option<f64>,
    /// LLC hit ratio after the policy settled.
    pub hit_settled: Option<f64>,
    /// LLC hit ratio in the last usable sample of Stable.
    pub hit_last: Option<f64>,
    /// Samples in a row that showed an antagonist.
    pub antagonist_streak: u32,
    /// Samples in a row that showed a phase change.
    pub phase_streak: u32,
    /// Samples in a row in which its miss ratios differ from those of `antagonist`.
    pub restore_streak: u32,
}

impl Member {
    fn new(group: &Workload) -> Member {
        Member {
            group: group.clone(),
            antagonist: None,
            fresh: true,
            hit_initial: None,
            hit_settled: None,
            hit_last: None,
            antagonist_streak: 0,
            phase_streak: 0,
            restore_streak: 0,
        }
    }
}

/// Storage workloads that share root ports, with all their ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// Its workloads, in order.
    pub members: Vec<WorkloadId>,
    /// Its ports; while it is flagged, DCA is off on those that can be switched.
    pub ports: BTreeSet<PortId>,
    /// Set while it is a storage antagonist.
    pub flagged: bool,
    /// Inbound bytes per second when it was flagged; unknown after its workloads changed.
    pub throughput: Option<f64>,
    /// Samples in a row that showed a leak.
    pub leak_streak: u32,
    /// Samples in a row in which its throughput differs from `throughput`.
    pub restore_streak: u32,
    /// Not tested again before this time.
    pub holdoff_until_ns: u64,
}

/// All workloads alive.
#[derive(Clone, Default, Debug)]
pub(super) struct Workloads {
    /// By id.
    pub members: BTreeMap<WorkloadId, Member>,
    /// Storage units.
    pub units: Vec<Unit>,
}

impl Workloads {
    /// Updates the workloads; true if one started, ended or changed its declaration.
    pub fn update(&mut self, wiring: &Wiring, groups: &[Workload], log: &mut Vec<Event>) -> bool {
        let same = self.members.len() == groups.len()
            && groups
                .iter()
                .all(|group| self.members.get(&group.id).is_some_and(|known| known.group == *group));
        if same {
            return false;
        }
        let alive: BTreeMap<WorkloadId, &Workload> = groups.iter().map(|group| (group.id, group)).collect();
        self.members.retain(|id, member| {
            let stays = alive.get(id).is_some_and(|group| **group == member.group);
            if !stays {
                let name = &member.group.name;
                log.push(event("exit", Some(name), format!("{name} ended or was declared again")));
            }
            stays
        });
        // A workload with a changed declaration loses the history of its unit.
        for unit in &mut self.units {
            unit.members.retain(|id| self.members.contains_key(id));
        }
        for (id, group) in alive {
            self.members.entry(id).or_insert_with(|| {
                log.push(event(
                    "launch",
                    Some(&group.name),
                    format!("{} launched ({})", group.name, class(group)),
                ));
                Member::new(group)
            });
        }
        self.form_units(wiring, log);
        true
    }

    /// Joins storage workloads that share a port; keeps the state of earlier units.
    fn form_units(&mut self, wiring: &Wiring, log: &mut Vec<Event>) {
        let before = std::mem::take(&mut self.units);
        let storage = self.members.values().filter(|member| member.group.kind == WorkloadKind::StorageIo);
        for member in storage {
            let devices = member.group.devices.iter().filter_map(|device| wiring.storage.get(device));
            let mut joined = Unit {
                members: vec![member.group.id],
                ports: devices.flatten().copied().collect(),
                ..Unit::default()
            };
            let (sharing, apart): (Vec<Unit>, Vec<Unit>) = std::mem::take(&mut self.units)
                .into_iter()
                .partition(|unit| !unit.ports.is_disjoint(&joined.ports));
            for unit in sharing {
                joined.members.extend(unit.members);
                joined.ports.extend(unit.ports);
            }
            joined.members.sort_unstable();
            self.units = apart;
            self.units.push(joined);
        }
        self.units.sort_by(|a, b| a.members.cmp(&b.members));
        for unit in &mut self.units {
            for old in before.iter().filter(|old| old.members.iter().any(|id| unit.members.contains(id))) {
                let unchanged = old.members == unit.members && old.ports == unit.ports;
                unit.flagged |= old.flagged;
                unit.throughput = if unchanged { old.throughput } else { None };
                unit.holdoff_until_ns = unit.holdoff_until_ns.max(old.holdoff_until_ns);
            }
        }
        for unit in self.units.iter().filter(|unit| unit.flagged) {
            for id in unit.members.iter().filter(|id| self.members[id].fresh) {
                let name = &self.members[id].group.name;
                let text =
                    format!("{name} shares the root port of a storage antagonist and is treated as one");
                log.push(event("storage-antagonist", Some(name), text));
            }
        }
    }

    /// Clears hit ratios and streaks for a new search; antagonist flags stay.
    pub fn forget_measurements(&mut self) {
        for member in self.members.values_mut() {
            (member.hit_initial, member.hit_settled, member.hit_last) = (None, None, None);
            (member.antagonist_streak, member.phase_streak, member.restore_streak) = (0, 0, 0);
        }
        for unit in &mut self.units {
            (unit.leak_streak, unit.restore_streak) = (0, 0);
        }
    }

    /// True if it is an antagonist of either kind.
    pub fn is_antagonist(&self, id: WorkloadId) -> bool {
        self.members.get(&id).is_some_and(|member| member.antagonist.is_some())
            || self.is_storage_antagonist(id)
    }

    /// True if it belongs to a flagged storage unit.
    pub fn is_storage_antagonist(&self, id: WorkloadId) -> bool {
        self.units.iter().any(|unit| unit.flagged && unit.members.contains(&id))
    }

    /// True if any workload is an antagonist.
    pub fn has_antagonist(&self) -> bool {
        self.members.keys().any(|id| self.is_antagonist(*id))
    }

    /// True if it counts as HPW now.
    pub fn is_high(&self, id: WorkloadId) -> bool {
        self.members.get(&id).is_some_and(|member| member.group.priority == Priority::High)
            && !self.is_antagonist(id)
    }

    /// Those that count as HPW now.
    pub fn high(&self) -> Vec<WorkloadId> {
        self.members.keys().copied().filter(|id| self.is_high(*id)).collect()
    }

    /// True if an HPW with I/O is active, which requires the DCA zone (algorithms.md 3.3).
    pub fn has_io_high(&self) -> bool {
        self.high().iter().any(|id| self.members[id].group.kind != WorkloadKind::NonIo)
    }

    /// Ports whose DCA is to be off.
    pub fn ports_off(&self, wiring: &Wiring) -> BTreeSet<PortId> {
        let flagged = self.units.iter().filter(|unit| unit.flagged);
        flagged.flat_map(|unit| unit.ports.intersection(&wiring.switchable).copied()).collect()
    }

    /// Name of a workload; its id if it is gone.
    pub fn name(&self, id: WorkloadId) -> String {
        self.members.get(&id).map_or_else(|| id.to_string(), |member| member.group.name.clone())
    }

    /// Names of several workloads.
    pub fn names(&self, ids: &[WorkloadId]) -> String {
        ids.iter().map(|id| self.name(*id)).collect::<Vec<_>>().join(", ")
    }
}

/// An event without causes.
pub(super) fn event(action: &str, group: Option<&str>, text: String) -> Event {
    Event { action: action.to_owned(), group: group.map(str::to_owned), text, causes: Vec::new() }
}

/// Class for messages, for example `HPW, storage I/O`.
fn class(group: &Workload) -> String {
    let priority = if group.priority == Priority::High { "HPW" } else { "LPW" };
    let kind = match group.kind {
        WorkloadKind::NonIo => "non-I/O",
        WorkloadKind::NetworkIo => "network I/O",
        WorkloadKind::StorageIo => "storage I/O",
    };
    format!("{priority}, {kind}")
}
