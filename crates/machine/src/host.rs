//! The virtual server behind the seam: what counters show and what knobs do.
//!
//! Its clock is the server's: one second of it is `1 / time_factor` seconds of simulated traffic, and
//! counters are scaled so that rates per second of the clock are those of the traffic. Waiting runs the
//! machine. What only a model could know is not visible here.

use crate::measured::{Mark, Measured};
use crate::scenario::{Scenario, ScenarioError};
use crate::server::{Machine, RunOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use waykeeper_host::{
    Applied, Device, DeviceKind, Group, GroupCounters, Host, HostError, Inventory, KnobOutcome, KnobValues,
    LlcGeometry, Plan, Platform, PortCounters, Reading, RootPort, Snapshot, SocketCounters, Support,
};
use waykeeper_silicon::DcaMode;
use waykeeper_units::{CoreId, DeviceId, GroupId, LINE_BYTES, PortId, WayMask};

/// A server that is a model.
#[derive(Debug)]
pub struct VirtualServer {
    machine: Machine,
    inventory: Inventory,
    groups: Vec<Group>,
    time_factor: f64,
    now_ns: u64,
    mark: Mark,
}

impl VirtualServer {
    /// The server of a scenario, switched on.
    ///
    /// # Errors
    /// If the scenario does not fit simulated memory.
    pub fn new(scenario: Arc<Scenario>, options: RunOptions) -> Result<VirtualServer, ScenarioError> {
        let machine = Machine::new(scenario.clone(), options)?;
        let inventory = inventory(&scenario);
        let groups = scenario.workloads.iter().enumerate().map(|(index, workload)| Group {
            id: GroupId(index as u16),
            name: workload.name.clone(),
            priority: workload.priority,
            kind: workload.program.kind,
            cores: workload.cores.clone(),
            devices: devices_of(&scenario, index),
            stack: workload.stack,
            mask: workload.mask,
        });
        let groups = groups.collect();
        let mark = Mark::of(&machine);
        Ok(VirtualServer { inventory, groups, time_factor: scenario.time_factor, now_ns: 0, mark, machine })
    }

    /// Starts a stretch: meters and [`VirtualServer::measured`] count from here.
    pub fn begin_stretch(&mut self) {
        for meter in &mut self.machine.bus.meters {
            meter.clear();
        }
        self.mark = Mark::of(&self.machine);
    }

    /// What happened since the stretch began.
    pub fn measured(&self) -> Measured {
        self.mark.until_now(&self.machine)
    }

    fn port_is_on(&self, port: PortId) -> bool {
        self.machine.bus.memory.chip.dca(port.index()) == DcaMode::On
    }

    fn set_mask(&mut self, group: GroupId, mask: WayMask) -> KnobOutcome {
        let Some(group) = self.groups.get(group.index()) else {
            return KnobOutcome::Refused(format!("{group} does not exist"));
        };
        for core in group.cores.cores() {
            if let Err(why) = self.machine.bus.memory.chip.set_core_mask(core.index(), mask) {
                return KnobOutcome::Refused(why.to_string());
            }
        }
        KnobOutcome::Applied
    }

    fn set_dca(&mut self, port: PortId, on: bool) -> KnobOutcome {
        let chip = &mut self.machine.bus.memory.chip;
        match self.inventory.ports.get(port.index()) {
            None => KnobOutcome::Refused(format!("{port} does not exist")),
            Some(RootPort { dca_switch: Support::No(why), .. }) => KnobOutcome::Refused(why.clone()),
            Some(_) => {
                chip.set_dca(port.index(), if on { DcaMode::On } else { DcaMode::Off });
                KnobOutcome::Applied
            }
        }
    }

    fn group_counters(&self, group: &Group) -> GroupCounters {
        let chip = &self.machine.bus.memory.chip;
        let whole = self.machine.scale() * self.time_factor;
        let ghz = self.machine.bus.ghz;
        let cores = || group.cores.cores().iter().map(|core| core.index());
        let lines = |f: fn(waykeeper_silicon::CoreCounters) -> u64| {
            let sum: u64 = cores().map(|core| f(chip.core_counters(core))).sum();
            Reading::Value((sum as f64 * whole) as u64)
        };
        let instructions: f64 = cores().map(|core| self.machine.core(core).instructions).sum();
        let busy_ns: f64 = cores().map(|core| self.machine.core(core).busy_ns).sum();
        let occupancy = chip.group_occupancy(group.id.0 as u8 + 1);
        GroupCounters {
            instructions: Reading::Value((instructions * self.time_factor) as u64),
            cycles: Reading::Value((busy_ns * ghz * self.time_factor) as u64),
            mlc_hits: lines(|c| c.mlc_hits),
            mlc_misses: lines(|c| c.mlc_misses),
            llc_hits: lines(|c| c.llc_hits),
            llc_misses: lines(|c| c.llc_misses),
            occupancy_bytes: Reading::Value(
                (f64::from(occupancy) * self.machine.scale()) as u64 * LINE_BYTES,
            ),
        }
    }

    fn socket_counters(&self) -> SocketCounters {
        let chip = &self.machine.bus.memory.chip;
        let whole = self.machine.scale() * self.time_factor;
        let devices = || (0..self.inventory.devices.len()).map(|device| chip.device_counters(device));
        let sum = |f: fn(waykeeper_silicon::DeviceCounters) -> u64| {
            Reading::Value((devices().map(f).sum::<u64>() as f64 * whole) as u64)
        };
        let memory = |lines: u64| Reading::Value((lines as f64 * whole) as u64 * LINE_BYTES);
        SocketCounters {
            dca_write_hits: sum(|d| d.write_hits),
            dca_write_misses: sum(|d| d.write_misses),
            dca_read_hits: sum(|d| d.read_hits),
            dca_read_misses: sum(|d| d.read_misses),
            memory_read_bytes: memory(chip.counters().memory_reads),
            memory_write_bytes: memory(chip.counters().memory_writes),
        }
    }

    fn port_counters(&self, port: PortId) -> PortCounters {
        let bus = &self.machine.bus;
        let (inbound, outbound) = match port.index().checked_sub(bus.nics.len()) {
            None => {
                let counters = bus.nics[port.index()].counters;
                (counters.inbound_bytes, counters.outbound_bytes)
            }
            Some(array) => (bus.arrays[array].inbound_bytes, bus.arrays[array].outbound_bytes),
        };
        let scaled = |bytes: u64| Reading::Value((bytes as f64 * self.time_factor) as u64);
        PortCounters { inbound_bytes: scaled(inbound), outbound_bytes: scaled(outbound) }
    }

    fn knobs(&self) -> KnobValues {
        let chip = &self.machine.bus.memory.chip;
        let alive = self.groups.iter().filter(|group| self.machine.alive[group.id.index()]);
        let masks = alive.filter_map(|group| {
            let first = group.cores.cores().first()?;
            Some((group.id, chip.core_mask(first.index())))
        });
        let ports = self.inventory.ports.iter();
        KnobValues {
            masks: masks.collect(),
            dca_ways: chip.dca_ways(),
            dca: ports.map(|port| (port.id, self.port_is_on(port.id))).collect(),
        }
    }
}

impl Host for VirtualServer {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn groups(&self) -> Vec<Group> {
        self.groups.iter().filter(|group| self.machine.alive[group.id.index()]).cloned().collect()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let groups = self.groups();
        let groups: BTreeMap<_, _> = groups.iter().map(|g| (g.id, self.group_counters(g))).collect();
        let ports = self.inventory.ports.iter().map(|port| (port.id, self.port_counters(port.id)));
        Ok(Snapshot {
            at_ns: self.now_ns,
            groups,
            socket: self.socket_counters(),
            ports: ports.collect(),
            knobs: self.knobs(),
        })
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let mut applied = Applied::default();
        for (group, mask) in &plan.masks {
            applied.masks.insert(*group, self.set_mask(*group, *mask));
        }
        if let Some(mask) = plan.dca_ways {
            let outcome =
                match (&self.inventory.dca_ways_switch, self.machine.bus.memory.chip.set_dca_ways(mask)) {
                    (Support::No(why), _) => KnobOutcome::Refused(why.clone()),
                    (_, Err(why)) => KnobOutcome::Refused(why.to_string()),
                    (_, Ok(())) => KnobOutcome::Applied,
                };
            applied.dca_ways = Some(outcome);
        }
        for (port, on) in &plan.dca {
            applied.dca.insert(*port, self.set_dca(*port, *on));
        }
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        let simulated = deadline_ns as f64 / self.time_factor;
        self.machine.run_until(simulated).map_err(|why| HostError::Failed {
            what: "running the virtual server".to_owned(),
            why: why.to_string(),
        })?;
        self.now_ns = self.now_ns.max(deadline_ns);
        Ok(())
    }
}

fn devices_of(scenario: &Scenario, workload: usize) -> Vec<DeviceId> {
    let spec = &scenario.workloads[workload];
    let storage = spec.storage.map(|index| scenario.nics.len() + index);
    spec.nic.into_iter().chain(storage).map(|index| DeviceId(index as u8)).collect()
}

fn inventory(scenario: &Scenario) -> Inventory {
    let chip = &scenario.chip;
    let no_dca = || Support::No("this chip has no DCA".to_owned());
    let has_dca = chip.llc.dca_ways.is_some();
    let mut devices = Vec::new();
    let mut ports = Vec::new();
    let mut add = |name: &str, kind, address: &str, remote: bool| {
        let index = devices.len() as u8;
        devices.push(Device { id: DeviceId(index), name: name.to_owned(), kind, ports: vec![PortId(index)] });
        let dca_switch = match (has_dca, remote) {
            (false, _) => no_dca(),
            (true, true) => Support::No("the device hangs on another socket".to_owned()),
            (true, false) => Support::Yes,
        };
        let socket = u8::from(remote);
        ports.push(RootPort { id: PortId(index), address: address.to_owned(), socket, dca_switch });
    };
    for nic in &scenario.nics {
        add(&nic.name, DeviceKind::Network, &nic.port, nic.remote);
    }
    for array in &scenario.storage {
        add(&array.name, DeviceKind::Storage, &array.port, array.remote);
    }
    Inventory {
        platform: Platform { chip: chip.name.clone(), host: "virtual server".to_owned() },
        cores: (0..chip.cores as u16).map(CoreId).collect(),
        llc: LlcGeometry {
            ways: chip.llc.ways,
            min_ways: chip.llc.min_ways,
            bytes: chip.llc_bytes(),
            clos_count: chip.llc.clos,
            inclusive_ways: chip.llc.inclusive_ways,
        },
        dca_ways_default: chip.llc.dca_ways,
        dca_ways_switch: if has_dca { Support::Yes } else { no_dca() },
        devices,
        ports,
    }
}
