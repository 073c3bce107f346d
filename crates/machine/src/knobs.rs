//! The virtual server's knobs: the effect of each write, and the value that is read back.
//!
//! A write that real silicon refuses or ignores is refused or ignored here. Must not know policies, nor time.

use crate::host::VirtualServer;
use crate::inventory::RING_LOW;
use waykeeper_host::{
    Applied, Dial, Knob, KnobOutcome, KnobSetting, KnobValues, Plan, RootPort, Setting, Support,
};
use waykeeper_units::{PortId, WayMask, WorkloadId};

impl VirtualServer {
    /// Applies all knob values of a plan.
    pub(crate) fn turn(&mut self, plan: &Plan) -> Applied {
        plan.settings().map(|setting| (setting.knob, self.turn_one(setting))).collect()
    }

    fn turn_one(&mut self, KnobSetting { knob, setting }: KnobSetting) -> KnobOutcome {
        match (knob, setting) {
            (Knob::Mask(group), Setting::Ways(mask)) => self.set_mask(group, mask),
            (Knob::DcaWays, Setting::Ways(mask)) => self.set_dca_ways(mask),
            (Knob::Dca(port), Setting::Switch(on)) => self.set_dca(port, on),
            (Knob::RxRing(port), Setting::Count(ring)) => self.set_rx_ring(port, ring),
            (Knob::RxBurst(port), Setting::Count(burst)) => self.set_rx_burst(port, burst),
            (Knob::Mask(_) | Knob::DcaWays | Knob::Dca(_) | Knob::RxRing(_) | Knob::RxBurst(_), _) => {
                KnobOutcome::Refused(format!("{knob:?} does not take {setting}"))
            }
        }
    }

    /// The value that each knob reads back.
    pub(crate) fn knobs(&self) -> KnobValues {
        let chip = &self.bare.machine.bus.memory.chip;
        let masks = self.bare.machine.launches.running().filter_map(|(workload, launch)| {
            let first = self.groups[workload].cores.cores().first()?;
            Some((launch.group, chip.core_mask(first.index())))
        });
        let mut knobs = KnobValues::of_masks(masks);
        knobs.extend(chip.dca_ways().map(|mask| (Knob::DcaWays, mask)));
        for port in &self.inventory.ports {
            knobs.insert(Knob::Dca(port.id), self.bare.port_is_on(port.id.index()));
        }
        for (port, nic) in (0..).map(PortId).zip(&self.bare.machine.bus.nics) {
            if let Some(queue) = nic.queues.first() {
                knobs.insert(Knob::RxRing(port), queue.ring());
                knobs.insert(Knob::RxBurst(port), queue.burst_limit);
            }
        }
        knobs
    }

    fn set_mask(&mut self, group: WorkloadId, mask: WayMask) -> KnobOutcome {
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
        let known = self.inventory.ports.get(port.index()).ok_or_else(|| format!("{port} does not exist"))?;
        of(known).check(value)
    }
}
