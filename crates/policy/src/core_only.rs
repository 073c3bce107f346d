//! Core-only, a baseline of the IAT paper: tenants gain ways while their LLC misses rise, without regard to I/O (IAT
//! s6.B).
//!
//! A tenant may gain any way that no tenant has, DDIO's included: as a baseline it must not know I/O. The allocator
//! here also drives `io_iso`, which differs in the ways that tenants may have and in the tenants that may lose ways.

use crate::describe::{StateDescription, lines};
use crate::iat::config::Config;
use crate::iat::core_side::CoreSide;
use crate::iat::layout::View;
use crate::iat::poll::{Sample, Trends};
use crate::iat::sizing::{Source, give};
use crate::iat::tenants::{Slot, Tenants, event};
use crate::{Cause, Decision, Description, Event, Policy, PolicyError};
use toml::Table;
use waykeeper_host::{Interval, Inventory, LlcGeometry, Plan, Workload};
use waykeeper_units::WayMask;

/// One line for the list of policies.
pub(crate) const IDEA: &str =
    "IAT's core-only: tenants gain ways while their LLC misses rise, regardless of I/O";

/// Builds it.
pub(crate) fn build(settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    let config = Config::read_core_side("core-only", settings)?;
    Ok(Box::new(CoreOnly { driver: Driver::new(config) }))
}

/// Tenants in slots that grow on demand inside one run of ways.
pub(crate) struct Driver {
    pub(crate) config: Config,
    pub(crate) llc: Option<LlcGeometry>,
    /// Ways that tenants may have.
    pub(crate) run: WayMask,
    pub(crate) groups: Vec<Workload>,
    pub(crate) tenants: Tenants,
    before: Option<Sample>,
    core_side: CoreSide,
}

impl Driver {
    /// A driver without a chip or tenants.
    pub(crate) fn new(config: Config) -> Driver {
        Driver {
            config,
            llc: None,
            run: WayMask::EMPTY,
            groups: Vec::new(),
            tenants: Tenants::default(),
            before: None,
            core_side: CoreSide::default(),
        }
    }

    /// First masks for `groups`; those without a declared one avoid `avoid` where possible.
    pub(crate) fn form(&mut self, groups: &[Workload], avoid: WayMask, log: &mut Vec<Event>) {
        self.groups = groups.to_vec();
        if let Some(llc) = &self.llc {
            self.tenants = Tenants::of(groups, llc, avoid, log);
        }
        self.before = None;
        self.core_side.reset();
    }

    /// One interval: the slot that the core-side allocator chooses gains one way, from the idle pool or from a
    /// best-effort slot with more than `least` ways. Without a free way nothing changes.
    pub(crate) fn grow(&mut self, seen: &Interval, least: impl Fn(&Slot) -> u32, log: &mut Vec<Event>) {
        let now = Sample::of(seen, &self.tenants.slots);
        let Some(before) = self.before.replace(now.clone()) else { return };
        let trends = Trends::between(&before, &now, &self.config);
        let asks = |index: &usize| trends.slots[*index].ipc.changed() && trends.slots[*index].llc_changed();
        let eligible: Vec<usize> = (0..trends.slots.len()).filter(asks).collect();
        let Some((slot, causes)) = self.core_side.choose(&eligible, &before, &now, &trends, &self.config)
        else {
            return;
        };
        let refs = now.refs();
        let view = View {
            run: self.run,
            ddio: WayMask::EMPTY,
            refs: &refs,
            threshold: self.config.threshold_stable,
            floor: self.config.llc_floor,
        };
        let masks: Vec<WayMask> = self.tenants.slots.iter().map(|slot| slot.mask).collect();
        let Some(source) = give(&mut self.tenants.slots, slot, &view, least) else {
            self.core_side.reset();
            return;
        };
        let slots = &self.tenants.slots;
        let from = match source {
            Source::Pool => "the idle pool",
            Source::Lender(lender) => &slots[lender].name,
        };
        let name = &slots[slot].name;
        let text = format!("{name} grows from {} to {} out of {from}", masks[slot], slots[slot].mask);
        log.push(Event { causes, ..event("tenant-grow", Some(name), text) });
        for (index, (other, before)) in slots.iter().zip(&masks).enumerate() {
            if index != slot && other.mask != *before {
                log.push(moved(other, *before));
            }
        }
    }

    /// The present masks as a decision.
    pub(crate) fn decision(&self, state: &str, events: Vec<Event>) -> Decision {
        let ways = self.llc.map_or(0, |llc| llc.ways);
        let plan = Plan::of_masks(self.tenants.masks(ways));
        Decision { plan, state: state.to_owned(), events }
    }
}

/// Event: a slot has other ways now.
pub(crate) fn moved(slot: &Slot, before: WayMask) -> Event {
    let text = format!("{} moves from {before} to {}", slot.name, slot.mask);
    let causes = vec![Cause { what: "its ways".to_owned(), value: f64::from(slot.ways()), limit: None }];
    Event { causes, ..event("move", Some(&slot.name), text) }
}

struct CoreOnly {
    driver: Driver,
}

impl Policy for CoreOnly {
    fn name(&self) -> &str {
        "core-only"
    }

    fn describe(&self) -> Description {
        Description {
            name: "core-only".to_owned(),
            idea: "A tenant whose LLC misses rise gains one free way per interval while that helps, even if \
                   devices write into these ways."
                .to_owned(),
            source: "IAT s6.B (Core-only)".to_owned(),
            inputs: lines(&["first mask of each tenant", "IPC, LLC hits and misses per tenant"]),
            knobs: lines(&["way mask per tenant"]),
            settings: self.driver.config.describe_core_side(),
            states: vec![StateDescription::new(
                "CoreOnly",
                "always; tenants gain ways while their misses rise",
            )],
            deviations: lines(&[
                "the paper names only the policy it mimics; the rule is that of IAT's skip case 2 (ours)",
                "ways come from the idle pool, else from best-effort tenants above their first grant (ours)",
            ]),
        }
    }

    fn start(&mut self, inventory: &Inventory, groups: &[Workload]) -> Decision {
        let mut log = Vec::new();
        self.driver.llc = Some(inventory.known_llc());
        self.driver.run = WayMask::full(inventory.known_llc().ways);
        self.driver.form(groups, WayMask::EMPTY, &mut log);
        self.driver.decision("CoreOnly", log)
    }

    fn step(&mut self, groups: &[Workload], seen: &Interval) -> Decision {
        let mut log = Vec::new();
        if self.driver.groups == groups {
            self.driver.grow(seen, |slot| slot.grant, &mut log);
        } else {
            self.driver.form(groups, WayMask::EMPTY, &mut log);
        }
        self.driver.decision("CoreOnly", log)
    }
}
