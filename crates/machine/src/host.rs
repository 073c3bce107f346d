//! The virtual server behind the seam: what counters show and what knobs do.
//!
//! Its clock is the server's: one second of it is `1 / time_factor` seconds of simulated traffic, and
//! counters are scaled so that rates per second of the clock are those of the traffic. Waiting runs the
//! machine. What only a model could know is not visible here.

use crate::inventory::inventory;
use crate::knobs::registers;
use crate::measured::{Mark, Measured, WriteBacks};
use crate::opcodes::{Commands, Opcodes};
use crate::root_port::PerfCtrlSts;
use crate::scenario::{Scenario, ScenarioError};
use crate::server::{Machine, RunOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use waykeeper_host::{
    Applied, Group, GroupCounters, Host, HostError, Inventory, Plan, PortCounters, Reading, Snapshot,
    SocketCounters,
};
use waykeeper_units::{DeviceId, GroupId, LINE_BYTES, PortId};

/// A server that is a model.
#[derive(Debug)]
pub struct VirtualServer {
    pub(crate) machine: Machine,
    pub(crate) inventory: Inventory,
    pub(crate) groups: Vec<Group>,
    /// Per port: what its register holds.
    pub(crate) registers: Vec<PerfCtrlSts>,
    time_factor: f64,
    now_ns: u64,
    mark: Mark,
    /// When the stretch begins that is to be measured, ns of the server's clock; none once it has.
    measure_from_ns: Option<u64>,
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
        let registers = registers(&inventory, &machine);
        Ok(VirtualServer {
            inventory,
            groups,
            registers,
            time_factor: scenario.time_factor,
            now_ns: 0,
            mark,
            measure_from_ns: None,
            machine,
        })
    }

    /// What runs on it.
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.machine.scenario
    }

    /// A workload exits before its time.
    pub(crate) fn kill(&mut self, group: GroupId) {
        if self.machine.alive[group.index()] {
            self.machine.stop(group.index());
        }
    }

    /// Has the measured stretch begin when the server's clock reaches a time.
    pub fn begin_stretch_at(&mut self, at_ns: u64) {
        self.measure_from_ns = Some(at_ns);
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

    /// Dirty lines that the caches gave up since the stretch began.
    pub fn write_backs(&self) -> WriteBacks {
        self.mark.write_backs(&self.machine)
    }

    /// The opcode events since the stretch began; `None` on a chip without them.
    pub fn opcodes(&self) -> Option<Opcodes> {
        self.mark.opcodes(&self.machine)
    }

    /// What the block commands of a workload did since the stretch began; `None` if it has none.
    pub fn commands(&self, workload: usize) -> Option<Commands> {
        self.mark.commands(&self.machine, workload)
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
}

impl Host for VirtualServer {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn groups(&self) -> Vec<Group> {
        let alive = self.groups.iter().filter(|group| self.machine.alive[group.id.index()]);
        alive
            .map(|group| Group { priority: self.machine.priorities[group.id.index()], ..group.clone() })
            .collect()
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
        Ok(self.turn(plan))
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        if let Some(from_ns) = self.measure_from_ns.take_if(|from_ns| *from_ns <= deadline_ns) {
            self.wait_until(from_ns)?;
            self.begin_stretch();
        }
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
