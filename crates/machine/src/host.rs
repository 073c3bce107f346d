//! The virtual server as an implementation of `Host`: counters to read and knobs to set.
//!
//! Its clock is the server's clock: one second of it is `1 / time_factor` seconds of simulated traffic, and counters
//! are scaled so that rates per second of the clock are those of the traffic. `wait_until` runs the machine. It must
//! not show values that only a model can have.

use crate::bare::BareMachine;
use crate::bus::Bus;
use crate::coverage::Gap;
use crate::evictions::EvictionRate;
use crate::inventory::inventory;
use crate::measured::{Measured, WriteBacks};
use crate::opcodes::{Commands, Opcodes};
use crate::pulse::{OnPulse, Pulse};
use crate::sampling_error::SamplingErrors;
use crate::scenario::{Scenario, ScenarioError};
use crate::server::RunOptions;
use crate::steady::Steadiness;
use std::collections::BTreeMap;
use std::sync::Arc;
use waykeeper_host::{
    Applied, Host, HostError, Inventory, Lines, Plan, PortCounter, PortCounters, Reading, Snapshot,
    SocketCounter, SocketCounters, Workload, WorkloadCounter, WorkloadCounters,
};
use waykeeper_units::{DeviceId, PortId, WayMask, WorkloadId};

/// A server that is a model.
#[derive(Clone, Debug)]
pub struct VirtualServer {
    pub(crate) bare: BareMachine,
    pub(crate) inventory: Inventory,
    /// Per workload of the scenario. `launches` of the machine knows which of them run, and as which group.
    pub(crate) groups: Vec<Workload>,
    /// Start of the measured interval, ns of the server's clock; `None` after it has begun.
    measure_from_ns: Option<u64>,
    /// Until the measured interval begins, steady intervals are extrapolated if this is set.
    steadiness: Option<Steadiness>,
}

impl VirtualServer {
    /// The server of a scenario, at power-on.
    ///
    /// # Errors
    /// If the scenario does not fit simulated memory.
    pub fn new(scenario: Arc<Scenario>, options: RunOptions) -> Result<VirtualServer, ScenarioError> {
        let bare = BareMachine::configured(scenario.clone(), options)?;
        let inventory = inventory(&scenario);
        let groups = scenario.workloads.iter().enumerate().map(|(index, workload)| Workload {
            id: WorkloadId(index as u32),
            name: workload.name.clone(),
            priority: workload.priority,
            kind: workload.program.kind,
            cores: workload.cores.clone(),
            devices: devices_of(&scenario, index),
            stack: workload.stack,
            mask: workload.mask,
        });
        let groups = groups.collect();
        Ok(VirtualServer { inventory, groups, measure_from_ns: None, steadiness: None, bare })
    }

    pub(crate) fn scenario(&self) -> &Scenario {
        &self.bare.machine.scenario
    }

    /// Stops a workload before its scheduled exit.
    pub(crate) fn kill(&mut self, group: WorkloadId) {
        if let Some(workload) = self.bare.machine.launches.workload_of(group) {
            self.bare.machine.stop(workload);
        }
    }

    /// The current group of a workload, if it runs: the workload's index for its first run, a new number for each later
    /// run.
    pub(crate) fn group_now(&self, workload: usize) -> Option<WorkloadId> {
        self.bare.machine.launches.of(workload).map(|launch| launch.group)
    }

    /// Schedules the start of the measured interval, ns of the server's clock.
    pub fn begin_stretch_at(&mut self, at_ns: u64) {
        self.measure_from_ns = Some(at_ns);
    }

    /// Calls `observer` while it simulates, also for copies of the server made from now on.
    pub fn observe(&mut self, observer: Arc<OnPulse>) {
        self.bare.machine.pulse = Pulse::of(observer);
    }

    /// Until the measured interval begins, simulates only a part of each steady interval (`steady.rs`). No effect with
    /// a time factor of 1.
    pub fn extrapolate_steady_intervals(&mut self) {
        self.steadiness = Some(Steadiness::default());
    }

    /// Starts the measured interval: meters and [`VirtualServer::measured`] count from here, and nothing is
    /// extrapolated.
    pub fn begin_stretch(&mut self) {
        self.steadiness = None;
        self.bare.begin_stretch();
    }

    /// From now on, a device has `factor` times the scenario's load; false if there is no such device. The wire offers so
    /// much traffic to a NIC, at most its line rate. The programs of an array keep so much of their requests in flight, at
    /// most as many as in the scenario, and their limits of rates change alike. This is no knob of a server: it is for
    /// experiments that a person steers.
    pub fn set_load(&mut self, device: DeviceId, factor: f64) -> bool {
        let now_ns = self.bare.machine.now_ns();
        let Bus { nics, arrays, .. } = &mut self.bare.machine.bus;
        let first_array = nics.len();
        if let Some(nic) = nics.get_mut(device.index()) {
            nic.traffic.set_load(factor, nic.gbps, now_ns);
        } else if let Some(array) =
            device.index().checked_sub(first_array).and_then(|index| arrays.get_mut(index))
        {
            array.set_load(factor);
        } else {
            return false;
        }
        if let Some(steadiness) = &mut self.steadiness {
            steadiness.forget();
        }
        true
    }

    /// Traffic simulated so far, seconds.
    pub fn simulated_s(&self) -> f64 {
        self.bare.machine.now_ns() * 1e-9
    }

    /// Results in the measured interval.
    pub fn measured(&self) -> Measured {
        self.bare.measured()
    }

    /// Per workload, the sum of the latencies, ns, and their number, since the measured interval began; before it, since
    /// the start.
    pub fn latency_totals(&self) -> impl Iterator<Item = (f64, f64)> {
        self.bare.machine.bus.meters.iter().map(|meter| meter.latency_total())
    }

    /// Dirty lines that the caches evicted in the measured interval.
    pub fn write_backs(&self) -> WriteBacks {
        self.bare.mark.write_backs(&self.bare.machine)
    }

    /// Standard errors of the hit ratios due to set sampling, in the measured interval.
    pub fn sampling_errors(&self) -> SamplingErrors {
        self.bare.mark.sampling_errors(&self.bare.machine)
    }

    /// Memory regions of programs and devices, since the start, that the sampled sets cover badly.
    pub fn gaps(&self) -> Vec<Gap> {
        self.bare.machine.gaps()
    }

    /// Evictions by evictor and owner in the measured interval.
    pub fn evictions(&self) -> Vec<EvictionRate> {
        self.bare.mark.evictions(&self.bare.machine)
    }

    /// The opcode events in the measured interval; `None` on a chip without them.
    pub fn opcodes(&self) -> Option<Opcodes> {
        self.bare.mark.opcodes(&self.bare.machine)
    }

    /// Block commands of a workload in the measured interval; `None` if it sends none.
    pub fn commands(&self, workload: usize) -> Option<Commands> {
        self.bare.mark.commands(&self.bare.machine, workload)
    }

    fn group_counters(&self, workload: usize) -> WorkloadCounters {
        let group = &self.groups[workload];
        let counts = self.bare.cores(group.cores.cores().iter().map(|core| core.index()));
        let counted = [
            (WorkloadCounter::Instructions, counts.instructions),
            (WorkloadCounter::Cycles, counts.cycles),
            (WorkloadCounter::MlcHits, counts.mlc_hits),
            (WorkloadCounter::MlcMisses, counts.mlc_misses),
            (WorkloadCounter::LlcHits, counts.llc_hits),
            (WorkloadCounter::LlcMisses, counts.llc_misses),
            (WorkloadCounter::OccupancyBytes, self.bare.occupancy(workload as u32 + 1)),
        ];
        WorkloadCounters::of(counted.map(|(counter, count)| (counter, Reading::Value(count))))
    }

    fn socket_counters(&self) -> SocketCounters {
        let (dca, memory) = (self.bare.dca(), self.bare.memory());
        let writes = self.device_writes(dca.write_hits, dca.write_misses);
        SocketCounters::of([
            (SocketCounter::DcaWriteHits, writes.hits),
            (SocketCounter::DcaWriteMisses, writes.misses),
            (SocketCounter::DcaReadHits, Reading::Value(dca.read_hits)),
            (SocketCounter::DcaReadMisses, Reading::Value(dca.read_misses)),
            (SocketCounter::MemoryReadBytes, Reading::Value(memory.read)),
            (SocketCounter::MemoryWriteBytes, Reading::Value(memory.written)),
        ])
    }

    /// Unsupported on a chip without DCA ways: its devices write to memory, and no LLC counter counts these writes.
    fn device_writes(&self, hits: u64, misses: u64) -> Lines {
        let reported = |count| match self.scenario().chip.llc.dca_ways {
            Some(_) => Reading::Value(count),
            None => Reading::Unsupported,
        };
        Lines { hits: reported(hits), misses: reported(misses) }
    }

    fn port_counters(&self, port: PortId) -> PortCounters {
        let bytes = self.bare.port(port.index());
        PortCounters::of([
            (PortCounter::InboundBytes, Reading::Value(bytes.inbound)),
            (PortCounter::OutboundBytes, Reading::Value(bytes.outbound)),
        ])
    }
}

impl Host for VirtualServer {
    fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn workloads(&self) -> Vec<Workload> {
        let machine = &self.bare.machine;
        let mut groups: Vec<Workload> = machine
            .launches
            .running()
            .map(|(workload, launch)| Workload {
                id: launch.group,
                priority: machine.priorities[workload],
                ..self.groups[workload].clone()
            })
            .collect();
        groups.sort_unstable_by_key(|group| group.id);
        groups
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let running = self.bare.machine.launches.running();
        let groups: BTreeMap<_, _> =
            running.map(|(workload, launch)| (launch.group, self.group_counters(workload))).collect();
        let ports = self.inventory.ports.iter().map(|port| (port.id, self.port_counters(port.id)));
        Ok(Snapshot {
            at_ns: self.bare.now_ns(),
            counters_read: None,
            groups,
            socket: self.socket_counters(),
            ports: ports.collect(),
            knobs: self.knobs(),
        })
    }

    fn partial_writes(&mut self) -> Lines {
        let dca = self.bare.dca();
        self.device_writes(dca.partial_hits, dca.partial_misses)
    }

    fn root_mask(&mut self) -> WayMask {
        WayMask::full(self.inventory().known_llc().ways)
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let before = self.knobs();
        let applied = self.turn(plan);
        if self.knobs() != before
            && let Some(steadiness) = &mut self.steadiness
        {
            steadiness.forget();
        }
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        self.bare.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        if let Some(from_ns) = self.measure_from_ns.take_if(|from_ns| *from_ns <= deadline_ns) {
            self.wait_until(from_ns)?;
            self.begin_stretch();
        }
        let ran = match &mut self.steadiness {
            Some(steadiness) => steadiness.run_until(&mut self.bare, deadline_ns),
            None => self.bare.run_until(deadline_ns),
        };
        ran.map_err(|why| HostError::Failed {
            what: "running the virtual server".to_owned(),
            why: why.to_string(),
        })
    }
}

fn devices_of(scenario: &Scenario, workload: usize) -> Vec<DeviceId> {
    let spec = &scenario.workloads[workload];
    let storage = spec.storage.map(|index| scenario.nics.len() + index);
    spec.nic.into_iter().chain(storage).map(|index| DeviceId(index as u8)).collect()
}
