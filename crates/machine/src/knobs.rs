//! The virtual server's knobs: the effect of each write, and the value that is read back.
//!
//! A write that real silicon refuses or ignores is refused or ignored here. Must not know policies, nor time.

use crate::host::VirtualServer;
use crate::inventory::RING_LOW;
use crate::nic::Nic;
use std::collections::BTreeMap;
use waykeeper_host::{Applied, Dial, KnobOutcome, KnobValues, Plan, RootPort, Support};
use waykeeper_units::{GroupId, PortId, WayMask};

impl VirtualServer {
    /// Applies all knob values of a plan.
    pub(crate) fn turn(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        for (group, mask) in &plan.masks {
            applied.masks.insert(*group, self.set_mask(*group, *mask));
        }
        applied.dca_ways = plan.dca_ways.map(|mask| self.set_dca_ways(mask));
        for (port, on) in &plan.dca {
            applied.dca.insert(*port, self.set_dca(*port, *on));
        }
        for (port, ring) in &plan.rx_ring {
            applied.rx_ring.insert(*port, self.set_rx_ring(*port, *ring));
        }
        for (port, burst) in &plan.rx_burst {
            applied.rx_burst.insert(*port, self.set_rx_burst(*port, *burst));
        }
        applied
    }

    /// The value that each knob reads back.
    pub(crate) fn knobs(&self) -> KnobValues {
        let chip = &self.bare.machine.bus.memory.chip;
        let masks = self.bare.machine.launches.running().filter_map(|(workload, launch)| {
            let first = self.groups[workload].cores.cores().first()?;
            Some((launch.group, chip.core_mask(first.index())))
        });
        let nics = || (0..).map(PortId).zip(&self.bare.machine.bus.nics);
        let of_queues = |value: fn(&Nic) -> Option<u32>| -> BTreeMap<PortId, u32> {
            nics().filter_map(|(port, nic)| Some((port, value(nic)?))).collect()
        };
        KnobValues {
            masks: masks.collect(),
            dca_ways: chip.dca_ways(),
            dca: self
                .inventory
                .ports
                .iter()
                .map(|port| (port.id, self.bare.port_is_on(port.id.index())))
                .collect(),
            rx_ring: of_queues(|nic| nic.queues.first().map(|queue| queue.ring())),
            rx_burst: of_queues(|nic| nic.queues.first().map(|queue| queue.burst_limit)),
        }
    }

    fn set_mask(&mut self, group: GroupId, mask: WayMask) -> KnobOutcome {
        let workload = self.bare.machine.launches.workload_of(group);
        let Some(group) = workload.map(|workload| &self.groups[workload]) else {
            return KnobOutcome::Refused(format!("{group} does not exist"));
        };
        for core in group.cores.cores() {
            if let Err(why) = self.bare.set_core_mask(core.index(), mask) {
                return KnobOutcome::Refused(why.to_string());
            }
        }
        KnobOutcome::Applied
    }

    fn set_dca_ways(&mut self, mask: WayMask) -> KnobOutcome {
        match self.bare.machine.bus.memory.chip.write_dca_register(mask) {
            Ok(after) if after == mask => KnobOutcome::Applied,
            Ok(after) => KnobOutcome::ReadsBack(after.to_string()),
            Err(why) => KnobOutcome::Refused(why.to_string()),
        }
    }

    fn set_dca(&mut self, port: PortId, on: bool) -> KnobOutcome {
        match self.inventory.ports.get(port.index()) {
            None => KnobOutcome::Refused(format!("{port} does not exist")),
            Some(RootPort { dca_switch: Support::No(why), .. }) => KnobOutcome::Refused(why.clone()),
            Some(_) => {
                self.bare.switch_port(port.index(), on);
                KnobOutcome::Applied
            }
        }
    }

    fn set_rx_ring(&mut self, port: PortId, ring: u32) -> KnobOutcome {
        if let Err(why) = self.dial(port, |port| &port.rx_ring, ring) {
            return KnobOutcome::Refused(why);
        }
        if !ring.is_power_of_two() {
            let why = format!(
                "a ring of {ring} descriptors is not possible; it must be a power of two of at least \
                    {RING_LOW}"
            );
            return KnobOutcome::Refused(why);
        }
        for queue in &mut self.bare.machine.bus.nics[port.index()].queues {
            queue.resize(ring);
        }
        KnobOutcome::Applied
    }

    fn set_rx_burst(&mut self, port: PortId, burst: u32) -> KnobOutcome {
        if let Err(why) = self.dial(port, |port| &port.rx_burst, burst) {
            return KnobOutcome::Refused(why);
        }
        for queue in &mut self.bare.machine.bus.nics[port.index()].queues {
            queue.burst_limit = burst;
        }
        KnobOutcome::Applied
    }

    /// Refuses a value that a port's knob does not accept.
    fn dial(&self, port: PortId, of: fn(&RootPort) -> &Dial, value: u32) -> Result<(), String> {
        match self.inventory.ports.get(port.index()).map(of) {
            None => Err(format!("{port} does not exist")),
            Some(Dial { switch: Support::No(why), .. }) => Err(why.clone()),
            Some(Dial { low, high, .. }) if !(*low..=*high).contains(&value) => {
                Err(format!("{value} is out of range; it takes {low} to {high}"))
            }
            Some(_) => Ok(()),
        }
    }
}
