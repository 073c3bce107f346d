//! LLC Re-alloc: what IAT does in its states (IAT s4.D, algorithms.md 2.4 to 2.6), each step with its causes.
//!
//! Moves at most one way per interval and then shuffles. It must not decide about states.

use super::guard::Owner;
use super::layout::{self, Shuffle, View};
use super::machine::Machine;
use super::poll::{Sample, Trends};
use super::sizing::{Source, give, growth_candidates, narrowed, shrink_candidates, widened};
use super::tenants::{Class, Slot, event};
use crate::{Cause, Event};
use waykeeper_units::WayMask;

impl Machine {
    /// IODemand: adds one DDIO way.
    pub(super) fn widen_ddio(&mut self, misses: f64, log: &mut Vec<Event>) {
        let ways = self.ddio.count();
        if !self.sizes_ddio() || ways >= self.limits.max {
            return;
        }
        let wider = widened(self.ddio, self.llc.ways);
        let mut grown = event("ddio-grow", None, format!("DDIO grows from {} to {wider}", self.ddio));
        grown.causes = vec![
            self.config.cause("DDIO misses per second", misses, "threshold_miss_low"),
            self.config.cause("DDIO ways", f64::from(ways), "ddio_ways_max"),
        ];
        log.push(grown);
        self.ddio = wider;
        self.ddio_is_ours = true;
    }

    /// CoreDemand: adds one way to the stack, or to the I/O tenant with the largest need that can gain one.
    pub(super) fn grow_stack_or_io(&mut self, before: &Sample, now: &Sample, log: &mut Vec<Event>) {
        if self.config.tenant_sizing == 0.0 {
            return;
        }
        for (slot, cause) in growth_candidates(&self.tenants.slots, before, now, &self.config) {
            // Two idle tenants must not take the last way from each other for ever: a slot takes a way from another
            // tenant only if its misses rose.
            let may_borrow = cause.value > self.config.threshold_stable;
            if self.grow(slot, may_borrow, vec![cause], now, log) {
                return;
            }
        }
    }

    /// Only cores need ways: adds one way to the slot that the core-side allocator chooses.
    pub(super) fn grow_core_side(
        &mut self,
        eligible: &[usize],
        before: &Sample,
        now: &Sample,
        trends: &Trends,
        log: &mut Vec<Event>,
    ) {
        let chosen = self.core_side.choose(eligible, before, now, trends, &self.config);
        if let Some((slot, causes)) = chosen
            && !self.grow(slot, true, causes, now, log)
        {
            self.core_side.reset();
        }
    }

    /// Gives a slot one way, from the idle pool or, if `may_borrow`, from another tenant; false if there was none.
    fn grow(
        &mut self,
        slot: usize,
        may_borrow: bool,
        causes: Vec<Cause>,
        now: &Sample,
        log: &mut Vec<Event>,
    ) -> bool {
        let masks = self.slot_masks();
        let refs = now.refs();
        let view = view(&self.config, self.llc.ways, self.ddio, &refs);
        // No lender keeps fewer ways than its grant (algorithms.md 2.5).
        let least = |slot: &Slot| if may_borrow { slot.grant } else { u32::MAX };
        let Some(source) = give(&mut self.tenants.slots, slot, &view, least) else {
            return false;
        };
        let slots = &mut self.tenants.slots;
        slots[slot].refs_at_growth = now.slots[slot].refs;
        let name = &slots[slot].name;
        let from = match source {
            Source::Pool => "the idle pool".to_owned(),
            Source::Lender(lender) => slots[lender].name.clone(),
        };
        let text = format!("{name} grows from {} to {} out of {from}", masks[slot], slots[slot].mask);
        log.push(Event { causes, ..event("tenant-grow", Some(name), text) });
        self.tell_moves(&masks, Some(slot), log);
        true
    }

    /// Reclaim: takes one way back, from a tenant that no longer needs it or from DDIO.
    pub(super) fn reclaim(&mut self, now: &Sample, log: &mut Vec<Event>) {
        if self.config.tenant_sizing != 0.0 {
            for (index, cause) in shrink_candidates(&self.tenants.slots, now, &self.config) {
                let slot = &mut self.tenants.slots[index];
                if self.guard.allows(Owner::Slot(index), slot.ways()) {
                    self.guard.reclaimed(Owner::Slot(index), slot.ways());
                    let before = slot.mask;
                    layout::shrink(slot);
                    let text = format!("{} gives a way back: {before} to {}", slot.name, slot.mask);
                    log.push(Event { causes: vec![cause], ..event("tenant-shrink", Some(&slot.name), text) });
                    return;
                }
            }
        }
        let ways = self.ddio.count();
        if self.sizes_ddio() && ways > self.limits.min && self.guard.allows(Owner::Ddio, ways) {
            self.guard.reclaimed(Owner::Ddio, ways);
            let narrower = narrowed(self.ddio);
            let mut shrunk =
                event("ddio-shrink", None, format!("DDIO gives a way back: {} to {narrower}", self.ddio));
            let misses = now.ddio_misses.unwrap_or(0.0);
            let least = ("fewest DDIO ways".to_owned(), f64::from(self.limits.min));
            shrunk.causes = vec![
                self.config.cause("DDIO misses per second", misses, "threshold_miss_low"),
                Cause { what: "DDIO ways".to_owned(), value: f64::from(ways), limit: Some(least) },
            ];
            log.push(shrunk);
            self.ddio = narrower;
            self.ddio_is_ours = true;
        }
    }

    /// Chooses the slots that overlap DDIO; true if a mask moved.
    pub(super) fn shuffle(&mut self, now: &Sample, log: &mut Vec<Event>) -> bool {
        let masks = self.slot_masks();
        let refs = now.refs();
        let view = view(&self.config, self.llc.ways, self.ddio, &refs);
        let Some(why) = layout::shuffle(&mut self.tenants.slots, &view) else {
            return false;
        };
        let slots = &self.tenants.slots;
        let count =
            |what: &str, value: u32| Cause { what: what.to_owned(), value: f64::from(value), limit: None };
        let (text, cause) = match why {
            Shuffle::Protects(ways) => (
                format!("{ways} ways of performance-critical tenants leave DDIO's {}", self.ddio),
                count("DDIO ways that performance-critical tenants overlapped", ways),
            ),
            Shuffle::Frees(ways) => (
                format!("{ways} of DDIO's ways {} are left to devices alone", self.ddio),
                count("DDIO ways that were overlapped without need", ways),
            ),
            Shuffle::Exchanges(slot) => {
                let name = &slots[slot].name;
                let why = if slots[slot].class == Class::Be {
                    "has the fewest LLC references"
                } else {
                    "comes before others above best effort"
                };
                let text = format!("{name} {why} and overlaps DDIO's {}", self.ddio);
                (text, count("DDIO ways", self.ddio.count()))
            }
        };
        let mut causes = vec![cause];
        for (slot, refs) in slots.iter().zip(&refs).filter(|(slot, _)| slot.mask.overlaps(self.ddio)) {
            let what = format!("LLC references per second of {}, which overlaps now", slot.name);
            causes.extend(refs.map(|value| Cause { what, value, limit: None }));
        }
        log.push(Event { causes, ..event("shuffle", None, text) });
        self.tell_moves(&masks, None, log);
        true
    }

    /// Logs every slot that moved, except the one whose growth is already logged.
    fn tell_moves(&self, before: &[WayMask], grown: Option<usize>, log: &mut Vec<Event>) {
        for (index, (slot, before)) in self.tenants.slots.iter().zip(before).enumerate() {
            if slot.mask != *before && grown != Some(index) {
                let text = format!("{} moves from {before} to {}", slot.name, slot.mask);
                let overlap = f64::from(slot.mask.and(self.ddio).count());
                let what = "DDIO ways it overlaps".to_owned();
                let causes = vec![Cause { what, value: overlap, limit: None }];
                log.push(Event { causes, ..event("move", Some(&slot.name), text) });
            }
        }
    }

    fn slot_masks(&self) -> Vec<WayMask> {
        self.tenants.slots.iter().map(|slot| slot.mask).collect()
    }
}

/// A view of all ways, with DDIO's to be left to devices.
fn view<'a>(config: &super::config::Config, ways: u32, ddio: WayMask, refs: &'a [Option<f64>]) -> View<'a> {
    View { run: WayMask::full(ways), ddio, refs, threshold: config.threshold_stable, floor: config.llc_floor }
}
