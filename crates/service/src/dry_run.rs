//! A dry run: wraps a host, keeps the values that would be set, and reads them back as if they were in force.
//!
//! So a policy goes through its states as far as counters allow; no knob of the host is set. Must not know policies or
//! the kind of host.

use crate::engine::ManagedHost;
use crate::{Class, Standing};
use std::time::Duration;
use waykeeper_host::{
    Applied, Group, Host, HostError, Inventory, KnobOutcome, KnobValues, Plan, Snapshot, Support,
};
use waykeeper_linux::host::Grouping;
use waykeeper_linux::tenants::TenantSpec;
use waykeeper_units::WayMask;

/// A host with the values that would be set.
#[derive(Debug)]
pub struct DryRun<H> {
    host: H,
    paper: Plan,
}

impl<H> DryRun<H> {
    /// Wraps a host; no value differs yet.
    pub fn over(host: H) -> DryRun<H> {
        DryRun { host, paper: Plan::default() }
    }
}

impl<H: Host> DryRun<H> {
    fn lay_over(&self, knobs: &mut KnobValues) {
        // A knob that cannot be read is not overlaid.
        for (group, mask) in &mut knobs.masks {
            *mask = self.paper.masks.get(group).copied().unwrap_or(*mask);
        }
        knobs.dca_ways = knobs.dca_ways.map(|ways| self.paper.dca_ways.unwrap_or(ways));
        for (port, on) in &mut knobs.dca {
            *on = self.paper.dca.get(port).copied().unwrap_or(*on);
        }
    }

    /// The outcome that the host would most likely report for a mask; the host is not asked.
    fn mask_outcome(&self, mask: WayMask) -> KnobOutcome {
        let llc = self.host.inventory().llc;
        // The only class is the default group's, whose mask is never set.
        if llc.clos_count < 2 {
            return KnobOutcome::Refused("the chip has no class of service for a mask".to_owned());
        }
        match mask.check(llc.ways, llc.min_ways) {
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

impl<H: Host> Host for DryRun<H> {
    fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    fn groups(&self) -> Vec<Group> {
        self.host.groups()
    }

    fn sample(&mut self) -> Result<Snapshot, HostError> {
        let alive: Vec<_> = self.host.groups().iter().map(|group| group.id).collect();
        self.paper.masks.retain(|group, _| alive.contains(group));
        let mut snapshot = self.host.sample()?;
        self.lay_over(&mut snapshot.knobs);
        Ok(snapshot)
    }

    fn apply(&mut self, plan: &Plan) -> Result<Applied, HostError> {
        let mut applied = Applied::default();
        for (group, mask) in &plan.masks {
            let outcome = self.mask_outcome(*mask);
            if outcome == KnobOutcome::Applied {
                self.paper.masks.insert(*group, *mask);
            }
            applied.masks.insert(*group, outcome);
        }
        if let Some(mask) = plan.dca_ways {
            let outcome = outcome(&self.host.inventory().dca_ways_switch);
            if outcome == KnobOutcome::Applied {
                self.paper.dca_ways = Some(mask);
            }
            applied.dca_ways = Some(outcome);
        }
        for (port, on) in &plan.dca {
            let known = self.host.inventory().ports.iter().find(|own| own.id == *port);
            let none = || KnobOutcome::Refused("this host has no such port".to_owned());
            let outcome = known.map_or_else(none, |own| outcome(&own.dca_switch));
            if outcome == KnobOutcome::Applied {
                self.paper.dca.insert(*port, *on);
            }
            applied.dca.insert(*port, outcome);
        }
        let absent = || KnobOutcome::Refused("this host has no such knob".to_owned());
        applied.rx_ring = plan.rx_ring.keys().map(|port| (*port, absent())).collect();
        applied.rx_burst = plan.rx_burst.keys().map(|port| (*port, absent())).collect();
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

    fn declare(&mut self, tenants: Vec<TenantSpec>) {
        self.host.declare(tenants);
    }

    fn standing(&self) -> Vec<Standing> {
        self.host.standing()
    }

    fn groupings(&self) -> Vec<Grouping> {
        self.host.groupings()
    }

    fn classes(&self) -> Vec<Class> {
        self.host.classes()
    }

    fn told(&mut self) -> Vec<String> {
        self.host.told()
    }

    fn spare(&self, deadline_ns: u64) -> Duration {
        self.host.spare(deadline_ns)
    }

    fn give_back(&mut self) -> Result<(), Vec<String>> {
        self.host.give_back()
    }
}
