//! A dry run: a knob that is turned changes only a pretended setting, which then reads back.
//!
//! So a policy passes through its states as far as counters allow; no knob of the host is set. Must not know policies or
//! the kind of host.

use crate::engine::ManagedHost;
use crate::{ActiveProblem, PublishedClass};
use std::time::Duration;
use waykeeper_host::{
    Applied, Dial, Host, HostError, Inventory, Knob, KnobOutcome, KnobSetting, KnobValues, Lines, Plan,
    RootPort, Setting, Snapshot, Support, Workload,
};
use waykeeper_linux_host::Grouping;
use waykeeper_tenants::TenantSpec;
use waykeeper_units::{PortId, WayMask};

/// A host with the values that would be set.
#[derive(Debug)]
pub struct DryRun<H> {
    host: H,
    pretended: Plan,
}

impl<H> DryRun<H> {
    /// Wraps a host; no value differs yet.
    pub fn over(host: H) -> DryRun<H> {
        DryRun { host, pretended: Plan::default() }
    }
}

impl<H: Host> DryRun<H> {
    /// Lays the pretended settings over those that read back. A knob that does not read back cannot be turned either.
    fn lay_over(&self, knobs: &mut KnobValues) {
        let pretended = self.pretended.iter().filter(|(knob, _)| knobs.names(*knob));
        let pretended: Vec<(Knob, Setting)> = pretended.map(|(knob, setting)| (knob, *setting)).collect();
        knobs.extend(pretended);
    }

    /// The outcome to expect of a knob; the host is not asked.
    fn outcome(&self, knob: Knob, setting: Setting) -> KnobOutcome {
        let inventory = self.host.inventory();
        let at_port = |port: PortId, of_port: &dyn Fn(&RootPort) -> KnobOutcome| {
            let none = || KnobOutcome::Refused("this host has no such port".to_owned());
            inventory.ports.iter().find(|own| own.id == port).map_or_else(none, of_port)
        };
        match (knob, setting) {
            (Knob::Mask(_), Setting::Ways(mask)) => self.mask_outcome(mask),
            (Knob::DcaWays, _) => outcome(&inventory.dca_ways_switch),
            (Knob::Dca(port), _) => at_port(port, &|own| outcome(&own.dca_switch)),
            (Knob::RxRing(port), Setting::Count(ring)) => at_port(port, &|own| dial(&own.rx_ring, ring)),
            (Knob::RxBurst(port), Setting::Count(burst)) => at_port(port, &|own| dial(&own.rx_burst, burst)),
            _ => KnobOutcome::Refused("this host has no such knob".to_owned()),
        }
    }

    /// The outcome that the host would most likely report for a mask; the host is not asked.
    fn mask_outcome(&self, mask: WayMask) -> KnobOutcome {
        let Some(llc) = self.host.inventory().llc else {
            return KnobOutcome::Refused("the ways of the LLC are not known".to_owned());
        };
        // The only class is the default group's, whose mask is never set.
        if llc.clos_count < 2 {
            return KnobOutcome::Refused("the chip has no class of service for a mask".to_owned());
        }
        match llc.check(mask) {
            Ok(_) => KnobOutcome::Applied,
            Err(why) => KnobOutcome::Refused(why.to_string()),
        }
    }
}

fn outcome(support: &Support) -> KnobOutcome {
    match support {
        Support::Yes => KnobOutcome::Applied,
        Support::ReadOnly => KnobOutcome::Refused("it is read-only on this host".to_owned()),
        Support::No(why) => KnobOutcome::Refused(why.clone()),
    }
}

fn dial(dial: &Dial, value: u32) -> KnobOutcome {
    match dial.check(value) {
        Ok(()) => outcome(&dial.switch),
        Err(why) => KnobOutcome::Refused(why),
    }
}

impl<H: Host> Host for DryRun<H> {
    fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    fn workloads(&self) -> Vec<Workload> {
        self.host.workloads()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let alive: Vec<_> = self.host.workloads().iter().map(|group| group.id).collect();
        self.pretended.retain(|knob, _| knob.workload().is_none_or(|workload| alive.contains(&workload)));
        let mut snapshot = self.host.sample()?;
        self.lay_over(&mut snapshot.knobs);
        Ok(snapshot)
    }

    fn partial_writes(&mut self) -> Lines {
        self.host.partial_writes()
    }

    fn root_mask(&mut self) -> WayMask {
        self.host.root_mask()
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let mut applied = Applied::default();
        for KnobSetting { knob, setting } in plan.settings() {
            let outcome = self.outcome(knob, setting);
            if outcome == KnobOutcome::Applied {
                self.pretended.insert(knob, setting);
            }
            applied.insert(knob, outcome);
        }
        Ok(applied)
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn wait_until(&mut self, deadline_ns: u64) -> Result<(), HostError> {
        self.host.wait_until(deadline_ns)
    }
}

impl<H: ManagedHost> ManagedHost for DryRun<H> {
    fn refresh(&mut self) {
        self.host.refresh();
    }

    fn place(&mut self) {
        self.host.place();
    }

    fn count(&mut self) {
        self.host.count();
    }

    fn declare(&mut self, tenants: Vec<TenantSpec>) {
        self.host.declare(tenants);
    }

    fn active_problems(&self) -> Vec<ActiveProblem> {
        self.host.active_problems()
    }

    fn groupings(&self) -> Vec<Grouping> {
        self.host.groupings()
    }

    fn classes(&self) -> Vec<PublishedClass> {
        self.host.classes()
    }

    fn take_events(&mut self) -> Vec<String> {
        self.host.take_events()
    }

    fn time_left(&self, deadline_ns: u64) -> Duration {
        self.host.time_left(deadline_ns)
    }

    fn has_postponed(&self) -> bool {
        self.host.has_postponed()
    }

    fn restore(&mut self) -> Result<(), Vec<String>> {
        self.host.restore()
    }
}
