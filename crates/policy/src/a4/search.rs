//! The search: InitMeasure, Expand and Trash (algorithms.md 3.4, 3.6, 3.7).
//!
//! Each step changes one zone, waits, measures, and then continues or takes one way back. If a counter that the step
//! needs is missing, the step waits for it. It must not know how counters are read.

use super::detect::{self, fell, hit_ratio, lost_hits, percent, rose};
use super::machine::{Machine, State};
use super::measure::Window;
use super::workloads::{Misses, event};
use crate::{Cause, Event};
use std::collections::BTreeMap;
use waykeeper_host::{Interval, WorkloadKind};
use waykeeper_units::WorkloadId;

/// Reference values for the stability test of the trash ways (algorithms.md 3.7), measured while they equal the LP
/// zone.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TrashBase {
    /// LLC and MLC miss ratio of each non-I/O antagonist, as far as known.
    misses: BTreeMap<WorkloadId, Misses>,
    /// Inbound bytes per second of each flagged storage unit, by its index in `workloads`.
    storage: BTreeMap<usize, f64>,
    /// Inbound bytes per second of all NICs.
    network: Option<f64>,
    /// Memory bytes per second.
    memory: Option<f64>,
}

impl Machine {
    /// Initial partitions are in force: record the HPWs' hit ratios, then let the LP zone grow.
    pub(super) fn init_measure(&mut self, seen: &Interval, log: &mut Vec<Event>) {
        self.gather(seen);
        if !self.is_measured(seen) || !self.high_are_read(log) {
            return;
        }
        let high_flagged = self.flag_non_io_antagonists(true, log);
        for member in self.workloads.members.values_mut() {
            member.fresh = false;
        }
        if high_flagged {
            return self.reset(Some(seen.to_ns), log);
        }
        self.dca_initial = self.window.dca_write_miss();
        let mut causes = Vec::new();
        for id in self.workloads.high() {
            let hit = hit_ratio(&self.config, &self.window, id);
            if let Some(member) = self.workloads.members.get_mut(&id) {
                member.hit_initial = hit;
                let what = format!("LLC hit ratio of {}", member.group.name);
                causes.extend(hit.map(|value| Cause { what, value, limit: None }));
            }
        }
        let record = causes.iter().map(|cause| format!("{} {}", cause.what, percent(cause.value)));
        let record = record.collect::<Vec<_>>().join(", ");
        let record = if record.is_empty() { "no busy HPW".to_owned() } else { record };
        log.push(Event { causes, ..event("initial-record", None, format!("initial record: {record}")) });
        // With no workload in the LP zone there is nothing to search for.
        let has_low = self.workloads.members.keys().any(|id| !self.workloads.is_high(*id));
        if has_low { self.grow(seen.to_ns, log) } else { self.settle(seen.to_ns, log) }
    }

    /// The LP zone has grown: takes one way back if an HPW lost too many hits, else grows it again (algorithms.md 3.4).
    pub(super) fn expand(&mut self, seen: &Interval, log: &mut Vec<Event>) {
        self.gather(seen);
        if !self.is_measured(seen) || !self.high_are_read(log) {
            return;
        }
        let Some((reason, causes)) = self.growth_hurts() else { return self.grow(seen.to_ns, log) };
        self.lp_ways -= 1;
        self.trash_ways = self.lp_ways;
        let text = format!("LP zone back to {}: {reason}", self.lp_text());
        log.push(Event { causes, ..event("lp-zone-back", None, text) });
        self.settle(seen.to_ns, log);
    }

    /// Adds one way to the LP zone, or settles if it has its maximum.
    fn grow(&mut self, now_ns: u64, log: &mut Vec<Event>) {
        if self.zones.is_none_or(|zones| self.lp_ways >= zones.lp_max) {
            return self.settle(now_ns, log);
        }
        self.lp_ways += 1;
        self.trash_ways = self.lp_ways;
        log.push(event("lp-zone-grow", None, format!("LP zone grows to {}", self.lp_text())));
        self.enter(State::Expand, Some(now_ns));
    }

    /// The first reason why the present LP zone is too large.
    fn growth_hurts(&self) -> Option<(String, Vec<Cause>)> {
        for id in self.workloads.high() {
            let member = &self.workloads.members[&id];
            let Some(before) = member.hit_initial else { continue };
            let Some(now) = hit_ratio(&self.config, &self.window, id) else { continue };
            let name = &member.group.name;
            if let Some(causes) = lost_hits(&self.config, name, before, now) {
                let allowed = percent(self.config.hpw_llc_hit_thr);
                let (before, now) = (percent(before), percent(now));
                return Some((
                    format!("LLC hit rate of {name} fell from {before} to {now}, over {allowed}"),
                    causes,
                ));
            }
        }
        let (factor, base, now) =
            (self.config.expand_dca_stop, self.dca_initial?, self.window.dca_write_miss()?);
        (factor > 0.0 && base > 0.0 && now > factor * base).then(|| {
            let what = "DCA write miss ratio over its initial value".to_owned();
            let causes = vec![self.config.cause(what, now / base, "expand_dca_stop")];
            (format!("DCA write miss rose from {} to {}", percent(base), percent(now)), causes)
        })
    }

    /// The LP zone is found: flags antagonists, then enters Trash or Stable (algorithms.md 3.10).
    fn settle(&mut self, now_ns: u64, log: &mut Vec<Event>) {
        log.push(event("lp-zone-settled", None, format!("LP zone settles at {}", self.lp_text())));
        if self.flag_non_io_antagonists(false, log) {
            return self.reset(Some(now_ns), log);
        }
        let squeeze =
            self.variant.has_bypass() && self.workloads.has_antagonist() && self.lp_ways > self.trash_floor();
        self.enter(if squeeze { State::Trash(None) } else { State::Stable }, Some(now_ns));
    }

    /// Trash: measures and removes one trash way at a time; on instability gives the last way back and stops.
    pub(super) fn trash(&mut self, seen: &Interval, log: &mut Vec<Event>) {
        self.gather(seen);
        if !self.is_measured(seen) || !self.antagonists_are_read(log) {
            return;
        }
        let base = match std::mem::replace(&mut self.state, State::Trash(None)) {
            State::Trash(Some(base)) => base,
            _ => {
                let base = self.trash_base();
                return self.shrink(base, seen.to_ns, log);
            }
        };
        if let Some(causes) = self.is_unstable(&base) {
            self.trash_ways += 1;
            let reasons: Vec<String> =
                causes.iter().map(|cause| format!("{} by {}", cause.what, percent(cause.value))).collect();
            let text = format!("trash ways back to {}: {}", self.trash_text(), reasons.join(", "));
            log.push(Event { causes, ..event("trash-back", None, text) });
            return self.enter(State::Stable, Some(seen.to_ns));
        }
        self.shrink(base, seen.to_ns, log);
    }

    /// Removes one trash way, or enters Stable at the minimum.
    fn shrink(&mut self, base: TrashBase, now_ns: u64, log: &mut Vec<Event>) {
        if self.trash_ways <= self.trash_floor() {
            log.push(event("trash-settled", None, format!("trash ways settle at {}", self.trash_text())));
            return self.enter(State::Stable, Some(now_ns));
        }
        self.trash_ways -= 1;
        log.push(event("trash-shrink", None, format!("trash ways shrink to {}", self.trash_text())));
        self.enter(State::Trash(Some(base)), Some(now_ns));
    }

    /// The present values of what a [`TrashBase`] holds.
    fn trash_base(&self) -> TrashBase {
        let window = &self.window;
        let non_io_antagonists =
            self.workloads.members.iter().filter(|(_, member)| member.antagonist.is_some());
        let flagged = self.workloads.units.iter().enumerate().filter(|(_, unit)| unit.flagged);
        TrashBase {
            misses: non_io_antagonists.map(|(id, _)| (*id, self.misses(window, *id))).collect(),
            storage: flagged.filter_map(|(at, unit)| Some((at, window.inbound(&unit.ports)?))).collect(),
            network: window.inbound(&self.wiring.network_ports),
            memory: window.memory_bytes(),
        }
    }

    /// LLC and MLC miss ratio of a workload; `None` where unread or idle.
    pub(super) fn misses(&self, window: &Window, id: WorkloadId) -> Misses {
        let hit = hit_ratio(&self.config, window, id);
        Misses { llc: hit.map(|hit| 1.0 - hit), mlc: hit.and(window.mlc_miss(id)) }
    }

    /// Causes why the trash ways are too few; one-sided (algorithms.md 3.7, ours).
    fn is_unstable(&self, base: &TrashBase) -> Option<Vec<Cause>> {
        let now = self.trash_base();
        let config = &self.config;
        let mut causes = Vec::new();
        for (id, before) in &base.misses {
            let Some(after) = now.misses.get(id) else { continue };
            let name = self.workloads.name(*id);
            if let Some((before, after)) = before.llc.zip(after.llc) {
                let thr = ("bypass_llc_miss_thr", config.bypass_llc_miss_thr);
                causes.extend(rose(config, format!("LLC miss ratio of {name} rose"), before, after, thr));
            }
            if let Some((before, after)) = before.mlc.zip(after.mlc) {
                let thr = ("bypass_mlc_miss_thr", config.bypass_mlc_miss_thr);
                causes.extend(rose(config, format!("MLC miss ratio of {name} rose"), before, after, thr));
            }
        }
        for (at, before) in &base.storage {
            let Some(after) = now.storage.get(at) else { continue };
            let names = self.workloads.names(&self.workloads.units[*at].members);
            let thr = ("bypass_storage_thr", config.bypass_storage_thr);
            causes.extend(fell(config, format!("storage throughput of {names} fell"), *before, *after, thr));
        }
        if let (Some(before), Some(after)) = (base.network, now.network) {
            let thr = ("bypass_network_thr", config.bypass_network_thr);
            causes.extend(fell(config, "network throughput fell".to_owned(), before, after, thr));
        }
        if let (Some(before), Some(after)) = (base.memory, now.memory) {
            let thr = ("bypass_memory_thr", config.bypass_memory_thr);
            causes.extend(rose(config, "memory bandwidth rose".to_owned(), before, after, thr));
        }
        (!causes.is_empty()).then_some(causes)
    }

    /// Flags the non-I/O antagonists seen in the window: among HPWs just launched, or among all
    /// (algorithms.md 3.6). True if one of them was an HPW: then the HPW set has changed.
    fn flag_non_io_antagonists(&mut self, only_fresh_high: bool, log: &mut Vec<Event>) -> bool {
        let window = self.window.clone();
        let ids: Vec<WorkloadId> = self.workloads.members.keys().copied().collect();
        let mut high_flagged = false;
        for id in ids {
            let high = self.workloads.is_high(id);
            if only_fresh_high && !(high && self.workloads.members[&id].fresh) {
                continue;
            }
            if let Some(causes) = self.non_io_antagonist(&window, id) {
                high_flagged |= high;
                self.flag_non_io_antagonist(&window, id, causes, log);
            }
        }
        high_flagged
    }

    /// The causes to flag a workload as a non-I/O antagonist, if it is one and is not flagged yet.
    pub(super) fn non_io_antagonist(&self, window: &Window, id: WorkloadId) -> Option<Vec<Cause>> {
        let member = self.workloads.members.get(&id)?;
        let candidate = self.variant.has_bypass()
            && member.group.kind == WorkloadKind::NonIo
            && member.antagonist.is_none();
        if candidate { detect::misses_everything(&self.config, window, id) } else { None }
    }

    /// Makes a workload a non-I/O antagonist, with the causes that [`Self::non_io_antagonist`] found in the same window.
    pub(super) fn flag_non_io_antagonist(
        &mut self,
        window: &Window,
        id: WorkloadId,
        causes: Vec<Cause>,
        log: &mut Vec<Event>,
    ) {
        let (Some(llc), Some(mlc)) = (window.llc_miss(id), window.mlc_miss(id)) else { return };
        let Some(member) = self.workloads.members.get_mut(&id) else { return };
        member.antagonist = Some(Misses { llc: Some(llc), mlc: Some(mlc) });
        member.restore_streak = 0;
        let name = member.group.name.clone();
        let (mlc_thr, llc_thr) =
            (percent(self.config.ant_mlc_miss_thr), percent(self.config.ant_llc_miss_thr));
        let (mlc, llc) = (percent(mlc), percent(llc));
        let text = format!(
            "{name} is a non-I/O antagonist (MLC miss {mlc} > {mlc_thr}, LLC miss {llc} > {llc_thr})"
        );
        log.push(Event { causes, ..event("non-io-antagonist", Some(&name), text) });
    }

    /// Minimum of the trash ways.
    fn trash_floor(&self) -> u32 {
        let floor = (self.config.trash_min_ways as u32).max(self.min_ways());
        floor.min(self.lp_ways)
    }

    /// True if the LLC counters of every HPW were read; otherwise logs which are missing.
    fn high_are_read(&mut self, log: &mut Vec<Event>) -> bool {
        let unread: Vec<WorkloadId> =
            self.workloads.high().into_iter().filter(|id| !self.window.has_llc(*id)).collect();
        if !unread.is_empty() {
            self.wait_for(&unread, log);
        }
        unread.is_empty()
    }

    /// True if the counter of every antagonist was read (LLC or inbound bytes); otherwise logs which are missing.
    fn antagonists_are_read(&mut self, log: &mut Vec<Event>) -> bool {
        let non_io_antagonists =
            self.workloads.members.iter().filter(|(_, member)| member.antagonist.is_some());
        let mut unread: Vec<WorkloadId> =
            non_io_antagonists.map(|(id, _)| *id).filter(|id| !self.window.has_llc(*id)).collect();
        for unit in self.workloads.units.iter().filter(|unit| unit.flagged) {
            if self.window.inbound(&unit.ports).is_none() {
                unread.extend(&unit.members);
            }
        }
        if !unread.is_empty() {
            self.wait_for(&unread, log);
        }
        unread.is_empty()
    }

    /// `0x01c (3 ways)`.
    pub(super) fn lp_text(&self) -> String {
        self.zone_text(self.lp_ways)
    }

    fn trash_text(&self) -> String {
        self.zone_text(self.trash_ways)
    }

    fn zone_text(&self, ways: u32) -> String {
        let mask = self.zones.map_or(waykeeper_units::WayMask::EMPTY, |zones| zones.lp(ways));
        format!("{mask} ({ways} way{})", if ways == 1 { "" } else { "s" })
    }
}
