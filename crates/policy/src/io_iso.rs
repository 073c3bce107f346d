//! I/O-iso, a baseline of the IAT paper: core-only, but no core may have a DDIO way (IAT s6.B).
//!
//! Few ways are left outside DDIO's, so a tenant grows at the cost of best-effort tenants, down to the minimum of a
//! mask. It follows the DDIO ways that the machine has and must not set them.

use crate::core_only::{Driver, moved};
use crate::describe::{StateDescription, lines};
use crate::iat::config::Config;
use crate::iat::layout::{compact, shrink};
use crate::iat::tenants::event;
use crate::ways::widest_run;
use crate::{Cause, Decision, Description, Event, Policy, PolicyError};
use std::cmp::Reverse;
use toml::Table;
use waykeeper_host::{Interval, Inventory, Workload};
use waykeeper_units::WayMask;

/// One line for the list of policies.
pub(crate) const IDEA: &str = "IAT's I/O-iso: like core-only, but no core allocates in DDIO's ways";

/// Builds it.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    let config = Config::read_core_side("io-iso", settings)?;
    Ok(Box::new(IoIso { driver: Driver::new(config), ddio: WayMask::EMPTY }))
}

struct IoIso {
    driver: Driver,
    ddio: WayMask,
}

impl IoIso {
    /// Minimum of ways of a mask.
    fn least(&self) -> u32 {
        self.driver.llc.map_or(1, |llc| llc.min_ways.max(1))
    }

    /// Moves all tenants out of DDIO's ways and removes ways until they fit: from best-effort tenants first, then from
    /// the largest.
    fn leave_ddio_ways(&mut self, log: &mut Vec<Event>) {
        let Some(llc) = self.driver.llc else { return };
        let beside = widest_run(WayMask::full(llc.ways).minus(self.ddio));
        let least = self.least();
        let slots = &mut self.driver.tenants.slots;
        let fits = slots.len() as u32 * least <= beside.count();
        // Too many tenants for the ways that are left: then they may have the whole LLC.
        self.driver.run = if fits { beside } else { WayMask::full(llc.ways) };
        let run = self.driver.run;
        if slots.iter().all(|slot| slot.mask.minus(run).is_empty()) {
            return;
        }
        let before: Vec<WayMask> = slots.iter().map(|slot| slot.mask).collect();
        while slots.iter().map(|slot| slot.ways()).sum::<u32>() > run.count() {
            let above = slots.iter_mut().filter(|slot| slot.ways() > least);
            let Some(slot) = above.min_by_key(|slot| (slot.class, Reverse(slot.ways()))) else { break };
            shrink(slot);
        }
        compact(slots, run);
        let causes = vec![Cause {
            what: "ways left outside DDIO's".to_owned(),
            value: f64::from(run.count()),
            limit: None,
        }];
        let text = format!("tenants leave DDIO's ways {}", self.ddio);
        log.push(Event { causes, ..event("keep-out", None, text) });
        let pairs = slots.iter().zip(before).filter(|(slot, before)| slot.mask != *before);
        log.extend(pairs.map(|(slot, before)| moved(slot, before)));
    }
}

impl Policy for IoIso {
    fn name(&self) -> &str {
        "io-iso"
    }

    fn describe(&self) -> Description {
        Description {
            name: "io-iso".to_owned(),
            idea: "Like core-only, but no core allocates in DDIO's ways: the ways that a tenant gains are \
                   taken from best-effort tenants."
                .to_owned(),
            source: "IAT s6.B (I/O-iso)".to_owned(),
            inputs: lines(&[
                "first mask of each tenant",
                "IPC, LLC hits and misses per tenant",
                "the DDIO ways, read back",
            ]),
            knobs: lines(&["way mask per tenant"]),
            settings: self.driver.config.describe_core_side(),
            states: vec![StateDescription::new("IoIso", "always; tenants gain ways while their misses rise")],
            deviations: lines(&[
                "the paper names only the policy it mimics; the rule is that of IAT's skip case 2 (ours)",
                "best-effort tenants lend down to the fewest ways of a mask; s6.B leaves one way to each",
                "when DDIO's ways become more, tenants shrink: best effort first, then the largest (ours)",
            ]),
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut log = Vec::new();
        self.ddio = inventory.dca_ways_default.unwrap_or_default();
        self.driver.llc = Some(inventory.known_llc());
        self.driver.form(groups, self.ddio, &mut log);
        self.leave_ddio_ways(&mut log);
        self.driver.decision("IoIso", log)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut log = Vec::new();
        self.ddio = seen.knobs.dca_ways().unwrap_or(self.ddio);
        let same = self.driver.groups == groups;
        if !same {
            self.driver.form(groups, self.ddio, &mut log);
        }
        self.leave_ddio_ways(&mut log);
        if same {
            let least = self.least();
            self.driver.grow(seen, |_| least, &mut log);
        }
        self.driver.decision("IoIso", log)
    }
}
